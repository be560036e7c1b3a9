"""Simulates a cluster under several policies, with the same jobs for all of them.

    .venv/bin/python docs/measurements/cluster/run.py --out build/cluster.json

The policies at several loads; run times as in another trace; and sets of up to seven jobs in
clusters like Acme's and Alibaba's. Paired seeds: every policy gets the same jobs.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from advice import advise
from cluster import Ran, simulate
from errors import SETS_ON
from expected import Expected, pair_unseen
from many import Answer, ExpectedSets, Sets, as_many_as_fit, at_the_advice, packed
from measured import make_sites, read_data
from mixes import MIXES
from outcome import figures
from policies import Policy, equal, exclusive, uncapped
from truth import Site, Truth
from workload import AN_HOUR, HELIOS, PHILLY, Job, RunTimes, draw_jobs

from advisor.core.split import ADVISED_JOBS
from advisor.predict.profiles import Profile, make_profiles
from advisor.settings import MIN_SPEED
from advisor_data.files.bundled import bundled_solo_points
from advisor_training.rows import Data

GPUS = {"NVIDIA H200": 192, "NVIDIA H100 80GB HBM3": 64}
DAYS = 2.0
LOADS = (0.6, 0.9, 1.1)
HIGH = LOADS[-1]

Case = tuple[Mapping[str, Truth], Policy]
Drawn = tuple[Mapping[str, int], list[Job]]


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
    def profiles(self) -> dict[str, Profile]:
        """Of all kinds on the GPU model on which sets were measured."""
        known = make_profiles(bundled_solo_points())
        return {job: profile for (job, model), profile in known.items() if model == SETS_ON}

    @cached_property
    def of_sets(self) -> dict[str, tuple[ExpectedSets, Answer, Answer]]:
        """By mix: what is expected of sets, as many as fit, and the advice."""
        said = {name: ExpectedSets(mix.with_memory(self.profiles)) for name, mix in MIXES.items()}
        return {name: (of, as_many_as_fit(of), at_the_advice(of)) for name, of in said.items()}

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


def sets(world: World, seed: int, mix: str) -> dict[str, Case]:
    """Jobs that join others before they take a GPU of their own; a policy knows no errors."""
    expected, fits, advice = world.of_sets[mix]
    sites = {SETS_ON: Sets(expected, world.sites[SETS_ON], seed)}
    found = {
        "exclusive": exclusive(sites),
        "as many as fit": packed(SETS_ON, fits),
        "pairs at the advice": packed(SETS_ON, advice, ADVISED_JOBS),
        "sets at the advice": packed(SETS_ON, advice),
    }
    return {name: (sites, policy) for name, policy in found.items()}


@dataclass(frozen=True)
class Experiment:
    """The cases of a seed, loads, and how long jobs run; a mix is of sets."""

    cases: Callable[[World, int], dict[str, Case]]
    loads: Sequence[float] = (HIGH,)
    run_times: RunTimes = PHILLY
    mix: str = ""

    def draw(self, world: World, gpus: int, load: float, days: float, seed: int) -> Drawn:
        """The GPUs by their model, and the jobs."""
        if self.mix:
            counts = {SETS_ON: gpus}
            weights = MIXES[self.mix].weights(world.of_sets[self.mix][0].profiles)
            kinds = {SETS_ON: list(weights)}
        else:
            counts = {m: round(gpus * own / sum(GPUS.values())) for m, own in GPUS.items()}
            kinds, weights = {model: site.kinds for model, site in world.sites.items()}, None
        return counts, draw_jobs(kinds, counts, load, days, seed, self.run_times, weights)


EXPERIMENTS: Mapping[str, Experiment] = {
    "policies": Experiment(policies, LOADS),
    "Helios": Experiment(policies, run_times=HELIOS),
    "an hour each": Experiment(policies, run_times=AN_HOUR),
    **{
        name: Experiment(partial(sets, mix=name), LOADS[1:], mix.run_times, name)
        for name, mix in MIXES.items()
    },
}


def main() -> None:
    """Simulate, and write the figures of every run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--days", type=float, default=DAYS)
    parser.add_argument("--gpus", type=int, default=sum(GPUS.values()))
    parser.add_argument("--only", choices=EXPERIMENTS, action="append")
    parser.add_argument("--without", metavar="CASE", action="append", default=[])
    parser.add_argument("--load", type=float, action="append")
    parser.add_argument("--out", type=Path, default=Path("build/cluster.json"))
    options = parser.parse_args()
    world = World()
    rows: list[dict[str, Any]] = []
    for name in options.only or EXPERIMENTS:
        for seed in range(1, options.seeds + 1):
            rows += experiment(world, name, seed, options)
            print(f"{name}, seed {seed}", flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(rows, indent=1))


def experiment(
    world: World, name: str, seed: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """A row for each load and case of one seed."""
    of = EXPERIMENTS[name]
    rows: list[dict[str, Any]] = []
    for load in options.load or of.loads:
        counts, jobs = of.draw(world, options.gpus, load, options.days, seed)
        ran: dict[str, tuple[Ran, float]] = {}
        for case, (sites, policy) in of.cases(world, seed).items():
            if case in options.without:
                continue
            began = time.process_time()
            ran[case] = simulate(sites, counts, jobs, policy), time.process_time() - began
        horizon_s = max(found.end_s for found, _ in ran.values())
        for case, (found, cpu_s) in ran.items():
            row: dict[str, Any] = {"experiment": name, "load": load, "seed": seed, "case": case}
            row |= {"events": found.events, "cpu_s": cpu_s, "held": found.held}
            rows.append({**row, **figures(found, horizon_s)})
    return rows


if __name__ == "__main__":
    main()
