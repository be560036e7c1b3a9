"""Manifests of schema 2, which spelled speed and power out, as schema 3 has them.

Models that were trained before stay in registries: they load, and predict the same numbers.
"""

import json
from typing import Any

from advisor_models.intervals import LIMITED, SPLIT, UNCAPPED

_SPEED = {
    "name": "speed",
    "of": "job",
    "target": "relative speed of a job that always has something to do",
    "unit": "1",
    "prior": "prior_kept x relative rate alone at the share",
    "output": "log_kept",
}

_POWER = {
    "name": "power",
    "of": "pair",
    "target": "power of the GPU",
    "unit": "W",
    "prior": "both powers less one idle power, up to the limit",
    "output": "log_power_ratio",
}


def as_schema_3(text: bytes) -> bytes:
    """The same manifest in the words of today; what is unknown stays, to be refused.

    Raises:
        ValueError: not JSON, or something is missing.
    """
    try:
        return json.dumps(_upgraded(json.loads(text))).encode()
    except KeyError as error:
        raise ValueError(f"missing: {error.args[0]}") from error
    except (TypeError, AttributeError) as error:
        raise ValueError(f"a field is not what schema 2 has there: {error}") from error


def _upgraded(old: dict[str, Any]) -> dict[str, Any]:
    intervals = old.pop("intervals")
    strata = {"speed": _by_share(intervals["speed"]), "power": _by_limit(intervals["power"])}
    heads = [
        {
            **head,
            "features": old.pop(f"{head['name']}_features"),
            "ranges": old.pop(f"{head['name']}_ranges"),
            "intervals": strata[head["name"]],
        }
        for head in (_SPEED, _POWER)
    ]
    return {
        **old,
        "schema": 3,
        "coverage": intervals["coverage"],
        "heads": heads,
        "efficiency": intervals["efficiency"],
        "other_gpu": _by_head(old["other_gpu"]),
    }


def _by_share(bounds: list[dict[str, Any]]) -> dict[str, Any]:
    shares = [each.pop("share_percent") for each in bounds]
    if not shares or shares != sorted(set(shares)):
        raise ValueError("the shares of the intervals do not ascend")
    names = [UNCAPPED if share == 100 else f"{share:g}" for share in shares]
    return dict(zip(names, bounds, strict=True))


def _by_limit(bounds: dict[str, Any]) -> dict[str, Any]:
    limited = bounds.pop("limited")
    strata = {SPLIT: bounds.pop("split"), UNCAPPED: bounds.pop("uncapped"), **bounds}
    return strata if limited is None else {**strata, LIMITED: limited}


def _by_head(other: dict[str, Any]) -> dict[str, Any]:
    widening = {name: other.pop(f"{name}_widening") for name in ("speed", "power")}
    return {"widening": widening, **other}
