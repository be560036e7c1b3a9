"""What the power of jobs goes to, by stored and bundled points; alone, as a pair, in an answer."""

import dataclasses
from collections.abc import Callable, Iterable

from advisor.core.objectives import Policy
from advisor.core.records import SoloPoint
from advisor.decide.decision import Decision
from advisor.decide.limits import Request
from advisor.errors import InputError
from advisor.settings import Settings
from advisor.wire import answers as wire
from advisor.wire.answers import ComponentsOfJob, ComponentsOfPair
from advisor_advice.answers import answer
from advisor_advice.conditions import read_known
from advisor_advice.profiles import ProfileSet, begun_store, find_profiles
from advisor_data.bundled import bundled_pair_points, bundled_solo_points
from advisor_power.components import (
    KnownPower,
    components_at,
    components_by_share,
    components_by_split,
    fitted_weights,
    known_power,
)

EVERY_SPLIT = Request(policy=Policy(min_speed=0.0, p99_times_alone=0.0))
"""Asks for all splits that advice considers, without limits on speeds."""


def components_of_job(
    name: str, settings: Settings, gpu_model: str | None = None
) -> ComponentsOfJob:
    """The parts of a job's power, from the newest trusted window at each share.

    Raises:
        InputError: the job has no profile with counters, or too few jobs were measured.
        StoreError: the store cannot be read.
    """
    return components_by_share(known_power_of(find_profiles([name], settings, gpu_model), settings))


def components_of_pair(
    a: str, b: str, settings: Settings, gpu_model: str | None = None
) -> ComponentsOfPair:
    """The parts of a pair's power at the splits that advice considers, and at those measured.

    Raises:
        InputError: a job has no profile with counters, or too few jobs were measured.
        ModelError: there is no model, or it is damaged.
        StoreError: the store cannot be read.
    """
    found = find_profiles([a, b], settings, gpu_model)
    known = known_power_of(found, settings)
    given = answer(read_known(found, settings), EVERY_SPLIT)
    together = [p for p in bundled_pair_points() if p.jobs == known.pair_names]
    with begun_store(settings) as store:
        if store:
            names, model = known.pair_names, known.gpu_model
            together = [*store.pair_points(jobs=names, gpu_model=model), *together]
    return components_by_split(known, given.decision, together)


def with_components(
    response: wire.Recommendation, recommendation: Decision, find_power: Callable[[], KnownPower]
) -> wire.Recommendation:
    """The answer with the parts of the power at its choice, or why there are none.

    What finds the power of both jobs may raise an `InputError`.

    Raises:
        StoreError: the store cannot be read.
    """
    try:
        parts = components_at(find_power(), recommendation.chosen.prediction)
    except InputError as error:
        return dataclasses.replace(response, components_unknown=str(error))
    return dataclasses.replace(response, components=parts)


def known_power_of(
    profile_set: ProfileSet, settings: Settings, more: Iterable[SoloPoint] = ()
) -> KnownPower:
    """What is known of the power of jobs, by weights that are fitted now.

    They are fitted to the points of the store and the bundle, and to `more`.

    Raises:
        InputError: too few jobs were measured on the GPU model.
        StoreError: the store cannot be read.
    """
    model = profile_set.a.gpu_model
    with begun_store(settings) as store:
        stored = store.solo_points(gpu_model=model) if store else []
    points = [*more, *stored, *bundled_solo_points()]
    return known_power(profile_set.profiles, points, fitted_weights(points, model))
