"""Points as append-only files of JSON lines, one per kind and run; the standard library alone."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from advisor.records import PairPoint, Point, SoloPoint
from advisor.rows import P
from advisor_data.point_file import PointFile, file_errors
from advisor_data.points import KIND_NAMES, checked, in_order, names_of_pair


class FileStore:
    """A folder with one file `solo-<run>.jsonl` and one `pair-<run>.jsonl` per run.

    Every append is flushed to disk before `add` returns, so a killed process loses nothing that
    was added. Writers lock the file; a line that a crash cut off is left out when reading.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[Path, PointFile[Any]] = {}

    def add(self, points: Iterable[Point]) -> int:
        """See `Store.add`."""
        groups: defaultdict[tuple[type[Point], str], list[Point]] = defaultdict(list)
        for point in checked(points):
            groups[type(point), point.run].append(point)
        return sum(
            self._file(self._path(kind, run), kind).add(group)
            for (kind, run), group in groups.items()
        )

    def solo_points(
        self, *, job: str | None = None, gpu_model: str | None = None, run: str | None = None
    ) -> list[SoloPoint]:
        """See `Store.solo_points`."""
        return self._points(SoloPoint, run, job=job, gpu_model=gpu_model)

    def pair_points(
        self,
        *,
        pair: tuple[str, str] | None = None,
        gpu_model: str | None = None,
        run: str | None = None,
    ) -> list[PairPoint]:
        """See `Store.pair_points`."""
        return self._points(PairPoint, run, **names_of_pair(pair), gpu_model=gpu_model)

    def close(self) -> None:
        """Nothing is held open between calls."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _points(self, kind: type[P], run: str | None, **wanted: str | None) -> list[P]:
        values = {name: value for name, value in wanted.items() if value is not None}
        found = (p for path in self._paths(kind, run) for p in self._file(path, kind).read())
        return in_order(
            p for p in found if all(getattr(p, name) == value for name, value in values.items())
        )

    def _paths(self, kind: type[Point], run: str | None) -> list[Path]:
        if not self.folder.exists():
            return []
        with file_errors(self.folder):
            here = [p for p in self.folder.iterdir() if p.match(f"{KIND_NAMES[kind]}-*.jsonl")]
        return [path for path in sorted(here) if run is None or path == self._path(kind, run)]

    def _path(self, kind: type[Point], run: str) -> Path:
        return self.folder / f"{KIND_NAMES[kind]}-{quote(run, safe='')}.jsonl"

    def _file(self, path: Path, kind: type[P]) -> PointFile[P]:
        return self._files.setdefault(path, PointFile(path, kind))
