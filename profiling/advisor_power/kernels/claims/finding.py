"""What figures say of one claim."""

from dataclasses import dataclass
from typing import Literal

from advisor.wire.kernel_power import Estimate

Verdict = Literal["confirmed", "refuted", "open"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One claim of the paper beside what was measured.

    Attributes:
        claim: F1 to F8.
        ours: Figures with their 95 % intervals; empty where nothing was measured.
        verdict: By the thresholds that `why` names.
        why: What confirms or refutes it, or what is missing.
    """

    claim: str
    ours: str
    verdict: Verdict
    why: str


def not_yet(claim: str, why: str, ours: str = "") -> Finding:
    """A claim that nothing can be said of."""
    return Finding(claim, ours, "open", why)


def at_least(value: Estimate, threshold: float) -> bool:
    """Whether a value is so large with its whole interval."""
    return (value.value if value.low is None else value.low) >= threshold


def at_most(value: Estimate, threshold: float) -> bool:
    """Whether a value is so small with its whole interval."""
    return (value.value if value.high is None else value.high) <= threshold


def percents(value: Estimate, digits: int = 1) -> str:
    """A part as percents, with its interval."""
    if value.low is None or value.high is None:
        return f"{value.value:.{digits}%}"
    return f"{value.value:.{digits}%} [{value.low:.{digits}%}, {value.high:.{digits}%}]"


def watts(value: Estimate) -> str:
    """Power with its interval."""
    if value.low is None or value.high is None:
        return f"{value.value:.0f} W"
    return f"{value.value:.1f} W [{value.low:.1f}, {value.high:.1f}]"
