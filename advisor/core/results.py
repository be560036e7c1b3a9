"""Whether a job computes what it should: the values that it reports, against the full GPU's.

A share that is on can still be wrong: under some limits GPU libraries leave parts of a result out,
and a job that computes NaN draws less power, so that a broken share looks like the best one.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["right", "wrong", "differ"]
"""right: every value was finite, and the first ones agree with those at the full GPU; wrong: one
was not finite; differ: one is further from the full GPU's than the job's tolerance."""

VERDICT_FLAGS: Mapping[Verdict | None, str] = {"wrong": "wrong-results", "differ": "results-differ"}

TOLERANCE = 0.01
"""Largest relative difference of a value from the full GPU's, where a job does not say its own."""

_LEAST = 1e-12
"""Values closer to zero than this are compared as if they were this large."""


def verdict_flags(verdicts: Iterable[Verdict | None]) -> tuple[str, ...]:
    """The flags of a window whose jobs got these verdicts, each once."""
    return tuple(dict.fromkeys(VERDICT_FLAGS[v] for v in verdicts if v in VERDICT_FLAGS))


@dataclass(frozen=True, slots=True)
class Reported:
    """What a job has said of its results so far.

    Attributes:
        first: The first values, each after the job's count at it.
        count: How many values there were.
        not_finite: How many of them were NaN or infinite.
        last: The newest one; None before the first.
    """

    first: tuple[tuple[int, float], ...] = ()
    count: int = 0
    not_finite: int = 0
    last: float | None = None


NOTHING = Reported()
"""Of a job that says nothing of its results."""


def judge(reported: Reported, reference: Reported | None, tolerance: float) -> Verdict | None:
    """What the values say beside those of the same job, with the same seed, on the whole GPU.

    None where nothing was reported, or nothing that can be compared with the reference.
    """
    if reported.not_finite:
        return "wrong"
    if reference is None or reference.not_finite:
        return None
    gap = largest_gap(reported, reference)
    if gap is None:
        return None
    return "right" if gap <= tolerance else "differ"


def largest_gap(reported: Reported, reference: Reported) -> float | None:
    """Largest relative difference over the counts that both reported; None if there is none."""
    known = dict(reference.first)
    gaps = [relative_gap(value, known[at]) for at, value in reported.first if at in known]
    return max(gaps, default=None)


def relative_gap(value: float, reference: float) -> float:
    """Distance of a value from its reference, relative to the reference."""
    gap = abs(value - reference) / max(abs(reference), _LEAST)
    return gap if math.isfinite(gap) else math.inf


def write_first(reported: Reported) -> str | None:
    """The first values as one line, as points keep them: "48=10.93 96=10.68"."""
    finite = [(at, value) for at, value in reported.first if math.isfinite(value)]
    return " ".join(f"{at}={value:.9g}" for at, value in finite) or None


def read_first(text: str | None) -> Reported | None:
    """What `write_first` wrote; None of nothing, or of what is no such line."""
    try:
        pairs = [item.split("=") for item in (text or "").split()]
        first = tuple((int(at), float(value)) for at, value in pairs)
    except ValueError:
        return None
    return Reported(first, count=len(first), last=first[-1][1]) if first else None
