"""Which model of power by data is in use: that of this host, else one that comes with advisor.

Of a GPU model that the host's is not of, the one that comes with advisor goes first.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.errors import ModelError
from advisor.files import open_home
from advisor_models.manifest import MANIFEST

if TYPE_CHECKING:
    from advisor_power.model.predictor import InputPredictor

MODEL_FOLDER = "input-model"
"""In the advisor's home."""

BUNDLED = Path(__file__).parent / "bundled"
"""A folder for each GPU model."""


class NoInputModelError(ModelError):
    """Nothing can be predicted: no model was made here, and none came with advisor."""

    def __init__(self) -> None:
        super().__init__(
            "there is no model of power by data",
            why="none was made here, and those that come with advisor are missing",
            fix="measure on a GPU (advisor power input --preset T12, and others), then advisor "
            "power train",
        )


def own_folder(home: Path) -> Path:
    """Where `advisor power train` writes; it is made.

    Raises:
        StoreError: it cannot be made.
        UnsafeFileError: the home belongs to another user, or is open to others.
    """
    return open_home(home, MODEL_FOLDER)


def bundled_folder(gpu_model: str) -> Path:
    """Where the model of a GPU model is, if one comes with advisor."""
    return BUNDLED / re.sub(r"[^a-z0-9]+", "-", gpu_model.lower())


def find_input_model(home: Path, gpu_model: str | None = None) -> Path | None:
    """The folder of the model in use; None: there is none.

    What was measured on this host goes first, unless it is of other GPU models than the one that is
    asked for and one of that comes with advisor; then what comes with advisor, the first one where
    none is of the GPU model.
    """
    own, named = home / MODEL_FOLDER, [bundled_folder(gpu_model)] if gpu_model else []
    first = [own, *named] if gpu_model is None or _may_be_of(own, gpu_model) else [*named, own]
    folders = (*first, *sorted(BUNDLED.glob("*")))
    return next((folder for folder in folders if (folder / MANIFEST).exists()), None)


def _may_be_of(folder: Path, gpu_model: str) -> bool:
    """Whether inputs of a GPU model were measured for a model; of a damaged one nobody knows."""
    from advisor_power.model.manifest import read_input_manifest

    try:
        cards = read_input_manifest(folder).known.cards
    except ModelError:
        # It is not passed over: whoever loads it is told what is wrong with it.
        return True
    return gpu_model in {card.gpu_model for card in cards}


def load_input_model(home: Path, gpu_model: str | None = None) -> "InputPredictor":
    """The model in use.

    Raises:
        NoInputModelError: there is none.
        ModelError: it is damaged.
    """
    from advisor_power.model.predictor import InputPredictor

    found = find_input_model(home, gpu_model)
    if found is None:
        raise NoInputModelError
    return InputPredictor(found)
