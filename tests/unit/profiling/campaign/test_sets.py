"""Sets of jobs: their text, what is drawn, and the windows that a plan makes of them."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planned import H200, MI300X, job, jobs, solo_point
from unsafe_counts import UNSAFE_132, checked_132

from advisor.core.gpu import units_for_percent
from advisor.core.job import ProgressSettings
from advisor.core.split import TIME_SLICED, UNCAPPED
from advisor.errors import InputError, UnsafeCountError
from advisor_profiling.campaign.plan import (
    MOST_JOBS,
    CountRules,
    DrawnSets,
    JobSet,
    Member,
    Plan,
    PlanEntry,
    PlannedWindows,
    Skipped,
    draw,
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
    return expand(Plan("run", (PlanEntry(**fields),)), H200, JOBS, [], solo, **known)


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


# drawn


def fifty(name: str) -> list[float]:
    return [50.0]


def test_drawn_sets_are_of_every_size_and_kind() -> None:
    """Copies, mixed ones, and some around a job that fills the GPU, with and without a limit.

    No job is in a set more than twice, except in a set of its copies; nothing is drawn twice.
    A short campaign is a small one, not one of copies.
    """
    found = draw(DrawnSets(27), KINDS, BIG, fifty)
    big = [sum(member.job in BIG for member in members) for members in found]
    assert (len(set(found)), Counter(big)) == (27, {0: 13, 1: 12, 2: 2})
    assert {len(members) for members in found} == set(range(2, MOST_JOBS + 1))
    assert len({len(members) for members in found[:8]}) >= 4
    limited = [m for m in found if any(member.percent == 50 for member in m)]
    assert len(limited) == 6
    for members in limited:
        assert tuple(sorted(Member(member.job) for member in members)) in found
        assert sum(member.percent < 100 for member in members) == 1
    for members in found:
        assert len(set(members)) == 1 or max(Counter(m.job for m in members).values()) <= 2
    assert found != draw(DrawnSets(27, 2), KINDS, BIG, fifty)


@given(st.integers(1, 99), st.integers(1, 60), st.integers(0, 9), st.integers(0, 4))
def test_same_seed_draws_the_same_sets(seed: int, count: int, small: int, big: int) -> None:
    """In whatever order jobs come; fewer jobs make fewer sets, and none are no fault."""
    jobs = SMALL[:small] + BIG[:big]
    wanted = DrawnSets(count, seed)
    drawn = draw(wanted, dict.fromkeys(jobs), BIG, fifty)
    assert draw(wanted, dict.fromkeys(jobs[::-1]), BIG, fifty) == drawn
    assert len(set(drawn)) == len(drawn) <= count
    assert len(drawn) == count or small <= 2 or not big


@given(st.integers(1, 99))
def test_rounds_are_of_many_kinds_and_every_job_has_its_turn(seed: int) -> None:
    """However many jobs there are of one kind, a round has some of the others."""
    kinds = {**KINDS, **dict.fromkeys(SMALL[:2], "images"), SMALL[2]: "clips"}
    found = draw(DrawnSets(270, seed), kinds, BIG, fifty)
    for first in range(0, 270, 27):
        round_of = {m.job for members in found[first : first + 27] for m in members}
        assert {kinds[job] for job in round_of} == {None, "images", "clips"}
    assert {m.job for members in found[: 3 * 27] for m in members} == set(JOBS)


# as windows


def test_named_sets_keep_their_limits() -> None:
    """Processes alike are told apart, and one of another limit is another process."""
    named = read_set("small-1+small-0+small-0@50+small-1", "")
    (target,) = windows({"sets": (named,)}).mps
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
    work = expand(Plan("run", (entry,)), MI300X, JOBS, [], [])
    assert [target.jobs for target in work.mps] == [("big-0", "small-0")]
    assert "would overlap" in work.skipped[0].reason
    assert len(windows({"sets": sets}).mps) == 2


def test_jobs_that_fill_the_gpu_are_known_by_their_points() -> None:
    """Half of the time or more an SM is active; of others, and without MPS, none gets a limit."""
    drawn = {"among": "all", "sets": DrawnSets(27)}
    limited = [
        [spec.job.name for spec in target.specs if spec.share.percent < 100]
        for target in windows(drawn).mps
    ]
    assert len(limited) == 27
    assert {name for names in limited for name in names} <= set(BIG)
    assert sum(map(bool, limited)) >= 6
    unknown = windows(drawn, solo=[])
    assert all(spec.share.percent == 100 for t in unknown.mps for spec in t.specs)
    sliced = windows({**drawn, "splits": (TIME_SLICED,)})
    assert (len(sliced.time_sliced), sliced.mps, sliced.skipped) == (27, (), ())


def test_what_is_known_of_another_gpu_model_is_better_than_nothing() -> None:
    """A job fills an H100 that fills an H200; what its own GPU model says goes before."""
    other: dict[str, Any] = {"gpu_model": "NVIDIA H100 80GB HBM3"}
    elsewhere = [
        solo_point(name, sm_active_percent=97.0, dram_active_percent=20.0, **other) for name in BIG
    ]
    entry = {"among": "all", "sets": DrawnSets(27)}
    assert windows(entry, solo=elsewhere).mps == windows(entry, solo=BUSY).mps
    idle_here = [solo_point(name, sm_active_percent=3.0, dram_active_percent=2.0) for name in BIG]
    assert windows(entry, solo=[*elsewhere, *idle_here]).mps == windows(entry, solo=[]).mps


def test_a_job_without_a_gate_is_not_drawn() -> None:
    """It would run in every other window, too."""
    known = {**JOBS, "free": job("free", gate=False)}
    entry = PlanEntry(among="all", sets=DrawnSets(60), splits=(UNCAPPED,))
    work = expand(Plan("run", (entry,)), H200, known, [], [])
    assert "free" not in {name for target in work.mps for name in target.jobs}


def test_set_that_does_not_fit_into_memory() -> None:
    large = [solo_point(name, memory_used_mib=60_000.0) for name in SMALL]
    work = windows({"sets": (read_set("small-0+small-1+small-2", ""),)}, solo=large)
    reason = (
        "small-0 needs 60000 MiB, small-1 60000 MiB and small-2 60000 MiB, together more than "
        "136582 MiB (95 % of NVIDIA H200)"
    )
    assert work.skipped == (Skipped(("small-0", "small-1", "small-2"), reason),)
    assert work.mps == ()


def test_limits_are_at_safe_counts() -> None:
    """A named one at an unsafe count is refused; drawn ones are moved."""
    checked = checked_132()
    unsafe = replace(checked, wrong={**checked.wrong, 66: ("gemm",)})
    rules = CountRules(host=unsafe)
    work = windows({"among": "all", "sets": DrawnSets(60)}, counts=rules)
    of_big = [spec.share.percent for t in work.mps for spec in t.specs if spec.job.name in BIG]
    units = {units_for_percent(percent, 132) for percent in of_big}
    assert units.isdisjoint({66, *UNSAFE_132})
    assert len(units) > 2
    with pytest.raises(UnsafeCountError, match="66"):
        windows({"sets": (read_set("big-0@50+small-0", ""),)}, counts=rules)


def test_jobs_are_of_a_kind_that_count_the_same_and_answer_alike() -> None:
    """Many servers of images leave room for one of clips, and for training; none has a profile."""
    known = {name: replace(JOBS[name], offered_rate=9.0) for name in SMALL}
    of_clips = ProgressSettings(unit="clips", gate=True)
    known |= {name: replace(job(name), progress=of_clips) for name in ("whisper", "trained")}
    known["whisper"] = replace(known["whisper"], offered_rate=9.0)
    entry = PlanEntry(among="all", sets=DrawnSets(27), splits=(UNCAPPED,))
    work = expand(Plan("run", (entry,)), H200, known, [], [])
    assert {"whisper", "trained"} <= {name for target in work.mps for name in target.jobs}


@pytest.mark.parametrize(
    "entry", [{"sets": (read_set("smal+small-0", ""),)}, {"among": ("smal",), "sets": DrawnSets(2)}]
)
def test_no_such_job_is_told(entry: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="there is no job 'smal'"):
        windows(entry)


# of options


def test_options() -> None:
    named = plan_from_options("", "", "uncapped", sets="a+b+c, a+a+d@50")
    assert named.entries[0].sets == (read_set("a+b+c", ""), read_set("a+a+d@50", ""))
    assert (named.profiles, named.most_jobs, named.jobs(["a", "z"])) == (True, 3, set("abcd"))
    drawn = plan_from_options("", "", "uncapped", sets="40", seed=3)
    assert drawn.entries == (PlanEntry(among="all", sets=DrawnSets(40, 3), splits=(UNCAPPED,)),)
    assert (drawn.most_jobs, drawn.jobs(["a", "z"])) == (MOST_JOBS, {"a", "z"})
    assert drawn.name != plan_from_options("", "", "uncapped", sets="40").name
    some = plan_from_options("a,b", "", "time-sliced", sets="4")
    assert some.entries[0].among == ("a", "b")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"sets": "a"}, "--sets: expected two to 7 jobs"),
        ({"sets": "0"}, "draw one or more"),
        ({"sets": "a+b", "seed": 2}, "--among and --seed say which sets are drawn"),
        ({"sets": "a+b", "among": "a"}, "name sets alone"),
        ({"sets": "a+b", "splits": "70/30"}, "uncapped or time-sliced, got 70/30.*a[+]b@50[+]c"),
    ],
)
def test_faulty_options(options: dict[str, Any], what: str) -> None:
    given: dict[str, Any] = {"among": "", "pairs": "", "splits": "uncapped", **options}
    with pytest.raises(InputError, match=what):
        plan_from_options(**given)
