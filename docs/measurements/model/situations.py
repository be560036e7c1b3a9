"""Prints what intervals hold by kind of pair, and what is chosen by them.

    .venv/bin/python docs/measurements/model/situations.py [--seeds 10]

Bundled pairs, models that have not seen the job (choices), nor the run and its cards (intervals);
every figure is a mean over seeds, in brackets the lowest and the highest of them. Measured speeds
above the speed alone count as it. Choices are of the measurements with 50/50 and most of the nine
splits, then of all. Takes 3 minutes a seed.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, get_args
from unittest import mock

import numpy as np

from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES, SplitResult
from advisor.core.split import EQUAL, Split
from advisor.decide.limits import Limits, floor
from advisor.decide.recommend import TIE
from advisor.predict.gaps import ACTIVE_IDLE_ABOVE
from advisor.predict.profiles import Profile, make_profiles
from advisor.predict.situation import is_launch_bound, kind_of
from advisor_models.intervals import SPLIT, UNCAPPED, LogBounds, bounds_of_stratum
from advisor_training import choices
from advisor_training.choices import (
    CandidateScope,
    Choice,
    ChoiceQuestion,
    KeptBy,
    SpeedBounds,
    choose,
)
from advisor_training.held_out import BY_RUN, PROTOCOLS, HeldOut, leave_one_job_out
from advisor_training.intervals import Residuals, bounds_of, efficiency_residuals, residuals_of
from advisor_training.learners import (
    POWER_LEARNER,
    SPEED_LEARNER,
    Learner,
    extra_trees,
    fit,
    physical,
)
from advisor_training.pairs import Measurement
from advisor_training.points import CheckedPoints, read_measured
from advisor_training.rows import Data, active_idle_above_w, make_data

SMALL_SHARE_PERCENT, SMALL_RATE = 20.0, 0.7
"""A small job has this part of its rate at a fifth of the GPU: most wait for the CPU, and one
(triad on H100) fills the memory bandwidth."""

Choices: TypeAlias = dict[tuple[str, str], list[Choice]]
"""By what chooses, and what is to keep the minimum speed."""


@dataclass(frozen=True)
class Tested:
    """Whether one value of one job left out lies within its interval."""

    what: str
    kind: str
    left_out: str
    pair: int
    held: bool
    width: float


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(parser.parse_args().seeds)
    measured = read_measured(None, None, with_bundled=False)
    data = make_data(measured.pairs, measured.profiled, measured.references, measured.left_out)
    tested: dict[tuple[str, str], list[list[Tested]]] = defaultdict(list)
    chosen: dict[tuple[str, str, str], list[list[Choice]]] = defaultdict(list)
    for seed in seeds:
        by_seed: dict[tuple[str, str], list[Tested]] = defaultdict(list)
        strict = PROTOCOLS[BY_RUN].answer(data.rows, _trees(seed), lambda: None).held_out
        for one in (*tested_speeds(data, strict), *tested_pairs(data, strict)):
            by_seed[one.what, one.kind].append(one)
        for key, found in by_seed.items():
            tested[key].append(found)
        held_out = leave_one_job_out(data.rows, _trees(seed))
        for key, picked in of_both_bases(partial(chosen_by, "trees", data, held_out, "every way")):
            chosen[key].append(picked)
        print(f"seed {seed} done", flush=True)
    show_intervals(tested)
    show_active_idle(measured, data)
    unlearned = leave_one_job_out(data.rows, physical)
    show_physics(data, unlearned)
    by_physics = partial(chosen_by, "physics", data, unlearned, "nine or exclusive")
    for key, picked in of_both_bases(by_physics):
        chosen[key].append(picked)
    show_choices(data, chosen)


def of_both_bases(
    choose: Callable[[], Choices],
) -> Iterator[tuple[tuple[str, str, str], list[Choice]]]:
    """Choices of full measurements, then of all, the other ones with what splits they have."""
    yield from (((*key, "full"), found) for key, found in choose().items())
    baselines = {**choices.BASELINES, "equal": _equal_if_measured}
    with (
        mock.patch.object(Measurement, "is_full", True),
        mock.patch.object(choices, "BASELINES", baselines),
    ):
        yield from (((*key, "all"), found) for key, found in choose().items())


def _equal_if_measured(measurement: Measurement) -> SplitResult | None:
    return measurement.nine.get(EQUAL)


def _trees(seed: int) -> Learner:
    return lambda rows: fit(lambda: extra_trees(seed), rows)


def tested_speeds(data: Data, held_out: HeldOut) -> Iterator[Tested]:
    """Every speed of every job left out, within what is shown of it."""
    rows = data.rows
    residuals = residuals_of(rows, held_out, SPEED_LEARNER)
    for name in rows.jobs:
        known = SpeedBounds(_without(residuals, name))
        for test in np.flatnonzero(held_out.left_out == name).tolist():
            yield from _speeds_of(data, held_out, test, known)


def _speeds_of(data: Data, held_out: HeldOut, test: int, known: SpeedBounds) -> Iterator[Tested]:
    row, rows = int(held_out.row[test]), data.rows
    profiles = data.profiles_of(data.measurements[int(rows.measurement[row])])
    place = UNCAPPED if rows.kind[row] == UNCAPPED else SPLIT
    shares = float(rows.share_a[row]), float(rows.share_b[row])
    split = Split(shares, "uncapped" if place == UNCAPPED else "limited")
    speeds = float(rows.speed_a[row]), float(rows.speed_b[row])
    for n, profile in enumerate(profiles):
        capacity = float(held_out.heads["speed"][test, n])
        speed = speeds[n] if kind_of(profile) == "server" else min(speeds[n], 1.0)
        found = known.around(capacity, split, n, profiles)
        kinds = [f"{place}: {size_of(profile)} beside {size_of(profiles[1 - n])}"]
        kinds += [f"{place}: launch-bound"] if is_launch_bound(profile) else []
        for kind in (*kinds, f"{place}: all"):
            yield Tested(
                "speed", kind, str(held_out.left_out[test]), int(rows.pair[row]),
                found.low - 1e-9 <= speed <= found.high + 1e-9, found.high - found.low,
            )  # fmt: skip


def _without(residuals: Residuals, job: str) -> dict[str, LogBounds]:
    others = (residuals.left_out != job) & (residuals.beside != job)
    return bounds_of(residuals.take(others))


def size_of(profile: Profile) -> str:
    """What a reader calls the job: server, small or filling."""
    if kind_of(profile) == "server":
        return "server"
    rate = np.interp(SMALL_SHARE_PERCENT, profile.shares, profile.values["rate"])
    return "small" if rate >= SMALL_RATE * profile.whole_gpu_rate else "filling"


def tested_pairs(data: Data, held_out: HeldOut) -> Iterator[Tested]:
    """Power and energy of every row of every job left out."""
    kinds = _pair_kinds(data, held_out)
    power = residuals_of(data.rows, held_out, POWER_LEARNER)
    energy = efficiency_residuals(data.rows, held_out)
    for what, residuals in (("power", power), ("energy", energy)):
        for name in data.rows.jobs:
            known = _without(residuals, name)
            for test in np.flatnonzero(residuals.left_out == name).tolist():
                model = "" if residuals.gpu_model is None else str(residuals.gpu_model[test])
                found = bounds_of_stratum(known, str(residuals.stratum[test]), model)
                held = found.low <= float(residuals.values[test]) <= found.high
                pair = int(data.rows.pair[held_out.row[test]])
                for kind in kinds[test]:
                    yield Tested(what, kind, name, pair, held, found.high - found.low)


def _pair_kinds(data: Data, held_out: HeldOut) -> list[list[str]]:
    rows, found = data.rows, list[list[str]]()
    for row in held_out.row.tolist():
        profiles = data.profiles_of(data.measurements[int(rows.measurement[row])])
        place = UNCAPPED if rows.kind[row] == UNCAPPED else SPLIT
        own = [f"{place}: {' and '.join(sorted(map(size_of, profiles)))}", f"{place}: all"]
        bound = any(map(is_launch_bound, profiles))
        found.append([*own, f"{place}: with a launch-bound job"] if bound else own)
    return found


def show_intervals(tested: dict[tuple[str, str], list[list[Tested]]]) -> None:
    """One row for each kind of pair, jobs left out counting the same."""
    print("\n| | windows | pairs | jobs left out | held % | width |")
    print(f"|---|{'--:|' * 5}")
    for (what, kind), seeds in sorted(tested.items()):
        held = [_held_percent(found) for found in seeds]
        wide = np.median([t.width for found in seeds for t in found])
        first = seeds[0]
        print(
            f"| {what}, {kind} | {len(first)} | {len({t.pair for t in first})} | "
            f"{len({t.left_out for t in first})} | {_over(held)} | {wide:.2f} |"
        )


def _held_percent(found: Sequence[Tested]) -> float:
    of: dict[str, list[bool]] = defaultdict(list)
    for one in found:
        of[one.left_out].append(one.held)
    return 100 * float(np.mean([np.mean(values) for values in of.values()]))


def _over(seeds: Sequence[float], digits: int = 0) -> str:
    low, high = min(seeds), max(seeds)
    brackets = f" [{low:.{digits}f} {high:.{digits}f}]" if len(seeds) > 1 else ""
    return f"{np.mean(seeds):.{digits}f}{brackets}"


def chosen_by(by: str, data: Data, held_out: HeldOut, scope: CandidateScope) -> Choices:
    """Choices by what keeps the minimum speed: what is advised, and simpler rules."""
    judged = ChoiceQuestion(OBJECTIVES[DEFAULT_OBJECTIVE], "every way", 0.4)
    return {
        (by, kept): choose(data, held_out, replace(judged, scope=scope, kept=kept), TIE, judged)
        for kept in get_args(KeptBy)
    }


def show_active_idle(measured: CheckedPoints, data: Data) -> None:
    """What the pairs of each GPU model alone tell, and those without any one job."""
    profiles = make_profiles(measured.profiled)
    of_models = {
        model: active_idle_above_w([p for p in data.pairs if p.gpu_model == model], profiles)
        for model in sorted({pair.gpu_model for pair in data.pairs})
    }
    without = [
        active_idle_above_w([p for p in data.pairs if job not in p.jobs], profiles)
        for job in data.rows.jobs
    ]
    models = ", ".join(f"{above_w:.1f} W on {model}" for model, above_w in of_models.items())
    print(
        f"\nactive idle power is {_above_w(data):.1f} W above idle power: {models}; "
        f"without one job {min(without):.1f} to {max(without):.1f} W"
    )


def _above_w(data: Data) -> float:
    return data.active_idle_fill[ACTIVE_IDLE_ABOVE]


def show_physics(data: Data, held_out: HeldOut) -> None:
    """How far off power is without learning."""
    nine = data.rows.kind[held_out.row] == "nine"
    errors = 100 * np.abs(held_out.power_w / data.rows.power_w[held_out.row] - 1)[nine]
    print(f"\nphysics' power is off by {errors.mean():.2f} %, median {np.median(errors):.2f} %")


def show_choices(data: Data, chosen: dict[tuple[str, str, str], list[list[Choice]]]) -> None:
    """What each rule saves and misses, with and without servers."""
    print(
        "\n| measurements | by | keeps 0.4 | pairs | choices | share | energy saved % | "
        "GPU hours saved % | missed % | missed by over a tenth % |"
    )
    print(f"|---|---|---|---|{'--:|' * 6}")
    for (by, rule, basis), seeds in sorted(chosen.items(), key=lambda of: of[0][2], reverse=True):
        for which in ("all", "with a server", "without", "both fill"):
            parts = [[c for c in found if _is_of(data, c, which)] for found in seeds]
            shared = [[c for c in part if c.missed is not None] for part in parts]
            misses = [sum(bool(c.missed) for c in part) for part in shared]
            deep = [sum(_is_deep(data, c) for c in part) for part in shared]
            many = [max(len(part), 1) for part in shared]
            figures = (
                _over([100 * float(np.mean([c.energy_saved for c in p])) for p in parts], 2),
                _over([100 * float(np.mean([1 - 1 / c.stp for c in p])) for p in parts], 1),
                _over([100 * m / n for m, n in zip(misses, many, strict=True)], 1),
                _over([100 * m / n for m, n in zip(deep, many, strict=True)], 1),
            )
            of = f"{len(parts[0])} | {_over([len(p) for p in shared])}"
            print(f"| {basis} | {by} | {rule} | {which} | {of} | {' | '.join(figures)} |")


def _is_of(data: Data, choice: Choice, which: str) -> bool:
    profiles = data.profiles_of(data.measurements[choice.number])
    sizes = {size_of(profile) for profile in profiles}
    server = "server" in sizes
    return {"with a server": server, "without": not server, "both fill": sizes == {"filling"}}.get(
        which, True
    )


def _is_deep(data: Data, choice: Choice) -> bool:
    """Whether a job is more than a tenth below what it was to keep."""
    measurement = data.measurements[choice.number]
    speeds = dict(choices.measured_ways(measurement))[choice.chosen].speeds
    limits = Limits(default_min_speed=0.4)
    profiles = data.profiles_of(measurement)
    return any(s < 0.9 * floor(p, limits) for s, p in zip(speeds, profiles, strict=True))


if __name__ == "__main__":
    main()
