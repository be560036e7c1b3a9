"""Points as data frames, for those who analyse them; pandas is loaded when called."""

from pathlib import Path
from typing import TYPE_CHECKING

from advisor.errors import InputError
from advisor.formats.flat_rows import flat
from advisor.formats.rows import to_row
from advisor.frames import frame
from advisor_data.files.bundled import (
    bundled_pair_points,
    bundled_reference_points,
    bundled_solo_points,
)
from advisor_data.files.files import read_points

if TYPE_CHECKING:
    import pandas as pd

_BUNDLED = {
    "pairs": bundled_pair_points,
    "solo": bundled_solo_points,
    "references": bundled_reference_points,
}


def load_dataset(which: str | Path = "pairs") -> "pd.DataFrame":
    """Measured points, one a row, with the flat columns of docs/schema.md.

    They are those that come with the package, `pairs`, `solo` or `references`, or those of a
    .parquet, .csv or .jsonl file. What belongs to one of several jobs has its number: `job_1`,
    `share_1_percent`, `rate_1`. Flags are joined by ";"; a reading that was not available is
    missing (NaN or None).

    Raises:
        InputError: pandas is not installed, or the file cannot be read.
        StoreError: the installation lacks the file.
    """
    if isinstance(which, str) and which not in _BUNDLED and not Path(which).suffix:
        raise InputError(f"no data set {which}", fix=f"{', '.join(_BUNDLED)}, or a file of points")
    own = _BUNDLED.get(str(which))
    points = own() if own else read_points(Path(which))
    rows = ({**flat(to_row(point)), "flags": ";".join(point.flags)} for point in points)
    return frame(rows)
