"""Component weights, kept as long as the store has the points that they were fitted to."""

import threading
from collections.abc import Sequence

from cachetools import LRUCache

from advisor.core.records import SoloPoint
from advisor.errors import InputError
from advisor_advice.power.known import KnownPower, each_once
from advisor_advice.site.known_profiles import ProfileSet
from advisor_api.engine import bundled
from advisor_data import Store
from advisor_power.components.weights import ComponentWeights, fit_components

MOST_GPU_MODELS = 64
"""GPU models whose weights are kept; one takes some tens of KiB."""


class Weights:
    """Weights of each GPU model, fitted once for each state of the store; safe for several threads.

    Args:
        store: Points come from here, and from the bundle.
    """

    def __init__(self, store: Store) -> None:
        self._store, self._fitting = store, threading.Lock()
        self._known: LRUCache[tuple[int, str], ComponentWeights | InputError] = LRUCache(
            MOST_GPU_MODELS
        )

    def known_power(self, change: int, found: ProfileSet) -> KnownPower:
        """What is known of the power of these jobs; may block.

        Args:
            change: State of the store.
            found: Profiles of the jobs.

        Raises:
            InputError: too few jobs were measured on the GPU model.
            StoreError: the store cannot be read.
        """
        weights, names = self._weights(change, found.a.gpu_model), _names(found)
        stored = [p for name in names for p in self._store.solo_points(job=name)]
        mine = [p for p in bundled.solo_points() if p.job in names]
        return KnownPower(
            found, tuple(each_once([*stored, *mine], found.a.gpu_model)), _sound(weights)
        )

    def _weights(self, change: int, gpu_model: str) -> ComponentWeights | InputError:
        with self._fitting:  # of many that ask at once, one fits
            key = change, gpu_model
            if key not in self._known:
                self._known[key] = _fitted(self._points(gpu_model))
            return self._known[key]

    def _points(self, gpu_model: str) -> list[SoloPoint]:
        stored = self._store.solo_points(gpu_model=gpu_model)
        return each_once([*stored, *bundled.solo_points()], gpu_model)


def _names(found: ProfileSet) -> set[str]:
    return {profile.job for profile in found.profiles}


def _fitted(points: Sequence[SoloPoint]) -> ComponentWeights | InputError:
    # That nothing can be fitted is kept, too: finding out takes as long.
    try:
        return fit_components(points)
    except InputError as error:
        return error


def _sound(weights: ComponentWeights | InputError) -> ComponentWeights:
    if isinstance(weights, InputError):
        raise weights
    return weights
