"""The head for jobs of which only one window on the whole GPU was seen: a whole profile from it."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from advisor.core.gpu import WHOLE
from advisor.errors import ModelError
from advisor.formats.wire import read
from advisor.predict.features import rounded
from advisor.predict.one_window import (
    COUNTERS,
    ESTIMATED_SHARES,
    SoloWindow,
    WindowEstimate,
    counter_features,
    estimated_profile,
    possible,
    prior_kept,
    share_features,
)
from advisor.predict.profiles import Floats, Profile
from advisor_models.forest import Forest, read_trees
from advisor_models.manifest import MANIFEST, checked_file, trees_file, whole_file

BUNDLED = Path(__file__).with_name("bundled_one_window")
HEADS = (*COUNTERS, "rate", "power")
COLUMNS = 5
"""Features of each head."""

_RENEW = "install advisor again"


@dataclass(frozen=True, slots=True, kw_only=True)
class OneWindowManifest:
    """What stands next to the trees.

    Attributes:
        profiles: How many it was learned from.
        dataset_sha256: Of their points.
        files: SHA-256 of each file, by name.
    """

    profiles: int
    dataset_sha256: str
    libraries: Mapping[str, str]
    files: Mapping[str, str]


class OneWindowModel:
    """Estimates profiles; safe to share between threads.

    Raises:
        ModelError: a file is missing or damaged.
    """

    def __init__(self, trees: Mapping[str, bytes]) -> None:
        read = {name: read_trees(name, trees[name], COLUMNS, _RENEW) for name in HEADS}
        self._counters = {name: Forest(read[name]) for name in COUNTERS}
        self._shares = Forest(read["rate"], read["power"])

    def activity(self, window: SoloWindow, name: str) -> float:
        """One of `COUNTERS` as a fraction: as it was read, or estimated."""
        if name not in window.missing:
            return window.read(name) / WHOLE
        ((found,),) = self._counters[name](asked(counter_features(window)))
        return max(found, 0.0)

    def estimate(self, window: SoloWindow) -> WindowEstimate:
        """What its profile is made of."""
        sm, dram = (self.activity(window, name) for name in COUNTERS)
        rows = asked(share_features(window, sm, dram, ESTIMATED_SHARES))
        prior = prior_kept(sm, ESTIMATED_SHARES)
        rate, power = (prior + np.array(own) for own in self._shares(rows, rows))
        return possible(sm, dram, rate, power)

    def profile(self, window: SoloWindow) -> Profile:
        """Its profile at `ESTIMATED_SHARES` and on the whole GPU."""
        return estimated_profile(window, self.estimate(window))


def asked(features: Floats) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
    """Features as trees see them: the same on every processor."""
    return rounded(features).astype(np.float32)


@functools.cache
def bundled_one_window() -> OneWindowModel:
    """The model that comes with the package.

    Raises:
        ModelError: it is not whole.
    """
    return OneWindowModel({name: bundled_file(trees_file(name)) for name in HEADS})


def bundled_file(name: str) -> bytes:
    """One of its files.

    Raises:
        ModelError: it is not the one that the manifest says.
    """
    with ModelError.instead_of(ValueError, f"{BUNDLED} has no manifest", fix=_RENEW):
        manifest = read(OneWindowManifest, whole_file(BUNDLED / MANIFEST, _RENEW))
        return checked_file(BUNDLED / name, manifest.files[name], _RENEW)
