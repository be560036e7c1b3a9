"""Component weights, kept as long as the store has the points that they were fitted to."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cachetools import LRUCache

from advisor.core.records import SoloPoint
from advisor.errors import InputError
from advisor_advice.site.known_profiles import ProfileSet
from advisor_api.engine import bundled
from advisor_data import Store

if TYPE_CHECKING:
    from advisor_power.components import ComponentWeights, KnownPower

MOST_GPU_MODELS = 64
"""GPU models whose weights are kept, with the stored points that they are fitted to."""


class Weights:
    """Weights of each GPU model, fitted once for each state of the store; for several threads."""

    def __init__(self, store: Store) -> None:
        self._store, self._fitting = store, threading.Lock()
        self._known: LRUCache[str, _Fit] = LRUCache(MOST_GPU_MODELS)

    def known_power(self, change: int, found: ProfileSet) -> "KnownPower":
        """What is known of the power of these jobs in a state of the store; may block.

        Raises:
            InputError: too few jobs were measured on the GPU model.
            StoreError: the store cannot be read.
        """
        from advisor_power.components import known_power

        weights = self._weights(change, found.a.gpu_model)
        if isinstance(weights, InputError):
            raise weights
        names = {profile.job for profile in found.profiles}
        stored = [p for name in names for p in self._store.solo_points(job=name)]
        return known_power(found.profiles, [*stored, *bundled.solo_points()], weights)

    def _weights(self, change: int, gpu_model: str) -> "ComponentWeights | InputError":
        with self._fitting:  # of many that ask at once, one fits
            known = self._known.get(gpu_model)
            if known is None or known.change != change:
                stored = self._store.solo_points(gpu_model=gpu_model)
                # Most changes are observations and pairs; fitting takes a tenth of a second.
                same = known is not None and known.stored == stored
                weights = known.weights if same and known else _fitted(stored, gpu_model)
                known = self._known[gpu_model] = _Fit(change, stored, weights)
            return known.weights


@dataclass(frozen=True, slots=True, eq=False)
class _Fit:
    change: int
    stored: Sequence[SoloPoint]
    weights: "ComponentWeights | InputError"


def _fitted(stored: Sequence[SoloPoint], gpu_model: str) -> "ComponentWeights | InputError":
    from advisor_power.components import fitted_weights

    # That nothing can be fitted is kept, too: finding out takes as long.
    try:
        return fitted_weights([*stored, *bundled.solo_points()], gpu_model)
    except InputError as error:
        return error
