"""What a pod asks for in its annotations."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.core.wording import shown
from advisor.errors import InputError
from advisor.wire.requests import NAME
from advisor_kubernetes import names

DEFAULT_WAIT_S = 60.0
"""How long a pod that says nothing of it waits for a partner."""

MOST_WAIT_S = 7 * 86400.0

_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,2})?")
"""Few digits: each other number is another question to the service."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The wishes of a pod.

    Attributes:
        partner: Name of the job that it wants beside it; None: any that fits.
        min_speed: Minimum relative speed, 0 to 1; None: the service's setting.
        max_p99_ms: Longest p99 latency of its answers, ms; None: the service's.
        expected_s: How long it takes alone on a whole GPU, s; None: not known.
        whole_when_full: Whether it takes a whole GPU where none for sharing is free.
        placed_by: Who else places it: it is only advised; None: the chooser.
        max_wait_s: How long it waits for a partner before it runs alone, s.
        container: Name of the container that computes; None: the one that asks for a GPU.
    """

    job: str
    partner: str | None = None
    min_speed: float | None = None
    max_p99_ms: float | None = None
    expected_s: float | None = None
    whole_when_full: bool = False
    placed_by: str | None = None
    max_wait_s: float = DEFAULT_WAIT_S
    container: str | None = None


def read_wishes(annotations: Mapping[str, object]) -> Wishes | None:
    """The wishes in a pod's annotations; None: it asks for nothing.

    Raises:
        InputError: some of them cannot be meant; the message names all of these.
    """
    if names.JOB not in annotations:
        return None
    read = _Annotations(annotations)
    text, number = read.text, read.number
    of_job = "the name of a profiled job: lower-case letters, digits, '.', '_' and '-'"
    asked = Wishes(
        job=text(names.JOB, NAME, of_job) or "",
        partner=text(names.WITH, NAME, of_job),
        min_speed=number(names.MIN_SPEED, 1.0, "a number from 0 to 1"),
        max_p99_ms=number(names.MAX_P99_MS, 3600e3, "milliseconds above 0"),
        expected_s=number(names.EXPECTED_S, 366 * 86400.0, "seconds, a year at most"),
        whole_when_full=text(names.WHEN_FULL, "whole|wait", "whole or wait") == "whole",
        placed_by=text(names.PLACED_BY, "kai|hami|dra|other", "kai, hami, dra or other"),
        max_wait_s=DEFAULT_WAIT_S
        if (wait_s := number(names.MAX_WAIT_S, MOST_WAIT_S, "seconds, a week at most")) is None
        else wait_s,
        container=text(names.CONTAINER, _LABEL.pattern, "the name of a container"),
    )
    if asked.placed_by is not None and asked.partner is None:
        read.faults.append(f"{names.PLACED_BY} needs {names.WITH}: the job that runs beside it")
    if read.faults:
        raise InputError(
            "annotations of the pod cannot be used: " + "; ".join(read.faults),
            fix="correct them, or leave them out",
        )
    return asked


@dataclass(slots=True)
class _Annotations:
    """Reads one after the other, and keeps what is wrong with them."""

    given: Mapping[str, object]
    faults: list[str] = field(default_factory=list[str])

    def text(self, key: str, pattern: str, form: str) -> str | None:
        """A text of a pattern, which `form` says in words; None where it is none."""
        given = self.given.get(key)
        if given is None or (isinstance(given, str) and re.fullmatch(pattern, given)):
            return given
        self.faults.append(f"{key} is {shown(given)}, and should be {form}")
        return None

    def number(self, key: str, most: float, form: str) -> float | None:
        """A number up to the `most`; None where it is none."""
        given = self.text(key, _NUMBER.pattern, form)
        if given is None or float(given) <= most:
            return None if given is None else float(given)
        self.faults.append(f"{key} is {given}, and should be {form}")
        return None
