"""Count the kernels of a unit of work of every job that comes with the project.

    python docs/measurements/own/kernels_per_unit.py rows.jsonl --part 1/4   # GPU; MPS must run
    python docs/measurements/own/kernels_per_unit.py rows.jsonl --bundle   # into the solo points

Each job runs alone, beside kernels of 0.1 ms and beside kernels of 0.5 ms that fill the GPU
(profiling/workloads/short_kernels.py), under MPS without limits. `kernels_beside` turns the rates
of a job and a probe into kernels; the mean of both probes, weighted by their errors, goes to the
job's points at 100 %. Where probes differ by more than their errors, these grow by that ratio.
"""

import argparse
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from windows import ROOT, WORKLOADS, campaign, job_commands

PROBES = {"probe-0.1ms": ("0.1", "20"), "probe-0.5ms": ("0.5", "50")}

PAUSES = ("notebook", "notebook-busy")
"""Jobs that stand still after each unit; others compute the next one meanwhile."""

FEWEST, LEAST_ERROR = 5, 0.01
"""Units in a window that tells a rate; relative error of a rate that no count bounds."""


def rates(path: Path) -> dict[tuple[str, ...], list[tuple[float, ...]]]:
    """Windows by card and jobs: the rate of each job, GPU busy in percent, seconds."""
    found: dict[tuple[str, ...], list[tuple[float, ...]]] = defaultdict(list)
    for row in map(json.loads, path.open()):
        window = (*row["rates_per_s"], row["percent"]["busy"], row["window_s"])
        found[row["uuid"], *row["jobs"]].append(window)
    return found


def columns(path: Path) -> Iterator[tuple[str, dict[str, float]]]:
    """Each job's name and the columns of its points."""
    from advisor.predict.kernels import MeanEstimate, kernels_beside

    windows = rates(path)
    for card, *names in windows:
        told = []
        for probe in PROBES if len(names) == 1 and names[0] not in PROBES else ():
            beside, probe_beside, _, window_s = windows[card, *names, probe][0]
            if beside * window_s < FEWEST:
                continue
            alone = [rate for rate, _, _ in windows[card, *names]]
            probes = [rate for rate, _, _ in windows[card, probe]]
            estimates = (
                MeanEstimate(statistics.fmean(alone), max(alone) - min(alone)),
                MeanEstimate(beside, beside * max(LEAST_ERROR, 1 / (beside * window_s))),
                MeanEstimate(statistics.fmean(probes), statistics.fmean(probes) * LEAST_ERROR / 5),
                MeanEstimate(probe_beside, probe_beside * LEAST_ERROR / 5),
            )
            busy = statistics.fmean(busy for _, busy, _ in windows[card, *names])
            pauses = names[0] in PAUSES
            told.append(kernels_beside(*estimates, busy_percent=busy, pauses=pauses))
        if told:
            n = weighted([(t["kernels_per_unit"], t["kernels_per_unit_stderr"]) for t in told])
            hold = weighted([(t["kernel_hold_s"], t["kernel_hold_stderr_s"]) for t in told])
            yield names[0], dict(zip(told[0], (*n, *hold), strict=True))


def weighted(values: list[tuple[float, float]]) -> tuple[float, float]:
    """Mean of values with standard errors, and its own."""
    weights = [1 / stderr**2 for _, stderr in values]
    mean = sum(w * value for w, (value, _) in zip(weights, values, strict=True)) / sum(weights)
    chi = sum(w * (value - mean) ** 2 for w, (value, _) in zip(weights, values, strict=True))
    return mean, math.sqrt(max(1.0, chi / max(1, len(values) - 1)) / sum(weights))


def bundle(path: Path) -> None:
    """Write the columns into the bundled solo points of the GPU model, and print them."""
    from advisor_data.bundled import bundled_solo_points
    from advisor_data.files import write_points

    model, found = json.loads(path.open().readline())["gpu"], dict(columns(path))
    points, kept = list(bundled_solo_points()), set()
    for place, point in enumerate(points):
        if (point.gpu_model, point.share_percent) == (model, 100) and point.job in found:
            points[place] = replace(point, **found[point.job])
            kept.add(point.job)
    write_points(ROOT / "data/advisor_data/bundled/solo.jsonl", points)
    for job in sorted(kept):
        print(f"{job:25}", *(f"{value:10.4g}" for value in found[job].values()))
    jobs = {point.job for point in points if point.gpu_model == model}
    print(f"{len(kept)} jobs; not measured: {sorted(jobs - kept)}; no points: {set(found) - kept}")


def print_fitted() -> None:
    """How far off kernels are that one bundled pair tells, of jobs that fill and of others."""
    from advisor.predict.sets import fills
    from advisor_advice.conditions import fitted_kernels, measured_split, profiles_of
    from advisor_data.bundled import bundled_points_together, select

    off: dict[bool, list[float]] = {True: [], False: []}
    points = [p for p in select(bundled_points_together())[0] if len(p.parts) == 2]
    profiles = profiles_of({job for point in points for job in point.jobs}, None)
    for point in points:
        split = measured_split(point.mode, point.shares_percent)
        of = [profiles.get((job, point.gpu_model)) for job in point.jobs]
        for seat, own in enumerate(of):
            if split is None or None in of or not own.kernels:
                continue
            known = [replace(p, kernels=None) if n == seat else p for n, p in enumerate(of)]
            pair = SimpleNamespace(split=split, observation=point, profiles=known, prediction=None)
            pair.prediction = pair
            for kernels in fitted_kernels([pair]).values():
                off[fills(own)].append(abs(math.log(kernels.per_unit / own.kernels.per_unit)))
    for is_filling, logs in off.items():
        tenth = statistics.quantiles(logs, n=10)[-1]
        print("fills" if is_filling else "others", len(logs), statistics.median(logs), tenth)


def main() -> None:
    """Measure one part of the jobs, or write what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rows", type=Path)
    parser.add_argument("--part", default="1/1", help="which part of the jobs, of how many")
    parser.add_argument("--only", nargs="*", help="names of jobs")
    parser.add_argument("--seconds", type=float, default=550, help="no window starts after this")
    parser.add_argument("--bundle", action="store_true", help="write into the bundled points")
    parser.add_argument("--fitted", action="store_true", help="errors of kernels that pairs tell")
    given = parser.parse_args()
    if given.bundle or given.fitted:
        print_fitted() if given.fitted else bundle(given.rows)
        return
    part, parts = map(int, given.part.split("/"))
    commands = job_commands()
    names = given.only or sorted(commands)[part - 1 :: parts]
    for probe, (ms, us) in PROBES.items():
        words = [sys.executable, "short_kernels.py", "--ms", ms, "--block-us", us]
        commands[probe] = words, WORKLOADS
    sets = [(probe,) for probe in PROBES]
    for name in names:
        sets += [(name,), *((name, probe) for probe in PROBES)]
    campaign(given.rows, commands, sets, given.seconds)


if __name__ == "__main__":
    main()
