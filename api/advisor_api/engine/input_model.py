"""The model of power by data that is in use, loaded once for each that is made."""

import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cachetools import LRUCache

from advisor.wire.requests import JobData
from advisor_advice.power.other_data import Told, other_data
from advisor_models.manifest import MANIFEST
from advisor_power.model.find import find_input_model, load_input_model, no_model
from advisor_power.operands.of_job import sent_data

if TYPE_CHECKING:
    from advisor_power.model.predictor import InputPredictor

_loading = threading.Lock()
_loaded: "LRUCache[tuple[Path, int], InputPredictor]" = LRUCache(4)


def told_by_model(home: Path, gpu_model: str, data: Mapping[str, JobData]) -> Told:
    """What data of jobs that were sent change on a GPU model; their matrices are filled now.

    Raises:
        InputError: as `sent_data`.
        ModelError: there is no model, or it is damaged.
    """
    model = input_model(home, gpu_model)
    if model is None:
        raise no_model()
    return partial(other_data, data=sent_data(data), model=model)


def input_model(home: Path, gpu_model: str | None = None) -> "InputPredictor | None":
    """The model in use for a GPU model, read again where another one was made; None: there is none.

    Raises:
        ModelError: it is damaged.
    """
    folder = find_input_model(home, gpu_model)
    if folder is None:
        return None
    with _loading:
        key = folder, (folder / MANIFEST).stat().st_mtime_ns
        if key not in _loaded:
            _loaded[key] = load_input_model(home, folder=folder)
        return _loaded[key]
