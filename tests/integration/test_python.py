"""What `import advisor` offers: the answers of the command line, from the same functions."""

import inspect
import json
import math
import runpy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from command_line import Advisor
from reading import answer_of

import advisor
from advisor.errors import InputError
from advisor.formats.wire import to_plain, write
from advisor.installed import install
from advisor_advice.ask import recommend
from advisor_cli import recommend as recommend_command
from advisor_cli import recommend as replicas_command
from advisor_cli.measure import profile as profile_command
from advisor_cli.measure import profile_here
from advisor_data.bundled import bundled_solo_points
from advisor_node.slurm.site import parse_comment

pytestmark = pytest.mark.usefixtures("advisor")

ASKED: tuple[tuple[Callable[[], object], str], ...] = (
    (
        lambda: advisor.recommend("bert-serve-30", "triad", min_speed={"triad": 0.5}),
        "recommend bert-serve-30 triad --min-speed triad=0.5",
    ),
    (
        lambda: advisor.recommend("bert-train*2", "fft", memory="140GiB", isolate=True),
        "recommend bert-train*2 fft --memory 140GiB --isolate",
    ),
    (lambda: advisor.recommend("bert-train"), "recommend bert-train"),
    (
        lambda: advisor.replicas("bert-serve-30", max_p99="50ms", cores=16),
        "replicas bert-serve-30 --max-p99 50ms --cores 16",
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize(("ask", "words"), ASKED)
def test_python_is_told_what_the_command_line_is(
    ask: Callable[[], object], words: str, advisor: Advisor
) -> None:
    told = answer_of(advisor(*words.split(), "--json").out)
    assert json.loads(write(ask())) | {"said": None} == told | {"said": None}
    assert told.get("said") is None  # a program reads keys


@pytest.mark.parametrize("names", ["bert-serve-30 triad", "bert-train*2 fft"])
def test_an_answer_prints_as_the_command_does(names: str, advisor: Advisor) -> None:
    """And so it ends a cell of a notebook: its parts alone fill pages."""
    answer = recommend(*names.split())
    shown = advisor("recommend", *names.split()).out.split()
    assert str(answer).split() == shown[: shown.index("More")]
    assert str(replace(answer, said=None)).startswith(type(answer).__name__)


@pytest.mark.parametrize(
    ("ask", "options", "what"),
    [
        (recommend, {"min_speed": [0.5, 0.7]}, "does not say whose it is"),
        (recommend, {"min_gain": math.nan}, "a least gain of nan is not possible"),
        (recommend, {"min_gain": 3}, "a least gain of 3 is not possible"),
        (advisor.profile, {"repeats": 0}, "0 windows per share measure nothing"),
        (advisor.profile, {"window": math.inf}, "no window takes inf s"),
    ],
)
def test_a_value_out_of_range_is_refused(
    ask: Callable[..., object], options: dict[str, object], what: str
) -> None:
    with pytest.raises(InputError) as raised:
        ask("bert-serve-30", **options)
    assert what in str(raised.value)
    assert raised.value.fix


def test_numbers_of_numpy_are_numbers() -> None:
    watts: Any = np.float32(800)
    told = recommend("bert-serve-30", "triad", max_power=watts, min_gain=0)
    assert told == recommend("bert-serve-30", "triad", max_power=800.0, min_gain=0.0)
    least, shares = cast("Any", np.int64(0)), cast("Any", np.array([10, 100]))
    assert recommend("triad", "fft", min_speed=least) == recommend("triad", "fft", min_speed=0)
    assert len(profile_here.profile("triad", shares=shares, gpu="replay").points) == 2


def test_a_replay_in_python_has_the_points_of_the_command(advisor: Advisor) -> None:
    told = json.loads(advisor("profile", "triad", "--gpu", "replay", "--json").out)
    found = profile_here.profile("triad", shares=[10, 100], gpu="replay")
    points = [p for p in told["points"] if p["share_percent"] in (10, 100)]
    frame = found.to_frame()
    assert frame["share_percent"].tolist() == [10, 100]
    for column in ("rate", "power_w"):
        assert frame[column].tolist() == pytest.approx([point[column] for point in points])
    assert (found.lacking, found.problems) == (None, [])


SHOWN = {"on", "shard", "how", "why", "notes", "as_json", "placer"}
"""Options of commands that change nothing but what is printed, or ask other hosts."""


@pytest.mark.parametrize(
    ("ask", "command"),
    [
        (advisor.recommend, recommend_command.recommend),
        (advisor.replicas, replicas_command.replicas),
        (advisor.profile, profile_command.profile),
    ],
)
def test_options_have_the_same_names_and_defaults(ask: object, command: object) -> None:
    """One that is added to a command and forgotten in Python, or means another default there."""
    ours, its = (inspect.signature(each).parameters for each in (ask, command))  # pyright: ignore[reportArgumentType]
    assert ours.keys() == its.keys() - SHOWN
    options = ours.keys() - {"job", "jobs", "what"}
    assert {name: ours[name].default for name in options} == {
        name: its[name].default for name in options
    }


def test_an_answer_is_a_frame_of_all_ways() -> None:
    """A row for each way, numbers in the units of their names, and one that was chosen."""
    answer = advisor.recommend("bert-serve-10", "triad", every=True)
    frame = answer.to_frame()
    chosen = frame[frame["is_choice"]].iloc[0]
    assert {"50/50", "uncapped", "exclusive"} <= set(frame["split"])
    assert len(frame) == frame["split"].nunique() == answer.searched
    assert (chosen["split"], chosen["job_2"]) == (to_plain(answer)["choice"]["split"], "triad")
    assert chosen["power_low_w"] <= chosen["power_w"] <= chosen["power_high_w"]
    assert chosen["speed_low_2"] <= chosen["speed_2"] <= 1
    copies = advisor.replicas("bert-serve-30").to_frame()["number"].tolist()
    assert copies == list(range(1, len(copies) + 1))
    ways = set(advisor.recommend("bert-train*3").to_frame()["sharing"])
    assert ways == {"limited", "uncapped", "time-sliced", "exclusive"}
    assert len(advisor.recommend("bert-train").to_frame()) == 10


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither pandas for a frame nor NumPy for advice ends in a traceback without a cure."""
    answer = advisor.recommend("bert-train")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pip install pandas"):
        answer.to_frame()
    code = "import sys, advisor; sys.modules['numpy'] = None; advisor.recommend('a', 'b')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert f"needs numpy, which is not installed: {install('advise')}".encode() in done.stderr
    with pytest.raises(AttributeError, match="recomend"):
        getattr(advisor, "recomend")  # noqa: B009


@pytest.mark.slow
def test_help_is_there_where_an_extra_is_missing() -> None:
    """What needs it says so in its line; the rest is told as ever."""
    code = (
        "import sys, pydoc; sys.modules.update(dict.fromkeys(['sklearn', 'pandas']))\n"
        "import advisor; print(pydoc.render_doc(advisor, renderer=pydoc.plaintext))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    needs = f"PriorRegressor needs sklearn, which is not installed: {install('train')}"
    assert all(part in done.stdout for part in (needs, "Most power of the GPU, W."))


# The examples run, and say what they are there for; a figure of theirs is no promise.


ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("two_servers", ["share uncapped", "start them: advisor launch bert-serve-30"]),
        ("server_and_training", ["energy_saved", "share"]),
        ("seven_trainings", ["share 13/13/13/13/13/13/13", "copies"]),
        ("frontier", ["points of", "share 100/23"]),
    ],
)
def test_an_example_runs(
    name: str, said: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of columns, options and answers that have changed break them first."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    runpy.run_path(str(EXAMPLES / f"{name}.py"))
    told = capsys.readouterr().out
    for part in said:
        assert part in told


def test_the_page_begins_with_what_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec((ROOT / "docs/python.md").read_text().partition("```python\n")[2].partition("```")[0], {})
    assert "share 50/26" in capsys.readouterr().out


def test_the_batch_script_names_a_recorded_job() -> None:
    """A comment that the matcher does not take would leave the job alone on its GPU, silently."""
    script = EXAMPLES / "slurm.sh"
    (comment,) = (
        line.partition("--comment=")[2]
        for line in script.read_text().splitlines()
        if line.startswith("#SBATCH --comment=")
    )
    named = parse_comment(comment)
    assert named is not None
    assert named.job in {point.job for point in bundled_solo_points()}
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
