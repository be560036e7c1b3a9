"""Simulates a cluster under several policies, with the same jobs for all of them.

    .venv/bin/python docs/measurements/cluster/run.py --out build/cluster.json
    .venv/bin/python docs/measurements/cluster/draw.py build/cluster.json --png cluster.png

The policies at several loads; run times as in another trace; and what wrong predictions, late
answers and drift cost. Paired seeds: every policy gets the same jobs.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from advice import advise
from cluster import Ran, simulate
from expected import (
    Expected,
    after_drift,
    jobs_unseen,
    known,
    pair_unseen,
    with_errors,
    without_uncapped,
)
from measured import make_sites, read_data
from outcome import figures
from policies import Policy, equal, exclusive, uncapped
from truth import Site, drifted
from workload import AN_HOUR, HELIOS, PHILLY, RunTimes, draw_jobs

from advisor.settings import MIN_SPEED
from advisor_training.dataset.data import Data

GPUS = {"NVIDIA H200": 192, "NVIDIA H100 80GB HBM3": 64}
DAYS = 2.0
LOADS = (0.6, 0.9, 1.1)
HIGH = LOADS[-1]
DRIFT, DRIFTING_PART = 0.8, 0.2
"""A fifth of the kinds of jobs does a fifth less beside others."""

Case = tuple[Mapping[str, Site], Policy]


@dataclass(frozen=True)
class World:
    """The measured pairs, and what the advisor expects of them."""

    @cached_property
    def data(self) -> Data:
        """The bundled points."""
        return read_data()

    @cached_property
    def sites(self) -> dict[str, Site]:
        """The truth."""
        return make_sites(self.data)

    @cached_property
    def expected(self) -> Expected:
        """By models that never saw the pair."""
        return pair_unseen(self.data)

    @cached_property
    def unseen(self) -> Expected:
        """By models that never saw either job beside another one."""
        return jobs_unseen(self.data)

    @cached_property
    def physics(self) -> Expected:
        """Without learning."""
        return without_uncapped(pair_unseen(self.data, "physical"))

    def advisor(
        self, expected: Expected, min_speed: float = MIN_SPEED, *, knows_work: bool = False
    ) -> Policy:
        """The advisor who expects that."""
        return advise(self.data, self.sites, expected, min_speed, knows_work=knows_work)


def policies(world: World, seed: int) -> dict[str, Case]:
    """The policies that are compared."""
    sites, of = world.sites, world.expected
    found = {
        "exclusive": exclusive(sites),
        "uncapped": uncapped(sites),
        "equal split": equal(sites),
        "advisor": world.advisor(of),
        "advisor, no minimum speed": world.advisor(of, 0.0),
        "advisor, run times known": world.advisor(of, knows_work=True),
    }
    return {name: (sites, policy) for name, policy in found.items()}


def faults(world: World, seed: int) -> dict[str, Case]:
    """An advisor that is wrong, or late."""
    sites, right = world.sites, world.advisor(world.expected)
    found = {"exclusive": exclusive(sites), "advisor": right}
    found["never wrong"] = world.advisor(known(world.data, sites))
    found["jobs never seen in a pair"] = world.advisor(world.unseen)
    found["physics, no learning"] = world.advisor(world.physics)
    for sigma in (0.1, 0.2, 0.4):
        wrong = with_errors(world.expected, sigma, seed)
        found[f"off by another {100 * sigma:.0f} %"] = world.advisor(wrong)
    for after_s in (1.0, 60.0, 600.0):
        found[f"answers after {after_s:g} s"] = replace(right, answers_after_s=after_s)
    found["no answer for 20 %"] = replace(right, unadvised_part=0.2)
    return {name: (sites, policy) for name, policy in found.items()}


def drift(world: World, seed: int) -> dict[str, Case]:
    """Some kinds of jobs have changed since they were profiled; with and without knowing it."""
    rng = np.random.default_rng(seed)
    kinds = sorted({kind for site in world.sites.values() for kind in site.kinds})
    which = {str(k) for k in rng.choice(kinds, round(DRIFTING_PART * len(kinds)), replace=False)}
    sites = {model: drifted(site, which, DRIFT) for model, site in world.sites.items()}
    now = after_drift(world.data, world.expected, which, DRIFT)
    found = {
        "exclusive": exclusive(sites),
        "uncapped": uncapped(sites),
        "advisor, stale": world.advisor(world.expected),
        "advisor, drift known": world.advisor(now),
    }
    return {name: (sites, policy) for name, policy in found.items()}


Experiment = tuple[Callable[[World, int], dict[str, Case]], Sequence[float], RunTimes]
"""The cases of a seed, loads, and how long jobs run."""

EXPERIMENTS: Mapping[str, Experiment] = {
    "policies": (policies, LOADS, PHILLY),
    "Helios": (policies, (HIGH,), HELIOS),
    "an hour each": (policies, (HIGH,), AN_HOUR),
    "faults": (faults, (HIGH,), PHILLY),
    "drift": (drift, (HIGH,), PHILLY),
}


def main() -> None:
    """Simulate, and write the figures of every run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--days", type=float, default=DAYS)
    parser.add_argument("--only", choices=EXPERIMENTS, action="append")
    parser.add_argument("--out", type=Path, default=Path("build/cluster.json"))
    options = parser.parse_args()
    world = World()
    rows: list[dict[str, Any]] = []
    for name in options.only or EXPERIMENTS:
        for seed in range(1, options.seeds + 1):
            rows += experiment(world, name, seed, options.days)
            print(f"{name}, seed {seed}", flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(rows, indent=1))


def experiment(
    world: World, name: str, seed: int, days: float, gpus: Mapping[str, int] = GPUS
) -> list[dict[str, Any]]:
    """A row for each load and case of one seed."""
    cases, loads, run_times = EXPERIMENTS[name]
    kinds = {model: site.kinds for model, site in world.sites.items()}
    rows: list[dict[str, Any]] = []
    for load in loads:
        jobs = draw_jobs(kinds, gpus, load, days, seed, run_times)
        ran: dict[str, tuple[Ran, float]] = {}
        for case, (sites, policy) in cases(world, seed).items():
            began = time.process_time()
            ran[case] = simulate(sites, gpus, jobs, policy), time.process_time() - began
        horizon_s = max(found.end_s for found, _ in ran.values())
        for case, (found, cpu_s) in ran.items():
            row = {"experiment": name, "load": load, "seed": seed, "case": case}
            rows.append(
                {**row, "events": found.events, "cpu_s": cpu_s, **figures(found, horizon_s)}
            )
    return rows


if __name__ == "__main__":
    main()
