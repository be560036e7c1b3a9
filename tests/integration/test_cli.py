"""The command line from outside: data, jobs, replay, and errors as text and as JSON."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line import Advisor, Said, in_this_process
from host import FakeHost
from store_points import observation, pair_point, point
from typer.testing import CliRunner

import advisor
from advisor.core.records import SoloPoint
from advisor.errors import InputError
from advisor.formats.rows import column_types
from advisor_cli.app import app
from advisor_data.files.bundled import bundled_solo_points
from advisor_data.files.files import read_points, write_points

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


@pytest.fixture
def here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Advisor:
    """The command line in this process, in a folder of its own."""
    monkeypatch.setenv("COLUMNS", "200")
    return in_this_process(capsys, monkeypatch, tmp_path)


def error_of(done: Said) -> dict[str, str]:
    """The error as a program gets it, after checks that hold for each."""
    answer = json.loads(done.out)
    assert set(answer) == {"error"}
    assert set(answer["error"]) == {"code", "message"}
    assert done.err.endswith(f"advisor: {answer['error']['message']}\n")
    assert "Traceback" not in done.err
    return answer["error"]


def stored(folder: Path) -> list[str]:
    """Everything under the user's own folder."""
    home = folder / "home"
    return [path.name for path in home.rglob("*")] if home.exists() else []


def test_help_and_version(host: FakeHost) -> None:
    """The first two things that anybody tries."""
    shown = host.advisor("--help")
    assert shown.returncode == 0
    assert all(name in shown.stdout for name in ("profile", "doctor", "jobs", "data"))
    assert host.advisor("--version").stdout == f"advisor {advisor.__version__}\n"


def test_points_go_in_and_out_unchanged(here: Advisor, tmp_path: Path) -> None:
    """What was measured elsewhere is the same after import, export and another import."""
    given, back = tmp_path / "given.csv", tmp_path / "back.parquet"
    write_points(given, POINTS)
    first = here("data", "import", str(given), "--json")
    nothing = {"read": 0, "new": 0}
    counts = {"solo": {"read": 3, "new": 3}, "pairs": nothing, "observations": nothing}
    _check_taken_in(first, {"read": 3, "new": 3, **counts})
    out = here("data", "export", str(back), "--job", "gemm")
    assert (out.code, out.out) == (0, f"3 points written to {back}\n")
    assert read_points(back) == POINTS
    again = here("data", "import", str(back), str(given))
    assert again.out == (
        "6 points read, 0 new "
        "(solo 6 read, 0 new; pairs 0 read, 0 new; observations 0 read, 0 new)\n"
    )


def _check_taken_in(done: Said, counts: dict[str, Any]) -> None:
    """How many points came, and what the profile of the only job lacks."""
    answer = json.loads(done.out)
    assert done.code == 0
    assert "gemm on NVIDIA H200: idle_power_w is missing" in "\n".join(answer.pop("notes"))
    assert answer == counts


def test_pairs_go_in_and_out_unchanged(here: Advisor, tmp_path: Path) -> None:
    """Import takes both kinds by itself; export gives the kind, job and run that were asked for."""
    solo, pairs = tmp_path / "solo.parquet", tmp_path / "pairs.csv"
    write_points(solo, POINTS)
    write_points(pairs, [*PAIRS, dataclasses.replace(PAIRS[0], run="r2")])
    first = here("data", "import", str(pairs), str(solo), "--json")
    counts = {
        "solo": {"read": 3, "new": 3},
        "pairs": {"read": 5, "new": 5},
        "observations": {"read": 0, "new": 0},
    }
    _check_taken_in(first, {"read": 8, "new": 8, **counts})
    back = tmp_path / "back.jsonl"
    chosen = ("--kind", "pairs", "--job", "gemm", "--run", "r1")
    out = here("data", "export", str(back), *chosen, "--json")
    assert (out.code, json.loads(out.out)) == (0, {"written": 3})
    assert read_points(back) == [PAIRS[0], PAIRS[1], PAIRS[3]]
    again = here("data", "import", str(back), str(solo))
    assert again.out == (
        "6 points read, 0 new "
        "(solo 3 read, 0 new; pairs 3 read, 0 new; observations 0 read, 0 new)\n"
    )
    assert here("data", "export", str(back)).out == f"3 points written to {back}\n"
    assert read_points(back) == POINTS


def test_observations_go_in_and_out_unchanged(tmp_path: Path) -> None:
    """The file that a launch leaves is brought in; export chooses by job and launch."""
    seen = [observation(1), observation(2, job_2="triad"), observation(3, job_1="fft")]
    given, back = tmp_path / "observations.jsonl", tmp_path / "back.csv"
    write_points(given, seen)

    def data(*arguments: str) -> str:
        home = {"ADVISOR_HOME": str(tmp_path / "home"), "ADVISOR_DATABASE_URL": ""}
        return CliRunner().invoke(app, ["data", *arguments], env=home).stdout

    brought = json.loads(data("import", str(given), "--json"))
    assert brought["observations"] == {"read": 3, "new": 3}
    chosen = ("--kind", "observations", "--job", "gemm", "--run", seen[1].launch_id)
    assert data("export", str(back), *chosen) == f"1 points written to {back}\n"
    assert read_points(back) == [seen[1]]
    data("export", str(back), "--kind", "observations")
    assert read_points(back) == seen


def test_bad_row_stores_nothing(here: Advisor, tmp_path: Path) -> None:
    """Half an import would be hard to undo; the row and the value are named."""
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    write_points(good, POINTS)
    write_points(bad, [dataclasses.replace(p, run="r2") for p in POINTS])
    lines = bad.read_text().splitlines()
    bad.write_text("\n".join([*lines[:2], lines[2].replace("10.0", "-10.0", 1), lines[3]]) + "\n")
    done = here("data", "import", str(good), str(bad), "--json")
    assert done.code == 2
    failure = error_of(done)
    assert failure["code"] == "bad-input"
    assert "bad.csv" in failure["message"]
    assert "share_percent is -10" in failure["message"]
    assert any(where in failure["message"] for where in ("line 3", "row 2")), failure["message"]
    assert stored(tmp_path) == []


def test_jobs_lists_definitions_and_profiles(host: FakeHost) -> None:
    """Each job has one row per GPU model, with the keys that other programs read."""
    host.write_job("steady")
    host.write_job("gemm")
    file = host.folder / "given.jsonl"
    write_points(file, POINTS)
    url = {"ADVISOR_DATABASE_URL": f"files:{host.folder / 'points'}"}
    assert host.advisor("data", "import", str(file), **url).returncode == 0
    done = host.advisor("jobs", "--json", **url)
    assert json.loads(done.stdout)["jobs"] == [
        {
            "job": "gemm",
            "gpu_model": "NVIDIA H200",
            "shares": [10, 50, 100],
            "points": 3,
            "measured_at": "2026-01-31T00:00:02Z",
            "flags": ["noisy-rate", "throttled"],
            "source": "stored",
            "launchable": True,
        },
        {
            "job": "steady",
            "gpu_model": None,
            "shares": [],
            "points": 0,
            "measured_at": None,
            "flags": [],
            "source": None,
            "launchable": True,
        },
    ]
    table = host.advisor("jobs", **url).stdout.splitlines()
    assert [line.split()[0] for line in table] == ["job", "gemm", "steady"]
    assert "not measured" in table[2]


def newest(job: str) -> dict[float, SoloPoint]:
    """The bundled points of a job by share, of its newest run."""
    points = sorted(bundled_solo_points(), key=lambda p: p.started_at)
    of_job = (p for p in points if p.job == job and p.gpu_model == "NVIDIA H200")
    return {p.share_percent: p for p in of_job}


def test_replay_as_json(host: FakeHost) -> None:
    """A replay works anywhere, is marked as one, and leaves nothing; the keys are promised."""
    shutil.rmtree(host.folder / "home")
    done = host.advisor("profile", "triad", "--gpu", "replay", "--json", FAKE_NVML_DIR="/nowhere")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("REPLAY of recorded points of NVIDIA H200: no GPU is used")
    answer: dict[str, Any] = json.loads(done.stdout)
    assert set(answer) == {
        "job", "gpu_model", "gpu_uuid", "replay", "run", "points", "failures",
        "idle_power_before_w", "idle_power_after_w", "duration_s", "problems",
    }  # fmt: skip
    assert (answer["job"], answer["replay"], answer["failures"]) == ("triad", True, [])
    assert [set(row) for row in answer["points"]] == [set(column_types(SoloPoint))] * 10
    recorded = newest("triad")
    assert [row["share_percent"] for row in answer["points"]] == sorted(recorded)
    for row in answer["points"]:
        point = recorded[row["share_percent"]]
        assert row["rate"] == pytest.approx(point.rate, rel=0.01)
        assert row["power_w"] == pytest.approx(point.power_w, rel=0.01)
        assert row["units_granted"] == point.units_granted
        assert row["source"] == "replay"
    assert stored(host.folder) == []


def test_replay_for_a_person(here: Advisor, tmp_path: Path) -> None:
    """Exact counts are found by the share that grants them; table and plot say replay."""
    done = here("profile", "triad", "--gpu", "replay", "--units", "12,132")
    assert done.code == 0, done.err
    assert done.out.startswith("triad on NVIDIA H200")
    assert "replay" in done.out.splitlines()[0]
    assert "share of the GPU, %" in done.out
    assert "2 points" in done.out
    assert stored(tmp_path) == []


def test_replay_with_noise(here: Advisor) -> None:
    """The rates differ from the means by more than rounding, and it is said."""
    command = ("profile", "triad", "--gpu", "replay", "--json")
    done = [here(*command, *noise) for noise in (["--noise"], [])]
    assert ["come back with noise" in d.err for d in done] == [True, False]
    recorded = newest("triad")
    noisy, plain = (
        max(
            abs(point["rate"] / recorded[point["share_percent"]].rate - 1)
            for point in json.loads(d.out)["points"]
        )
        for d in done
    )
    assert plain < 1e-9 < 1e-5 < noisy
    live = here("profile", "triad", "--noise", "--json")
    assert "--noise is for a replay" in error_of(live)["message"]


def test_replay_of_what_was_not_recorded(here: Advisor) -> None:
    """Nothing is made up: the message lists what there is."""
    job = here("profile", "nosuch", "--gpu", "replay", "--json")
    assert job.code == 2
    assert "no recorded job nosuch. recorded are: albert-train," in error_of(job)["message"]
    share = here("profile", "triad", "--gpu", "replay", "--shares", "15", "--json")
    assert share.code == 2
    assert error_of(share) == {
        "code": "bad-input",
        "message": "no recorded point of triad at 15 %. recorded are: "
        + ", ".join(f"{s:g} %" for s in sorted(newest("triad")))
        + ".",
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--units", "12.5"), "--units 12.5 is not a list of whole numbers"),
        (("--shares", "10,x"), "--shares 10,x is not a list of numbers"),
        (("--shares", "10", "--units", "12"), "--shares and --units were both given"),
        (("--shares", "0"), "a share of 0.0 % is not possible"),
        (("more",), "one job was expected, not triad more"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: tuple[str, ...], message: str) -> None:
    """Nothing is rounded, dropped or guessed."""
    done = CliRunner().invoke(app, ["profile", "triad", "--gpu", "replay", *options])
    assert isinstance(done.exception, InputError)
    assert message in str(done.exception)


def test_each_kind_of_error_has_its_code(here: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts tell errors apart by the exit code, programs by the name."""
    monkeypatch.setenv("ADVISOR_DATABASE_URL", "sqlite:////dev/null/x.db")
    done = here("jobs", "--json")
    assert (error_of(done)["code"], done.code) == ("store", 7)


def test_export_to_an_unknown_format(tmp_path: Path) -> None:
    """The formats are named, and nothing is written."""
    home = {"ADVISOR_HOME": str(tmp_path / "home")}
    file = tmp_path / "out.xlsx"
    done = CliRunner().invoke(app, ["data", "export", str(file)], env=home)
    assert isinstance(done.exception, InputError)
    assert "parquet" in str(done.exception).lower()
    assert not file.exists()
