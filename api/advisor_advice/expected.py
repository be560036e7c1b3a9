"""Stored observations beside what the model in use expects of the same launches today.

Not beside what was expected when they began: a model that has learned since then, or a job that was
profiled again, may be right by now.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from advisor.core.gpu import ADVISED_JOBS, WHOLE, Split, without_limits
from advisor.core.records import Observation, doubt
from advisor.predict.card_factor import observation_ratio
from advisor.predict.predictions import Prediction, Predictor, is_within
from advisor.predict.profiles import Profile
from advisor.predict.sets import AnyWay
from advisor.validity.drift import Compared
from advisor.validity.safe_counts import CheckedCounts, check_for
from advisor_advice.profiles import known_profiles
from advisor_data import Store
from advisor_data.bundled import bundled_solo_points
from advisor_data.known import known_checks

ProfilesByModel: TypeAlias = Mapping[tuple[str, str], Profile]
"""By job and GPU model."""

Checked: TypeAlias = Callable[[str], CheckedCounts | None]
"""What the check of a GPU model found."""


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """One observation, and what the model in use expects of it on a usual card."""

    observation: Observation
    profiles: tuple[Profile, ...]
    prediction: Prediction


def profiles_of(jobs: Iterable[str], store: Store | None) -> ProfilesByModel:
    """Profiles of jobs by name; those measured here go before the bundled ones.

    Raises:
        StoreError: the store cannot be read.
    """
    names = sorted(set(jobs))
    points = (p for name in names for p in store.solo_points(job=name)) if store else ()
    own = known_profiles(points, names)
    bundled = known_profiles(bundled_solo_points(set(names)), names, bundled=True)
    known = {name: own[name].before(bundled[name]) for name in names}
    return {
        (name, model): profile
        for name, of_job in known.items()
        for model, profile in of_job.profiles.items()
    }


def expected_of(
    observations: Iterable[Observation],
    profiles: ProfilesByModel,
    predictor: Predictor,
    checked: Checked,
) -> list[Expected]:
    """The observations that can be compared, each with what is expected of it.

    Without a profile of each job there is no expectation; at unsafe counts only jobs that reported
    right results are compared.
    """
    groups: defaultdict[tuple[Profile, ...], list[tuple[Observation, Split]]] = defaultdict(list)
    for observation in observations:
        known = tuple(
            p for job in observation.jobs if (p := profiles.get((job, observation.gpu_model)))
        )
        split = launched_split(observation)
        whole = split and len(known) == len(observation.parts) and is_within(split, known)
        if split and whole and not is_doubtful(observation, known, checked):
            groups[known].append((observation, split))
    found: list[Expected] = []
    of_any = AnyWay(predictor)
    for known, together in groups.items():
        splits = list(dict.fromkeys(split for _, split in together))
        expected = dict(zip(splits, of_any.predict(known, splits), strict=True))
        found += [
            Expected(observation, known, expected[split])
            for observation, split in together
            # Physics needs idle power, which a profile may lack.
            if not math.isnan(expected[split].power_w.value)
        ]
    return found


def compared(expected: Iterable[Expected]) -> Iterator[Compared]:
    """All rates, and the power once for each job, of every observation."""
    for one in expected:
        seen = one.observation
        setting = f"{' + '.join(seen.jobs)} {one.prediction.split}"
        values = [
            (part.job, "rate", part.rate, predicted.rate)
            for part, predicted in zip(seen.parts, one.prediction.parts, strict=True)
        ]
        power = [(job, "power", seen.power_w, one.prediction.power_w) for job in seen.jobs]
        for job, quantity, observed, interval in dict.fromkeys((*values, *power)):
            if observed:
                yield Compared(
                    job=job,
                    gpu_model=seen.gpu_model,
                    gpu_uuid=seen.gpu_uuid,
                    quantity="rate" if quantity == "rate" else "power",
                    setting=setting,
                    observed=observed,
                    expected=interval,
                    at=seen.started_at,
                    software=_software_of(seen),
                )


def card_logs(expected: Iterable[Expected], gpu_uuid: str) -> dict[tuple[str, ...], list[float]]:
    """By jobs, log of observed over expected power on a card: of those that tell of the card."""
    found: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
    for one in expected:
        on_another = not any(gpu_uuid in profile.gpu_uuids for profile in one.profiles)
        seen = one.observation
        rates = [part.rate for part in seen.parts if part.rate]
        if seen.gpu_uuid != gpu_uuid or not on_another or len(rates) < len(seen.parts):
            continue
        # Of more than two jobs physics errs by more than cards differ.
        is_pair = len(seen.parts) == ADVISED_JOBS
        if not is_pair or not one.prediction.split.is_limited or not seen.power_w:
            continue
        limit_w = one.profiles[0].power_limit_w
        ratio = observation_ratio(seen.power_w, rates, one.prediction, limit_w)
        if ratio is not None:
            found[seen.jobs].append(ratio)
    return dict(found)


def launched_split(seen: Observation) -> Split | None:
    """The split of a launch, as `measured_split` has it."""
    split = measured_split(seen.mode, (part.share_percent for part in seen.parts))
    low = tuple(n for n, part in enumerate(seen.parts) if part.below_normal)
    return split and replace(split, below_normal=low)


def measured_split(mode: str, shares_percent: Iterable[float]) -> Split | None:
    """The split of a window or a launch; None where nothing is predicted: two jobs in turns."""
    shares = tuple(shares_percent)
    if mode == "uncapped" or (mode == "mps" and set(shares) == {WHOLE}):
        return without_limits("uncapped", len(shares))
    if mode == "time-sliced" and len(shares) > ADVISED_JOBS:
        return without_limits("time-sliced", len(shares))
    return Split(shares) if mode in ("mps", "cu_mask") else None


def is_doubtful(observation: Observation, profiles: Iterable[Profile], checked: Checked) -> bool:
    """Whether it says nothing of what the jobs do at that split."""
    if doubt(observation):
        return True
    host = checked(observation.gpu_model)
    return any(
        part.units in profile.safety(host).unsafe and part.results != "right"
        for part, profile in zip(observation.parts, profiles, strict=True)
    )


def outdated_check(home: Path, gpu_model: str, versions: Mapping[str, str]) -> str:
    """What has changed since `advisor check`, and what to do; empty where nothing has.

    Versions are those in use now: `driver`, and libraries by name, as far as they are known.

    Raises:
        StoreError: a stored check cannot be read.
    """
    known = check_for(gpu_model, known_checks(home)) if versions else None
    libraries = {name: version for name, version in versions.items() if name != "driver"}
    changed = known and known.differs_from(versions.get("driver", known.driver), libraries)
    if not changed:
        return ""
    return (
        f"safe counts of the {gpu_model} were found with other software ({changed}): advisor check"
    )


def outdated_checks(observations: Iterable[Observation], home: Path) -> dict[str, str]:
    """The same by GPU model, for what the newest launch on each wrote down.

    Raises:
        StoreError: a stored check cannot be read.
    """
    in_time = sorted(observations, key=lambda one: one.started_at)
    newest = {seen.gpu_model: seen for seen in in_time if _software_of(seen)}
    found = {
        model: outdated_check(home, model, versions_of(_software_of(seen)))
        for model, seen in newest.items()
    }
    return {model: text for model, text in found.items() if text}


def _software_of(seen: Observation) -> tuple[str, ...]:
    """Versions that were in use, such as `driver 580.159.04`, as far as the launch wrote them."""
    texts = [part.libraries for part in seen.parts if part.libraries]
    libraries = {name.strip() for text in texts for name in text.split(",")}
    return (*((f"driver {seen.driver}",) if seen.driver else ()), *sorted(libraries))


def versions_of(software: Iterable[str]) -> dict[str, str]:
    """Version by name, of texts such as `driver 580.159.04`."""
    return {
        name: version for text in software for name, _, version in [text.partition(" ")] if version
    }
