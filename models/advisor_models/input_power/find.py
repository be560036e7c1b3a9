"""Which model of power by data is in use: that of this host, else one that comes with advisor."""

from pathlib import Path
from typing import TYPE_CHECKING

from advisor.errors import ModelError
from advisor.files.home import open_home
from advisor_models.manifest import MANIFEST

if TYPE_CHECKING:
    from advisor_models.input_power.predictor import InputPredictor

MODEL_FOLDER = "input-model"
"""In the advisor's home."""

BUNDLED = Path(__file__).parent / "bundled"


def own_folder(home: Path) -> Path:
    """Where `advisor power train` writes; it is made.

    Raises:
        StoreError: it cannot be made.
        UnsafeFileError: the home belongs to another user, or is open to others.
    """
    return open_home(home, MODEL_FOLDER)


def find_input_model(home: Path) -> Path | None:
    """The folder of the model in use; None: there is none."""
    return next((f for f in (home / MODEL_FOLDER, BUNDLED) if (f / MANIFEST).exists()), None)


def load_input_model(home: Path, folder: Path | None = None) -> "InputPredictor":
    """The model in use, or that of a folder.

    Raises:
        ModelError: there is none, or it is damaged.
    """
    from advisor_models.input_power.predictor import InputPredictor

    found = folder or find_input_model(home)
    if found is None:
        raise no_model()
    return InputPredictor(found)


def no_model() -> ModelError:
    """That nothing can be predicted, and what to do."""
    return ModelError(
        "there is no model of power by data",
        why="none comes with this version, and none was made here",
        fix="measure on a GPU (advisor power input --preset T12, and others), then advisor power "
        "train",
    )
