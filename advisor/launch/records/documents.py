"""Documents of launches to values, those of older versions of advisor among them.

A launch may run while advisor is upgraded, and the history has launches of years. Until 2026-11
documents named the jobs of a pair `_a` and `_b`, and called how they share the GPU `way`.
"""

import json
from collections.abc import Callable
from typing import Any, TypeVar

from advisor.errors import InputError
from advisor.formats.wire import read
from advisor.launch.records.spec import LaunchSpec
from advisor.launch.records.status import LaunchStatus

T = TypeVar("T")

_WAYS = {"split": "limited"}
_PARTS = {
    "job": "job_{}",
    "solo_rate": "solo_rate_{}",
    "share_rate": "share_rate_{}",
    "solo_power_w": "solo_power_{}_w",
    "reported": "reported_{}",
}
_FORECAST_PARTS = {
    "rate": "rate_{}",
    "solo_rate": "solo_rate_{}",
    "rest_energy_saved": "rest_energy_saved_{}",
}


def parse_spec(text: bytes) -> LaunchSpec:
    """What is to be launched, of any version.

    Raises:
        ValueError: it is no spec; says where.
    """
    return _read(LaunchSpec, _newer(text, _spec))


def parse_status(text: bytes) -> LaunchStatus:
    """Where a launch stands, of any version.

    Raises:
        ValueError: it is no status; says where.
    """
    return _read(LaunchStatus, _newer(text, _status))


def _read(kind: type[T], text: bytes) -> T:
    try:
        return read(kind, text)
    except InputError as error:
        raise ValueError(str(error)) from error


def _newer(text: bytes, change: Callable[[Any], Any]) -> bytes:
    """The text in today's shape; as it is where that is its shape, or it has none at all."""
    try:
        changed = change(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return text  # Read strictly afterwards, which says what is wrong with it.
    return text if changed is None else json.dumps(changed).encode()


def _spec(old: dict[str, Any]) -> dict[str, Any] | None:
    if not any("way" in pair for pair in old["pairs"]):
        return None
    return {**old, "pairs": [_pair(pair) for pair in old["pairs"]]}


def _status(old: dict[str, Any]) -> dict[str, Any] | None:
    if "way" not in old:
        return None
    way = old.pop("way")
    return {**old, "sharing": _WAYS.get(way, way), "forecast": _forecast(old.get("forecast"))}


def _pair(old: dict[str, Any]) -> dict[str, Any]:
    shares = [old["share_a_percent"], old["share_b_percent"]]
    return {
        "split": {"shares": shares, "sharing": _WAYS.get(old["way"], old["way"])},
        "jobs": _both(old, _PARTS),
        "forecast": _forecast(old.get("forecast")),
    }


def _forecast(old: dict[str, Any] | None) -> dict[str, Any] | None:
    if old is None or "jobs" in old:
        return old
    names = ("model_version", "power_w", "work_per_joule", "coverage", "energy_saved")
    return {**{name: old.get(name) for name in names}, "jobs": _both(old, _FORECAST_PARTS)}


def _both(old: dict[str, Any], names: dict[str, str]) -> list[dict[str, Any]]:
    return [{new: old.get(name.format(which)) for new, name in names.items()} for which in "ab"]
