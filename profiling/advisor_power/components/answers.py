"""What the power of a job goes to at each share, of two at each split, and who lowers the clock."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from advisor.core.gpu import WHOLE
from advisor.core.records import DOUBTFUL, PairPoint, SoloPoint
from advisor.core.split import UNCAPPED, Split
from advisor.core.telemetry import NEAR_LIMIT
from advisor.decide.recommendation import Decision
from advisor.errors import InputError
from advisor.predict.predictions import Prediction
from advisor.validity.points import with_pair_flags, with_solo_flags
from advisor.wire.answers import (
    Basis,
    ComponentsOfJob,
    ComponentsOfPair,
    PowerParts,
    ShareParts,
    SplitParts,
)
from advisor_power.components.activity import Activity, activity_of
from advisor_power.components.known import KnownPower
from advisor_power.components.parts import components
from advisor_power.components.together import at_once, at_power, at_work, causes

CLOCK_STEP_MHZ = 15.0
"""Clocks of the SMs are multiples of this: a measured loss below it is none."""

UNSURE_MHZ = 120.0
"""Four of five estimated clocks at the power limit are off by less, in measured pairs of jobs that
the weights had not seen (docs/measurements/components.md)."""

_Windows = Mapping[float, tuple[SoloPoint, Activity]]


def components_by_share(known: KnownPower) -> ComponentsOfJob:
    """The parts of the first job's power, from the newest trusted window at each share.

    Raises:
        InputError: it has no window with counters.
    """
    name = known.profiles[0].job
    return ComponentsOfJob(
        job=name,
        gpu_model=known.gpu_model,
        power_limit_w=known.power_limit_w,
        weights=known.fitted_to,
        shares=tuple(
            ShareParts(share_percent=share, power=_of_window(known, *window))
            for share, window in known.windows(name).items()
        ),
    )


def components_by_split(
    known: KnownPower, given: Decision, points: Iterable[PairPoint]
) -> ComponentsOfPair:
    """The parts at each split that was measured, else as it was predicted.

    Args:
        known: Of both jobs.
        given: What is predicted of them, best of all splits whatever their speeds.
        points: Windows of pairs; those of both that can be trusted count, the newest last.

    Raises:
        InputError: a job has no window with counters.
    """
    windows = _windows(known)
    predicted = (option.prediction for option in given.candidates)
    splits = {
        **{p.split: _predicted(known, windows, p) for p in predicted if _is_at_once(p)},
        **dict(_measured(known, windows, _trusted(known, points))),
    }
    in_order = sorted(splits, key=lambda split: (not split.is_limited, split))
    return ComponentsOfPair(
        jobs=tuple(profile.job for profile in known.profiles),
        gpu_model=known.gpu_model,
        power_limit_w=known.power_limit_w,
        weights=known.fitted_to,
        splits=tuple(splits[split] for split in in_order),
    )


def components_at(known: KnownPower, prediction: Prediction) -> SplitParts:
    """The parts of the power that is predicted of both jobs together.

    Raises:
        InputError: they do not run together, or a job has no window with counters.
    """
    if not _is_at_once(prediction):
        raise InputError(
            f"{' and '.join(p.job for p in known.profiles)} run one after the other, or in turns",
            why="the parts are of what two jobs draw together",
            fix="those of each job alone: advisor power components JOB",
        )
    return _predicted(known, _windows(known), prediction)


def _is_at_once(prediction: Prediction) -> bool:
    return prediction.split.sharing in ("limited", "uncapped")


def _windows(known: KnownPower) -> tuple[_Windows, _Windows]:
    a, b = known.profiles
    return known.windows(a.job), known.windows(b.job)


def _of_window(known: KnownPower, point: SoloPoint, activity: Activity) -> PowerParts:
    found = components(known.weights, activity, point.power_w or 0.0, point.memory_power_w)
    return known.told(found, "measured", activity.clock_mhz)


def _trusted(known: KnownPower, points: Iterable[PairPoint]) -> list[PairPoint]:
    """Windows of these jobs together that passed every cross-check, the newest last."""
    mine = [p for p in points if p.jobs == known.pair_names and p.gpu_model == known.gpu_model]
    flagged = with_pair_flags(mine, with_solo_flags(known.solos))
    return sorted(filter(_is_together, flagged), key=lambda p: p.started_at)


def _is_together(point: PairPoint) -> bool:
    right = DOUBTFUL.isdisjoint(point.flags) and (point.power_w or 0) > 0
    # In turns of the driver the jobs are not on the GPU at once.
    return right and point.mode != "time-sliced"


def _predicted(
    known: KnownPower, windows: tuple[_Windows, _Windows], prediction: Prediction
) -> SplitParts:
    """Each job does what it does alone at the share, in proportion to the rate that it keeps."""
    split, power_w, weights = prediction.split, prediction.power_w.value, known.weights
    shares = split.shares if split.is_limited else (WHOLE, WHOLE)
    alone = tuple(_at_share(own, s) for own, s in zip(windows, shares, strict=True))
    rates = [_rate_at(own, share) for own, share in zip(windows, shares, strict=True)]
    kept = [
        part.speed.value * part.solo_rate / rate
        for part, rate in zip(prediction.parts, rates, strict=True)
    ]
    together = at_once(
        [at_work(job, k, weights.highest_clock_mhz) for job, k in zip(alone, kept, strict=True)]
    )
    if _is_at_limit(known, power_w):
        together = at_power(together, weights, power_w)
    return _split_parts(known, split, alone, together, power_w, "estimated")


def _measured(
    known: KnownPower, windows: tuple[_Windows, _Windows], points: Iterable[PairPoint]
) -> Iterator[tuple[Split, SplitParts]]:
    a, b = known.profiles
    turned = a.job > b.job
    for point in points:
        if (together := activity_of(point)) is None:
            continue
        shares = point.shares_percent[::-1] if turned else point.shares_percent
        split = UNCAPPED if point.mode == "uncapped" else Split(shares)
        alone = tuple(_at_share(own, s) for own, s in zip(windows, split.shares, strict=True))
        power_w, memory_w = point.power_w or 0.0, point.memory_power_w
        yield split, _split_parts(known, split, alone, together, power_w, "measured", memory_w)


def _split_parts(
    known: KnownPower,
    split: Split,
    alone: tuple[Activity, ...],
    together: Activity,
    power_w: float,
    basis: Basis,
    memory_power_w: float | None = None,
) -> SplitParts:
    parts = components(known.weights, together, power_w, memory_power_w)
    loss_mhz = known.weights.highest_clock_mhz - together.clock_mhz
    unlike = any(known.weights.outside(activity) for activity in alone)
    why_unknown = _why_unknown(known, power_w, loss_mhz, basis, unlike=unlike)
    of_jobs = None if why_unknown else causes(known.weights, alone)
    causes_mhz = of_jobs and tuple(part.times(loss_mhz) for part in of_jobs)
    names = [profile.job for profile in known.profiles]
    shown = zip(names, causes_mhz or (), strict=False)
    told = " and ".join(f"{name} causes {cause.value:.0f}" for name, cause in shown)
    return SplitParts(
        split=str(split),
        power=known.told(parts, basis, together.clock_mhz),
        clock_loss_mhz=loss_mhz,
        causes_mhz=causes_mhz,
        jostling=f"at {split} {why_unknown}"
        if why_unknown
        else f"at {split} the power limit is reached and the clock falls by {loss_mhz:.0f} MHz, "
        f"of which {told}",
    )


def _why_unknown(
    known: KnownPower, power_w: float, loss_mhz: float, basis: Basis, *, unlike: bool
) -> str:
    """Why it is not said who lowers the clock; empty: it can be said."""
    unknown = "it is unknown who lowers the clock"
    if known.power_limit_w is None:
        return f"{unknown}: the power limit is not known"
    if not _is_at_limit(known, power_w):
        return "the power limit is not reached, so it lowers no clock"
    if loss_mhz < (CLOCK_STEP_MHZ if basis == "measured" else UNSURE_MHZ):
        return f"the power limit is near, and {unknown}: it falls too little to tell"
    if unlike:
        return f"{unknown}: the weights were fitted to nothing like these jobs"
    return ""


def _is_at_limit(known: KnownPower, power_w: float) -> bool:
    return known.power_limit_w is not None and power_w >= NEAR_LIMIT * known.power_limit_w


def _at_share(windows: _Windows, share: float) -> Activity:
    """The job alone at a share, between the measured ones in proportion."""
    known = [activity for _, activity in windows.values()]

    def between(values: list[float]) -> float:
        return float(np.interp(share, list(windows), values))

    return Activity(
        counters={n: between([a.counters[n] for a in known]) for n in known[0].counters},
        units_part=between([a.units_part for a in known]),
        clock_mhz=between([a.clock_mhz for a in known]),
        temperature_c=between([a.temperature_c for a in known]),
    )


def _rate_at(windows: _Windows, share: float) -> float:
    return float(np.interp(share, list(windows), [point.rate for point, _ in windows.values()]))
