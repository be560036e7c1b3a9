"""A quarter of nights of a site: never retraining, retraining on everything, and `advisor retrain`.

    .venv/bin/python docs/measurements/quarter/nights.py --seeds 1 --out build/quarter.json
    .venv/bin/python docs/measurements/quarter/draw.py build/quarter.json

Points are replayed (see world.py), the clock is the simulation's own, and retraining is what the
command runs. Every second night each host measures a pair; every day twelve pairs are launched at
splits of the nine and watched for drift. Models have 12 trees in place of 60, and what they cost
without counters is not asked, so that a quarter takes some minutes of one core.
"""

import argparse
import dataclasses
import functools
import itertools
import json
import shutil
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from world import BEGIN, DAYS, HOSTS, Truth, World, make_world

from advisor.core.records import PairPoint, SoloPoint
from advisor.core.split import Split
from advisor.errors import AdvisorError
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import make_profiles
from advisor.validity.drift import Compared, Drift, find_drifts
from advisor_data.files.bundled import GPU_MODEL
from advisor_models.onnx_predictor import OnnxPredictor
from advisor_models.registry import Registry
from advisor_training import train
from advisor_training.dataset.split_kinds import in_split_order, split_of
from advisor_training.evaluation import data
from advisor_training.learn import learners
from advisor_training.learn.artefact import write_artefact
from advisor_training.retrain import plausible
from advisor_training.retrain.challenger import train_challenger, training_set
from advisor_training.retrain.collected import Collected, PointSet
from advisor_training.retrain.report import RetrainReport
from advisor_training.retrain.retrain import retrain

EVERY = 2
PAIRS_A_NIGHT = len(HOSTS)
LAUNCHES_A_DAY = 12
FIRST_PAIRS = 12
"""Pairs that the first model was made from."""

TREES = 12

POLICIES = ("never", "blindly", "advisor retrain")


def main() -> None:
    """Simulate, and write what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--poisons", default="1,0.7,1.3", help="1: nothing bad is measured")
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--out", type=Path, default=Path("build/quarter.json"))
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for seed, poison in itertools.product(options.seeds.split(","), options.poisons.split(",")):
        with cheap_models():
            found.append(simulate(int(seed), options.days, float(poison)))
        options.out.write_text(json.dumps(found, indent=1))


@contextmanager
def cheap_models() -> Generator[None]:
    """Fewer trees, and no second fit of everything without counters."""
    with (
        mock.patch.object(learners, "TREES", TREES),
        mock.patch.object(train, "ask_blind", return_value=None),
        mock.patch.object(data, "make_profiles", _made_once),
        mock.patch.object(plausible, "make_profiles", _made_once),
    ):
        yield


def _made_once(points: Iterable[SoloPoint]) -> Any:
    """Profiles never change here."""
    return _made_of(tuple(points))


_made_of = functools.lru_cache(maxsize=4)(make_profiles)


def simulate(seed: int, days: int, poison: float) -> dict[str, Any]:
    """One quarter by all policies, over the same nights."""
    world = make_world(seed, poison)
    first, measured = begun(world)
    with tempfile.TemporaryDirectory() as scratch:
        sites = [Site(Path(scratch) / policy, policy, first, world.bad) for policy in POLICIES]
        launches: list[tuple[PairPoint, int]] = []
        rows: list[dict[str, Any]] = []
        for day in range(days):
            new = list(campaign(world, day, measured)) if day % EVERY == 0 else []
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


def begun(world: World) -> tuple[PointSet, set[tuple[str, str]]]:
    """What the first model is made of, a month ago, and which pairs these are."""
    first = sorted(world.pairs(0), key=lambda truth: -len(truth.points))[:FIRST_PAIRS]
    pairs = tuple(point for truth in first for point in world.night([truth], -30))
    return PointSet(pairs=pairs, profiled=tuple(world.solos)), {truth.jobs for truth in first}


class Site:
    """A registry and a store of points under one policy."""

    def __init__(self, folder: Path, policy: str, begun: PointSet, bad: Set[str]) -> None:
        self.policy, self._begun, self._own, self._bad = policy, begun, PointSet(), bad
        bundled = folder / "bundled"
        self._first = train_challenger(begun, training_set(begun), BEGIN, lambda _: None)
        self._first.write(bundled)
        self.models = folder / "models"
        self.registry = Registry(self.models, bundled)
        self._blind = folder / "blind"
        self.predictor = OnnxPredictor(bundled)
        self._said: dict[tuple[str, str], list[Prediction]] = {}
        self.log: list[dict[str, Any]] = []

    def expected(self, truth: Truth, profiles: Any) -> list[Prediction]:
        """What the model in use says of a pair at all its limited splits."""
        if truth.jobs not in self._said:
            splits: list[Split] = [split_of(point) for point in truth.limited]
            jobs = [profiles[p.job, GPU_MODEL] for p in in_split_order(truth.limited[0])]
            self._said[truth.jobs] = list(self.predictor.predict(jobs, splits))
        return self._said[truth.jobs]

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
        if done["outcome"] == "promoted":
            blind = self.policy == "blindly"
            self.predictor = OnnxPredictor(self._blind) if blind else self.registry.open_champion()
            self._said = {}
        self.log.append({"policy": self.policy, "day": day, **done})

    def _retrain(self, now: datetime) -> dict[str, Any]:
        collected = Collected(own=self._own, bundled=self._begun)
        report = retrain(collected, self.models, now, registry=self.registry)
        return _said(report, self._bad & self._own.ids)

    def _learn_all(self) -> dict[str, Any]:
        """The trees alone: what they say of themselves is as of the first day."""
        points = self._begun | self._own
        made_from = train.make_training_set(points.pairs, points.profiled)
        shutil.rmtree(self._blind, ignore_errors=True)
        trees = learners.fit(learners.extra_trees, made_from.rows)
        first = self._first.manifest
        write_artefact(self._blind, trees, made_from.rows, first, with_joblib=False)
        return {"outcome": "promoted"}


def _said(report: RetrainReport, bad: Set[str]) -> dict[str, Any]:
    return {
        "outcome": report.outcome,
        "why": report.why,
        "new": report.new_points,
        "left_out": {one.reason: one.points for one in report.left_out},
        "bad_left_out": {
            one.reason: len(bad.intersection(one.point_ids)) for one in report.left_out
        },
        "bad_there": len(bad),
    }


def campaign(world: World, day: int, measured: set[tuple[str, str]]) -> Iterator[PairPoint]:
    """What is measured in a night: pairs that were not measured yet go first; then others again."""
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
        point = truth.limited[world.rng.integers(len(truth.limited))]
        host = HOSTS[second % 2]  # the poisoned one measures; nobody launches there
        yield world.measured(point, day, host, 3600 + second)


def watch(
    world: World, site: Site, launches: Sequence[tuple[PairPoint, int]], day: int
) -> tuple[Drift, ...]:
    """What drifts by the launches of the last 30 days, by the model in use."""
    predictor, profiles = site.predictor, world.profiles
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
    rates: list[float] = []
    power: list[float] = []
    for truth in world.pairs(day):
        said = site.expected(truth, world.profiles)
        for point, expected in zip(truth.limited, said, strict=True):
            true = world.truly(point, day)
            parts = zip(in_split_order(true), expected.parts, strict=True)
            rates += [abs(np.log(its.rate.value / (part.rate or np.nan))) for part, its in parts]
            power.append(abs(np.log(expected.power_w.value / (true.power_w or np.nan))))
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
