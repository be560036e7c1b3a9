"""A quarter of nights of a site: never retraining, retraining on everything, and `advisor retrain`.

    .venv/bin/python docs/measurements/quarter/nights.py --seeds 1 --out build/quarter.json
    .venv/bin/python docs/measurements/quarter/draw.py build/quarter.json

Points are replayed (see world.py), the clock is the simulation's own, and retraining is what the
command runs. Every second night two pairs are measured; every day twelve pairs are launched at
splits of the nine and watched for drift.
"""

import argparse
import dataclasses
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from world import BEGIN, DAYS, HOSTS, World, make_world

from advisor.core.records import PairPoint
from advisor.core.split import Split
from advisor.errors import AdvisorError
from advisor.validity.drift import Compared, Drift, find_drifts
from advisor_models.onnx_predictor import OnnxPredictor
from advisor_models.registry import Registry
from advisor_training.dataset.split_kinds import in_split_order, split_of
from advisor_training.retrain.challenger import train_challenger, training_set
from advisor_training.retrain.collected import Collected, PointSet
from advisor_training.retrain.report import RetrainReport
from advisor_training.retrain.retrain import retrain

EVERY = 2
PAIRS_A_NIGHT = 2
LAUNCHES_A_DAY = 12
FIRST_PAIRS = 12
"""Pairs that the first model was made from."""

POLICIES = ("never", "blindly", "advisor retrain")


def main() -> None:
    """Simulate, and write what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--poison", type=float, default=0.7)
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--out", type=Path, default=Path("build/quarter.json"))
    options = parser.parse_args()
    found = [simulate(int(seed), options.days, options.poison) for seed in options.seeds.split(",")]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1))


def simulate(seed: int, days: int, poison: float) -> dict[str, Any]:
    """One quarter by all policies, over the same nights."""
    world = make_world(seed, poison)
    first = sorted(world.pairs(0), key=lambda truth: -len(truth.points))[:FIRST_PAIRS]
    begun = PointSet(
        pairs=tuple(p for t in first for p in world.night([t], -30)), profiled=tuple(world.solos)
    )
    with tempfile.TemporaryDirectory() as scratch:
        sites = [Site(Path(scratch) / policy, policy, begun) for policy in POLICIES]
        measured = {truth.jobs for truth in first}
        launches: list[tuple[PairPoint, int]] = []
        rows: list[dict[str, Any]] = []
        for day in range(days):
            new = list(_campaign(world, day, measured)) if day % EVERY == 0 else []
            launches += [(point, day) for point in _launched(world, day)]
            for site in sites:
                site.night(new, day)
            rows += [score(world, site, day) for site in sites]
            rows[-1]["drifts"] = [
                drift_row(drift) for drift in watch(world, sites[-1], launches, day)
            ]
            errors = (f"{row['rates_percent']:.1f}" for row in rows[-len(POLICIES) :])
            print(f"seed {seed} day {day}: rates off by", *errors, "%", flush=True)
    nights = [row for site in sites for row in site.log]
    return {
        "seed": seed,
        "poison": poison,
        "drifting": world.drifting,
        "days": rows,
        "nights": nights,
    }


class Site:
    """A registry and a store of points under one policy."""

    def __init__(self, folder: Path, policy: str, begun: PointSet) -> None:
        self.policy, self._begun, self._own = policy, begun, PointSet()
        bundled = folder / "bundled"
        train_challenger(begun, training_set(begun), BEGIN, lambda _: None).write(bundled)
        self.models = folder / "models"
        self.registry = Registry(self.models, bundled)
        self._blind, self._newest = folder / "blind", bundled
        self.log: list[dict[str, Any]] = []

    def predictor(self) -> OnnxPredictor:
        """The model in use."""
        if self.policy == "blindly":
            return OnnxPredictor(self._newest)
        return self.registry.open_champion()

    def night(self, new: Sequence[PairPoint], day: int) -> None:
        """Take in what was measured, and retrain as the policy says."""
        self._own = dataclasses.replace(self._own, pairs=(*self._own.pairs, *new))
        if not new or self.policy == "never":
            return
        now = BEGIN + timedelta(days=day, hours=2)
        try:
            done = self._learn_all() if self.policy == "blindly" else self._retrain(now)
        except AdvisorError as error:
            done = {"outcome": "error", "why": str(error)}
        self.log.append({"policy": self.policy, "day": day, **done})

    def _retrain(self, now: datetime) -> dict[str, Any]:
        collected = Collected(own=self._own, bundled=self._begun)
        return _said(retrain(collected, self.models, now, registry=self.registry))

    def _learn_all(self) -> dict[str, Any]:
        points = self._begun | self._own
        made = train_challenger(points, training_set(points), BEGIN, lambda _: None)
        shutil.rmtree(self._blind, ignore_errors=True)
        made.write(self._blind)
        self._newest = self._blind
        return {"outcome": "promoted"}


def _said(report: RetrainReport) -> dict[str, Any]:
    return {
        "outcome": report.outcome,
        "why": report.why,
        "new": report.new_points,
        "left_out": {one.reason: one.points for one in report.left_out},
    }


def _campaign(world: World, day: int, measured: set[tuple[str, str]]) -> Iterator[PairPoint]:
    """Pairs that were not measured yet go first; then others again."""
    there = world.pairs(day)
    fresh = [truth for truth in there if truth.jobs not in measured]
    pool = fresh if len(fresh) >= PAIRS_A_NIGHT else there
    drawn = [pool[k] for k in world.rng.permutation(len(pool))[:PAIRS_A_NIGHT]]
    measured.update(truth.jobs for truth in drawn)
    yield from world.night(drawn, day)


def _launched(world: World, day: int) -> Iterator[PairPoint]:
    there = world.pairs(day)
    for second in range(LAUNCHES_A_DAY):
        truth = there[world.rng.integers(len(there))]
        limited = [p for p in truth.points if p.mode == "mps"]
        point = limited[world.rng.integers(len(limited))]
        host = HOSTS[second % 2]  # the poisoned one measures; nobody launches there
        yield world.measured(point, day, host, 3600 + second)


def watch(
    world: World, site: Site, launches: Sequence[tuple[PairPoint, int]], day: int
) -> tuple[Drift, ...]:
    """What drifts by the launches of the last 30 days, by the model in use."""
    predictor, profiles = site.predictor(), world.profiles()
    recent = [point for point, at in launches if at > day - 30]
    found = [one for point in recent for one in compared(predictor, profiles, point)]
    return find_drifts(found)


def compared(predictor: OnnxPredictor, profiles: Any, point: PairPoint) -> Iterator[Compared]:
    """Rates and power of a launch, observed and expected."""
    split, jobs = split_of(point), [profiles[p.job, point.gpu_model] for p in in_split_order(point)]
    (expected,) = predictor.predict(jobs, [split])
    fields: dict[str, Any] = {
        "gpu_model": point.gpu_model, "gpu_uuid": point.gpu_uuid, "at": point.started_at,
        "setting": f"{point.jobs} {split}",
    }  # fmt: skip
    for part, its in zip(in_split_order(point), expected.parts, strict=True):
        yield Compared(
            job=part.job, quantity="rate", observed=part.rate or 0.0, expected=its.rate, **fields
        )
        yield Compared(
            job=part.job, quantity="power", observed=point.power_w or 0.0,
            expected=expected.power_w, **fields,
        )  # fmt: skip


def drift_row(drift: Drift) -> dict[str, Any]:
    """What tripped."""
    return {"job": drift.job, "quantity": drift.quantity, "ratio": drift.ratio}


def score(world: World, site: Site, day: int) -> dict[str, Any]:
    """How far off the model in use is from the truth of the day, at all splits of all pairs."""
    predictor, profiles = site.predictor(), world.profiles()
    rates: list[float] = []
    power: list[float] = []
    for truth in world.pairs(day):
        true = [world.truly(point, day) for point in truth.points if point.mode == "mps"]
        splits: list[Split] = [split_of(point) for point in true]
        jobs = [profiles[p.job, true[0].gpu_model] for p in in_split_order(true[0])]
        for point, expected in zip(true, predictor.predict(jobs, splits), strict=True):
            parts = zip(in_split_order(point), expected.parts, strict=True)
            rates += [abs(np.log(its.rate.value / (part.rate or np.nan))) for part, its in parts]
            power.append(abs(np.log(expected.power_w.value / (point.power_w or np.nan))))
    return {
        "policy": site.policy,
        "day": day,
        "version": site.registry.champion() if site.policy != "blindly" else None,
        "rates_percent": 100 * float(np.nanmean(rates)),
        "power_percent": 100 * float(np.nanmean(power)),
        "pairs": len(world.pairs(day)),
    }


if __name__ == "__main__":
    main()
