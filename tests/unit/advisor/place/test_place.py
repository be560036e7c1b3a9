"""A queue to its end: every job is done, energy adds up, and no plan is worse than not sharing."""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import synthetic_pairs as made_up
from hypothesis import given, settings
from hypothesis import strategies as some
from made_up_profiles import Physics, physical_predictions, profile
from unsafe_counts import SAFE_132, UNSAFE_132, checked_132

from advisor.core.gpu import units_for_percent
from advisor.core.objectives import ADVISED, OBJECTIVES, PartResult, Rest, SplitResult, Work, finish
from advisor.core.policy import Policy
from advisor.core.split import EQUAL, Split
from advisor.decide.limits import Request
from advisor.errors import InputError, NoSplitError
from advisor.place.problem import (
    MOST_KINDS,
    JobGroup,
    JobType,
    PairOptions,
    Problem,
    QueuedJob,
    alone_group,
    make_problem,
    predict_options,
)
from advisor.place.schedule import JobRun, Schedule, first_come, schedule, slots
from advisor.place.solver import ALONE, LEAST_S, alone, cheapest, make_groups, place
from advisor.predict.profiles import Profile, make_profile

HOUR_S = 3600.0
IDLE_W = 70.0
ALONE_W = 500.0
SPLITS = (Split((30.0, 70.0)), EQUAL, Split((70.0, 30.0)))
NO_FLOOR = Request(policy=Policy(min_speed=0))

few = settings(max_examples=settings().max_examples // 5)
"""Each example solves some twenty integer programs."""


def options_of(types: int, *, speeds: Any = 0.7, pair_w: Any = 600.0, **fields: Any) -> PairOptions:
    """Pairs that all run at these speeds and power; alone under a limit a job is a tenth faster."""
    index = np.array(np.triu_indices(types))
    shape = (index.shape[1], len(SPLITS))

    def full(value: Any) -> Any:
        return np.broadcast_to(value, shape).astype(np.float64)

    def both(name: str, value: Any) -> Any:
        a, b = name.format("a"), name.format("b")
        return np.array([full(fields.get(a, value)), full(fields.get(b, value))])

    speed = both("speed_{}", speeds)
    left = np.minimum(1.1 * full(fields.get("speed_a", speeds)), 1)
    return PairOptions(
        types=index,
        splits=SPLITS,
        speed=speed,
        low_speed=both("low_speed_{}", full(fields.get("speed_a", speeds))),
        power_w=full(pair_w),
        left_speed=both("left_speed_{}", left),
        left_power_w=both("left_power_{}_w", 400.0),
    )


def problem_of(
    jobs: dict[str, int] | Sequence[QueuedJob],
    gpus: int,
    *,
    alone_w: float = ALONE_W,
    idle_power_w: float = IDLE_W,
    objective: str = "energy-efficiency",
    limits: Request = NO_FLOOR,
    memory_mib: float | None = None,
    **pairs: Any,
) -> Problem:
    """Jobs of an hour, or as given, of types whose pairs are all alike unless set otherwise."""
    if isinstance(jobs, dict):
        jobs = [QueuedJob(name) for name, count in jobs.items() for _ in range(count)]
    names = sorted({job.name for job in jobs})
    return make_problem(
        jobs,
        [JobType(name=name, power_w=alone_w, memory_mib=memory_mib) for name in names],
        options_of(len(names), **pairs),
        gpus,
        idle_power_w=idle_power_w,
        objective=objective,
        limits=limits,
    )


@some.composite
def queues(draw: some.DrawFn, most_jobs: int = 8) -> Problem:
    works = some.sampled_from([600.0, HOUR_S, 5 * HOUR_S])
    jobs = draw(
        some.lists(
            some.builds(QueuedJob, some.sampled_from("abcd"), works),
            min_size=1,
            max_size=most_jobs,
        )
    )
    dice = np.random.default_rng(draw(some.integers(0, 10_000)))
    types = len({job.name for job in jobs})
    shape = (types * (types + 1) // 2, len(SPLITS))
    power_w = dice.uniform(200, 700, shape)
    power_w[dice.random(shape) < 0.1] = np.nan
    speed_a, speed_b = dice.uniform(0.2, 1.0, shape), dice.uniform(0.2, 1.0, shape)
    # Of a job next to its like it does not matter which is called the first.
    first, second = np.triu_indices(types)
    speed_b[first == second] = speed_a[first == second, ::-1]
    power_w[first == second, 2] = power_w[first == second, 0]
    return problem_of(
        jobs,
        draw(some.integers(1, 5)),
        pair_w=power_w,
        alone_w=float(dice.uniform(200, 700)),
        idle_power_w=draw(some.sampled_from([1.0, 70.0])),
        objective=draw(some.sampled_from(["energy-efficiency", "throughput"])),
        limits=Request(policy=Policy(min_speed=draw(some.sampled_from([0, 0.4])))),
        speed_a=speed_a,
        speed_b=speed_b,
        **left_of(dice, types),
    )


def left_of(dice: np.random.Generator, types: int) -> dict[str, Any]:
    """Jobs that are left, random for each type and share: it does not matter who has ended."""
    first, second = np.triu_indices(types)
    speeds, powers_w = dice.uniform(0.2, 1, (types, 101)), dice.uniform(100, 600, (types, 101))
    shares = np.array([split.shares for split in SPLITS], dtype=int)
    at_a, at_b = (first[:, None], shares[:, 0]), (second[:, None], shares[:, 1])
    return {
        "left_speed_a": speeds[at_a],
        "left_speed_b": speeds[at_b],
        "left_power_a_w": powers_w[at_a],
        "left_power_b_w": powers_w[at_b],
    }


def all_matchings(problem: Problem) -> Iterator[list[JobGroup]]:
    groups = make_groups(problem)
    found = [groups.group(n) for n in range(len(groups.row))]

    def rest(left: Counter[QueuedJob], start: int) -> Iterator[list[JobGroup]]:
        if not left.total():
            yield []
        for n in range(start, len(found)):
            after = left.copy()
            after.subtract(found[n].jobs)
            if min(after.values()) >= 0:
                yield from ([found[n], *others] for others in rest(+after, n))

    yield from rest(Counter(problem.queue), 0)


def check_schedule(problem: Problem, found: Schedule) -> None:
    assert [run.number for run in found.runs] == list(range(len(problem.queue)))
    assert tuple(run.job for run in found.runs) == problem.queue
    o = problem.options
    fastest = max(np.nanmax(speed, initial=1.0) for speed in (o.speed, o.left_speed))
    for run in found.runs:
        assert 0 <= run.gpu < problem.gpus
        assert run.speed <= fastest * (1 + 1e-9)
    for gpu in range(problem.gpus):
        here = [run for run in found.runs if run.gpu == gpu]
        for moment in moments(here):
            at = [run for run in here if run.start_s <= moment < run.end_s]
            assert len(at) <= 2
            assert sum(run.share_percent for run in at) <= 100


def moments(runs: Sequence[JobRun]) -> list[float]:
    times = sorted({time for run in runs for time in (run.start_s, run.end_s)})
    spans = [(a, b) for a, b in itertools.pairwise(times) if b - a > 1e-6]
    return [(a + b) / 2 for a, b in spans]


def integral(problem: Problem, found: Schedule) -> tuple[float, list[float]]:
    """Energy and work of each job, summed from what runs on each GPU at each moment."""
    energy_j, done_s = 0.0, [0.0] * len(problem.queue)
    for gpu in range(problem.gpus):
        here = [run for run in found.runs if run.gpu == gpu]
        edges = sorted({0.0, found.makespan_s} | {t for r in here for t in (r.start_s, r.end_s)})
        for since, until in itertools.pairwise(edges):
            at = [r for r in here if r.start_s <= (since + until) / 2 < r.end_s]
            power_w, speeds = doing(problem, at)
            energy_j += power_w * (until - since)
            for run, speed in zip(at, speeds, strict=True):
                done_s[run.number] += speed * (until - since)
    return energy_j, done_s


def doing(problem: Problem, at: Sequence[JobRun]) -> tuple[float, list[float]]:
    """Power of a GPU and speeds of what runs there; a job whose neighbour has ended is limited."""
    if not at:
        return problem.idle_power_w, []
    if len(at) == 1 and at[0].share_percent == 100:
        return problem.types[problem.type_of(at[0].job)].power_w, [1.0]
    o, ends = problem.options, [problem.type_of(run.job) for run in at]
    if len(at) == 1:
        # Of a type at its share, any pair knows what it does when it is left.
        share = at[0].share_percent
        column = SPLITS.index(Split((share, 100 - share)))
        row = next(n for n, first in enumerate(o.types[0]) if first == ends[0])
        return o.left_power_w[0, row, column], [o.left_speed[0, row, column]]
    a, b = (0, 1) if ends[0] <= ends[1] else (1, 0)
    row = o.types.T.tolist().index([ends[a], ends[b]])
    column = SPLITS.index(Split((at[a].share_percent, at[b].share_percent)))
    speeds = dict(zip((a, b), o.speed[:, row, column], strict=True))
    return o.power_w[row, column], [speeds[0], speeds[1]]


@few
@given(queues())
def test_a_plan_keeps_its_promises(problem: Problem) -> None:
    sequential, plan = alone(problem), place(problem)
    assert sequential is not None
    assert plan.schedule.makespan_s <= sequential.schedule.makespan_s * (1 + 1e-6)
    if problem.saves_energy:
        assert plan.schedule.energy_j <= sequential.schedule.energy_j * (1 + 1e-9)
    for group in {slot.group for slot in plan.slots if slot.group.split}:
        a, b = (problem.type_of(job) for job in group.jobs)
        row = problem.options.types.T.tolist().index([a, b])
        assert problem.pair_fits[row, SPLITS.index(group.split or EQUAL)]
        assert (group.energy_saved if problem.saves_energy else group.time_saved) > 0
    for found in (plan.schedule, sequential.schedule, first_come(problem)):
        assert found is not None
        check_done(problem, found)


def check_done(problem: Problem, found: Schedule) -> None:
    """No job waits for ever, no GPU has three.

    Energy is the integral of power over time, of idle GPUs, too, and work that of speed.
    """
    check_schedule(problem, found)
    energy_j, done_s = integral(problem, found)
    assert found.energy_j == pytest.approx(energy_j, rel=1e-6)
    assert done_s == pytest.approx([job.work_s for job in problem.queue], rel=1e-6)


@pytest.mark.slow
@few
@given(queues(), some.floats(0, 0.9), some.floats(0, 0.3))
def test_a_stricter_limit_never_gives_a_better_plan(
    problem: Problem, left_out: float, min_gain: float
) -> None:
    """A floor, a ceiling and a size of memory leave pairs out, and so does a least gain.

    On one GPU nothing is idle and the order does not matter: there it holds to the gap of the
    programs. On several a rule schedules the groups, and may have luck.
    """
    dice = np.random.default_rng(len(problem.queue))
    kept = dice.random(problem.pair_fits.shape) >= left_out
    stricter = (
        dataclasses.replace(problem, pair_fits=problem.pair_fits & kept),
        dataclasses.replace(problem, min_gain=min_gain),
    )
    rounding = 2e-4 if problem.gpus == 1 else 0.01
    best = _counted(problem, place(problem).schedule)
    for strict in stricter:
        assert _counted(problem, place(strict).schedule) >= best * (1 - rounding)


def _counted(problem: Problem, found: Schedule) -> float:
    return found.energy_j if problem.saves_energy else found.makespan_s


@pytest.mark.parametrize(("low", "shares"), [(0.33, False), (0.35, True)])
@pytest.mark.parametrize(
    "limits", [Request(min_speed={"a": 0.4}), Request(policy=Policy(min_speed=0.4))]
)
def test_nine_chances_of_ten_keep_a_floor(low: float, shares: bool, limits: Request) -> None:
    """Expected at 0.7, with a low end below the floor of 0.4, whoever named that."""
    found = place(problem_of({"a": 2}, 1, limits=limits, low_speed_a=low, low_speed_b=low))
    assert any(slot.group.split for slot in found.slots) is shares


@few
@given(queues(), some.randoms(use_true_random=False))
def test_order_of_the_queue_changes_nothing_but_who_starts_first(
    problem: Problem, dice: Any
) -> None:
    queue = list(problem.queue)
    dice.shuffle(queue)
    one, other = place(problem), place(dataclasses.replace(problem, queue=tuple(queue)))
    assert other.schedule.energy_j == pytest.approx(one.schedule.energy_j, rel=1e-12)
    assert other.schedule.makespan_s == one.schedule.makespan_s
    assert Counter(map(_unordered, one.slots)) == Counter(map(_unordered, other.slots))


def _unordered(slot: Any) -> tuple[Any, ...]:
    group = slot.group
    shares = group.split.shares if group.split else (100.0,) * len(group.jobs)
    parts = sorted(
        (job.name, job.work_s, share) for job, share in zip(group.jobs, shares, strict=True)
    )
    return (*parts, group.split and group.split.sharing)


@few
@given(queues(most_jobs=5))
def test_without_idle_power_no_matching_takes_less_energy(problem: Problem) -> None:
    """On one GPU nothing is ever idle, so the least energy is that of the cheapest matching."""
    problem = dataclasses.replace(problem, gpus=1, saves_energy=True)
    latest_s = sum(job.work_s for job in problem.queue) * (1 + 1e-9)
    least_j = min(
        sum(group.energy_j for group in groups)
        for groups in all_matchings(problem)
        if sum(group.time_s for group in groups) <= latest_s
    )
    assert place(problem).schedule.energy_j <= least_j * (1 + 2e-4)


speeds_of_two = some.tuples(some.floats(0.1, 1), some.floats(0.1, 1))
works_of_two = some.tuples(*[some.sampled_from([60.0, HOUR_S, 10 * HOUR_S])] * 2)


@given(speeds_of_two, speeds_of_two, works_of_two)
def test_groups_end_as_two_jobs_do(
    speeds: tuple[float, float], left: tuple[float, float], work_s: tuple[float, float]
) -> None:
    (a, b), (left_a, left_b) = speeds, left
    jobs = [QueuedJob(name, seconds) for name, seconds in zip("ab", work_s, strict=True)]
    pair: dict[str, Any] = {"speed_a": a, "speed_b": b, "pair_w": 100.0}
    left_of_pair: dict[str, Any] = {"left_speed_a": left_a, "left_speed_b": left_b}
    groups = make_groups(problem_of(jobs, 1, alone_w=2000.0, **pair, **left_of_pair))
    result = SplitResult(tuple(PartResult(speed, 1.0, 2000.0) for speed in speeds), 100.0)
    expected = finish(result, Work(work_s), [Rest(speed, 400.0) for speed in left])
    for n in np.flatnonzero(groups.row != ALONE):
        assert groups.group(int(n)).time_s == pytest.approx(expected.time_s)
        assert groups.group(int(n)).energy_j == pytest.approx(expected.energy_j)


def test_an_hour_of_each_by_hand() -> None:
    """Two hours of work in 1/0.7 h at 600 W: 14 % less energy than 2 h at 500 W, 29 % sooner."""
    found = place(problem_of({"a": 2}, 1))
    (slot,) = found.slots
    assert slot.group.speeds == (0.7, 0.7)
    assert found.schedule.makespan_s == pytest.approx(HOUR_S / 0.7)
    assert found.schedule.energy_j == pytest.approx(600 * HOUR_S / 0.7)
    assert slot.group.energy_saved == pytest.approx(1 - 600 / 0.7 / 1000)
    assert slot.group.time_saved == pytest.approx(1 - 1 / 1.4)


def test_two_jobs_on_two_gpus_do_not_share() -> None:
    assert len(place(problem_of({"a": 2}, 2)).slots) == 2


def test_first_come_fills_a_place_that_is_free() -> None:
    jobs = [QueuedJob("a", HOUR_S), QueuedJob("b", 2 * HOUR_S), QueuedJob("a", HOUR_S)]
    found = first_come(problem_of(jobs, 1, speeds=0.5, left_speed_a=0.6, left_speed_b=0.6))
    assert found is not None
    assert [run.start_s / HOUR_S for run in found.runs] == pytest.approx([0, 0, 2])
    assert [run.end_s / HOUR_S for run in found.runs] == pytest.approx([2, 4, 4])


def test_first_come_runs_alone_what_may_not_share() -> None:
    problem = problem_of({"a": 2}, 1, speeds=0.3, limits=Request(policy=Policy(min_speed=0.4)))
    found = first_come(problem)
    assert found is not None
    assert ([run.share_percent for run in found.runs], found.makespan_s) == ([100, 100], 2 * HOUR_S)


def test_pairs_must_fit_into_the_memory() -> None:
    limits = Request(policy=Policy(min_speed=0), memory_mib=80_000)
    for memory_mib, sharing in ((36_000.0, True), (39_500.0, False)):
        found = place(problem_of({"a": 2}, 1, memory_mib=memory_mib, limits=limits))
        assert (len(found.slots) == 1) is sharing


def test_power_ceiling_holds_for_the_job_that_is_left() -> None:
    limits = Request(policy=Policy(min_speed=0), max_power_w=610)
    assert len(place(problem_of({"a": 2}, 1, limits=limits)).slots) == 1
    hot = problem_of({"a": 2}, 1, limits=limits, left_power_a_w=620.0)
    assert len(place(hot).slots) == 2


def test_what_may_not_run_alone_must_share() -> None:
    limits = Request(policy=Policy(min_speed=0), max_power_w=650)
    hot: dict[str, Any] = {"alone_w": 700.0, "limits": limits}
    found = place(problem_of({"a": 4}, 1, **hot))
    assert [len(slot.group.jobs) for slot in found.slots] == [2, 2]
    with pytest.raises(NoSplitError, match="a may not run alone, and has not enough jobs"):
        place(problem_of({"a": 3}, 1, **hot))
    with pytest.raises(NoSplitError, match="a cannot be placed"):
        problem_of({"a": 1}, 1, **hot)
    assert first_come(problem_of({"a": 3}, 1, **hot)) is None
    assert alone(problem_of({"a": 4}, 1, **hot)) is None


def test_longest_first_then_shortest_first_on_each_gpu() -> None:
    """3, 2, 2 and 1 h on two GPUs end after 4 h, and the short ones need not wait for the long."""
    queue = [QueuedJob("a", hours * HOUR_S) for hours in (3, 2, 2, 1)]
    placed = slots([alone_group(job, ALONE_W) for job in queue], 2, queue)
    found = schedule(placed, 2, IDLE_W)
    assert found.makespan_s == 4 * HOUR_S
    assert [(run.gpu, run.start_s / HOUR_S) for run in found.runs] == [
        (0, 1),
        (1, 0),
        (1, 2),
        (0, 0),
    ]
    assert found.idle_j == 0


class Programs:
    """HiGHS, with the time that each program was given; those that find nothing say so."""

    def __init__(self, *, finds: bool = True) -> None:
        self.given_s: list[float] = []
        self._finds = finds

    def __call__(self, *args: Any) -> Any:
        self.given_s.append(args[-1])
        found = cheapest(*args)
        return found if self._finds else None


def test_each_program_gets_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long one takes, all of them end by the limit; out of time none but one is begun."""
    programs = Programs()
    monkeypatch.setattr("advisor.place.solver.cheapest", programs)
    problem = problem_of({"a": 20, "b": 20}, 4)
    place(problem, time_limit_s=30)
    assert len(programs.given_s) > 5
    assert all(after < before <= 30 for before, after in itertools.pairwise(programs.given_s))
    programs.given_s.clear()
    assert place(problem, time_limit_s=0).timed_out
    assert programs.given_s == [LEAST_S]
    assert not place(problem).timed_out


def test_a_program_that_finds_nothing_in_time_leaves_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That plan needs no search; where a job may not run alone there is none, and it is said."""
    monkeypatch.setattr("advisor.place.solver.cheapest", Programs(finds=False))
    problem = problem_of({"a": 2, "b": 2}, 1)
    found, sequential = place(problem, time_limit_s=0), alone(problem)
    assert sequential is not None
    assert (found.slots, found.schedule) == (sequential.slots, sequential.schedule)
    limits = Request(policy=Policy(min_speed=0), max_power_w=650)
    with pytest.raises(InputError, match="no plan was found in time"):
        place(problem_of({"a": 4}, 1, alone_w=700.0, limits=limits), time_limit_s=0)


def test_objectives_that_are_not_for_queues_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    new = dataclasses.replace(OBJECTIVES["throughput"], name="carbon")
    monkeypatch.setattr("advisor.core.objectives.ADVISED", {**ADVISED, "carbon": new})
    for name in (ADVISED.keys() | {"carbon"}) - {"energy-efficiency", "throughput"}:
        with pytest.raises(InputError, match=rf"by {name}\..+use energy-efficiency or throughput"):
            problem_of({"a": 2}, 1, objective=name)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"pair_w": 0.0}, "draws no power"),
        ({"speeds": -0.1}, "goes backwards"),
        ({"idle_power_w": 0.0}, "idle GPU is 0"),
        ({"idle_power_w": math.nan}, "idle GPU is nan"),
        ({"alone_w": 0.0}, "of a alone is 0"),
        ({"objective": "profit"}, "not placed by profit"),
    ],
)
def test_nonsense_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        problem_of({"a": 2}, 1, **fields)


def test_counts_names_and_works_are_checked() -> None:
    with pytest.raises(InputError, match="0 GPUs"):
        problem_of({"a": 2}, 0)
    for work_s in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="of x is not an amount of work"):
            QueuedJob("x", work_s)
    types = [JobType(name="x", power_w=1.0)] * 2
    with pytest.raises(InputError, match="x is given as several types"):
        make_problem([QueuedJob("x")], types, options_of(2), 1, idle_power_w=1)
    many = [QueuedJob("a", 1.0 + n) for n in range(MOST_KINDS + 1)]
    with pytest.raises(InputError, match=r"301 jobs that differ .+ round the work"):
        problem_of(many, 1)
    with pytest.raises(InputError, match="time limit of nan"):
        place(problem_of({"a": 2}, 1), time_limit_s=math.nan)


def profiles() -> list[Profile]:
    points = [dataclasses.replace(p, idle_power_w=made_up.IDLE_W) for p in made_up.solo_points()]
    return [make_profile(p for p in points if p.job == job.name) for job in made_up.JOBS]


def note(into: list[tuple[int, int]]) -> Callable[[int, int], None]:
    return lambda done, pairs: into.append((done, pairs))


def test_options_are_what_the_predictor_and_the_profiles_say() -> None:
    """Every pair of profiles at the nine splits, and each job of it alone under its limit."""
    on_progress: list[tuple[int, int]] = []
    a, b = profiles()[1], profiles()[3]
    found = predict_options(profiles(), Physics(), on_progress=note(on_progress))
    assert (found.power_w.shape, on_progress) == ((15, 9), [(n, 15) for n in range(1, 16)])
    row = found.types.T.tolist().index([1, 3])
    expected = physical_predictions([a, b], [Split((30.0, 70.0))])[0]
    assert found.speed[0, row, 2] == expected.parts[0].speed.value
    assert found.speed[1, row, 2] == expected.parts[1].speed.value
    assert found.power_w[row, 2] == expected.power_w.value
    assert found.left_speed[0, row, 2] == a.at([30.0])["rate"][0] / a.whole_gpu_rate
    assert found.left_power_w[1, row, 2] == b.at([70.0])["power_w"][0]


def test_splits_that_a_profile_lacks_are_no_options() -> None:
    """A profile from 25 % on has no 10/90, and its job is never put there."""
    whole = profiles()[3]
    cut = dataclasses.replace(
        whole, shares=whole.shares[2:], values={n: v[2:] for n, v in whole.values.items()}
    )
    found = predict_options([cut], Physics())
    assert np.isnan(found.power_w[0]).tolist() == [True] * 2 + [False] * 5 + [True] * 2
    types = [JobType(name=cut.job, power_w=cut.whole_gpu_power_w)]
    queue = [QueuedJob(cut.job)] * 2
    problem = make_problem(queue, types, found, 1, idle_power_w=IDLE_W, limits=NO_FLOOR)
    assert not problem.pair_fits[0, :2].any()
    assert len(place(problem).schedule.runs) == 2


def test_pairs_stand_at_safe_counts() -> None:
    """In plans of the solver and of who comes first."""
    jobs = [profile("fft"), profile("triad", wrong_units=frozenset({66}))]
    found = predict_options(jobs, Physics(), checked_132())
    types = [JobType(name=p.job, power_w=2000.0) for p in jobs]  # so that sharing pays
    queue = [QueuedJob(jobs[n].job) for n in (0, 1, 1, 1, 0)]
    problem = make_problem(queue, types, found, 2, idle_power_w=IDLE_W, limits=NO_FLOOR)
    runs = [
        run for one in (place(problem).schedule, first_come(problem)) if one for run in one.runs
    ]
    counts = {(r.job.name, units_for_percent(r.share_percent, 132)) for r in runs}
    assert {count for _, count in counts} & SAFE_132 - {132}
    assert not counts & {("triad", 66), *((p.job, count) for p in jobs for count in UNSAFE_132)}


def test_profile_without_idle_power_is_refused() -> None:
    lacking = dataclasses.replace(profiles()[0], idle_power_w=float("nan"))
    with pytest.raises(InputError, match="idle power in the profile of climber is nan"):
        predict_options([lacking], Physics())


def test_profiles_of_two_models_are_refused() -> None:
    one, other = profiles()[:2]
    with pytest.raises(InputError, match="GPUs of one model"):
        predict_options([one, dataclasses.replace(other, gpu_model="Other")], Physics())


def test_a_pair_of_which_nothing_is_known_does_not_share() -> None:
    found = place(problem_of({"a": 2}, 1, pair_w=math.nan))
    assert [slot.group.split for slot in found.slots] == [None, None]
