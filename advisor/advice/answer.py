"""A recommendation by the model in use, and as the JSON that other programs read."""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from advisor.advice.gpu_warnings import gpu_warnings
from advisor.advice.idle_power import with_idle_power
from advisor.advice.known_profiles import Found, checked_on
from advisor.core.finish import Finish
from advisor.core.interval import Interval
from advisor.core.objectives import OBJECTIVES
from advisor.core.wording import listed
from advisor.decide.recommend import Option, Recommendation, Request, recommend
from advisor.decide.same_work import same_work
from advisor.predict.profiles import Profile
from advisor.predict.rules import MEANINGS
from advisor.settings import Settings
from advisor.validity.safe_counts import CheckedCounts
from advisor_models.manifest import Manifest
from advisor_models.onnx_predictor import OnnxPredictor
from advisor_models.registry import Registry

_NAMED = 3
"""How many features outside of the training data are named; there can be dozens."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """A recommendation, and the model that it is by."""

    recommendation: Recommendation
    manifest: Manifest


def answer(found: Found, request: Request, settings: Settings) -> Answer:
    """What the model in use recommends for two jobs.

    Raises:
        InputError: the request does not fit the jobs.
        ModelError: there is no model, or it is damaged.
        NoSplitError: nothing keeps every limit.
        StoreError: what the check of this GPU model found cannot be read.
    """
    predictor = Registry(settings.home / "models").open_champion()
    return answer_by(predictor, found, request, checked_on(found, settings))


def answer_by(
    predictor: OnnxPredictor, found: Found, request: Request, checked: CheckedCounts | None
) -> Answer:
    """What a model recommends for two jobs.

    Args:
        predictor: The model.
        found: Profiles of both.
        request: Objective and limits.
        checked: What the check of this GPU model found.

    Raises:
        InputError: the request does not fit the jobs.
        NoSplitError: nothing keeps every limit.
    """
    found, assumed = with_idle_power(found, predictor.manifest.fill)
    given = recommend(found.profiles, predictor, request, checked)
    more = (*_of_model(predictor, given), *of_check(found, checked), *_of_input(found), *assumed)
    given = dataclasses.replace(given, warnings=(*given.warnings, *more))
    return Answer(given, predictor.manifest)


def to_json(given: Answer) -> dict[str, Any]:
    """Keys that stay; docs/recommend.md explains them."""
    r, model = given.recommendation, given.manifest
    # What a rule chooses is nearly always a candidate too, and writing options is what takes long.
    shown = {id(o): _option(o, r) for o in (*r.candidates, *filter(None, r.rules.values()))}
    return {
        "job_a": r.profiles[0].job,
        "job_b": r.profiles[1].job,
        "gpu_model": r.profiles[0].gpu_model,
        "rate_unit_a": r.profiles[0].rate_unit,
        "rate_unit_b": r.profiles[1].rate_unit,
        "alone_a": _alone(r.profiles[0]),
        "alone_b": _alone(r.profiles[1]),
        "objective": r.objective.name,
        "choice": shown[id(r.choice)],
        "candidates": [shown[id(option)] for option in r.candidates],
        "rules": [
            {"rule": name, "meaning": MEANINGS[name], "option": option and shown[id(option)]}
            for name, option in r.rules.items()
        ],
        "same_work": _same_work(r),
        "picks": {name: option.name for name, option in r.picks.items()},
        "reasons": list(r.reasons),
        "warnings": list(r.warnings),
        "model": {"version": model.version, "gpu_models": list(model.gpu_models)},
        "coverage": model.coverage,
    }


def _option(option: Option, r: Recommendation) -> dict[str, Any]:
    p = option.prediction
    environments = r.environments(option)
    return {
        "name": option.name,
        "way": "split" if p.split.is_limited else p.split.sharing,
        "share_a_percent": p.split.shares[0],
        "share_b_percent": p.split.shares[1],
        "environment_a": environments[0],
        "environment_b": environments[1],
        "rate_a": _number(p.parts[0].rate),
        "rate_b": _number(p.parts[1].rate),
        "speed_a": _number(p.parts[0].speed),
        "speed_b": _number(p.parts[1].speed),
        "power_w": _number(p.power_w),
        "energy_saved": _number(p.energy_saved),
        "stp": _number(p.stp),
        "worth": {name: _number(p.worth(OBJECTIVES[name])) for name in r.picks},
        "misses": [miss.text for miss in option.misses],
    }


def _alone(profile: Profile) -> dict[str, float | None]:
    """On the whole GPU, as the profile has it."""
    return {
        "rate": profile.whole_gpu_rate,
        "power_w": profile.whole_gpu_power_w,
        "memory_used_mib": profile.memory_used_mib,
    }


def _same_work(r: Recommendation) -> dict[str, Any]:
    found = same_work(r)
    return {
        "work_a_s": found.work.alone_s[0],
        "work_b_s": found.work.alone_s[1],
        "choice": _finish(found.choice),
        "restarted": _finish(found.restarted),
        "rules": {name: _finish(finish) for name, finish in found.rules.items()},
    }


def _finish(finish: Finish | None) -> dict[str, float] | None:
    # Infinity is no JSON: what never ends has no end.
    return dataclasses.asdict(finish) if finish and math.isfinite(finish.time_s) else None


def _number(interval: Interval) -> dict[str, float]:
    return {"value": interval.value, "low": interval.low, "high": interval.high}


def _of_model(predictor: OnnxPredictor, given: Recommendation) -> Iterator[str]:
    split = given.choice.prediction.split
    yield from gpu_warnings(predictor.manifest, given.profiles)
    if split.sharing == "exclusive":
        return
    if outside := predictor.extrapolation(given.profiles, [split]):
        more = f" and {len(outside) - _NAMED} more" if len(outside) > _NAMED else ""
        yield f"unlike anything the model has seen in {', '.join(outside[:_NAMED])}{more}"


def of_check(found: Found, checked: CheckedCounts | None) -> Iterator[str]:
    """Whether anybody knows which counts are safe on the GPU model of these profiles."""
    if checked is None and not any(p.right_units or p.wrong_units for p in found.profiles):
        yield (
            "nobody has checked at which numbers of SMs libraries compute right results on "
            f"{found.a.gpu_model}: advisor check"
        )


def _of_input(found: Found) -> Iterator[str]:
    """The data card of the bundled points says so of all of them."""
    if found.other_models:
        yield (
            f"both were profiled on {listed(found.other_models)}, too: --gpu-model, or `gpu` in a "
            "request"
        )
    if found.bundled:
        names = " and ".join(found.bundled)
        yield f"bundled, so measured with random input, on which power depends: {names}"
