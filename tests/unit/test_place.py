"""Who shares with whom: the best of all placements, and what placements keep."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import synthetic_pairs as made_up
from hypothesis import given
from hypothesis import strategies as some

from advisor.constraints import Limits
from advisor.errors import InputError
from advisor.place import (
    ALONE,
    NO_LIMITS,
    PLACE_OBJECTIVE,
    Choice,
    Placement,
    Problem,
    make_problem,
    placed,
    value,
)
from advisor.place_options import JobType, PairOptions, job_type, predict_options
from advisor.place_programs import GAP
from advisor.place_rules import all_alone, first_come, greedy
from advisor.place_solver import place
from advisor.predictions import Prediction, Split
from advisor.profiles import Profile, make_profile
from advisor.rules import physical_predictions

IDLE_W = 70.0
SPLITS = ((30.0, 70.0), (50.0, 50.0), (100.0, 100.0))


class Physics:
    """A predictor that has not learned anything."""

    def predict(self, a: Profile, b: Profile, splits: Any) -> list[Prediction]:
        return physical_predictions(a, b, splits)


def problem_of(
    counts: list[int],
    gpus: int,
    *,
    speeds: Any = 0.75,
    pair_w: Any = 300.0,
    alone_w: float = 250.0,
    splits: tuple[Split, ...] = SPLITS,
    idle_power_w: float = IDLE_W,
    objective: str = PLACE_OBJECTIVE,
    limits: Limits = NO_LIMITS,
) -> Problem:
    """Types a, b, .. whose pairs all run at these speeds and power."""
    first, second = np.triu_indices(len(counts))
    shape = (len(first), len(splits))
    pairs = PairOptions(
        first=first,
        second=second,
        splits=splits,
        speed_a=np.broadcast_to(speeds, shape).copy(),
        speed_b=np.broadcast_to(speeds, shape).copy(),
        power_w=np.broadcast_to(pair_w, shape).copy(),
    )
    types = [JobType(name="abcdef"[n], count=c, power_w=alone_w) for n, c in enumerate(counts)]
    return make_problem(
        types, pairs, gpus, idle_power_w=idle_power_w, objective=objective, limits=limits
    )


def all_placements(problem: Problem) -> Iterator[Placement]:
    """Every way in which jobs can be placed, one after the other."""
    options = problem.options
    choices: list[tuple[Choice, tuple[int, ...]]] = [
        ((int(row), int(column)), (int(options.first[row]), int(options.second[row])))
        for row, column in np.argwhere(problem.pair_fits)
    ]
    choices += [((int(t), ALONE), (int(t),)) for t in np.flatnonzero(problem.alone_fits)]
    for taken in range(problem.gpus + 1):
        for some_choices in itertools.combinations_with_replacement(choices, taken):
            jobs = Counter(job for _, ends in some_choices for job in ends)
            if all(jobs[t] <= kind.count for t, kind in enumerate(problem.types)):
                yield placed(problem, Counter(choice for choice, _ in some_choices))


@some.composite
def small_problems(draw: some.DrawFn) -> Problem:
    """Up to three types, up to three GPUs, and limits that some choices do not keep."""
    counts = draw(some.lists(some.integers(1, 3), min_size=1, max_size=3))
    splits = SPLITS[: draw(some.integers(1, 3))]
    seed = draw(some.integers(0, 10_000))
    dice = np.random.default_rng(seed)
    shape = (len(counts) * (len(counts) + 1) // 2, len(splits))
    power_w = dice.uniform(100, 600, shape)
    power_w[dice.random(shape) < 0.1] = np.nan
    return problem_of(
        counts,
        draw(some.integers(1, 3)),
        speeds=dice.uniform(0.1, 1.0, shape),
        pair_w=power_w,
        alone_w=float(dice.uniform(100, 600)),
        splits=splits,
        idle_power_w=draw(some.sampled_from([1.0, 70.0, 700.0])),
        objective=draw(some.sampled_from(["throughput-per-watt", "throughput"])),
        limits=Limits(
            min_speed=draw(some.sampled_from([{}, {"a": 0.3}, {"a": 0.5, "b": 0.5}])),
            max_power_w=draw(some.sampled_from([None, 550.0, 350.0])),
        ),
    )


@given(small_problems())
def test_no_placement_is_better(problem: Problem) -> None:
    """Of all ways, none places more jobs, and none with as many is worth more than the gap says."""
    ways = list(all_placements(problem))
    most = max(way.jobs for way in ways)
    if most == 0:
        with pytest.raises(InputError, match="no job can be placed"):
            place(problem)
        return
    solution = place(problem)
    best = max(value(problem, way) for way in ways if way.jobs == most)
    assert solution.placement.jobs == solution.most_jobs == most
    assert value(problem, solution.placement) >= best / (1 + GAP)
    assert value(problem, solution.placement) <= best * (1 + 1e-9)
    assert best <= value(problem, solution.placement) * (1 + solution.gap) * (1 + 1e-6)
    assert solution.gap <= GAP * (1 + 1e-3)
    assert not solution.timed_out


@given(small_problems(), some.integers(0, 10_000))
def test_every_way_keeps_jobs_and_gpus(problem: Problem, seed: int) -> None:
    """Each job is placed once or waits, on no more GPUs than there are, within all limits."""
    queue = [t for t, kind in enumerate(problem.types) for _ in range(kind.count)]
    np.random.default_rng(seed).shuffle(queue)
    ways = [greedy(problem), all_alone(problem)]
    if (50.0, 50.0) in problem.options.splits:
        ways.append(first_come(problem, queue))
    if problem.pair_fits.any() or problem.alone_fits.any():
        ways.append(place(problem).placement)
    possible = {_key(way) for way in all_placements(problem)}
    for way in ways:
        if way is None:
            continue
        names = Counter(way.waiting)
        for use in way.uses:
            names.update({name: use.gpus * use.jobs.count(name) for name in set(use.jobs)})
        assert names == {kind.name: kind.count for kind in problem.types}
        assert way.gpus_used <= way.gpus
        assert _key(way) in possible


def _key(way: Placement) -> Any:
    return frozenset((use.jobs, use.split, use.gpus) for use in way.uses)


def test_work_and_power_of_all_gpus() -> None:
    """Three jobs on three GPUs: a pair, a job alone, and the power of the GPU that does nothing."""
    found = placed(problem_of([2, 1], 3), {(1, 0): 1, (0, ALONE): 1})
    assert found.work == pytest.approx(0.75 + 0.75 + 1)
    assert found.power_w == pytest.approx(300 + 250 + IDLE_W)
    assert found.work_per_joule == pytest.approx(2.5 / 620)
    assert (found.jobs, found.gpus_used, found.waiting) == (3, 2, {})


def test_idle_power_decides_whether_to_share() -> None:
    """Two jobs on two GPUs share where an empty GPU draws little, not where it draws much."""
    cheap = place(problem_of([2], 2, idle_power_w=20)).placement
    assert [use.jobs for use in cheap.uses] == [("a", "a")]
    dear = place(problem_of([2], 2, idle_power_w=240)).placement
    assert [(use.jobs, use.gpus) for use in dear.uses] == [(("a",), 2)]


def test_pairs_that_do_not_pay_run_alone_while_there_are_gpus() -> None:
    """Slow pairs are avoided with three GPUs, and made with two, where a job would wait."""
    enough = place(problem_of([3], 3, speeds=0.4)).placement
    assert [(use.jobs, use.gpus) for use in enough.uses] == [(("a",), 3)]
    scarce = place(problem_of([3], 2, speeds=0.4)).placement
    assert {use.jobs for use in scarce.uses} == {("a", "a"), ("a",)}


def test_split_of_a_pair_is_chosen_for_the_whole_cluster() -> None:
    """Beside dear idle GPUs a pair takes the faster split, not the one best by itself."""
    options: dict[str, Any] = {"speeds": [[0.5, 0.8, 0.1]], "pair_w": [[150.0, 300.0, 300.0]]}
    alone = place(problem_of([2], 1, **options)).placement
    assert alone.uses[0].split == SPLITS[0]
    beside_idle = place(problem_of([2], 4, alone_w=2000.0, **options)).placement
    assert beside_idle.uses[0].split == SPLITS[1]


def test_throughput_takes_all_gpus() -> None:
    """By throughput alone, every job gets a GPU of its own however much that draws."""
    problem = problem_of([4], 4, alone_w=5000.0, objective="throughput")
    assert place(problem).placement.work == 4


def test_waiting_jobs_are_named() -> None:
    """Seven jobs have four places on two GPUs."""
    found = place(problem_of([6, 1], 2))
    assert found.placement.jobs == found.most_jobs == 4
    assert sum(found.placement.waiting.values()) == 3
    assert set(found.placement.waiting) <= {"a", "b"}


def test_job_that_fits_nowhere_waits_though_gpus_are_free() -> None:
    """A type over the power ceiling, alone and in pairs, keeps nobody else from a place."""
    power_w = [[900.0] * 3, [900.0] * 3, [300.0] * 3]
    problem = problem_of([2, 2], 4, pair_w=power_w, limits=Limits(max_power_w=500))
    hot = dataclasses.replace(problem, alone_fits=np.array([False, True]))
    found = place(hot)
    assert found.placement.waiting == {"a": 2}
    assert (found.placement.jobs, found.most_jobs) == (2, 2)


def test_nothing_can_be_placed() -> None:
    """Where not one job keeps the limits, that is said; and a time limit is a time."""
    with pytest.raises(InputError, match="no job can be placed"):
        place(problem_of([2], 1, limits=Limits(max_power_w=100)))
    with pytest.raises(InputError, match="time limit of nan"):
        place(problem_of([2], 1), time_limit_s=float("nan"))


def test_one_job_is_not_beside_itself() -> None:
    """A type with one job makes no pair of its own, however good that would be."""
    found = place(problem_of([1, 1], 1, speeds=[[1.0], [0.5], [1.0]])).placement
    assert [use.jobs for use in found.uses] == [("a", "b")]


def test_pairs_must_fit_into_the_memory() -> None:
    """Two jobs of half a card each do not fit: the driver takes some."""
    problem = problem_of([2], 2)
    for memory_mib, sharing in ((36_000.0, True), (39_500.0, False)):
        big = [dataclasses.replace(kind, memory_mib=memory_mib) for kind in problem.types]
        limited = make_problem(
            big, problem.options, 2, idle_power_w=20, limits=Limits(memory_mib=80_000)
        )
        assert (len(place(limited).placement.uses[0].jobs) == 2) is sharing


def test_limits_of_one_job_bind_that_job_only() -> None:
    """The least speed of b rules out every pair with b, whichever side it is on."""
    problem = problem_of([2, 2], 4, idle_power_w=1, limits=Limits(min_speed={"b": 0.8}))
    jobs = {use.jobs: use.gpus for use in place(problem).placement.uses}
    assert jobs == {("a", "a"): 1, ("b",): 2}


def test_greedy_takes_the_best_pair_first() -> None:
    """Greedy is the trap it is: the best pair leaves two jobs that go badly together."""
    speeds = np.array([[0.1], [0.9], [0.8], [0.1], [0.8], [0.1]])  # aa ab ac bb bc cc
    problem = problem_of([1, 1, 2], 2, speeds=speeds)
    assert {use.jobs for use in greedy(problem).uses} == {("a", "b"), ("c", "c")}
    assert {use.jobs for use in place(problem).placement.uses} == {("a", "c"), ("b", "c")}


def test_first_come_pairs_neighbours_at_half_each() -> None:
    """Jobs that follow one another share at 50/50; the last one runs alone."""
    found = first_come(problem_of([2, 2, 1], 5), [0, 1, 1, 0, 2])
    assert {(use.jobs, use.gpus) for use in found.uses} == {(("a", "b"), 2), (("c",), 1)}
    assert {use.split for use in found.uses} == {(50.0, 50.0), None}


def test_first_come_runs_alone_what_may_not_share() -> None:
    """A pair that breaks a limit is not made: the first job runs alone, the next one may share."""
    problem = problem_of([1, 2], 3, limits=Limits(min_speed={"a": 0.9}))
    found = first_come(problem, [0, 1, 1])
    assert {use.jobs for use in found.uses} == {("a",), ("b", "b")}


def test_all_alone_needs_a_gpu_for_each() -> None:
    """Four jobs run alone on four GPUs, not on three."""
    assert all_alone(problem_of([4], 3)) is None
    found = all_alone(problem_of([4], 5))
    assert found is not None
    assert found.power_w == pytest.approx(4 * 250 + IDLE_W)


def test_time_limit_gives_the_best_so_far_and_its_gap() -> None:
    """Out of time from the start, there is still a placement, and how far the best can be."""
    dice = np.random.default_rng(1)
    counts = [3] * 6
    shape = (21, 3)
    speeds, power_w = dice.uniform(0.3, 1.0, shape), dice.uniform(200, 600, shape)
    problem = problem_of(counts, 10, speeds=speeds, pair_w=power_w)
    hurried, unhurried = place(problem, time_limit_s=0.0), place(problem)
    assert hurried.timed_out
    assert not unhurried.timed_out
    best = value(problem, unhurried.placement)
    assert best <= value(problem, hurried.placement) * (1 + hurried.gap) * (1 + 1e-9)


@pytest.mark.parametrize("name", ["raw-throughput-per-watt", "energy-delay", "max-min"])
def test_objectives_that_are_no_sums_are_refused(name: str) -> None:
    """The message says why, and what to use instead."""
    with pytest.raises(InputError, match=rf"by {name}\..+use throughput-per-watt or throughput"):
        problem_of([2], 1, objective=name)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pair_w": 0.0}, "draws no power"),
        ({"speeds": -0.1}, "goes backwards"),
        ({"idle_power_w": 0.0}, "idle GPU is 0"),
        ({"idle_power_w": float("nan")}, "idle GPU is nan"),
        ({"alone_w": 0.0}, "of a alone is 0"),
        ({"objective": "profit"}, "no objective profit"),
    ],
)
def test_nonsense_is_refused(options: dict[str, Any], words: str) -> None:
    """Numbers that no GPU has end in words, not in a placement."""
    with pytest.raises(InputError, match=words):
        problem_of([2], 1, **options)


def test_counts_and_names_are_checked() -> None:
    """No GPU, no job, and one name twice."""
    with pytest.raises(InputError, match="0 GPUs"):
        problem_of([2], 0)
    with pytest.raises(InputError, match="0 jobs of x"):
        JobType(name="x", count=0, power_w=1.0)
    twice = [JobType(name="x", count=1, power_w=1.0)] * 2
    with pytest.raises(InputError, match="x is given as several types"):
        make_problem(twice, problem_of([1, 1], 1).options, 1, idle_power_w=1)


def profiles() -> list[Profile]:
    """Of the made-up jobs, on GPUs whose idle power was measured."""
    points = [dataclasses.replace(p, idle_power_w=made_up.IDLE_W) for p in made_up.solo_points()]
    return [make_profile(p for p in points if p.job == job.name) for job in made_up.JOBS]


def note(into: list[tuple[int, int]]) -> Callable[[int, int], None]:
    """What collects the counts that it is told."""
    return lambda done, pairs: into.append((done, pairs))


def test_options_are_what_the_predictor_says() -> None:
    """Every pair of profiles at the nine splits and uncapped, in one table."""
    told: list[tuple[int, int]] = []
    found = predict_options(profiles(), Physics(), told=note(told))
    assert found.power_w.shape == (15, 10)
    assert told == [(n, 15) for n in range(1, 16)]
    row = list(zip(found.first, found.second, strict=True)).index((1, 3))
    expected = physical_predictions(profiles()[1], profiles()[3], [(30.0, 70.0)])[0]
    assert found.speed_a[row, 2] == expected.speed_a.value
    assert found.speed_b[row, 2] == expected.speed_b.value
    assert found.power_w[row, 2] == expected.power_w.value


def test_splits_that_a_profile_lacks_are_no_options() -> None:
    """A profile from 25 % on has no 10/90, and its job is never put there."""
    whole = profiles()[3]
    cut = dataclasses.replace(
        whole, shares=whole.shares[2:], values={n: v[2:] for n, v in whole.values.items()}
    )
    found = predict_options([cut], Physics())
    assert np.isnan(found.power_w[0]).tolist() == [True] * 2 + [False] * 5 + [True] * 2 + [False]
    problem = make_problem([job_type(cut, 2)], found, 1, idle_power_w=IDLE_W)
    assert not problem.pair_fits[0, :2].any()
    assert place(problem).placement.jobs == 2


def test_profile_without_idle_power_is_refused() -> None:
    """Without it nobody knows what an empty GPU costs, nor what two jobs draw together."""
    lacking = dataclasses.replace(profiles()[0], idle_power_w=float("nan"))
    with pytest.raises(InputError, match="idle power in the profile of climber is nan"):
        predict_options([lacking], Physics())


def test_profiles_of_two_models_are_refused() -> None:
    """A pair shares one GPU."""
    one, other = profiles()[:2]
    with pytest.raises(InputError, match="GPUs of one model"):
        predict_options([one, dataclasses.replace(other, gpu_model="Other")], Physics())
