"""How a set of jobs is to run on one GPU, or that each gets a card."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from advisor.core.records import ONE_WINDOW
from advisor.core.split import MOST_JOBS, without_limits
from advisor.decide.limits import memory_unknown, with_card_memory
from advisor.decide.reasons import of_profile
from advisor.decide.recommendation import Request, worth_of
from advisor.decide.replicas import replicas
from advisor.decide.ways import Running, SetDecision, recommend_set, without_one
from advisor.predict.predictions import Predictor
from advisor.predict.profiles import IDLE, Profile
from advisor.predict.sets import MEASURED_ON, SetPredictor, active_idle_w, fills
from advisor.validity.safe_counts import CheckedCounts
from advisor.wire.answers import Copies, Fewer, MeasuredTogether, Replicas, SetAdvice
from advisor_advice.answer import of_check, of_input
from advisor_advice.idle_power import with_idle_power
from advisor_advice.recommendation_wire import in_short, set_to_wire
from advisor_advice.site.known_jobs import KnownJobs
from advisor_advice.site.known_profiles import ProfileSet


def advise_set(
    known: KnownJobs, request: Request, running: Running | None = None, *, every: bool = False
) -> SetAdvice:
    """The best way to run these jobs, by physics and by what was measured of them together.

    Those that are `running`, all but the last, keep their shares; `every` tells all ways in short.

    Raises:
        InputError: the request does not fit the jobs.
        NoSplitError: nothing keeps every limit, not even a card each.
    """
    asked, checked, conditions = known.found.profiles, known.checked, known.conditions
    profile_set, assumed = with_set_idle_power(known.found, known.model.manifest.fill)
    there, profiles = conditions.applied(SetPredictor(), profile_set.profiles)
    splits = conditions.splits_of(profiles)
    found = recommend_set(profiles, there, request, checked, splits, running=running)
    way = found.choice or found.call
    measured = conditions.measured_of(profiles, way and way.prediction.split)
    of_counts = of_check(profile_set, checked) if way and way.sharing == "limited" else ()
    more = (*_of_law(profiles, measured), *_warnings(profile_set, request), *assumed)
    card = conditions.card_of(asked)
    return replace(
        set_to_wire(found, (*of_counts, *more, *conditions.warnings(asked))),
        card=card and card.told,
        drifts=conditions.drifts_of(asked),
        measured=measured,
        fewer=None if way or running else _fewer(found, there, request, checked),
        looked_at=tuple(in_short(option, found) for option in found.looked_at) if every else (),
    )


def _fewer(
    found: SetDecision, there: Predictor, request: Request, checked: CheckedCounts | None
) -> Fewer | None:
    if (left := without_one(found, there, checked)) is None:
        return None
    job, way = left
    energy = worth_of(way.prediction, request.prices).energy
    return Fewer(without=job, way=way.name, energy_saved=energy)


def advise_replicas(known: KnownJobs, request: Request, most: int) -> Replicas:
    """How many copies of a job one GPU holds.

    Raises:
        InputError: the request does not fit the job.
        NoSplitError: not even one copy keeps its limits.
    """
    profile_set, assumed = with_set_idle_power(known.found, known.model.manifest.fill)
    asked, conditions = profile_set.profiles, known.conditions
    there, (profile, *_) = conditions.applied(SetPredictor(), asked)
    found = replicas(profile, request, most=most, predictor=there)

    def with_measured(copies: Copies) -> Copies:
        if (number := copies.number) == 1:
            return copies
        split = without_limits(found.sharing, number)
        return replace(copies, measured=conditions.measured_of([profile] * number, split))

    copies = tuple(map(with_measured, found.copies))
    of_law = _of_law(asked, copies[-1].measured)
    warnings = (*of_law, *_warnings(profile_set, request), *assumed, *conditions.warnings(asked))
    if found.best > MOST_JOBS:
        warnings = (*warnings, f"no set of more than {MOST_JOBS} jobs was measured")
    card = conditions.card_of(asked)
    return replace(
        found,
        copies=copies,
        beyond=found.beyond and with_measured(found.beyond),
        warnings=tuple(dict.fromkeys(warnings)),
        card=card and card.told,
        drifts=conditions.drifts_of(asked),
        one_window=ONE_WINDOW in profile.flags,
    )


def with_set_idle_power(
    profile_set: ProfileSet, fill: Mapping[str, float]
) -> tuple[ProfileSet, tuple[str, ...]]:
    """That of the empty card alone: the law of sets has its own number for open jobs."""
    return with_idle_power(profile_set, {name: w for name, w in fill.items() if name == IDLE})


def _warnings(profile_set: ProfileSet, request: Request) -> Iterator[str]:
    profiles = profile_set.profiles
    for profile in profiles:
        yield from of_profile(profile)
    memory_mib = with_card_memory(request, profiles[0].gpu_model).memory_mib
    yield from memory_unknown(profiles, memory_mib)
    yield from of_input(profile_set)


def _of_law(profiles: Sequence[Profile], measured: MeasuredTogether | None) -> Iterator[str]:
    told = f"{measured.text}; else it is" if measured else "nothing was measured of these: all is"
    yield f"{told} by physics fitted to measured sets (how far off: docs/measurements/sets.md)"
    if (model := profiles[0].gpu_model) not in MEASURED_ON:
        yield f"no set was measured on {model}"
    for profile in profiles:
        if fills(profile) and "sm_active_percent" in profile.missing:
            yield f"{profile.job} has no counters, and is taken to fill the GPU"
    if all(math.isnan(profile.active_idle_power_w) for profile in profiles):
        assumed_w = statistics.fmean(map(active_idle_w, profiles))
        yield (
            "active idle power was not measured with these jobs, and is taken as "
            f"{assumed_w:.0f} W: advisor colocate measures it"
        )
