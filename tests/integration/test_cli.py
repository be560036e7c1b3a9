"""The command line from outside: data, jobs, replay, and errors as text and as JSON."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
from command_line import Advisor, Said
from reading import answer_of
from store_points import observation, pair_point, point

from advisor import __version__
from advisor.core.records import SoloPoint
from advisor.formats.rows import column_types
from advisor_data.bundled import bundled_solo_points
from advisor_data.files import read_points, write_points

POINTS = [
    point(number, share_percent=share, rate=share * 2, power_w=300.5, flags=flags)
    for number, (share, flags) in enumerate(
        [(100.0, ()), (10.0, ("throttled", "noisy-rate")), (50.0, ("throttled",))]
    )
]


PAIRS = [
    pair_point(number, job_1=job_a, job_2=job_b, rate_1=None, rate_2=None, flags=("failed",),
               error=f"{job_b}: no memory")
    for number, (job_a, job_b) in enumerate(
        [("gemm", "gemm"), ("gemm", "sort"), ("sort", "triad"), ("fft", "gemm")]
    )
]  # fmt: skip


REPLAY = ("triad", "--gpu", "replay")


def error_of(done: Said) -> dict[str, str]:
    """The error as a program gets it, after checks that hold for each."""
    answer = answer_of(done.out)
    assert (set(answer), set(answer["error"])) == ({"error"}, {"code", "message"})
    assert done.err.endswith(f"advisor: {answer['error']['message']}\n")
    assert "Traceback" not in done.err
    return answer["error"]


def test_version_and_help(advisor: Advisor) -> None:
    """The first two things that anybody tries; no command at all is a wish for help."""
    assert advisor("--version").out == f"advisor {__version__}\n"
    assert "recommend" in advisor().out


def test_what_goes_in_comes_out_unchanged(advisor: Advisor, tmp_path: Path) -> None:
    """Import takes all kinds by itself; export gives the kind, job and run that were asked for."""
    seen = [observation(1), observation(2, job_2="triad"), observation(3, job_1="fft")]
    write_points(tmp_path / "solo.csv", POINTS)
    write_points(tmp_path / "pairs.parquet", [*PAIRS, dataclasses.replace(PAIRS[0], run="r2")])
    write_points(tmp_path / "seen.jsonl", seen)
    files = ("solo.csv", "pairs.parquet", "seen.jsonl")
    taken = answer_of(advisor("data", "import", *files, "--json").out)
    assert "gemm on NVIDIA H200: idle_power_w is missing" in "\n".join(taken.pop("notes"))
    counts = {"solo": 3, "pairs": 5, "observations": 3}
    assert taken.pop("read") == taken.pop("new") == 11
    assert taken == {kind: {"read": n, "new": n} for kind, n in counts.items()}
    for kind, run, wanted in (
        ("solo", "r1", POINTS),
        ("pairs", "r1", [PAIRS[0], PAIRS[1], PAIRS[3]]),
        ("observations", seen[1].launch_id, [seen[1]]),
    ):
        back = tmp_path / f"{kind}.csv"
        out = advisor("data", "export", str(back), "--kind", kind, "--job", "gemm", "--run", run)
        assert out.out == f"{len(wanted)} points written to {back}\n"
        assert read_points(back) == wanted
    assert answer_of(advisor("data", "export", "all.jsonl", "--json").out) == {"written": 3}
    assert advisor("data", "import", "pairs.csv", "solo.csv").out == (
        "6 points read, 0 new "
        "(solo 3 read, 0 new; pairs 3 read, 0 new; observations 0 read, 0 new)\n"
    )


def test_jobs_lists_definitions_and_profiles(
    advisor: Advisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each job has one row per GPU model, with the keys that other programs read."""
    monkeypatch.setenv("ADVISOR_DATABASE_URL", f"sqlite:///{tmp_path / 'points.db'}")
    (tmp_path / "jobs").mkdir()
    for name in ("steady", "gemm"):
        (tmp_path / f"jobs/{name}.yaml").write_text("command: 'true'\n")
    write_points(tmp_path / "given.jsonl", POINTS)
    assert advisor("data", "import", "given.jsonl").code == 0
    gemm = {
        "job": "gemm", "gpu_model": "NVIDIA H200", "shares": [10, 50, 100], "points": 3,
        "measured_at": "2026-01-31T00:00:02Z", "flags": ["noisy-rate", "throttled"],
        "source": "stored", "launchable": True,
    }  # fmt: skip
    steady: dict[str, Any] = {
        **dict.fromkeys(gemm), "job": "steady", "shares": [], "points": 0, "flags": [],
        "launchable": True,
    }  # fmt: skip
    assert json.loads(advisor("jobs", "--json").out)["jobs"] == [gemm, steady]
    table = advisor("jobs").out.splitlines()
    assert [line.split()[0] for line in table] == ["job", "gemm", "steady"]
    assert "not measured" in table[2]


def test_a_home_that_may_only_be_read(
    advisor: Advisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who only reads makes no database there, which the folder would refuse."""
    home, may = tmp_path / "home", os.access
    home.mkdir(mode=0o700)

    def is_another(path: str | Path, mode: int) -> bool:
        return path != home and may(path, mode)

    monkeypatch.setattr(os, "access", is_another)
    assert advisor("jobs").code == advisor("recommend", "bert-serve-30", "triad").code == 0
    assert not list(home.iterdir())


@pytest.mark.parametrize("columns", ["0", "1", "5", "wide"])
def test_no_width_of_a_terminal_is_an_error(
    advisor: Advisor, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for words in ("replicas triad", "recommend triad*3", "top --once"):
        assert advisor(*words.split()).code == 0


def test_a_name_that_is_no_text_is_no_job(advisor: Advisor) -> None:
    """As Python has bytes of a command line that are not UTF-8; the database is there."""
    assert advisor("data", "export", "none.jsonl").code == 0
    done = advisor("recommend", "tri\udce4d", "triad")
    assert (done.code, "there is no job" in done.err) == (2, True)


def test_replay_as_json(advisor: Advisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay works anywhere, is marked as one, and leaves nothing; the keys are promised."""
    monkeypatch.setenv("COLUMNS", "200")
    done = advisor("profile", "triad", "--gpu", "replay", "--json")
    assert done.code == 0, done.err
    assert done.err.startswith("REPLAY of recorded points of NVIDIA H200: no GPU is used")
    answer: dict[str, Any] = answer_of(done.out)
    assert set(answer) == {
        "job", "gpu_model", "gpu_uuid", "replay", "run", "points", "failures",
        "idle_power_before_w", "idle_power_after_w", "duration_s", "problems",
    }  # fmt: skip
    assert (answer["job"], answer["replay"], answer["failures"]) == ("triad", True, [])
    assert [set(row) for row in answer["points"]] == [set(column_types(SoloPoint))] * 10
    recorded = sorted(bundled_solo_points(), key=lambda p: p.started_at)
    newest = {p.share_percent: p for p in recorded if p.job == "triad" and "H200" in p.gpu_model}
    assert [row["share_percent"] for row in answer["points"]] == sorted(newest)
    noisy = advisor("profile", "triad", "--gpu", "replay", "--json", "--noise")
    assert "come back with noise" in noisy.err
    for row, other in zip(answer["points"], json.loads(noisy.out)["points"], strict=True):
        point = newest[row["share_percent"]]
        assert row["rate"] == pytest.approx(point.rate, rel=1e-9)
        assert row["rate"] != other["rate"] == pytest.approx(point.rate, rel=0.05)
        assert row["power_w"] == pytest.approx(point.power_w, rel=0.01)
        assert (row["units_granted"], row["source"]) == (point.units_granted, "replay")
    assert not (tmp_path / "home").exists()


def test_replay_for_a_person(advisor: Advisor) -> None:
    """Exact counts are found by the share that grants them; table and plot say replay."""
    done = advisor("profile", "triad", "--gpu", "replay", "--units", "12,132")
    assert done.code == 0, done.err
    assert done.out.startswith("triad on NVIDIA H200")
    assert "replay" in done.out.splitlines()[0]
    assert all(part in done.out for part in ("share of the GPU, %", "2 points"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("nosuch", "--gpu", "replay"), "no recorded job nosuch. recorded are: albert-infer,"),
        ((*REPLAY, "--shares", "15"), "no recorded point of triad at 15 %. recorded are: 10 %, 20"),
        (("triad", "--noise"), "--noise is for a replay"),
        ((*REPLAY, "--units", "12.5"), "--units 12.5 is not a list of whole numbers"),
        ((*REPLAY, "--shares", "10,x"), "--shares 10,x is not a list of numbers"),
        ((*REPLAY, "--shares", "10", "--units", "12"), "--shares and --units were both given"),
        ((*REPLAY, "--shares", "0"), "a share of 0.0 % is not possible"),
        ((*REPLAY, "more"), "one job was expected, not triad more"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(
    advisor: Advisor, options: tuple[str, ...], message: str
) -> None:
    done = advisor("profile", *options)
    assert (done.code, message in done.err) == (2, True), done.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("a", "b", "--split", "half"), "'half' is not a split"),
        (("a", "b", "--split", "50/50/50"), "50/50/50 has 3 shares, and there are 2 jobs"),
        (("a", "c"), "there is no job c"),
        (("a",), "1 job cannot be launched together"),
    ],
)
def test_a_launch_looks_at_its_arguments_before_the_gpu(
    advisor: Advisor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    message: str,
) -> None:
    """On a host without any."""
    for name in "ab":
        (tmp_path / f"{name}.yaml").write_text("command: [sleep, '1']")
    monkeypatch.setenv("ADVISOR_JOBS", str(tmp_path))
    done = advisor("launch", *options)
    assert (done.code, message in done.err) == (2, True), done.err


def test_each_kind_of_error_has_its_code(advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts tell errors apart by the exit code, programs by the name."""
    monkeypatch.setenv("ADVISOR_DATABASE_URL", "sqlite:////dev/null/x.db")
    done = advisor("jobs", "--json")
    assert (error_of(done)["code"], done.code) == ("store", 7)
