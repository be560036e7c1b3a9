"""Power by data, as the service tells it: everything may block."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from cachetools import LRUCache

from advisor.errors import InputError
from advisor.wire.input_power import InputPowerRequest, InputPredictions
from advisor_api.service.profiles import not_found
from advisor_models.manifest import MANIFEST
from advisor_power.model.find import find_input_model, load_input_model, no_model

if TYPE_CHECKING:
    from advisor_power.model.predictor import InputPredictor

# Filling and counting bits are imported with the first question: most services are asked none.

MOST_FILLED = 1 << 27
"""Elements of all matrices of one request that are filled: four products of 4096x4096x4096."""

_loading = threading.Lock()
_loaded: "LRUCache[tuple[Path, int], InputPredictor]" = LRUCache(4)


def predict(asked: InputPowerRequest, home: Path) -> InputPredictions:
    """What products are expected to draw.

    Raises:
        InputError: operands cannot be, name a file, or are too large; or a GPU model or a type was
            not measured.
        HTTPException: 404, there is no model.
        ModelError: it is damaged.
    """
    from advisor_power.inputs.predicting.asked import predictions, with_sent_features

    model = _model(home, {one.gpu_model for one in asked.inputs})
    filled = sum(
        m * k + k * n for m, n, k in (one.shape for one in asked.inputs if one.operands is not None)
    )
    if filled > MOST_FILLED:
        raise InputError(
            f"the matrices of the request have {filled} elements",
            why=f"{MOST_FILLED} are filled for one request at most",
            fix="ask in several requests, or for smaller products, or send fingerprints",
        )
    return predictions(model, map(with_sent_features, asked.inputs))


def _model(home: Path, gpu_models: set[str | None]) -> "InputPredictor":
    """One answers all of a request: that of the GPU model that they name, if it is one."""
    folder = find_input_model(home, gpu_models.pop() if len(gpu_models) == 1 else None)
    if folder is None:
        missing = no_model()
        # No fault of the service: it answers all else, and a model may be made at any time.
        raise not_found(f"{missing.what}: {missing.why}", missing.fix)
    with _loading:
        # Read again where another one was made.
        key = folder, (folder / MANIFEST).stat().st_mtime_ns
        if key not in _loaded:
            _loaded[key] = load_input_model(home, folder=folder)
        return _loaded[key]
