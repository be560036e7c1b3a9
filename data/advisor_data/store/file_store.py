"""Records as files of JSON lines, one per kind and run; needs the standard library alone."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from advisor.core.observations import Observation, Record
from advisor.core.records import PairPoint, SoloPoint
from advisor.formats.rows import P
from advisor_data.store.pages import Page, Span, page_of
from advisor_data.store.point_file import PointFile, file_errors
from advisor_data.store.points import KIND_NAMES, checked, in_order, names_of_pair, only_of
from advisor_data.store.profile_rows import ProfileRow, profile_rows


class FileStore:
    """A folder with a `solo-<run>.jsonl` and a `pair-<run>.jsonl` per run.

    What launched pairs did is in one `observation-<month>.jsonl` per month.

    Every append is flushed to disk before `add` returns, so a killed process loses nothing that
    was added. Writers lock the file; a line that a crash cut off is left out when reading.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[Path, PointFile[Any]] = {}

    def add(self, points: Iterable[Record]) -> int:
        """See `Store.add`."""
        groups: defaultdict[tuple[type[Record], str], list[Record]] = defaultdict(list)
        for point in checked(points):
            groups[type(point), _group(point)].append(point)
        return sum(
            self._file(self._path(kind, run), kind).add(group)
            for (kind, run), group in groups.items()
        )

    def replace_profile(self, job: str, gpu_model: str | None, points: Iterable[SoloPoint]) -> int:
        """See `Store.replace_profile`.

        Each file is changed as a whole, those with new points first: after a crash in between,
        some old points are there still, and none is lost. The same call again ends it.
        """
        groups: defaultdict[Path, list[SoloPoint]] = defaultdict(list)
        for point in only_of(job, gpu_model, points):
            groups[self._path(SoloPoint, point.run)].append(point)
        self._change_profile(job, gpu_model, groups)
        return sum(map(len, groups.values()))

    def delete_profile(self, job: str, gpu_model: str | None = None) -> int:
        """See `Store.delete_profile`; each file is changed as a whole."""
        return self._change_profile(job, gpu_model, {})

    def delete(self, points: Iterable[Record]) -> int:
        """See `Store.delete`; each file is changed as a whole."""
        ids: defaultdict[tuple[type[Record], Path], set[str]] = defaultdict(set)
        for point in points:
            kind = type(point)
            ids[kind, self._path(kind, _group(point))].add(point.point_id)
        return sum(
            self._file(path, kind).change(lambda p, gone=gone: p.point_id in gone, [])
            for (kind, path), gone in ids.items()
            if path.exists()
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

    def observations(
        self, *, pair: tuple[str, str] | None = None, gpu_model: str | None = None
    ) -> list[Observation]:
        """See `Store.observations`."""
        return self._points(Observation, None, **names_of_pair(pair), gpu_model=gpu_model)

    def solo_page(self, job: str, span: Span) -> Page[SoloPoint]:
        """See `Store.solo_page`."""
        return page_of(self.solo_points(job=job), span)

    def pair_page(self, pair: tuple[str, str], span: Span) -> Page[PairPoint]:
        """See `Store.pair_page`."""
        return page_of(self.pair_points(pair=pair), span)

    def observation_page(self, job: str | None, span: Span) -> Page[Observation]:
        """See `Store.observation_page`."""
        return page_of((o for o in self.observations() if job is None or job in o.pair), span)

    def profile_names(self, after: str = "", limit: int = 1000) -> list[str]:
        """See `Store.profile_names`."""
        return sorted({p.job for p in self.solo_points() if p.job > after})[:limit]

    def profile_rows(self, first: str, last: str) -> list[ProfileRow]:
        """See `Store.profile_rows`."""
        return profile_rows(p for p in self.solo_points() if first <= p.job <= last)

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

    def _change_profile(
        self, job: str, gpu_model: str | None, new: Mapping[Path, list[SoloPoint]]
    ) -> int:
        """Take the old points out of all files and put the new ones in; how many went out."""
        self._points(SoloPoint, None)  # a damaged file is found before any is changed

        def is_old(point: SoloPoint) -> bool:
            return point.job == job and gpu_model in (None, point.gpu_model)

        paths = dict.fromkeys([*new, *self._paths(SoloPoint, None)])
        files = [(path, self._file(path, SoloPoint)) for path in paths]
        return sum(file.change(is_old, new.get(path, [])) for path, file in files)

    def _paths(self, kind: type[Record], run: str | None) -> list[Path]:
        if not self.folder.exists():
            return []
        with file_errors(self.folder):
            here = [p for p in self.folder.iterdir() if p.match(f"{KIND_NAMES[kind]}-*.jsonl")]
        return [path for path in sorted(here) if run is None or path == self._path(kind, run)]

    def _path(self, kind: type[Record], run: str) -> Path:
        return self.folder / f"{KIND_NAMES[kind]}-{quote(run, safe='')}.jsonl"

    def _file(self, path: Path, kind: type[P]) -> PointFile[P]:
        return self._files.setdefault(path, PointFile(path, kind))


def _group(record: Record) -> str:
    if isinstance(record, Observation):
        return f"{datetime.fromisoformat(record.started_at):%Y-%m}"
    return record.run
