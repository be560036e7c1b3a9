"""Whether a challenger becomes the champion."""

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.core.wording import listed
from advisor_training.retrain.comparison import Compared


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict, and its reason in words."""

    promote: bool
    why: str


def decide(compared: Sequence[Compared], news: Sequence[str]) -> Decision:
    """Promote what is worse nowhere, and better or broader.

    What a model learns of a job cannot show in tests that leave the job out, so jobs and GPU models
    that the champion never saw count by themselves.

    Args:
        compared: All figures of all groups.
        news: Jobs and GPU models that only the challenger has seen.
    """
    if worse := [one for one in compared if one.is_worse]:
        return Decision(False, f"worse for {listed(map(_words, worse))}")
    if better := [one for one in compared if one.is_better]:
        return Decision(True, f"better for {listed(map(_words, better))}")
    if news:
        return Decision(True, f"not worse, and has seen {listed(news)}")
    return Decision(False, "no better beyond noise")


def _words(one: Compared) -> str:
    gain = f"{abs(one.gain_percent):.2f} [{one.low_percent:.2f} {one.high_percent:.2f}] points"
    return f"{one.group} ({one.figure} by {gain})"
