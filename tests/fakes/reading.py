"""Answers as JSON, as tests compare them."""

import json
from typing import Any

from advisor.formats.wire import SCHEMA


def answer_of(text: str | bytes) -> Any:
    """What a command or the service answers, less the number that all answers have."""
    answer = json.loads(text)
    assert answer.pop("schema") == SCHEMA
    return answer
