"""Points as data frames, for those who analyse them; pandas is loaded when called."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.core.objectives import PartResult, SplitResult
from advisor.core.records import PairPoint, Record, SoloPoint
from advisor.errors import InputError
from advisor.formats.rows import flat, flat_name, to_row
from advisor.wire.answers import frame
from advisor_data.bundled import (
    bundled_pair_points,
    bundled_reference_points,
    bundled_set_points,
    bundled_set_references,
    bundled_solo_points,
)
from advisor_data.files import read_points
from advisor_training.rows import SoloReference, references_by_job, references_of

if TYPE_CHECKING:
    import pandas as pd


_BUNDLED: Mapping[str, Callable[[], Sequence[Record]]] = {
    "pairs": bundled_pair_points,
    "sets": bundled_set_points,
    "solo": bundled_solo_points,
    "references": bundled_reference_points,
}


def load_dataset(
    which: str | Path = "pairs", *, solo: str | Path | None = None, relative: bool = True
) -> "pd.DataFrame":
    """Measured points, one a row, with the flat columns of docs/schema.md.

    They are those that come with the package, `pairs`, `sets`, `solo` or `references`, or those of
    a .parquet, .csv or .jsonl file. What belongs to one of several jobs has its number: `job_1`,
    `share_1_percent`, `rate_1`. Flags are joined by ";"; a reading that was not available is
    missing (NaN or None).

    Args:
        which: Name or file.
        solo: A file with the jobs alone, for points of jobs together; else those of the package.
        relative: Whether points of jobs together have in further columns what each does alone on
            the whole GPU (`solo_rate_1`, `solo_power_1_w`), its relative speed (`speed_1`), and
            `energy_saved`. The nearest points alone count: of the same card and run, else of the
            card, else of the GPU model. Without these columns a frame can be written and imported.

    Raises:
        InputError: pandas is not installed, or the file cannot be read.
        StoreError: the installation lacks the file.
    """
    if isinstance(which, str) and which not in _BUNDLED and not Path(which).suffix:
        raise InputError(f"no data set {which}", fix=f"{', '.join(_BUNDLED)}, or a file of points")
    own = _BUNDLED.get(str(which))
    points = own() if own else read_points(Path(which))
    are_together = relative and any(isinstance(point, PairPoint) for point in points)
    solos = references_by_job(_alone(solo)) if are_together else None
    return frame(_row(point, solos) for point in points)


def _alone(file: str | Path | None) -> list[SoloPoint]:
    bundled = (bundled_reference_points, bundled_solo_points, bundled_set_references)
    found = read_points(Path(file)) if file else [point for read in bundled for point in read()]
    return [point for point in found if isinstance(point, SoloPoint)]


def _row(point: Record, solos: Mapping[str, Sequence[SoloPoint]] | None) -> dict[str, Any]:
    row = {**flat(to_row(point)), "flags": ";".join(point.flags)}
    if solos is None or not isinstance(point, PairPoint):
        return row
    return row | dict(_relative(point, solos))


def _relative(
    point: PairPoint, solos: Mapping[str, Sequence[SoloPoint]]
) -> Iterator[tuple[str, Any]]:
    parts: list[PartResult] = []
    for number, (part, solo) in enumerate(
        zip(point.parts, references_of(point, solos), strict=True), start=1
    ):
        told = _told(part.rate, solo)
        yield flat_name("solo_rate", number), solo and solo.rate
        yield flat_name("solo_power_w", number), solo and solo.power_w
        yield flat_name("speed", number), told and told.speed
        parts += [told] if told else []
    saved = None
    if point.power_w and len(parts) == len(point.parts):
        saved = SplitResult(tuple(parts), point.power_w).energy_saved
    yield "energy_saved", saved


def _told(rate: float | None, solo: SoloReference | None) -> PartResult | None:
    return None if rate is None or solo is None else PartResult(rate, solo.rate, solo.power_w)
