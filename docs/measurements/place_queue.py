"""What planning a whole queue saves: 200 jobs on 40 and on 120 GPUs, to their end.

    .venv/bin/python docs/measurements/place_queue.py

The jobs are drawn from the bundled ones, each as likely as any other; five seeds. Work is an hour
alone for all of them, or between 10 minutes and 8 hours, uniform in its logarithm. Everything is
predicted, by the model in use. Intervals are of the mean over the seeds (95 %, Student's t).

A search prefers pairs whose errors flatter them. The lines with errors take the predictions for the
truth, add errors to them, plan with those, and score that plan by the truth. Both speeds and the
power of each pair get one error each, normal in the logarithm, of the mean sizes that unseen pairs
have in docs/evaluation.md. This is the worst case: the errors of a regression are partly of the
other kind, truth scattered around what is expected, and those cost nothing of the promise.
"""

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from advisor.core.finish import Rest, Work, finish
from advisor.core.objectives import PartResult, SplitResult
from advisor.place.options import PairOptions
from advisor.place.problem import JobGroup, Problem
from advisor.place.schedule import Schedule
from advisor.place.solver import place, planned
from advisor.predict.profiles import Floats
from advisor.settings import read_settings
from advisor.wire.placement_requests import PlacementRequest
from advisor.wire.requests import QueuedJobs
from advisor_advice.conditions import read_known
from advisor_advice.placing import Planned, limits_of, plan
from advisor_advice.profiles import find_profiles
from advisor_data.files.bundled import bundled_solo_points

JOBS = 200
SEARCH_S = 60.0
"""So long that nearly every search ends by itself, also where others use the cores."""

GPUS = (40, 120)
SEEDS = range(5)
T_95 = 2.776
"""Student's t of 95 % for five values."""

MEAN_TO_SIGMA = 1.2533
"""Standard deviation of a normal error over its mean size."""

HOUR_S = 3600.0


def main() -> None:
    """Print the tables."""
    names = sorted({p.job for p in bundled_solo_points() if p.gpu_model == "NVIDIA H200"})
    for title, work in (("an hour each", hour), ("10 min to 8 h each", spread)):
        for gpus in GPUS:
            plans: list[Planned] = []
            seconds: list[float] = []
            for seed in SEEDS:
                started = time.perf_counter()
                plans.append(planned_queue(names, work, gpus, seed))
                seconds.append(time.perf_counter() - started)
            cut = sum(found.plan.timed_out for found in plans)
            print(
                f"\n{JOBS} jobs, {title}, on {gpus} GPUs, planned in {max(seconds):.1f} s at most,"
            )
            print(f"{cut} of {len(plans)} searches ended by the time limit\n", flush=True)
            show(plans)
            if work is hour:
                show_errors(plans)


def hour(_: np.random.Generator) -> float:
    """The same work for each."""
    return HOUR_S


def spread(dice: np.random.Generator) -> float:
    """Between 10 minutes and 8 hours, in whole steps of 10 minutes."""
    return 600.0 * round(math.exp(dice.uniform(0, math.log(48))))


def planned_queue(
    names: Sequence[str], work: Callable[[np.random.Generator], float], gpus: int, seed: int
) -> Planned:
    """A queue of jobs that are drawn, planned as `advisor place` does it."""
    dice = np.random.default_rng(seed)
    drawn: list[int] = dice.integers(0, len(names), JOBS).tolist()
    queue = tuple(QueuedJobs(job=names[n], work_s=work(dice)) for n in drawn)
    asked = PlacementRequest(jobs=queue, gpus=gpus, gpu_model="NVIDIA H200", time_limit_s=SEARCH_S)
    settings = read_settings()
    known = read_known(find_profiles(asked.names, settings, asked.gpu_model), settings, any_of=True)
    return plan(known, asked, limits_of(asked, settings.min_speed))


def show(plans: Sequence[Planned]) -> None:
    """The three ways, and what the plan saves against the others."""
    print("| way | energy, kWh | of it idle | makespan, h | mean completion, h | slowest job |")
    print("| --- | --- | --- | --- | --- | --- |")
    ways = {"the plan": [p.plan.schedule for p in plans]}
    for name in plans[0].others:
        ways[name] = [p.others[name] for p in plans]
    for name, found in ways.items():
        print(f"| {name} | {' | '.join(cells(found))} |")
    shared = [sum(s.group.split is not None for s in p.plan.slots) for p in plans]
    print(f"\npairs: {mean(shared, '.0f')}; the other jobs run alone")
    for name in plans[0].others:
        against = ways[name]
        energy = [
            100 * (1 - a.energy_j / b.energy_j)
            for a, b in zip(ways["the plan"], against, strict=True)
        ]
        sooner = [
            100 * (1 - a.makespan_s / b.makespan_s)
            for a, b in zip(ways["the plan"], against, strict=True)
        ]
        print(f"against {name}: energy {mean(energy)} % less, done {mean(sooner)} % sooner")


def cells(found: Sequence[Schedule]) -> tuple[str, ...]:
    """Means over the seeds; of the slowest job the minimum speed of all seeds."""
    return (
        f"{statistics.mean(s.energy_j for s in found) / 3.6e6:.1f}",
        f"{statistics.mean(s.idle_j for s in found) / 3.6e6:.1f}",
        f"{statistics.mean(s.makespan_s for s in found) / HOUR_S:.2f}",
        f"{statistics.mean(s.mean_completion_s for s in found) / HOUR_S:.2f}",
        f"{100 * min(s.slowest.speed for s in found):.0f} %",
    )


def show_errors(plans: Sequence[Planned]) -> None:
    """What is left of the saving where the plan is made with wrong numbers."""
    right: list[float] = []
    expected: list[float] = []
    left: list[float] = []
    for seed, found in enumerate(plans):
        sequential = found.others["one after the other"].energy_j
        wrong = with_errors(found, np.random.default_rng(seed))
        misled = place(wrong)
        groups = [true_group(found.problem, slot.group) for slot in misled.slots]
        true = planned(found.problem, groups).schedule
        right.append(100 * (1 - found.plan.schedule.energy_j / sequential))
        expected.append(100 * (1 - misled.schedule.energy_j / sequential))
        left.append(100 * (1 - true.energy_j / sequential))
    speed, power = errors_of(plans[0])
    print(
        f"with errors of {100 * speed:.1f} % and {100 * power:.1f} % in the predictions: "
        f"{mean(expected)} % promised, {mean(left)} % saved ({mean(right)} % without errors)"
    )


def errors_of(found: Planned) -> tuple[float, float]:
    """Mean relative errors of the model on unseen jobs: of a speed and of the power."""
    figures = found.manifest.figures
    return figures["rate_mean_error_percent"] / 100, figures["power_mean_error_percent"] / 100


def with_errors(found: Planned, dice: np.random.Generator) -> Problem:
    """The same queue as a model sees it that is off."""
    problem, options = found.problem, found.problem.options
    speed, power = errors_of(found)

    def off(size: float) -> Floats:
        return np.exp(dice.normal(0, MEAN_TO_SIGMA * size, (options.types.shape[1], 1)))

    speeds = np.array([off(speed), off(speed)])
    wrong = dataclasses.replace(
        options,
        speed=options.speed * speeds,
        # The low end of a speed is off as its middle is.
        low_speed=options.low_speed * speeds,
        power_w=options.power_w * off(power),
    )
    return dataclasses.replace(problem, options=wrong)


def true_group(problem: Problem, group: JobGroup) -> JobGroup:
    """What a group really takes."""
    if group.split is None:
        return group
    options: PairOptions = problem.options
    types = [problem.type_of(job) for job in group.jobs]
    row = options.types.T.tolist().index(types)
    column = next(n for n in range(len(options.splits)) if options.split(row, n) == group.split)
    speeds = options.speed[:, row, column].tolist()
    parts = [PartResult(s, 1, problem.types[t].power_w) for s, t in zip(speeds, types, strict=True)]
    result = SplitResult(tuple(parts), float(options.power_w[row, column]))
    left = options.left_speed[:, row, column], options.left_power_w[:, row, column]
    rests = [Rest(float(speed), float(power_w)) for speed, power_w in zip(*left, strict=True)]
    found = finish(result, Work(tuple(job.work_s for job in group.jobs)), rests)
    # Which of the two ends first does not matter here: the GPU is theirs until both have.
    return dataclasses.replace(group, times_s=(found.time_s, found.time_s), energy_j=found.energy_j)


def mean(values: Sequence[float], form: str = ".1f") -> str:
    """Mean and the interval of it."""
    middle = statistics.mean(values)
    half = T_95 * statistics.stdev(values) / len(values) ** 0.5
    return f"{middle:{form}} ({middle - half:{form}} to {middle + half:{form}})"


if __name__ == "__main__":
    main()
