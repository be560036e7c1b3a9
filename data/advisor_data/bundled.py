"""The measurements that come with the package."""

from importlib import resources

from advisor.errors import StoreError
from advisor.records import SoloPoint
from advisor_data.files import read_points


def bundled_solo_points() -> list[SoloPoint]:
    """Solo points measured on real GPUs.

    Raises:
        StoreError: the installation lacks the file.
        InputError: pyarrow is not installed.
    """
    file = resources.files("advisor_data") / "bundled" / "solo.parquet"
    if not file.is_file():
        raise StoreError(
            "advisor_data/bundled/solo.parquet is missing",
            why="the installation is not whole, or was built without the measurements",
            fix="install sm-advisor again",
        )
    with resources.as_file(file) as path:
        return read_points(path)
