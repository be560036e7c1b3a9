"""A recommendation by the model in use."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from advisor.core.wording import listed
from advisor.decide.recommend import Recommendation, Request, recommend
from advisor.predict.card_factor import CardFactor
from advisor.settings import Settings
from advisor.validity.drift import Drift
from advisor.validity.safe_counts import CheckedCounts
from advisor.wire.requests import RecommendationRequest
from advisor_advice.gpu_warnings import gpu_warnings
from advisor_advice.idle_power import with_idle_power
from advisor_advice.site.conditions import NOTHING, Conditions, read_conditions
from advisor_advice.site.known_profiles import ProfileSet, checked_on
from advisor_models.manifest import Manifest
from advisor_models.onnx_predictor import OnnxPredictor
from advisor_models.registry import Registry

_NAMED = 3
"""How many features outside of the training data are named; there can be dozens."""


def request_of(asked: RecommendationRequest, default_min_speed: float) -> Request:
    """As the arithmetic takes it.

    Args:
        asked: Objective and limits.
        default_min_speed: Of jobs without a number of their own.

    Raises:
        InputError: limits that cannot be meant.
    """
    return Request(
        objective=asked.objective,
        min_speed=asked.min_speeds(),
        default_min_speed=default_min_speed,
        max_p99_ms=asked.p99_by_job_ms,
        default_max_p99_ms=asked.max_p99_ms,
        max_power_w=asked.max_power_w,
        memory_mib=asked.memory_mib,
        fine=asked.fine,
        work=asked.work,
    )


@dataclass(frozen=True, slots=True, eq=False)
class ModelAdvice:
    """A recommendation, and what it is by.

    Attributes:
        manifest: Of the model.
        card: The factor by which power was corrected for the card; None: it was not.
        drifts: Of the jobs, which made intervals wider.
    """

    recommendation: Recommendation
    manifest: Manifest
    card: CardFactor | None = None
    drifts: tuple[Drift, ...] = ()


def answer(
    found: ProfileSet,
    request: Request,
    settings: Settings,
    gpu_uuid: str | None = None,
) -> ModelAdvice:
    """What the model in use recommends for two jobs.

    Args:
        found: Profiles of both.
        request: Objective and limits.
        settings: Say where models and points are kept.
        gpu_uuid: The card that they are to share; None: not known.

    Raises:
        InputError: the request does not fit the jobs.
        ModelError: there is no model, or it is damaged.
        NoSplitError: nothing keeps every limit.
        StoreError: observations, or what the check of this GPU model found, cannot be read.
    """
    predictor = Registry(settings.home / "models").open_champion()
    conditions = read_conditions(settings, predictor, found.a.gpu_model, gpu_uuid)
    return answer_by(predictor, found, request, checked_on(found, settings), conditions)


def answer_by(
    predictor: OnnxPredictor,
    found: ProfileSet,
    request: Request,
    checked: CheckedCounts | None,
    conditions: Conditions = NOTHING,
) -> ModelAdvice:
    """What a model recommends for two jobs.

    Args:
        predictor: The model.
        found: Profiles of both.
        request: Objective and limits.
        checked: What the check of this GPU model found.
        conditions: What is known of the card, and of jobs that drift.

    Raises:
        InputError: the request does not fit the jobs.
        NoSplitError: nothing keeps every limit.
    """
    found, assumed = with_idle_power(found, predictor.manifest.fill)
    there, profiles = conditions.applied(predictor, found.profiles)
    given = recommend(profiles, there, request, checked)
    more = (
        *_of_model(predictor, given),
        *of_check(found, checked),
        *_of_input(found),
        *assumed,
        *conditions.warnings(found.profiles),
    )
    given = dataclasses.replace(given, warnings=(*given.warnings, *more))
    return ModelAdvice(
        given,
        predictor.manifest,
        conditions.card_of(found.profiles),
        conditions.drifts_of(found.profiles),
    )


def _of_model(predictor: OnnxPredictor, given: Recommendation) -> Iterator[str]:
    split = given.choice.prediction.split
    yield from gpu_warnings(predictor.manifest, given.profiles)
    if split.sharing == "exclusive":
        return
    if outside := predictor.extrapolation(given.profiles, [split]):
        more = f" and {len(outside) - _NAMED} more" if len(outside) > _NAMED else ""
        yield f"unlike anything the model has seen in {', '.join(outside[:_NAMED])}{more}"


def of_check(found: ProfileSet, checked: CheckedCounts | None) -> Iterator[str]:
    """Whether anybody knows which counts are safe on the GPU model of these profiles."""
    if checked is None and not any(p.right_units or p.wrong_units for p in found.profiles):
        yield (
            "nobody has checked at which numbers of SMs libraries compute right results on "
            f"{found.a.gpu_model}: advisor check"
        )


def _of_input(found: ProfileSet) -> Iterator[str]:
    """The data card of the bundled points says so of all of them."""
    if found.other_models:
        yield (
            f"both were profiled on {listed(found.other_models)}, too: --gpu-model, or "
            "`gpu_model` in a request"
        )
    if names := " and ".join(found.bundled):
        yield f"bundled, so measured with random input, on which power depends: {names}"
