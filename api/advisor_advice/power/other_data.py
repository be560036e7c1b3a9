"""What data that were not profiled change in the power of jobs, by the model of power by data."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from advisor.core.interval import Interval
from advisor.core.wording import listed
from advisor.errors import InputError
from advisor.formats.wire import read_tolerant
from advisor.predict.predictions import Predictor
from advisor.predict.profiles import Profile
from advisor.wire.input_power import FEATURES, InputFingerprint
from advisor.wire.recommendation import ChangedData
from advisor_advice.site.known_profiles import ProfileSet
from advisor_data.files.bundled import bundled_dtype
from advisor_power.model.data_predictor import DataPredictor
from advisor_power.model.find import load_input_model
from advisor_power.model.other_data import (
    OPERATIONS_PER_CYCLE,
    CardBounds,
    DataChange,
    busy_units,
    data_change,
    most_operations_per_s,
    operations_per_s,
    unknown_change,
    uses_tensor_cores,
    with_data,
)
from advisor_power.model.predictor import InputPredictor

SAME = 0.01
"""Fingerprints that differ by no more in any number are of the same data, drawn again."""

_FELT = 0.005
"""Part of the speed from which on a change of it is told."""


@dataclass(frozen=True, slots=True)
class OtherData:
    """Data of jobs that advice takes in; by default those that were profiled.

    Attributes:
        changes: One for each job whose data are told.
    """

    changes: tuple[DataChange, ...] = ()

    def applied(
        self, predictor: Predictor, profiles: Sequence[Profile]
    ) -> tuple[Predictor, tuple[Profile, ...]]:
        """Predictor and profiles for these data; both as they are where none are told."""
        if not self.changes:
            return predictor, tuple(profiles)
        there = DataPredictor(predictor, profiles, {c.job: c for c in self.changes})
        return there, there.changed(profiles)

    def changed(self, found: ProfileSet) -> ProfileSet:
        """Profiles as they would have been measured with these data."""
        by_job = {change.job: change for change in self.changes}
        profiles = (
            with_data(p, change) if (change := by_job.get(p.job)) else p for p in found.profiles
        )
        return replace(found, profiles=tuple(profiles))

    @property
    def as_profiled(self) -> frozenset[str]:
        """Jobs whose data that were told are those that were profiled."""
        nothing = Interval(0.0, 0.0, 0.0)
        return frozenset(change.job for change in self.changes if change.work_w == nothing)

    def not_told(self, jobs: Sequence[str]) -> tuple[str, ...]:
        """Those of the jobs whose data may be any."""
        told = {change.job for change in self.changes}
        return tuple(job for job in jobs if job not in told)

    def to_wire(self) -> tuple[ChangedData, ...]:
        """As command line, service and client tell it."""
        return tuple(
            ChangedData(
                job=one.job,
                whole_gpu_w=one.whole_gpu_w,
                whole_gpu_speed=one.whole_gpu_speed,
                why_unknown=one.why_unknown,
            )
            for one in self.changes
        )

    @property
    def warnings(self) -> Iterator[str]:
        """What was done for each job, in words."""
        return map(_in_words, self.changes)


def _in_words(change: DataChange) -> str:
    watts, speed = change.whole_gpu_w, change.whole_gpu_speed
    if change.why_unknown:
        return (
            f"what the data of {change.job} change is not known ({change.why_unknown}): "
            f"alone on the whole GPU power is {round(watts.low):+d} to {round(watts.high):+d} W, "
            f"and speed {_percent(speed.low)} to {_percent(speed.high)} %"
        )
    moved = f"{round(watts.value):+d} W ({round(watts.low):+d} to {round(watts.high):+d})"
    if abs(speed.value - 1) < _FELT:
        what, faster = "power is", ""
    else:
        what, faster = "power and speed are", f" and {_percent(speed.value)} % speed"
    told = f"{moved}{faster} alone on the whole GPU"
    return f"{what} corrected for the data of {change.job}: {told}"


def _percent(ratio: float) -> str:
    return f"{round(100 * ratio - 100):+d}"


NO_OTHER = OtherData()

Told: TypeAlias = Callable[[ProfileSet], OtherData]
"""What data that were told change, for profiles with their idle power."""


def nothing_told(found: ProfileSet) -> OtherData:
    """No data were told: what was profiled will run."""
    return NO_OTHER


def told_here(data: Mapping[str, InputFingerprint], home: Path) -> Told:
    """By the model of power by data in use, which is loaded only where there are data.

    Args:
        data: What will run, by job.
        home: Where models are kept.

    Raises:
        ModelError: on the first profiles, there is no model, or it is damaged.
    """

    def changes(found: ProfileSet) -> OtherData:
        return other_data(found, data, load_input_model(home, found.a.gpu_model))

    return changes if data else nothing_told


def other_data(
    found: ProfileSet, data: Mapping[str, InputFingerprint], model: InputPredictor
) -> OtherData:
    """What the data of some of the jobs change.

    Args:
        found: Profiles of the jobs.
        data: What will run, by job.
        model: Of power by data.

    Raises:
        InputError: a job is none of these.
    """
    names = [profile.job for profile in found.profiles]
    if strange := sorted(data.keys() - set(names)):
        raise InputError(
            f"there are data of {listed(strange)}", fix=f"the jobs are {' and '.join(names)}"
        )
    profiles = {profile.job: profile for profile in found.profiles if profile.job in data}
    return OtherData(
        tuple(
            _change(profile, data[job], model, bundled=job in found.bundled)
            for job, profile in profiles.items()
        )
    )


def _change(
    profile: Profile, real: InputFingerprint, model: InputPredictor, *, bundled: bool
) -> DataChange:
    if real.dtype not in OPERATIONS_PER_CYCLE or not uses_tensor_cores(profile):
        return unknown_change(profile, f"no tensor core computes its products, in {real.dtype}")
    profiled = _profiled(profile, real.dtype, model, bundled=bundled)
    if isinstance(profiled, str):
        return unknown_change(profile, profiled)
    per_s = operations_per_s(profile, real.dtype)
    if per_s is None:
        return unknown_change(profile, "its profile does not say how busy the tensor cores were")
    if _alike(profiled, real.features):
        return data_change(profile, Interval(0.0, 0.0, 0.0))
    try:
        before, after = (
            model.energy_above_idle_j(features, real.dtype, profile.gpu_model)
            for features in (profiled, real.features)
        )
        idle_w = model.manifest.known.card(profile.gpu_model).idle_w
    except InputError as error:
        return unknown_change(profile, error.what)
    per_s = min(per_s, most_operations_per_s(profile, before.value, idle_w))
    card = CardBounds(
        tops=_tops(profile, real.dtype, model), rest_w=max(0.0, idle_w - profile.idle_power_w)
    )
    return data_change(profile, _difference(before, after).times(per_s), card)


def _tops(profile: Profile, dtype: str, model: InputPredictor) -> tuple[float, ...]:
    """The highest clock with tensor cores as busy as in the profile, as parts of the profile's."""
    known = model.manifest.known
    found_mhz = known.highest_clock_mhz(profile.gpu_model, dtype, busy_units(profile))
    found = np.minimum(found_mhz / np.nanmax(profile.values["sm_clock_mhz"]), 1.0)
    return tuple(np.where(np.isnan(found), 1.0, found).tolist())


def _profiled(
    profile: Profile, dtype: str, model: InputPredictor, *, bundled: bool
) -> Mapping[str, float] | str:
    """Fingerprint of the data of a profile, or why there is none."""
    if profile.input_fingerprint is not None:
        known = read_tolerant(InputFingerprint, profile.input_fingerprint)
        if known.dtype != dtype:
            return f"it was profiled in {known.dtype}, not in {dtype}"
        if set(FEATURES) - known.features.keys():
            return "its profile has a fingerprint of an older version: profile it again"
        return known.features
    if not bundled:
        return "its profile does not say what data it was measured with"
    if (own := bundled_dtype(profile.job)) != dtype:
        return f"it was profiled in {own}, not in {dtype}"
    # The data card of the bundled points: normal random numbers, all of them.
    return model.usual(dtype) or f"no input of {dtype} was measured"


def _difference(before: Interval, after: Interval) -> Interval:
    """What comes after less what was before, which was measured: the bounds are of the former."""
    return Interval(*(joules - before.value for joules in (after.value, after.low, after.high)))


def _alike(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    return all(abs(one[name] - other[name]) <= SAME for name in FEATURES)
