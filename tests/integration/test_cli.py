"""The command line from outside: data, jobs, replay, and errors as text and as JSON."""

import dataclasses
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from command_line import Advisor, Said, refusal
from other_user import mallory_does, shared_folder
from reading import answer_of
from store_points import observation, pair_point, point

from advisor import __version__
from advisor.core.records import SoloPoint
from advisor.errors import UnsafeFileError
from advisor.formats.rows import column_types
from advisor.settings import KEYS, read_settings
from advisor_data.bundled import bundled_solo_points
from advisor_data.files import read_points, write_points
from advisor_data.state import ServiceState

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


def test_a_replay_has_all_shares_that_were_recorded(advisor: Advisor) -> None:
    """Not each job has the default ones."""
    done = advisor("profile", "recommender-serve-60", "--gpu", "replay", "--json")
    shares = [point["share_percent"] for point in answer_of(done.out)["points"]]
    assert shares == [10, 23, 26, 47, 50, 90, 100]


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
        (
            (*REPLAY, "--shares", "15"),
            "triad alone was not recorded at 15 %. leave out the shares: all recorded ones",
        ),
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


# `advisor config`: what holds and why, and a file that only its user may have written.


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "config/advisor").mkdir(parents=True)
    return tmp_path / "config/advisor/config.toml"


def test_environment_goes_before_the_file_and_that_before_the_default(
    advisor: Advisor, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option goes before all three; programs read the same keys."""
    file.write_text(
        'min_speed = 0.99\nchance = 0.8\nkwh = 0.15\nkeep_audit_days = 0\njobs = "/else"\n'
    )
    monkeypatch.setenv("ADVISOR_KWH", "0.25")
    monkeypatch.setenv("ADVISOR_JOBS", "")
    answer = json.loads(advisor("config", "--json").out)
    assert answer["file"] == str(file)
    rows = {row.pop("name"): row for row in answer["settings"]}
    assert list(rows) == list(KEYS)
    assert {name: list(row.values()) for name, row in rows.items()}.items() > {
        "objective": ["cost", "default", "ADVISOR_OBJECTIVE"],
        "min_speed": [0.99, "file", "ADVISOR_MIN_SPEED"],
        "chance": [0.8, "file", "ADVISOR_CHANCE"],
        "kwh": [0.25, "environment", "ADVISOR_KWH"],
        "host_w": [0.0, "default", "ADVISOR_HOST_W"],
        "jobs": ["/else", "file", "ADVISOR_JOBS"],
    }.items()
    assert set(rows["home"]) == {"value", "set_by", "variable"}
    assert rows["keep_audit_days"]["value"] is None
    end = f"environment: ADVISOR_ and the name in capitals\nfile, read: {file}\n"
    assert advisor("config").out.endswith(end)
    asked = ("recommend", "bert-serve-30", "triad")
    assert advisor(*asked).out.startswith("DO NOT SHARE")
    assert advisor(*asked, "--min-speed", "0").out.startswith("SHARE")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("min-speed = 0.5", "has no setting min-speed. write min_speed."),
        ("colour = 1", "has no setting colour. write home, runtime_dir,"),
        ("min_speed = 7", "config.toml is 7. give a number from 0 to 1."),
        ('objective = "max"', "config.toml is max. did you mean max-min? Else give one of"),
        ("kwh = true", "config.toml is True. write a number, or a text in quotes."),
        ("[kwh]", "config.toml is {}. write a number"),
        ("kwh = x", "config.toml cannot be read. Invalid value (at line 1, column 7)."),
        ("\xff", "config.toml cannot be read."),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(
    advisor: Advisor, file: Path, text: str, said: str
) -> None:
    file.write_text(text, encoding="latin-1")
    for words in (("config",), ("jobs",)):
        done = advisor(*words)
        assert done.code == 2
        assert said in done.err


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("kwh = 1", 0o666, "others may write to it"),
        ('database_url = "sqlite:///x"', 0o644, "others may read its database_url"),
        ('database_url = "sqlite:///x"', 0o600, ""),
        ("kwh = 1", 0o644, ""),
    ],
)
def test_a_file_that_others_may_have_written_is_refused(
    file: Path, text: str, mode: int, said: str
) -> None:
    """It decides what runs, and a password in it is for nobody else."""
    file.write_text(text)
    file.chmod(mode)
    where = {"XDG_CONFIG_HOME": str(file.parents[1])}
    if not said:
        read_settings(where)
        return
    with pytest.raises(UnsafeFileError, match=said):
        read_settings(where)


def test_the_file_of_another_user_is_refused() -> None:
    with shared_folder() as shared:
        mallory_does("mkdir", "-p", shared / ".config/advisor")
        mallory_does("cp", os.devnull, shared / ".config/advisor/config.toml")
        with pytest.raises(UnsafeFileError, match="belongs to user"):
            read_settings({"HOME": str(shared)})


# `advisor tokens` from outside.


@pytest.fixture
def tokens(advisor: Advisor) -> Callable[..., str]:
    """Runs `advisor tokens` with these words; what it says on stdout, or on stderr if it fails."""

    def call(*words: str) -> str:
        done = advisor("tokens", *words)
        return done.err if done.code else done.out

    return call


def test_a_secret_is_printed_once_alone_on_stdout(
    tokens: Callable[..., str], tmp_path: Path
) -> None:
    """`SECRET=$(advisor tokens create ..)` works, and no other command shows it again."""
    secret = tokens("create", "ci", "--scope", "launch", "--scope", "read").strip()
    shown = tokens("list") + tokens("list", "--json")
    assert ("ci" in shown, secret.removeprefix("adv_") in shown) == (True, False)
    with ServiceState(None, tmp_path / "home") as state:
        token, (entry,) = state.find_tokens([secret])[secret], state.audit_log()
    assert (token.name, token.scopes, token.expires_at) == ("ci", ("read", "launch"), None)
    assert (entry.action, entry.subject, entry.outcome) == ("token.create", "ci", "ok")
    assert (entry.who.startswith("user id "), secret in str(entry)) == (True, False)


def test_json_has_the_keys_that_programs_read(tokens: Callable[..., str], tmp_path: Path) -> None:
    """The same keys in both commands; only `create` has the secret."""
    assert answer_of(tokens("list", "--json")) == {"tokens": []}
    assert "advisor tokens create" in tokens("list")
    made = answer_of(tokens("create", "ci", "--scope", "read", "--days", "90", "--json"))
    secret = made.pop("secret")
    assert list(made) == ["name", "scopes", "created_at", "expires_at", "revoked_at", "state"]
    assert answer_of(tokens("list", "--json")) == {"tokens": [made]}
    end = datetime.fromisoformat(made["expires_at"])
    assert abs(end - datetime.now(UTC) - timedelta(days=90)) < timedelta(minutes=2)
    assert answer_of(tokens("revoke", "ci", "--json")) == {"revoked": "ci"}
    (listed,) = answer_of(tokens("list", "--json"))["tokens"]
    assert listed["state"] == "revoked"
    with ServiceState(None, tmp_path / "home") as state:
        assert state.find_tokens([secret]).get(secret) is None
        assert state.audit_log()[0].action == "token.revoke"


def test_mistakes_have_their_remedy(tokens: Callable[..., str]) -> None:
    """A name that is taken, a scope that is none, a token that is not there."""
    tokens("create", "ci", "--scope", "read")
    assert "advisor tokens revoke ci" in tokens("create", "ci", "--scope", "read")
    assert "read, write, launch, admin" in tokens("create", "other", "--scope", "everything")
    assert "advisor tokens list" in tokens("revoke", "nobody")


def test_a_token_comes_back_with_a_copy(
    advisor: Advisor, tokens: Callable[..., str], tmp_path: Path
) -> None:
    """As docs/state.md says: a backup, a refusal, and a restore with its flag."""
    copy = tmp_path / "copy.db"
    secret = tokens("create", "ci", "--scope", "read").strip()
    said = advisor("data", "backup", "copy.db").out
    assert said == f"{copy.stat().st_size} bytes written to copy.db\n"
    tokens("revoke", "ci")
    assert "--overwrite" in refusal(advisor("data", "restore", "copy.db"))
    done = advisor("data", "restore", "copy.db", "--overwrite", "--json")
    assert answer_of(done.out) == {"restored": "copy.db"}
    with ServiceState(None, tmp_path / "home") as state:
        assert state.find_tokens([secret]).get(secret) is not None
