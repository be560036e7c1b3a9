"""What the engine keeps in memory of one state of the store, the registry and the checks."""

from dataclasses import dataclass, field

from cachetools import LRUCache

from advisor.predict.windows import Windows
from advisor.validity.safe_counts import CheckedCounts
from advisor.wire.requests import GainsRequest, WayRequest
from advisor_advice.answer import KnownPair
from advisor_advice.site.conditions import Conditions
from advisor_advice.site.known_profiles import ProfilesOfJob
from advisor_data.files.checked import ChecksStamp
from advisor_models.model_predictor import ModelPredictor

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
