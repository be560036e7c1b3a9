"""Plan files, the same by options, and suggested plans."""

import json
import re
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planned import H200, jobs

from advisor.core.gpu import NINE, TIME_SLICED, UNCAPPED, Split
from advisor.errors import InputError
from advisor_profiling.campaign.plan import (
    Member,
    Plan,
    PlanEntry,
    UnitSplit,
    expand,
    load_plan,
    plan_from_options,
    read_set,
    read_split,
    to_yaml,
    write_splits,
)

JOBS = ("bert-train", "fft", "gemm", "null", "triad")
NINE_UNCAPPED = (*NINE, UNCAPPED)

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:

    def write(text: str) -> Path:
        path = tmp_path / "pairs.yaml"
        path.write_text(textwrap.dedent(text))
        return path

    return write


def test_full_file(write: Write) -> None:
    path = write("""
        name: h200-pairs.2
        measure:
          - among: [bert-train, triad, gemm, fft]
            splits: [nine, uncapped]
          - pairs: [[bert-train, triad], [gemm, gemm]]
            splits: [time-sliced, 70/70, 66+66 units]
            repeats: 2
          - among: all
            sample: 40
            selves: false
            splits: [nine, 10/90]
          - sets: [fft+gemm+fft, triad@50+gemm]
            splits: [uncapped, time-sliced]
    """)
    seventy = Split((70.0, 70.0))
    assert load_plan(path, JOBS) == Plan(
        "h200-pairs.2",
        (
            PlanEntry(among=("bert-train", "triad", "gemm", "fft"), splits=NINE_UNCAPPED),
            PlanEntry(
                pairs=(("bert-train", "triad"), ("gemm", "gemm")),
                splits=(TIME_SLICED, seventy, UnitSplit(66, 66)),
                repeats=2,
            ),
            PlanEntry(among="all", sample=40, selves=False, splits=NINE),
            PlanEntry(
                sets=(read_set("fft+gemm+fft", ""), read_set("triad@50+gemm", "")),
                splits=(UNCAPPED, TIME_SLICED),
            ),
        ),
        profiles=True,
    )


def test_file_names_the_run(tmp_path: Path) -> None:
    """Unless there is a name inside."""
    path = tmp_path / "my plan.yaml"
    path.write_text("measure: [{among: all, splits: [nine]}]")
    with pytest.raises(InputError, match=r"'my plan' cannot name a run\. add a name: letters"):
        load_plan(path, JOBS)
    assert load_plan(path.rename(tmp_path / "plan.yaml"), JOBS).name == "plan"


ENTRY = "among: all, splits: [nine]"


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("name: x", "1:1", "measure is missing"),
        ("measure: []", "1:10", "expected a list of what to measure, got an empty one"),
        (f"name: a b\nmeasure: [{{{ENTRY}}}]", "1:7", "letters, digits"),
        ("measure:\n- {among: all}", "2:3", "splits is missing"),
        ("measure:\n- {splits: [nine]}", "2:3", "expected among or pairs, got neither"),
        (
            "measure:\n- {among: all, pairs: [[fft, fft]], splits: [nine]}",
            "2:3",
            "expected among or pairs, got both",
        ),
        (f"measure:\n- {{{ENTRY}, repeat: 2}}", "2:32", "the nearest is repeats"),
        (f"measure:\n- {{{ENTRY}, repeats: 0}}", "2:41", "a whole number above 0, got '0'"),
        (
            "measure:\n- pairs: [[fft, fft]]\n  sample: 3\n  splits: [nine]",
            "3:11",
            "has a meaning only together with among",
        ),
        ("measure:\n- among: al\n  splits: [nine]", "2:10", "all, or a list of jobs, got 'al'"),
        (
            "measure:\n- among:\n  - fft\n  - traid\n  splits: [nine]",
            "4:5",
            "no job 'traid' among 5. the nearest is triad",
        ),
        (
            "measure:\n- pairs: [fft, triad]\n  splits: [nine]",
            "2:11",
            "a pair such as [bert-train, triad], got 'fft'",
        ),
        (
            "measure:\n- pairs:\n  - [fft, triad, gemm]\n  splits: [nine]",
            "3:5",
            "expected two jobs, got 3",
        ),
        (
            "measure:\n- sets: [fft+traid]\n  splits: [uncapped]",
            "2:10",
            "no job 'traid' among 5. the nearest is triad",
        ),
        ("measure:\n- sets: [fft]\n  splits: [uncapped]", "2:10", "two to 7 jobs such as a+b+c"),
        ("measure:\n- sets: fft\n  splits: [uncapped]", "2:9", "a list of sets such as"),
        ("measure:\n- sets: [fft+fft]\n  splits: [nine]", "3:11", "got 10/90"),
        (
            "measure:\n- sets: [fft+fft]\n  sample: 3\n  splits: [uncapped]",
            "3:11",
            "no meaning together with sets",
        ),
        ("measure:\n- among: all\n  splits: nine", "3:11", "a list of splits such as [nine"),
        ("measure:\n- among: all\n  splits:\n  - nine\n  - nein", "5:5", "got 'nein'"),
    ],
)
def test_faults_name_line_key_and_what_was_expected(
    write: Write, text: str, where: str, what: str
) -> None:
    path = write(text)
    with pytest.raises(InputError) as error:
        load_plan(path, JOBS)
    assert str(error.value).startswith(f"{path}:{where}: ")
    assert what in str(error.value)


def test_fault_that_only_the_gpu_shows(write: Write) -> None:
    """Counts of units are checked against the GPU, and the message still names their line."""
    path = write("""\
        measure:
          - pairs: [[fft, gemm]]
            splits: [uncapped, 66+60 units]
    """)
    plan = load_plan(path, JOBS)
    with pytest.raises(InputError) as error:
        expand(plan, H200, jobs(JOBS), [])
    assert str(error.value).startswith(f"{path}:3:24: splits: expected counts that sum to the 132")


_ENTRY_KEYS = ("among", "pairs", "sample", "selves", "sets", "repeats")
_KEYS = ("name", "measure", "splits", *_ENTRY_KEYS)
_scalars = (
    st.sampled_from(["all", "nine", "fft", "70/70", "66+66 units", "fft+fft@50"])
    | st.text(max_size=8)
    | st.integers()
    | st.floats()
    | st.booleans()
    | st.none()
)
_values = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(_KEYS) | st.text(max_size=5), inner, max_size=4)
    ),
)
_entries = st.fixed_dictionaries(
    {"splits": st.lists(_scalars, max_size=3) | _values},
    optional=dict.fromkeys(_ENTRY_KEYS, _values),
)


@given(measure=st.lists(_entries, max_size=3) | _values, name=_scalars)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_plans_raise_nothing_else(tmp_path: Path, measure: Any, name: Any) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(json.dumps({"name": name, "measure": measure}))
    try:
        plan = load_plan(path, JOBS)
    except InputError:
        return
    assert all(e.splits and (e.among or e.pairs or e.sets) for e in plan.entries)


_names = st.sampled_from(JOBS)
_splits = st.lists(
    st.sampled_from([*NINE, UNCAPPED, TIME_SLICED, UnitSplit(38, 94)]),
    min_size=1,
    unique=True,
).map(tuple)
_wishes = st.builds(
    PlanEntry,
    among=st.just("all") | st.lists(_names, min_size=1).map(tuple),
    selves=st.booleans(),
    sample=st.integers(1, 99) | st.none(),
    splits=_splits,
    repeats=st.integers(1, 3),
) | st.builds(
    PlanEntry,
    pairs=st.lists(st.tuples(_names, _names), min_size=1).map(tuple),
    splits=_splits,
    repeats=st.integers(1, 3),
)

_set_splits = st.lists(st.sampled_from([UNCAPPED, TIME_SLICED]), min_size=1, unique=True).map(tuple)
_members = st.builds(Member, _names, st.sampled_from([100.0, 50.0, 26.5]))
_set_wishes = st.builds(
    PlanEntry,
    sets=st.lists(st.lists(_members, min_size=2, max_size=7).map(tuple), min_size=1).map(tuple),
    splits=_set_splits,
    repeats=st.integers(1, 3),
)


@given(entries=st.lists(_wishes | _set_wishes, min_size=1, max_size=3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_plan_is_read_as_it_was_written(tmp_path: Path, entries: list[PlanEntry]) -> None:
    """A written plan means the same when it is read; also of a job called `null`."""
    path = tmp_path / "plan.yaml"
    plan = Plan("a.b", tuple(entries))
    plan = replace(plan, profiles=plan.has_sets)
    path.write_text(to_yaml(plan))
    again = load_plan(path, JOBS)
    ordered = [
        replace(read, splits=entry.splits)
        for entry, read in zip(plan.entries, again.entries, strict=True)
        if set(entry.splits) == set(read.splits)
    ]
    assert replace(again, entries=tuple(ordered)) == plan


def test_options() -> None:
    """The same options name the same run."""
    first = plan_from_options("fft, gemm", "", "nine,uncapped", 2)
    entry = PlanEntry(among=("fft", "gemm"), splits=NINE_UNCAPPED, repeats=2)
    assert first.entries == (entry,)
    assert plan_from_options("all", "", "time-sliced", name="x", sample=5) == Plan(
        "x", (PlanEntry(among="all", sample=5, splits=(TIME_SLICED,)),)
    )
    both = plan_from_options("fft,gemm", "fft+gemm, triad + triad", "66+66 units")
    units = (UnitSplit(66, 66),)
    assert both.entries == (
        PlanEntry(among=("fft", "gemm"), splits=units),
        PlanEntry(pairs=(("fft", "gemm"), ("triad", "triad")), splits=units),
    )
    assert plan_from_options("fft , gemm", "", "nine,uncapped", 2).name == first.name
    assert first.name.startswith("pairs-")
    assert plan_from_options("fft,gemm", "", "nine", 2).name != first.name


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("", "", "nine"), "there is nothing to measure: jobs '', pairs ''"),
        (("fft", "", ""), "there is nothing to measure: .*give splits"),
        (("", "fft", "nine"), "--pairs: expected two jobs such as bert-train[+]triad, got 'fft'"),
        (("", "fft+gemm+fft", "nine"), "got 'fft[+]gemm[+]fft'"),
        (("", "fft+", "nine"), "got 'fft[+]'"),
        (("fft", "", "nien"), "--splits: expected .*got 'nien'. the nearest is nine"),
        *(
            (("fft", "", "nine", 1, name), re.escape(f"{name!r} cannot name a run. use letters"))
            for name in ("", "../../x", "a/b", ".hidden", "a" * 101)
        ),
    ],
)
def test_faulty_options(options: tuple[Any, ...], what: str) -> None:
    """Each is refused with its value; a run names a folder of logs, and nothing leads out of it."""
    with pytest.raises(InputError, match=what):
        plan_from_options(*options)


@pytest.mark.parametrize(
    ("text", "splits"),
    [
        ("nine", NINE),
        ("uncapped", (UNCAPPED,)),
        ("100/100", (UNCAPPED,)),
        ("time-sliced", (TIME_SLICED,)),
        ("70/70", (Split((70.0, 70.0)),)),
        ("12.5 / 87.5", (Split((12.5, 87.5)),)),
        ("66+66 units", (UnitSplit(66, 66),)),
        ("12 + 120 units", (UnitSplit(12, 120),)),
    ],
)
def test_words_for_splits(text: str, splits: tuple[Any, ...]) -> None:
    assert read_split(text, "here") == splits


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("nien", "got 'nien'. the nearest is nine"),
        ("time sliced", "the nearest is time-sliced"),
        ("", "expected nine, uncapped, time-sliced, 70/30 "),
        ("0/100", "got '0/100'. the driver takes 0 and percentages above 100"),
        ("50/101", "at most 100 %"),
        ("50/50/50", "got '50/50/50'"),
        ("50/-50", "got '50/-50'"),
        ("50/nan", "got '50/nan'"),
        ("50", "got '50'"),
        ("66+66", "got '66+66'"),
        ("66 units", "got '66 units'"),
        ("99.9999/1", "got '99.9999/1'"),
    ],
)
def test_word_that_is_no_split(text: str, what: str) -> None:
    with pytest.raises(InputError) as error:
        read_split(text, "here")
    assert str(error.value).startswith("here: expected ")
    assert what in str(error.value)


any_split = (
    st.sampled_from([*NINE, UNCAPPED, TIME_SLICED])
    | st.builds(UnitSplit, st.integers(0, 304), st.integers(0, 304))
    | st.tuples(st.integers(1, 1000), st.integers(1, 999)).map(
        lambda tenths: Split((tenths[0] / 10, tenths[1] / 10))
    )
)


@given(splits=st.lists(any_split, unique=True))
def test_splits_are_read_as_they_were_written(splits: list[Any]) -> None:
    again = [split for word in write_splits(splits) for split in read_split(word, "here")]
    assert (len(again), set(again)) == (len(splits), set(splits))
