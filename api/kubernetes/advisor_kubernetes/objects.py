"""Kubernetes objects as they come, in plain JSON: read where they are what they should be.

Only what is needed is read, since newer servers say more; what is wrong is an error, since anyone
who reaches the server may send anything.
"""

import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias, cast

from advisor.errors import InputError

Object: TypeAlias = dict[str, Any]

_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([numkMGTPE]|[KMGTPE]i)?"
)

_SUFFIXES: Mapping[str, float] = {
    "": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3,
    **{letter: 1000.0**n for n, letter in enumerate("MGTPE", 2)},
    **{f"{letter}i": 1024.0**n for n, letter in enumerate("KMGTPE", 1)},
}  # fmt: skip

_LONGEST = 1000
"""Characters of an event's message; the API takes 1024."""


def read_object(text: bytes) -> Object:
    """The JSON object in a text.

    Raises:
        InputError: it is something else.
    """
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError("the body is not JSON", why=type(error).__name__) from error
    return _object(found, "the body")


def part(parent: Mapping[str, Any], *keys: str) -> Object:
    """The object under a path of keys; an empty one where it is missing.

    Raises:
        InputError: there is something else.
    """
    found: object = parent
    for key in keys:
        found = _object(found, key).get(key)
        if found is None:
            return {}
    return _object(found, keys[-1] if keys else "the whole")


def parts(parent: Mapping[str, Any], *keys: str) -> list[Object]:
    """The objects in the list under a path of keys; none where it is missing.

    Raises:
        InputError: there is something else.
    """
    found: object = part(parent, *keys[:-1]).get(keys[-1])
    if found is None:
        return []
    if not isinstance(found, list):
        raise _wrong(keys[-1], "a list")
    return [_object(item, keys[-1]) for item in cast("list[object]", found)]


def word(parent: Mapping[str, Any], key: str) -> str:
    """The text under a key; an empty one where it is missing.

    Raises:
        InputError: there is something else.
    """
    found = parent.get(key)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise _wrong(key, "a text")
    return found


def quantity(value: object) -> float:
    """A number as Kubernetes writes it: `2`, `500m`, `16Gi`, `1e3`.

    Raises:
        InputError: it is none.
    """
    found = _QUANTITY.fullmatch(str(value))
    if not found:
        raise _wrong(str(value)[:20], "a quantity")
    return float(found[1]) * _SUFFIXES[found[2] or ""]


def event_of(
    pod: Mapping[str, str], source: Mapping[str, str], kind: str, reason: str, message: str
) -> Object:
    """An event of a pod or node, which `kubectl describe pod` shows.

    Args:
        pod: Its `namespace`, `name` and `uid`; of something else that has no namespace `kind`.
        source: The `component` that says it, and its `host`.
        kind: Normal or Warning.
        reason: In one word.
        message: Cut where the API takes no more.
    """
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    unique = f"{pod['name'][:200]}.{os.urandom(8).hex()}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": unique, "namespace": pod.get("namespace", "default")},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", **pod},
        "type": kind,
        "reason": reason,
        "message": message[:_LONGEST],
        "source": {**source},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }


def _object(found: object, name: str) -> Object:
    if not isinstance(found, dict):
        raise _wrong(name, "an object")
    return cast("Object", found)


def _wrong(name: str, kind: str) -> InputError:
    return InputError(f"{name!a} is not {kind}", fix="send what Kubernetes sends")
