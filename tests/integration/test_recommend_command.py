"""`advisor recommend` from outside: with the bundled profiles and the bundled model."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from recommending import as_json, error, recommend

from advisor.errors import InputError, NoSplitError

PAIR = ("fft", "resnet50-train-b2")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has stored nothing."""
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ADVISOR_DATABASE_URL", raising=False)
    return tmp_path / "home"


OPTION_KEYS = {
    "split", "sharing", "jobs", "power_w", "energy_saved", "stp", "objectives", "violations",
    "memory_power_w", "gpu_time_saved", "cost_saved",
}  # fmt: skip
SHARE_KEYS = {
    "job", "share_percent", "units", "rate", "speed", "environment", "latency_p99_ms",
}  # fmt: skip


@pytest.mark.usefixtures("home")
def test_keys_of_the_json_stay() -> None:
    """Programs read them; docs/recommend.md promises them."""
    answer = as_json(*PAIR)
    assert set(answer) == {
        "jobs", "gpu_model", "objective", "choice", "candidates", "same_work",
        "picks", "reasons", "warnings", "model", "coverage", "verdict", "call", "card", "drifts",
        "measured", "components", "components_unknown", "said",
    }  # fmt: skip
    assert [(job["job"], job["rate_unit"]) for job in answer["jobs"]] == [
        (PAIR[0], "transforms"), (PAIR[1], "images"),
    ]  # fmt: skip
    for job in answer["jobs"]:
        assert set(job) == {"job", "rate_unit", "alone", "one_window"}
        assert set(job["alone"]) == {"rate", "power_w", "memory_used_mib"}
    for option in (answer["choice"], *answer["candidates"]):
        assert set(option) == OPTION_KEYS
        assert [set(job) for job in option["jobs"]] == [SHARE_KEYS] * 2
        assert [job["job"] for job in option["jobs"]] == list(PAIR)
        values = [job[name] for job in option["jobs"] for name in ("rate", "speed")]
        for interval in (*values, option["power_w"], *option["objectives"].values()):
            assert set(interval) == {"value", "low", "high"}
            assert interval["low"] <= interval["value"] <= interval["high"]
    assert set(answer["model"]) == {"version", "gpu_models"}
    assert answer["choice"] in answer["candidates"]
    assert answer["picks"]["energy-efficiency"] == answer["choice"]["split"]
    found = answer["same_work"]
    assert set(found) == {"work_s", "choice", "restarted", "baselines"}
    assert set(found["choice"]) == {"time_s", "energy_j", "shared_s"}
    saved = 1 - found["choice"]["energy_j"] / found["baselines"]["exclusive"]["energy_j"]
    assert saved == pytest.approx(answer["choice"]["energy_saved"]["value"])
    page = (Path(__file__).parents[2] / "docs" / "recommend.md").read_text()
    keys = (*answer, *OPTION_KEYS, *SHARE_KEYS)
    assert [key for key in keys if f"`{key}`" not in page] == []


def test_answer_for_a_person(home: Path) -> None:
    """What to do, what it is worth and risks: ten lines, within 80 columns; the rest by options."""
    text, answer = recommend(*PAIR, "--min-speed", "fft=0.3"), as_json(*PAIR, "--min-speed=fft=0.3")
    lines = text.splitlines()
    assert lines[0].startswith("SHARE: fft ")
    # Of this pair other splits were measured, and of a server beside triad this very one.
    assert "(NVIDIA H200). predicted; other splits measured: " in " ".join(lines[:2])
    assert "(NVIDIA H200). measured: " in recommend("bert-serve-30", "triad")
    saved = answer["choice"]["energy_saved"]["value"]
    assert f"  Energy  {100 * saved:.0f} % less for the same work (" in text
    assert "  Start   advisor launch fft resnet50-train-b2" in lines
    assert len(lines) <= 10
    assert max(map(len, lines)) <= 80
    assert not home.exists()


@pytest.mark.usefixtures("home")
def test_details_are_told_where_they_are_asked_for() -> None:
    """How to start by hand, why, and what may be wrong, with the model."""
    least = ("--min-speed", "fft=0.3")
    text, answer = recommend(*PAIR, *least, "--how", "--why", "--notes"), as_json(*PAIR, *least)
    for side, job in zip(answer["choice"]["jobs"], PAIR, strict=True):
        ((name, value),) = side["environment"].items()
        (line,) = [x for x in text.splitlines() if x.endswith(f"the shell that starts {job}")]
        assert line.split("#")[0].strip() == f"export {name}={value}"
    words = " ".join(text.split())
    assert all(" ".join(reason.split()) in words for reason in answer["reasons"])
    assert "random input" in words
    assert answer["model"]["version"] in words


@pytest.mark.usefixtures("home")
def test_a_little_energy_and_many_hours_are_the_users_call() -> None:
    """Both numbers, the command, and that one after the other is the choice of programs."""
    pair = ("bert-train", "bert-train")
    answer = as_json(*pair)
    assert (answer["verdict"], answer["choice"]["split"]) == ("your call", "exclusive")
    text = recommend(*pair)
    assert text.startswith("YOUR CALL: one after the other, or share for time: bert-train 66")
    assert f"advisor launch bert-train*2 --split {answer['call']}" in text
    assert "% more for the same work" in text
    assert as_json(*pair, "--min-gain", "0")["verdict"] == "your call"


@pytest.mark.usefixtures("home")
def test_jobs_do_not_share_a_fate_for_nothing() -> None:
    """Under the least gain they stay apart; the reason names the option that shares them."""
    pair = ("dit-step", "whisper-infer")
    answer = as_json(*pair)
    assert answer["choice"]["split"] == "exclusive"
    assert "less than the 3 % for which jobs share a fate: --min-gain" in answer["reasons"][0]
    assert as_json(*pair, "--min-gain", "0")["verdict"] == "share"


@pytest.mark.usefixtures("home")
def test_a_job_alone_is_told_its_partners() -> None:
    """The best ten of its GPU model, which a part names; what is of two jobs is refused."""
    found = as_json("bert-serve-30", "--gpu-model", "h200")
    assert set(found) == {
        "job", "gpu_model", "looked_at", "partners", "size", "copies_by_memory",
    }  # fmt: skip
    assert found["gpu_model"] == "NVIDIA H200"
    assert len(found["partners"]) == 10
    assert set(found["partners"][0]) == {
        "partner", "verdict", "split", "speed", "partner_speed", "gpu_time_saved", "energy_saved",
        "cost_saved",
    }  # fmt: skip
    text = recommend("bert-serve-30", "--gpu-model", "h200")
    assert f"next: advisor recommend bert-serve-30 {found['partners'][0]['partner']}" in text
    assert "alone: 26 % of the SMs keep 100 % of its speed, p99" in text
    assert error(InputError, "fft", "--work", "3h").startswith("--work says nothing of 1 job")


@pytest.mark.usefixtures("home")
def test_prices_reach_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 2.50 a GPU hour energy is a thirtieth of the cost; without a price there is none."""
    assert as_json(*PAIR)["choice"]["cost_saved"] is None
    assert error(InputError, *PAIR, "--objective", "cost").startswith("the objective cost has no")
    monkeypatch.setenv("ADVISOR_GPU_HOUR", "2.50")
    monkeypatch.setenv("ADVISOR_KWH", "0.15")
    choice = as_json(*PAIR, "--objective", "cost")["choice"]
    time, cost = (choice[name]["value"] for name in ("gpu_time_saved", "cost_saved"))
    assert cost == pytest.approx(time, abs=0.02)
    assert "(2.5 a GPU hour, 0.15 a kWh)" in recommend(*PAIR)
    monkeypatch.setenv("ADVISOR_HOST_W", "1e6")
    assert as_json(*PAIR)["choice"]["energy_saved"]["value"] == pytest.approx(time, abs=0.01)


@pytest.mark.usefixtures("home")
def test_all_shows_every_candidate_and_a_plot() -> None:
    """A row for each, the chosen one marked, and the curve."""
    lines = recommend(*PAIR, "--all").splitlines()
    table = lines[lines.index("all candidates") + 2 :]
    answer = as_json(*PAIR)
    assert [line.split()[0] for line in table[:11]] == [o["split"] for o in answer["candidates"]]
    (chosen,) = [line for line in table[:11] if line.rstrip().endswith("chosen")]
    assert chosen.split()[0] == answer["choice"]["split"]
    assert any("share of fft, %" in line for line in table)


@pytest.mark.usefixtures("home")
def test_fine_splits_say_the_sms() -> None:
    answer = as_json(*PAIR, "--fine")
    assert len([o for o in answer["candidates"] if o["sharing"] == "limited"]) > 9
    assert " of 132 SMs (NVIDIA H200)" in recommend(*PAIR, "--fine").splitlines()[0]


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--min-speed", "gemm=0.5"), "--min-speed gemm=0.5 is for a job that is not there"),
        (("--memory", "1GiB"), "fft needs 2154 MiB of memory, the card has 1024 MiB"),
        (("--memory", "large"), "'large' is not a memory size"),
        (("--gpu-model", "A100"), "no profile on A100: fft, resnet50-train-b2. profiled were"),
        (("--work", "fft=3h"), "nothing is said of the work of resnet50-train-b2"),
        (("--work", "3h", "--objective=max-min"), "max-min does not depend on how much work"),
    ],
)
def test_options_that_cannot_be_meant(options: tuple[str, ...], message: str) -> None:
    """Nothing is dropped or guessed."""
    assert error(InputError, *PAIR, *options).startswith(message)


@pytest.mark.usefixtures("home")
def test_work_reaches_the_answer() -> None:
    """What is to be done until both have ended, and what the limit that stays costs then."""
    found = as_json(*PAIR, "--work", "fft=1h", "--work", "resnet50-train-b2=3h")["same_work"]
    assert found["work_s"] == [3600, 3 * 3600]
    assert found["choice"]["shared_s"] < found["choice"]["time_s"]
    assert found["restarted"]["time_s"] < found["choice"]["time_s"]
    text = recommend(*PAIR, "--work", "fft=1h", "--work", "resnet50-train-b2=3h", "--all")
    assert "the same work, 1 h of fft and 3 h of resnet50-train-b2 alone" in text
    assert "the other's limit stays" in text


@pytest.mark.usefixtures("home")
def test_who_is_told_not_to_share_knows_what_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """What sharing would do at best, and which option asks the other question."""
    dear = ("matmul-bf16", "vit-infer-b2")
    text = recommend(*dear)
    assert text.startswith("DO NOT SHARE")
    assert re.search(r"At best 50/50: 1\.\d\dx an hour, \d+ % more energy; --objective cost", text)
    monkeypatch.setenv("ADVISOR_GPU_HOUR", "2.5")
    assert recommend(*dear, "--objective", "cost").startswith("SHARE")
    # Where little is gained no price is worth the question.
    assert "--objective cost" not in recommend("fft", "gemm")


ALIKE = (
    ("bert-serve-30", "triad"),  # to share
    ("bert-infer-b2", "vit-train"),  # for time
    ("mobilenet-train-b2", "mobilenet-train-b2"),
    ("llm-decode", "matmul-bf16"),
)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("pair", ALIKE)
@pytest.mark.parametrize("hours", [(), (3, 5), (4, 1)])
def test_first_lines_agree_with_the_tables(pair: tuple[str, str], hours: tuple[int, ...]) -> None:
    """Energy and hours against one after the other, for the work that was asked for, too."""
    works = [f"--work={job}={h}h" for job, h in zip(pair, hours, strict=False)]
    text = recommend(*pair, "--all", *works)
    rows = text[text.index("the same work, ") :].splitlines()
    this = next(row for row in rows if row.startswith("  this: "))
    if text.startswith("DO NOT SHARE"):
        assert "one after the other" in this
        return
    apart = next(row for row in rows if row.startswith("  one after the other"))
    own, other = re.findall(r"both done in (.*) instead of (.*)\n", text)[0]
    assert f" {own} " in f"{this} "
    assert f" {other} " in apart
    # The table has what it takes more, the first lines what is saved of it.
    more = float(re.findall(r"([+-][\d.]+) %", apart)[0]) / 100 if "same" not in apart else 0.0
    number, word = re.findall(r"Energy  (\d+) % (less|more)", text)[0]
    said = float(number) if word == "less" else -float(number)
    assert said == pytest.approx(100 * (1 - 1 / (1 + more)), abs=0.6)


@pytest.mark.usefixtures("home")
def test_limits_reach_the_answer() -> None:
    """A number alone is for both jobs."""
    for job, option in ((0, "fft=0.4"), (1, "resnet50-train-b2=0.8")):
        choice = as_json(*PAIR, "--min-speed", option)["choice"]
        assert choice["jobs"][job]["speed"]["value"] >= float(option.split("=")[1])
    both = as_json(*PAIR, "--min-speed", "0.4")["choice"]
    assert min(job["speed"]["value"] for job in both["jobs"]) >= 0.4
    assert as_json(*PAIR, "--memory", "3GiB")["choice"]["sharing"] == "exclusive"
    assert as_json(*PAIR, "--memory", "4GiB")["choice"]["sharing"] == "limited"
    assert as_json(*PAIR, "--min-speed=0", "--max-power=350")["choice"]["power_w"]["value"] <= 350
    assert NoSplitError.exit_code == 10
    assert "nearest is " in error(NoSplitError, *PAIR, "--max-power", "100")


@pytest.mark.usefixtures("home")
def test_answer_loads_only_what_it_needs() -> None:
    """What makes the command slow to start stays out."""
    code = (
        "import sys; from typer.testing import CliRunner; from advisor_cli.app import app\n"
        f"done = CliRunner().invoke(app, ['recommend', *{PAIR}], catch_exceptions=False)\n"
        "print(done.exit_code, *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    exit_code, *modules = done.stdout.split()
    assert exit_code == "0"
    slow = "sqlalchemy sklearn pyarrow highspy matplotlib plotext requests yaml"
    assert not set(slow.split()) & set(modules)
