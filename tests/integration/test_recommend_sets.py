"""`advisor recommend` of three jobs and more, from outside, with the bundled profiles."""

from pathlib import Path

import pytest
from reading import answer_of
from recommending import as_json, error, recommend
from typer.testing import CliRunner

from advisor.errors import InputError, NoSplitError
from advisor_cli.app import app

H100 = ("--gpu-model", "h100")
SERVERS = ("bert-serve-10*3", *H100)
MIXED = ("bert-serve-10*2", "resnet50-train-b2", "bert-infer", *H100, "--min-speed", "0.3")

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has stored nothing, before a terminal of 80 columns."""
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("ADVISOR_DATABASE_URL", raising=False)


KEYS = {
    "jobs", "gpu_model", "objective", "verdict", "choice", "ways", "needs", "near", "searched",
    "warnings", "coverage", "call", "card", "drifts", "measured",
    "fewer", "looked_at", "said",
}  # fmt: skip
WAY_KEYS = {
    "name", "sharing", "isolates", "jobs", "power_w", "energy_saved", "energy_saved_idle",
    "gpu_time_saved", "cost_saved", "violations",
}  # fmt: skip
SHARE_KEYS = {
    "job", "share_percent", "units", "rate", "speed", "environment", "latency_p99_ms",
}  # fmt: skip
NEEDS_KEYS = {"memory_mib", "memory_of_mib", "host_cores", "mps_clients", "mps_clients_most"}


def test_keys_of_the_json_stay() -> None:
    """Programs read them; docs/recommend.md promises them."""
    answer = as_json(*MIXED)
    assert set(answer) == KEYS
    assert set(answer["needs"]) == NEEDS_KEYS
    names = [job["job"] for job in answer["jobs"]]
    assert names == ["bert-serve-10"] * 2 + ["resnet50-train-b2", "bert-infer"]
    for way in answer["ways"]:
        assert set(way) == WAY_KEYS
        assert [set(job) for job in way["jobs"]] == [SHARE_KEYS] * 4
        assert [job["job"] for job in way["jobs"]] == names
        for name in ("power_w", "energy_saved", "energy_saved_idle", "gpu_time_saved"):
            assert way[name]["low"] <= way[name]["value"] <= way[name]["high"]
    page = (Path(__file__).parents[2] / "docs/recommend.md").read_text()
    assert [key for key in (*KEYS, *WAY_KEYS, *NEEDS_KEYS) if f"`{key}`" not in page] == []


def test_first_screen_is_short_and_says_what_to_do() -> None:
    """Ten lines at most beside those that are folded, and none wider than the terminal."""
    lines = recommend(*MIXED).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("SHARE: 2 x bert-serve-10, resnet50-train-b2, bert-infer at most ")
    named = [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]
    assert named == ["GPUs", "Energy", "Each", "Risk", "Apart", "Start", "More"]


def test_only_the_job_that_fills_has_a_limit() -> None:
    """And one command line says so to whoever starts it."""
    answer = as_json(*MIXED)
    (way,) = [way for way in answer["ways"] if way["name"] == answer["choice"]]
    limits = [job["environment"] for job in way["jobs"]]
    assert limits[:3] == [{}] * 3
    (percentage,) = limits[3].values()
    told = recommend(*MIXED, "--how", "--why", "--notes", "--all")
    variable = f"export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={percentage}"
    assert variable in told
    assert "nvidia-cuda-mps-control -d" in told
    assert "fitted to measured sets" in " ".join(told.split())


def test_what_was_measured_of_the_very_set_is_told() -> None:
    """A window of it comes with advisor, without limits."""
    told = recommend("mobilenet-train-b2*3", *H100)
    assert "measured: 1 window that comes with advisor" in " ".join(told.split())
    measured = as_json("mobilenet-train-b2*3", *H100)["measured"]
    assert measured == {"launches": 0, "windows": 0, "bundled": 1, "at_choice": 1}
    assert as_json("bert-serve-10*7", *H100)["measured"] is None


def test_order_of_the_names_does_not_matter() -> None:
    there = as_json("bert-serve-10", "resnet50-train-b2", "bert-infer", *H100, "--min-speed", "0.3")
    back = as_json("bert-infer", "bert-serve-10", "resnet50-train-b2", *H100, "--min-speed", "0.3")
    assert there["choice"].split("/")[-1] == back["choice"].split("/")[0]
    assert there["searched"] == back["searched"]


def test_servers_share_and_say_what_freed_cards_draw() -> None:
    """Three small servers: a third of the energy with freed cards off, less with them idle."""
    answer = as_json(*SERVERS)
    (way,) = [way for way in answer["ways"] if way["name"] == answer["choice"]]
    assert way["name"] == "uncapped"
    assert 0.3 < way["energy_saved"]["value"] < 0.45
    assert 0.1 < way["energy_saved_idle"]["value"] < 0.25
    assert way["jobs"][0]["latency_p99_ms"]["value"] < 10


def test_isolate_takes_turns_or_a_card_each() -> None:
    """In turns the tail of servers is too long, and small jobs gain nothing."""
    assert as_json(*SERVERS, "--isolate")["verdict"] == "a card each"
    told = recommend("resnet50-train-b2*3", *H100, "--isolate", "--min-speed", "0.1")
    assert told.startswith("A CARD EACH: 3 x resnet50-train-b2")
    one_fills = ("fft", "mobilenet-train-b2*2")
    told = recommend(*one_fills, *H100, "--isolate", "--min-speed", "0.1", "--how")
    assert told.startswith("SHARE: fft and 2 x mobilenet-train-b2 in turns, without MPS")
    assert "no MPS daemon may run" in told
    assert told.count("advisor launch fft mobilenet-train-b2*2 --split time-sliced") == 2
    pair = as_json("fft", "gemm", "--isolate")
    assert pair["choice"]["sharing"] == "exclusive"


def test_two_jobs_take_turns_where_a_fault_must_stay_alone() -> None:
    """Else turns of two are no candidate: the model has not learned them."""
    pair = ("mobilenet-train-b2", "fft", *H100)
    told = " ".join(recommend(*pair, "--isolate", "--how", "--notes").split())
    assert "in turns, without MPS" in told
    assert "a fault of one leaves the other" in told
    assert "--split time-sliced" in told
    assert "fitted to measured sets and pairs" in told
    assert "no MPS daemon may run" in told
    ways = [
        {way["sharing"] for way in as_json(*pair, *more)["candidates"]}
        for more in ((), ("--isolate",))
    ]
    assert ways[1] - ways[0] == {"time-sliced"}


def test_a_card_each_says_what_stands_against_sharing() -> None:
    told = recommend("gemm", "triad", "fft", *H100, "--how")
    assert told.startswith("A CARD EACH: gemm, triad and fft")
    assert "below 40 %" in " ".join(told.split())
    assert "one after the other on one GPU" in " ".join(told.split())


def test_where_one_job_stands_against_sharing_it_is_named() -> None:
    """And what the others save without it."""
    jobs = ("bert-serve-10*6", "bert-infer", *H100)
    told = recommend(*jobs, "--all")
    assert "  Fewer   without bert-infer the others share (uncapped): " in told
    assert max(map(len, told.splitlines())) <= 80
    fewer = as_json(*jobs)["fewer"]
    assert set(fewer) == {"without", "way", "energy_saved"}
    assert fewer["energy_saved"]["value"] > 0.3
    assert as_json("gemm", "triad", "fft", *H100)["fewer"] is None


def test_a_near_miss_says_what_accepts_it() -> None:
    """And that accepts it."""
    told = " ".join(recommend(*MIXED[:-2], "--min-speed", "bert-infer=0.5").split())
    assert told.startswith("A CARD EACH")
    option = told.partition("accept it with --min-speed ")[2].split()[0]
    assert option.startswith("bert-infer=0.3")
    assert as_json(*MIXED[:-2], "--min-speed", option)["verdict"] == "share"


def test_low_ends_decide_where_nobody_knows_what_a_job_does() -> None:
    """Beside a free one that fills, small jobs keep anything from a tenth on."""
    free, held = (
        next(way for way in as_json(*MIXED[:-2])["ways"] if way["sharing"] == sharing)
        for sharing in ("uncapped", "limited")
    )
    assert any("resnet50-train-b2 may run at as little as" in text for text in free["violations"])
    big = [job["speed"] for job in held["jobs"]][3]
    assert big["value"] > 0.4 > big["low"]
    assert held["violations"] == []


def test_prices_are_told_where_they_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Price" not in recommend(*SERVERS)
    monkeypatch.setenv("ADVISOR_GPU_HOUR", "2.50")
    assert "  Price   6" in recommend(*SERVERS)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("fft*8",), "8 jobs"),
        (("fft*0",), "A\\*3"),
        (("*3", "fft"), "A\\*3"),
        (("fft*3", "--work", "3h"), "work says nothing of 3 jobs"),
        (("fft*3", "--fine"), "--fine says nothing of three jobs"),
        (("fft", "--isolate"), "--isolate says nothing of 1 job"),
        (("fft*3", "--min-speed", "gemm=0.5"), "gemm"),
    ],
)
def test_mistakes_are_told(options: tuple[str, ...], said: str) -> None:
    assert said.replace("\\", "") in error(InputError, *options)


def test_what_nothing_keeps_is_told_with_what_would_help() -> None:
    assert "within these limits" in error(NoSplitError, *SERVERS, "--max-power", "150")


def test_a_pair_by_count_is_the_pair() -> None:
    """`A*2` is A beside A, by the model."""
    assert recommend("fft*2") == recommend("fft", "fft")


REPLICAS_KEYS = {
    "job", "gpu_model", "rate_unit", "best", "copies", "beyond", "ended_by", "why", "warnings",
    "sharing", "card", "drifts", "one_window",
}  # fmt: skip
COPIES_KEYS = {
    "number", "rate", "speed", "power_w", "joules", "latency_p99_ms", "energy_saved",
    "energy_saved_idle", "measured",
}  # fmt: skip


def replicas(*options: str) -> str:
    done = CliRunner().invoke(app, ["replicas", *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_keys_of_replicas_stay() -> None:
    """As those of sets."""
    told = answer_of(replicas("bert-serve-10", *H100, "--max-p99", "30ms", "--json"))
    assert set(told) == REPLICAS_KEYS
    assert all(set(copies) == COPIES_KEYS for copies in (*told["copies"], told["beyond"]))
    assert (told["best"], told["ended_by"]) == (len(told["copies"]), "tail")
    page = (Path(__file__).parents[2] / "docs/recommend.md").read_text()
    assert [key for key in REPLICAS_KEYS | COPIES_KEYS if f"`{key}`" not in page] == []


def test_copies_are_told_with_what_ends_them() -> None:
    told = replicas("matmul-bf16", *H100)
    assert told.startswith("matmul-bf16 on the NVIDIA H100 80GB HBM3: 1 copy. predicted")
    assert "too many" in told
    assert "ended by SMs: " in told
    assert "no more than 3 were asked for" in replicas("bert-serve-10", *H100, "--most", "3")
    assert "  ! " in replicas("bert-serve-10", *H100, "--notes")


def test_copies_take_in_what_was_measured_and_say_how_faults_spread() -> None:
    """Three of a training were measured without limits; in turns a second one gains nothing."""
    words = ("mobilenet-train-b2", *H100, "--most", "3", "--min-speed", "0.2")
    told = replicas(*words)
    assert "3 copies. measured: 1 window" in " ".join(told.split())
    assert "a fault of one copy ends all" in told
    assert told.splitlines()[-4].endswith("measured")
    assert max(map(len, told.splitlines())) <= 80
    in_turns = replicas(*words, "--isolate")
    assert "in turns, without MPS: 1 copy" in " ".join(in_turns.split())
    assert "a fault of one copy leaves the others running" in in_turns
