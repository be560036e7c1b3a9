"""Sets of jobs: their text, and the windows that a plan makes of them."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planned import H200, MI300X, jobs, solo_point
from unsafe_counts import checked_132

from advisor.core.gpu import TIME_SLICED, UNCAPPED
from advisor.errors import InputError, UnsafeCountError
from advisor_profiling.campaign.plan import (
    MOST_JOBS,
    CountRules,
    JobSet,
    Member,
    Plan,
    PlanEntry,
    PlannedWindows,
    Skipped,
    expand,
    plan_from_options,
    read_set,
    write_set,
)

SMALL = [f"small-{n}" for n in range(9)]
BIG = [f"big-{n}" for n in range(4)]
JOBS = jobs([*SMALL, *BIG])
KINDS = dict.fromkeys(JOBS)
BUSY = [solo_point(name, sm_active_percent=97.0, dram_active_percent=20.0) for name in BIG]
IDLE = [solo_point(name, sm_active_percent=12.0, dram_active_percent=2.0) for name in SMALL]

members = st.builds(
    Member,
    st.sampled_from(["gemm", "a.b-c_2", "x"]),
    st.sampled_from([100.0, 50.0, 26.5]),
)


def windows(entry: dict[str, Any], **known: Any) -> PlannedWindows:
    fields: dict[str, Any] = {"splits": (UNCAPPED,), **entry}
    solo = known.pop("solo", [*BUSY, *IDLE])
    return expand(Plan("run", (PlanEntry(**fields),)), H200, JOBS, solo, **known)


# as text


@given(st.lists(members, min_size=2, max_size=MOST_JOBS).map(tuple))
def test_set_is_read_as_it_was_written(members: JobSet) -> None:
    assert read_set(write_set(members), "--sets") == members


@pytest.mark.parametrize(
    "text", ["a", "", "a+", "+".join("abcdefgh"), "a+b@", "a+b@x", "a@0+b", "a+b@101", "a b+c"]
)
def test_other_texts_are_refused(text: str) -> None:
    """One job is no set, eight are too many, and a limit is a percentage."""
    with pytest.raises(InputError):
        read_set(text, "--sets")


# as windows


def test_named_sets_keep_their_limits() -> None:
    """Processes alike are told apart, and one of another limit is another process."""
    (target,) = windows({"sets": (read_set("small-1+small-0+small-0@50+small-1", ""),)}).mps
    assert [(str(spec), spec.copy) for spec in target.specs] == [
        ("small-0 at 50 %", 0),
        ("small-0 at 100 %", 0),
        ("small-1 at 100 %", 0),
        ("small-1 at 100 %", 1),
    ]


def test_sets_without_a_limit_are_measured_at_each_split_those_with_one_under_mps() -> None:
    sets = (read_set("big-0+small-0", ""), read_set("big-0@50+small-0", ""))
    work = windows({"sets": sets, "splits": (UNCAPPED, TIME_SLICED), "repeats": 2})
    assert [t.specs[0].share.percent for t in work.mps] == [100, 100, 50, 50]
    assert [t.specs[0].share.percent for t in work.time_sliced] == [100, 100]
    sliced = windows({"sets": sets, "splits": (TIME_SLICED,)})
    assert (len(sliced.mps), len(sliced.time_sliced)) == (0, 1)
    assert "needs MPS" in sliced.skipped[0].reason


def test_several_limits_need_mps() -> None:
    """CU masks of two would begin at the same unit; of one job alone they overlap with nobody's."""
    sets = (read_set("big-0@50+small-0@50+small-1", ""), read_set("big-0@50+small-0", ""))
    entry = PlanEntry(sets=sets, splits=(UNCAPPED,))
    work = expand(Plan("run", (entry,)), MI300X, JOBS, [])
    assert [target.jobs for target in work.mps] == [("big-0", "small-0")]
    assert "would overlap" in work.skipped[0].reason
    assert len(windows({"sets": sets}).mps) == 2


def test_set_that_does_not_fit_into_memory() -> None:
    large = [solo_point(name, memory_used_mib=60_000.0) for name in SMALL]
    work = windows({"sets": (read_set("small-0+small-1+small-2", ""),)}, solo=large)
    reason = (
        "small-0 needs 60000 MiB, small-1 60000 MiB and small-2 60000 MiB, together more than "
        "136582 MiB (95 % of NVIDIA H200)"
    )
    assert (work.skipped, work.mps) == ((Skipped(("small-0", "small-1", "small-2"), reason),), ())


def test_limits_are_at_safe_counts() -> None:
    """A named one at an unsafe count is refused."""
    checked = checked_132()
    unsafe = replace(checked, wrong={**checked.wrong, 66: ("gemm",)})
    with pytest.raises(UnsafeCountError, match="66"):
        windows({"sets": (read_set("big-0@50+small-0", ""),)}, counts=CountRules(host=unsafe))


def test_no_such_job_is_told() -> None:
    with pytest.raises(InputError, match="there is no job 'smal'"):
        windows({"sets": (read_set("smal+small-0", ""),)})


# of options


def test_options() -> None:
    named = plan_from_options("", "", "uncapped", sets="a+b+c, a+a+d@50")
    assert named.entries[0].sets == (read_set("a+b+c", ""), read_set("a+a+d@50", ""))
    assert (named.profiles, named.most_jobs, named.jobs(["a", "z"])) == (True, 3, set("abcd"))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"sets": "a"}, "--sets: expected two to 7 jobs"),
        ({"sets": "a+b", "splits": "70/30"}, "uncapped or time-sliced, got 70/30.*a[+]b@50[+]c"),
    ],
)
def test_faulty_options(options: dict[str, Any], what: str) -> None:
    given: dict[str, Any] = {"among": "", "pairs": "", "splits": "uncapped", **options}
    with pytest.raises(InputError, match=what):
        plan_from_options(**given)
