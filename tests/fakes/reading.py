"""Answers as JSON, as tests compare them."""

import json
from typing import Any, TypeVar

from advisor.formats.wire import SCHEMA

T = TypeVar("T")


def answer_of(text: str | bytes) -> Any:
    """What a command or the service answers, less the number that all answers have."""
    answer = json.loads(text)
    assert answer.pop("schema") == SCHEMA
    return answer


def some(value: T | None) -> T:
    """The value, which has to be there."""
    assert value is not None
    return value
