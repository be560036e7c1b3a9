"""`advisor recommend` from outside: with the bundled profiles and the bundled model."""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import Advisor
from reading import answer_of
from typer.testing import CliRunner

from advisor.errors import AdvisorError, InputError, NoSplitError
from advisor.formats.wire import to_plain
from advisor_advice.ask import advise
from advisor_advice.words import said
from advisor_cli.app import app
from advisor_data.bundled import bundled_solo_points
from advisor_data.files import write_points

PAIR = ("fft", "resnet50-train-b2")
H100 = ("--gpu-model", "h100")
MIXED = ("bert-serve-10*2", "resnet50-train-b2", "bert-infer", *H100, "--min-speed", "0.3")


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ADVISOR_DATABASE_URL", raising=False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*PAIR, "--min-speed", "gemm=0.5"), "--min-speed gemm=0.5 is for a job that is not there"),
        ((*PAIR, "--memory", "1GiB"), "fft needs 2154 MiB of memory, the card has 1024 MiB"),
        ((*PAIR, "--memory", "large"), "'large' is not a memory size"),
        ((*PAIR, "--gpu-model", "A100"), "no profile on A100: fft, resnet50-train-b2. profiled"),
        ((*PAIR, "--work", "fft=3h"), "nothing is said of the work of resnet50-train-b2"),
        ((*PAIR, "--work", "3h", "--objective=max-min"), "max-min does not depend on how much"),
        # Of one job, or of a set.
        (("fft*8",), "these are 8 jobs"),
        (("fft*0",), "'fft*0' is no number of a job. write A*3"),
        (("*3", "fft"), "'*3' is no number of a job. write A*3"),
        (("fft*3", "--work", "3h"), "an amount of work does not apply to 3 jobs"),
        (("fft*3", "--fine"), "fine does not apply to 3 jobs"),
        (("fft", "--isolate"), "--isolate does not apply to 1 job"),
        (("fft", "--as", "ray"), "--as does not apply to 1 job"),
        ((*PAIR, "--as", "yarn"), "'yarn' is no placer that is known. give one of ray"),
        (("fft*3", "--min-speed", "gemm=0.5"), "--min-speed gemm=0.5 is for a job that is not"),
    ],
)
def test_words_that_cannot_be_meant(words: tuple[str, ...], message: str) -> None:
    assert error(InputError, *words).startswith(message)


def test_words_of_a_placer_are_printed_as_they_are_in_json() -> None:
    """Lines to paste are not folded, whatever the width."""
    asked = ("bert-serve-30", "llm-serve-30", "--as", "ray")
    told, answer = recommend(*asked), as_json(*asked)
    assert told.startswith("SHARE: bert-serve-30 on 66 and llm-serve-30 on 34 of 132 SMs")
    assert "\n".join(answer["placer"]["lines"]) in told
    assert f"for {answer['placer']['version']}, which cannot express:\n" in told
    assert answer["choice"]["split"] == "50/26"


STARTED: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("bert-serve-30", "triad"), {}),
    (("bert-serve-30", "triad"), {"max_p99": "50ms"}),
    (("bert-serve-30", "triad"), {"max_p99": "bert-serve-30=100ms", "objective": "throughput"}),
    (("vit-serve-30", "resnet50-train"), {"max_p99": "60ms", "max_power": 690.0}),
    (("bert-train-b2", "triad"), {"min_speed": "triad=0.55", "fine": True}),
    (("bert-serve-30", "triad"), {"max_p99": "55ms", "fine": True}),
    (("fft", "mobilenet-train-b2*2"), {"min_speed": "0.1", "isolate": True}),
)


@pytest.mark.parametrize(("jobs", "options"), STARTED)
def test_what_is_printed_to_start_keeps_what_was_answered(
    jobs: tuple[str, ...], options: dict[str, Any], advisor: Advisor
) -> None:
    """The split, and the speeds, latencies and power that each job has promised."""
    answer = advise(*jobs, **options)
    assert isinstance(answer, tuple)
    given, d = answer[0], answer[0].decision
    assert d.sharing_option
    command = shlex.split(dict(said(given).lines)["Start"].removeprefix("advisor "))
    (pair,) = json.loads(advisor(*command, "--dry-run", "--json").out)["pairs"]
    assert pair["split"] == json.loads(json.dumps(to_plain(d.sharing_option.split)))
    parts = [(p["min_speed"], p["max_p99_ms"], p["max_power_w"]) for p in pair["jobs"]]
    keeps = d.request.floor, d.request.longest_p99_ms
    assert parts == [(*(of(p) for of in keeps), d.request.max_power_w) for p in d.profiles]


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (
            ("fft", "mobilenet-train-b2", "--gpu-uuid", "GPU-1"),
            "--profiles 'my points.jsonl' --gpu GPU-1",
        ),
        (
            ("fft", "--min-speed", "fft=0.5", "--memory", "80GiB", "--min-gain", "2%"),
            "--min-speed fft=0.5 --memory 81920 --gpu-model H200 --min-gain 0.02",
        ),
    ],
)
def test_a_printed_command_repeats_the_options(
    words: tuple[str, ...], printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("my points.jsonl")
    write_points(path, bundled_solo_points({"fft", "mobilenet-train-b2"}))
    file = ("--profiles", str(path)) if "--gpu-uuid" in words else ()
    told = recommend(*words, "--gpu-model", "H200", *file)
    assert printed in " ".join(told.replace("\\", "").split())


ALIKE = (
    ("bert-train-b2", "triad"),  # to share
    ("bert-infer-b2", "vit-train"),  # for time
    ("mobilenet-train-b2", "mobilenet-train-b2"),
    ("llm-decode", "matmul-bf16"),
)


@pytest.mark.slow
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
    own, other = re.findall(r"Time    (.*) for both instead of (.*?): ", text)[0]
    assert f" {own} " in f"{this} "
    assert f" {other} " in apart
    # The table has what it takes more, the first lines what is saved of it.
    more = float(re.findall(r"([+-][\d.]+) %", apart)[0]) / 100 if "same" not in apart else 0.0
    number, word = re.findall(r"Energy  (\d+) % (less|more)", text)[0]
    said = float(number) if word == "less" else -float(number)
    assert said == pytest.approx(100 * (1 - 1 / (1 + more)), abs=0.6)


def test_limits_reach_the_answer() -> None:
    for job, option in ((0, "fft=0.4"), (1, "resnet50-train-b2=0.8")):
        choice = as_json(*PAIR, "--min-speed", option)["choice"]
        assert choice["jobs"][job]["speed"]["value"] >= float(option.split("=")[1])
    both = as_json(*PAIR, "--min-speed", "0.4")["choice"]
    assert min(job["speed"]["value"] for job in both["jobs"]) >= 0.4
    assert as_json(*PAIR, "--memory", "3GiB")["choice"] is None
    assert as_json(*PAIR, "--memory", "4GiB")["choice"]["sharing"] == "uncapped"
    assert as_json(*PAIR, "--min-speed=0", "--max-power=350")["choice"]["power_w"]["value"] <= 350
    assert NoSplitError.exit_code == 10
    assert "nearest is " in error(NoSplitError, *PAIR, "--max-power", "100")


@pytest.mark.slow
def test_answer_loads_only_what_it_needs() -> None:
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


# A set of jobs.


def test_a_near_miss_says_what_accepts_it() -> None:
    told = " ".join(recommend(*MIXED[:-2], "--min-speed", "bert-infer=0.4").split())
    assert told.startswith("DO NOT SHARE")
    options = re.split(" Limit| More", told.partition("accept it with ")[2])[0].split()
    assert options[::2] == ["--min-speed"]
    assert as_json(*MIXED[:-2], *options)["verdict"] == "share"


def test_a_job_of_two_gpus_gets_a_neighbour_on_each(tmp_path: Path) -> None:
    """Which sits where, limits, speeds, GPU hours of both; what is not known yet is refused."""
    file = tmp_path / "solo.jsonl"
    of_rank = [p for p in bundled_solo_points({"bert-train"}) if p.gpu_model == "NVIDIA H200"]
    write_points(file, [replace(point, job="ranks", gpus=2) for point in of_rank])
    given = ("--profiles", str(file))
    neighbours = ("albert-train-b2", "bert-serve-30")
    told = as_json("ranks", *neighbours, *given)["choice"]
    assert re.fullmatch(r"[\d.]+/100@0/100@1", told["split"])
    seen = [share["environment"]["CUDA_VISIBLE_DEVICES"] for share in told["jobs"]]
    assert seen == ["0,1", "0", "1"]
    speeds = [share["speed"]["value"] for share in told["jobs"]]
    hours = 1 - 2 / (2 * speeds[0] + sum(speeds[1:]))
    assert told["gpu_time_saved"]["value"] == pytest.approx(hours)
    text = " ".join(recommend("ranks", *neighbours, *given).split())
    assert "on 2 GPUs; albert-train-b2 on GPU 0; bert-serve-30 on GPU 1" in text
    assert f"Start advisor launch ranks {' '.join(neighbours)} \\ --split {told['split']}" in text
    assert "GPUs 2 instead of 4: " in text
    for wrong in (("ranks",), ("--isolate",), ("--max-power", "900")):
        assert "which holds several GPUs, cannot" in error(
            InputError, "ranks", "triad", *wrong, *given
        )
    done = CliRunner().invoke(app, ["place", "ranks", "triad:2", "--gpus", "3", *given])
    assert "ranks holds 2 GPUs, and here only jobs of one GPU can be used" in str(done.exception)


# `advisor recommend` as a person and a program call it.


def recommend(*options: str) -> str:
    """What the command prints."""
    done = CliRunner().invoke(app, ["recommend", *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def as_json(*options: str) -> dict[str, Any]:
    """What the command answers to a program."""
    return answer_of(recommend(*options, "--json"))


def error(kind: type[AdvisorError], *options: str) -> str:
    """What the command says when it fails so."""
    done = CliRunner().invoke(app, ["recommend", *options])
    assert isinstance(done.exception, kind), done.output
    return str(done.exception)
