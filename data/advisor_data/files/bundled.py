"""The measurements that come with the package."""

from importlib import resources

from advisor.core.records import PairPoint, SoloPoint
from advisor.errors import StoreError
from advisor.formats.rows import P
from advisor_data.files.files import read_points

GPU_MODEL = "NVIDIA H200"
"""What most bundled points were measured on: taken where nobody says which GPU model is meant."""


def bundled_solo_points() -> list[SoloPoint]:
    """Solo points measured on real GPUs.

    Raises:
        StoreError: the installation lacks the file.
    """
    return _points("solo.jsonl", SoloPoint, "measurements")


def bundled_pair_points() -> list[PairPoint]:
    """Pair points measured on real GPUs, flagged ones among them: see `advisor_data.files.dataset`.

    Raises:
        StoreError: the installation lacks the file.
    """
    return _points("pairs.jsonl", PairPoint, "measured pairs")


def bundled_reference_points() -> list[SoloPoint]:
    """Jobs alone at 100 %, measured in the campaigns of the bundled pairs: their references.

    They are no profiles: what looks for those reads `bundled_solo_points` alone.

    Raises:
        StoreError: the installation lacks the file.
    """
    return _points("references.jsonl", SoloPoint, "references of the pairs")


def _points(name: str, kind: type[P], content: str) -> list[P]:
    file = resources.files("advisor_data") / "bundled" / name
    if not file.is_file():
        raise StoreError(
            f"advisor_data/bundled/{name} is missing",
            why=f"the installation is not whole, or was built without the {content}",
            fix="install sm-advisor again",
        )
    with resources.as_file(file) as path:
        return [point for point in read_points(path) if isinstance(point, kind)]
