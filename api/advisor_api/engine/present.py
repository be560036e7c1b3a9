"""Which state of the store, the registry and the checks is the present one, and what is kept of it.

At most a second goes by between two looks at them, and after a write of this process none: what was
kept for an earlier state is then dropped at once. So two services on one database agree within
about a second.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cachetools import LRUCache

from advisor.predict.windows import Windows
from advisor.validity.safe_counts import CheckedCounts
from advisor.wire.requests import GainsRequest, WayRequest
from advisor_advice.answers import KnownPair
from advisor_advice.conditions import Conditions, Experience
from advisor_advice.profiles import ProfilesOfJob
from advisor_data.files.checked import ChecksStamp, checks_stamp
from advisor_models.model_predictor import ModelPredictor
from advisor_models.registry import Registry

MOST_JOBS = 16_384
"""Profiles kept; one takes a few KiB."""

MOST_CARDS = 1024
"""Cards of which what was learned is kept."""

MOST_PAIRS = 4096
"""Sets of which what was measured is kept."""

MOST_KNOWN = 1024
"""Pairs of which all that is known is kept; one takes 45 KiB, with steps of two SMs 115."""

MOST_ANSWER_BYTES = 64 * 2**20
"""All answers kept; one takes about 16 KiB, with steps of two SMs 60 KiB."""


@dataclass(slots=True, eq=False)
class Kept:
    """All that is known of one state of the store, the registry and the checks.

    What a slow reader finds goes into the state that it began with, so nothing read before a
    change is ever kept after it.
    """

    change: int
    observed: int
    promotions: tuple[int, int, int]
    checks: ChecksStamp
    profiles: LRUCache[str, ProfilesOfJob]
    predictor: ModelPredictor | None
    checked: dict[str, CheckedCounts | None] = field(
        default_factory=dict[str, CheckedCounts | None]
    )
    conditions: LRUCache[tuple[str, str | None], Conditions] = field(
        default_factory=lambda: LRUCache(MOST_CARDS)
    )
    windows: LRUCache[tuple[str, ...], Windows] = field(
        default_factory=lambda: LRUCache(MOST_PAIRS)
    )
    pairs: LRUCache[tuple[tuple[str, ...], str | None, str | None], KnownPair] = field(
        default_factory=lambda: LRUCache(MOST_KNOWN)
    )
    answers: LRUCache[WayRequest | GainsRequest, bytes] = field(
        default_factory=lambda: LRUCache(MOST_ANSWER_BYTES, getsizeof=len)
    )


FRESH_S = 1.0
"""How long what is kept is used without a look at the store and the registry."""


class Present:
    """What is kept of the present state, for one event loop.

    Attributes:
        experience: What launches say.
    """

    def __init__(self, home: Path, registry: Registry, change_count: Callable[[], int]) -> None:
        self._home, self._registry, self._change_count = home, registry, change_count
        self._kept = Kept(-1, -1, (-1, -1, -1), (), LRUCache(MOST_JOBS), None)
        self.experience, self._observed = Experience(), 0
        self._fresh_until = self._looked_at = self._changed_at = float("-inf")
        self._look: asyncio.Task[None] | None = None

    def changed(self) -> None:
        """Say that this process wrote to the store or the registry; any thread may."""
        self._changed_at = time.monotonic()

    def observed(self, experience: Experience) -> None:
        """Take in what launches say from now on; any thread may."""
        self.experience, self._observed = experience, self._observed + 1
        self.changed()

    async def kept(self) -> Kept:
        """What is kept of the present state."""
        while not self._is_fresh():
            # One look for all that wait. One that began before a write does not count after it.
            if self._look is None:
                self._look = asyncio.create_task(self._look_now())
            await asyncio.shield(self._look)
        return self._kept

    def _is_fresh(self) -> bool:
        return self._looked_at > self._changed_at and time.monotonic() < self._fresh_until

    async def _look_now(self) -> None:
        began = time.monotonic()
        try:
            observed = self._observed
            self._keep(observed, *await asyncio.to_thread(self._state))
            self._looked_at, self._fresh_until = began, time.monotonic() + FRESH_S
        finally:
            self._look = None

    def _state(self) -> tuple[int, tuple[int, int, int], ChecksStamp]:
        return self._change_count(), self._registry.stamp(), checks_stamp(self._home)

    def _keep(
        self, observed: int, change: int, promotions: tuple[int, int, int], checks: ChecksStamp
    ) -> None:
        old = self._kept
        known = old.observed, old.change, old.promotions, old.checks
        if (observed, change, promotions, checks) == known:
            return
        profiles = old.profiles if change == old.change else LRUCache[str, ProfilesOfJob](MOST_JOBS)
        predictor = old.predictor if promotions == old.promotions else None
        kept = Kept(change, observed, promotions, checks, profiles, predictor)
        if checks == old.checks:
            kept.checked |= old.checked
        if observed == old.observed:  # of a card they also depend on stored points
            kept.conditions.update({k: v for k, v in old.conditions.items() if k[1] is None})
        self._kept = kept
