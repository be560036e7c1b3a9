"""Records as files of JSON lines, for nodes without SQLAlchemy; needs the standard library alone.

An outbox: records are added and read, and a database takes the files in (`advisor data import`).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Self
from urllib.parse import quote

from advisor.core.observations import Observation, Record
from advisor.core.records import PairPoint, SoloPoint
from advisor.formats.rows import P
from advisor_data.store.pages import Page, Span, page_of
from advisor_data.store.point_file import append_new, file_errors, read_all
from advisor_data.store.points import KIND_NAMES, checked, in_order
from advisor_data.store.profile_rows import ProfileRow, profile_rows


class FileStore:
    """A folder with a `solo-<run>.jsonl` and a `pair-<run>.jsonl` per run.

    What launched jobs did is in one `observation-<month>.jsonl` per month.

    Every append is flushed to disk before `add` returns, so a killed process loses nothing that
    was added. Writers lock the file; a line that a crash cut off is left out when reading.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, points: Iterable[Record]) -> int:
        groups: defaultdict[Path, list[Record]] = defaultdict(list)
        for point in checked(points):
            groups[self._path(type(point), _group(point))].append(point)
        return sum(append_new(path, group) for path, group in groups.items())

    def solo_points(
        self, *, job: str | None = None, gpu_model: str | None = None, run: str | None = None
    ) -> list[SoloPoint]:
        found = self._points(SoloPoint, gpu_model, run)
        return [p for p in found if job in (None, p.job)]

    def pair_points(
        self,
        *,
        jobs: Sequence[str] | None = None,
        gpu_model: str | None = None,
        run: str | None = None,
    ) -> list[PairPoint]:
        """Of these jobs in any order, of a GPU model and of a run, where these are named."""
        return [p for p in self._points(PairPoint, gpu_model, run) if _is_of(p, jobs)]

    def observations(
        self, *, jobs: Sequence[str] | None = None, gpu_model: str | None = None
    ) -> list[Observation]:
        return [o for o in self._points(Observation, gpu_model) if _is_of(o, jobs)]

    def solo_page(self, job: str, span: Span) -> Page[SoloPoint]:
        return page_of(self.solo_points(job=job), span)

    def pair_page(self, jobs: Sequence[str], span: Span) -> Page[PairPoint]:
        return page_of(self.pair_points(jobs=jobs), span)

    def observation_page(self, job: str | None, span: Span) -> Page[Observation]:
        return page_of((o for o in self.observations() if job is None or job in o.jobs), span)

    def profile_names(self, after: str = "", limit: int = 1000) -> list[str]:
        return sorted({p.job for p in self.solo_points() if p.job > after})[:limit]

    def profile_rows(self, first: str, last: str) -> list[ProfileRow]:
        return profile_rows(p for p in self.solo_points() if first <= p.job <= last)

    def close(self) -> None:
        """Nothing is held open between calls."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _points(self, kind: type[P], gpu_model: str | None, run: str | None = None) -> list[P]:
        found = (point for path in self._paths(kind, run) for point in read_all(path, kind))
        return in_order(point for point in found if gpu_model in (None, point.gpu_model))

    def _paths(self, kind: type[Record], run: str | None) -> list[Path]:
        if not self.folder.exists():
            return []
        with file_errors(self.folder):
            here = [p for p in self.folder.iterdir() if p.match(f"{KIND_NAMES[kind]}-*.jsonl")]
        return [path for path in sorted(here) if run is None or path == self._path(kind, run)]

    def _path(self, kind: type[Record], group: str) -> Path:
        return self.folder / f"{KIND_NAMES[kind]}-{quote(group, safe='')}.jsonl"


def _group(record: Record) -> str:
    if isinstance(record, Observation):
        return f"{datetime.fromisoformat(record.started_at):%Y-%m}"
    return record.run


def _is_of(record: PairPoint | Observation, jobs: Sequence[str] | None) -> bool:
    return jobs is None or record.jobs == tuple(sorted(jobs))
