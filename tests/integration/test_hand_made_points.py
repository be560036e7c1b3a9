"""Points that people write by hand: they work, or the import says at once what is missing."""

import contextlib
import dataclasses
import io
import json
from pathlib import Path
from typing import Any, TypeVar

import pytest
from command_line import Advisor, refusal
from reading import answer_of
from typer.testing import CliRunner

from advisor.core.records import DEGENERATE, UNREAD, PairPoint, SoloPoint
from advisor_cli.app import app
from advisor_data import open_store, schema_page
from advisor_data.bundled import bundled_pair_points, bundled_solo_points
from advisor_data.files import read_points, write_points
from advisor_training.rows import read_measured

HEAD = "job,gpu_model,gpu_uuid,share_percent,rate,rate_unit,power_w,window_s,started_at,run"
LINE = "{job},NVIDIA H200,GPU-1,{share},{rate},{unit},{power},5,2026-01-31T12:00:{at:02}Z,r"


def write(path: Path, *rows: dict[str, Any]) -> str:
    """A CSV of one job at these shares, with the needed columns and power."""
    usual = {"job": "mine", "unit": "images", "rate": 100}
    lines = [LINE.format(**{**usual, "at": at, **row}) for at, row in enumerate(rows)]
    path.write_text("\n".join([HEAD, *lines]) + "\n")
    return str(path)


def profile(job: str = "mine") -> tuple[dict[str, Any], ...]:
    return (
        {"job": job, "share": 10, "rate": 20, "power": 200},
        {"job": job, "share": 50, "rate": 70, "power": 400},
        {"job": job, "share": 100, "rate": 100, "power": 600},
    )


def test_the_examples_of_the_docs_work_as_printed(advisor: Advisor, tmp_path: Path) -> None:
    """Both are taken in without a complaint, and the command below them answers."""
    (tmp_path / "points.csv").write_text(schema_page.SOLO_CSV)
    (tmp_path / "pairs.csv").write_text(schema_page.PAIRS_CSV)
    done = advisor("data", "import", "points.csv", "pairs.csv", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["new"], found["notes"]) == (5, [])
    assert "advisor recommend my-train triad" in schema_page.page()
    assert advisor("recommend", "my-train", "triad").code == 0


def test_what_is_missing_is_said_at_once(advisor: Advisor, tmp_path: Path) -> None:
    """By column, with what stands in for it; the profile works all the same."""
    write(tmp_path / "p.csv", *profile())
    done = advisor("data", "import", "p.csv")
    for column in ("idle_power_w", "power_limit_w", "memory_used_mib"):
        assert f"! mine on NVIDIA H200: {column} is missing; " in done.out
    for other in ("triad", "mine"):
        done = advisor("recommend", "mine", other, "--json")
        assert done.code == 0, done.err
        said = " ".join(json.loads(done.out)["warnings"])
        assert "idle_power_w is missing in the profile of mine" in said
        assert "nan" not in done.out.lower()
    done = advisor("place", "mine:2", "triad", "--gpus", "2", "--json")
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (({"share": 50, "power": 1}, {"share": 100, "power": ""}), "at 100 % power_w is missing"),
        (({"share": 50, "power": 1}, {"share": 100, "power": 0}), "at 100 % power_w is 0"),
        (
            ({"share": 50, "power": 1}, {"share": 100, "power": 1, "rate": 0}),
            "at 100 % rate is 0",
        ),
        (({"share": 50, "power": 1},), "there is no point at 100 %"),
        (({"share": 100, "power": 1},), "only the one at 100 % can be used"),
    ],
)
def test_points_that_make_no_profile(
    advisor: Advisor, tmp_path: Path, rows: tuple[dict[str, Any], ...], why: str
) -> None:
    """The import and anyone who wants the profile say why, by share and column."""
    write(tmp_path / "p.csv", *rows)
    assert f"no profile yet: {why}" in " ".join(advisor("data", "import", "p.csv").out.split())
    done = advisor("recommend", "mine", "triad")
    assert done.code == 2
    assert all(part in done.err for part in ("mine has no profile", why))


def test_points_without_a_profile_hide_no_bundled_one(advisor: Advisor, tmp_path: Path) -> None:
    """The one of the docs did: it had no power at 100 %."""
    rows = ({"job": "triad", "share": 50, "power": 1}, {"job": "triad", "share": 100, "power": ""})
    write(tmp_path / "p.csv", *({**row, "unit": "passes"} for row in rows))
    advisor("data", "import", "p.csv")
    assert advisor("recommend", "gemm", "triad").code == 0


def test_a_job_that_was_profiled_again_is_what_it_is_now(advisor: Advisor, tmp_path: Path) -> None:
    """Answers are those of its new points alone, and say so; the old ones stay in the data."""
    old, new = (
        [dataclasses.replace(p, job="mine", started_at=f"2026-0{month}{p.started_at[7:]}")
         for p in bundled_solo_points([name]) if p.gpu_model == "NVIDIA H200"]
        for month, name in enumerate(("bert-infer", "bert-infer-b2"), 1)
    )  # fmt: skip
    answers = list[dict[str, Any]]()
    for file, of in (("new.csv", new), ("old.csv", old)):
        write_points(tmp_path / file, of)
        assert advisor("data", "import", file).code == 0
        answers.append(json.loads(advisor("recommend", "mine", "triad", "--json").out))
    assert answers[0]["jobs"] == answers[1]["jobs"]
    (said,) = {*answers[1]["warnings"]} - {*answers[0]["warnings"]}
    assert said == (
        "mine was profiled again, on 2026-02-21, after its job file changed: older points "
        "are not used"
    )
    (row,) = json.loads(advisor("jobs", "--json").out)["jobs"]
    assert (row["points"], "job-changed" in row["flags"]) == (len(new), True)


def test_profile_on_another_gpu_model(advisor: Advisor, tmp_path: Path) -> None:
    """The bundled one stays for its own model, and goes next to a bundled job."""
    triad = [p for p in bundled_solo_points() if p.job == "triad"]
    elsewhere = [dataclasses.replace(p, gpu_model="Other GPU") for p in triad]
    write_points(tmp_path / "p.parquet", elsewhere)
    assert json.loads(advisor("data", "import", "p.parquet", "--json").out)["notes"] == []
    done = advisor("recommend", "gemm", "triad", "--json")
    assert json.loads(done.out)["gpu_model"] == "NVIDIA H200"
    done = advisor("recommend", "triad", "triad", "--json")
    assert json.loads(done.out)["gpu_model"] == "Other GPU"


def test_a_second_unit_beside_stored_points_is_refused(advisor: Advisor, tmp_path: Path) -> None:
    """Medians over both would be of nothing."""
    write(tmp_path / "p.csv", *profile())
    advisor("data", "import", "p.csv")
    rows = ({**row, "unit": "steps", "at": at} for at, row in enumerate(profile(), 30))
    write(tmp_path / "q.csv", *rows)
    assert "advisor data delete --job mine" in refusal(advisor("data", "import", "q.csv"))


def test_points_are_deleted_from_the_command_line(advisor: Advisor, tmp_path: Path) -> None:
    """With a question or --yes; the bundled profile is back afterwards."""
    write(tmp_path / "p.csv", *profile("triad"), *profile())
    (tmp_path / "pairs.csv").write_text(schema_page.PAIRS_CSV)
    advisor("data", "import", "pairs.csv", "p.csv")
    done = advisor("data", "delete", "--job", "triad", "--kind", "pairs", "--yes")
    assert done.out == "2 points of gemm + triad on NVIDIA H200 deleted\n"
    done = advisor("data", "delete", "--job", "triad", "--gpu-model", "NVIDIA H100", "--yes")
    assert (done.code, done.out) == (0, "no such points are stored\n")
    done = advisor("data", "delete", "--job", "triad", "--run", "r", "--yes", "--json")
    assert answer_of(done.out) == {"deleted": 3, "kind": "solo"}
    said = json.loads(advisor("recommend", "gemm", "triad", "--json").out)["warnings"]
    assert any(text.endswith("depends: gemm and triad") for text in said)
    done = advisor("data", "delete", "--job", "mine", "--yes")
    assert done.out == "3 points of mine on NVIDIA H200 deleted\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give --job, --gpu-model, --run or --written-by"),
        (("--job", "mine", "--json"), "give --yes, too"),
    ],
)
def test_nothing_is_deleted_by_accident(
    advisor: Advisor, words: tuple[str, ...], said: str
) -> None:
    assert said in refusal(advisor("data", "delete", *words))


def test_a_no_keeps_the_points(
    advisor: Advisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does an end of input."""
    write(tmp_path / "p.csv", *profile())
    advisor("data", "import", "p.csv")
    for answer in ("n\n", ""):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        done = advisor("data", "delete", "--job", "mine")
        assert done.code == 1
        assert "delete 3 points of mine on NVIDIA H200?" in done.out + done.err
    with open_store(None, tmp_path / "home") as store:
        assert len(store.solo_points()) == 3


# Points whose power betrays wrong results, through the commands that show, keep and learn.


P = TypeVar("P", bound=SoloPoint | PairPoint)


PAIR = ("gemm", "vit-train")


BAD_SHARES = {20, 30, 40, 60, 70, 80}


"""Of vit-train."""


def unflagged(points: list[P]) -> list[P]:
    return [
        dataclasses.replace(p, flags=tuple(f for f in p.flags if f not in (DEGENERATE, UNREAD)))
        for p in points
    ]


@pytest.fixture
def solos() -> list[SoloPoint]:
    return unflagged([p for p in bundled_solo_points() if p.job in PAIR])


@pytest.fixture
def pairs() -> list[PairPoint]:
    return unflagged([p for p in bundled_pair_points() if p.jobs == PAIR])


def advisor(folder: Path, *arguments: str) -> str:
    home = {"ADVISOR_HOME": str(folder / "home"), "ADVISOR_DATABASE_URL": None, "COLUMNS": "80"}
    with contextlib.chdir(folder):
        done = CliRunner().invoke(app, arguments, env=home)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.slow
def test_a_campaign_chooses_no_bad_split(tmp_path: Path) -> None:
    """Such as 20/80, at which vit-train computes NaN."""
    command = ("colocate", "--pairs", "+".join(PAIR), "--gpu", "replay")
    points = json.loads(advisor(tmp_path, *command, "--json"))["points"]
    assert {p["jobs"][1]["share_percent"] for p in points if DEGENERATE in p["flags"]} == BAD_SHARES
    shown = advisor(tmp_path, *command)
    (line,) = (line for line in shown.splitlines() if line.startswith(" + ".join(PAIR)))
    assert not any(f" {100 - share:g}/{share:g} " in line for share in BAD_SHARES)
    assert "6 degenerate-data" in shown


def test_points_of_an_earlier_version_are_flagged_on_their_way_in_and_out(
    tmp_path: Path, solos: list[SoloPoint], pairs: list[PairPoint]
) -> None:
    """With the solo points in the same import, before it, or after it."""
    write_points(tmp_path / "solos.jsonl", solos)
    write_points(tmp_path / "pairs.jsonl", pairs)
    advisor(tmp_path, "data", "import", "pairs.jsonl")
    advisor(tmp_path, "data", "import", "solos.jsonl")
    advisor(tmp_path, "data", "export", "out.jsonl")
    advisor(tmp_path, "data", "export", "pairs-out.jsonl", "--kind", "pairs")
    out = [p for p in read_points(tmp_path / "out.jsonl") if isinstance(p, SoloPoint)]
    bad = {p.share_percent for p in out if DEGENERATE in p.flags and p.job == PAIR[1]}
    assert bad == BAD_SHARES
    both = [p for p in read_points(tmp_path / "pairs-out.jsonl") if isinstance(p, PairPoint)]
    assert {p.shares_percent[1] for p in both if DEGENERATE in p.flags} == BAD_SHARES
    listed = json.loads(advisor(tmp_path, "jobs", "--json"))["jobs"]
    (row,) = (r for r in listed if r["job"] == PAIR[1])
    assert DEGENERATE in row["flags"]


def test_what_is_learned_has_none_of_them(
    tmp_path: Path, solos: list[SoloPoint], pairs: list[PairPoint]
) -> None:
    write_points(tmp_path / "solos.parquet", solos)
    write_points(tmp_path / "pairs.parquet", pairs)
    measured = read_measured(tmp_path / "pairs.parquet", tmp_path / "solos.parquet")
    assert {p.shares_percent[1] for p in measured.pairs} == {10, 50, 90, 100}
    assert {p.share_percent for p in measured.profiled if p.job == PAIR[1]} == {
        10, 50, 90, 100,
    }  # fmt: skip
    assert [(item.reason, item.points) for item in measured.left_out] == [
        (f"pair points flagged {DEGENERATE}", 6)
    ]
