"""Series become segments on disk, page by page, so that an audit that ended early goes on.

Each page of a group of GPUs is a file: a line for each segment, and a last line with what is kept
of the GPUs until the next page. A file is there whole or not at all.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Protocol

from advisor.files import replace_file
from advisor_audit.phases import Segment, SourceFacts, Watched, gpu_pages, segments
from advisor_audit.sources.lines import write_lines
from advisor_audit.sources.prometheus import Asked
from advisor_audit.sources.series import Owner, Series


class Source(Protocol):
    """Where series come from, in groups of GPUs and pages of time.

    Attributes:
        metrics: Of each channel the metric that is there, and the factor to its unit.
        exporters: Workloads whose pods are exporters, not jobs.
    """

    url: str
    step_s: float
    begin_s: float
    end_s: float
    page_s: float
    groups: tuple[tuple[str, ...], ...]
    metrics: dict[str, tuple[str, float]]
    exporters: frozenset[str]
    asked: Asked

    def read(self, group: int, begin_s: float, end_s: float) -> Iterator[Series]:
        """All series of a group of GPUs between two moments."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """What was read, on disk.

    Attributes:
        pages: When each begins and ends.
    """

    folder: Path
    groups: int
    pages: tuple[tuple[float, float], ...]

    def path(self, group: int, page: int) -> Path:
        """The file of a page."""
        return self.folder / f"{group:05d}-{page:05d}.jsonl"

    def segments(self, page: int) -> Iterator[Segment]:
        """All segments of a page, group by group."""
        for group in range(self.groups):
            with self.path(group, page).open("rb") as file:
                for line in file:
                    if line.startswith(b"["):
                        yield _segment(json.loads(line))

    def mig(self) -> set[str]:
        """GPUs of which only MIG instances were seen."""
        last = len(self.pages) - 1
        return {gpu for n in range(self.groups) for gpu in _last(self.path(n, last))["mig"]}


def pages_of(source: Source, folder: Path) -> Pages:
    """How a source is cut into pages."""
    count = max(1, math.ceil((source.end_s - source.begin_s) / source.page_s - 1e-9))
    edges = [min(source.end_s, source.begin_s + n * source.page_s) for n in range(count + 1)]
    return Pages(
        folder=folder,
        groups=len(source.groups),
        pages=tuple(pairwise(edges)),
    )


def read_all(
    source: Source,
    within: str,
    folder: Path,
    on_page: Callable[[int, int], None],
    keep: IO[bytes] | None = None,
) -> Pages:
    """Read what is not on disk yet.

    Args:
        source: What is read.
        within: Label that says who may share with whom.
        folder: Of the pages; what is there already is not read again.
        on_page: Called with the pages that are done and all pages.
        keep: A file that gets every series that is read.

    Raises:
        SourceError: the source is gone, or answers nonsense.
        OSError: the folder cannot be written.
    """
    site = SourceFacts(
        metrics=source.metrics, within=within, exporters=source.exporters, step_s=source.step_s
    )
    found = pages_of(source, folder)
    total = found.groups * len(found.pages)
    for group in range(found.groups):
        kept = _Kept()
        for page, (begin_s, end_s) in enumerate(found.pages):
            path = found.path(group, page)
            if path.exists():
                if page + 1 < len(found.pages) and not found.path(group, page + 1).exists():
                    last = _last(path)
                    kept = _Kept(
                        {gpu: _watched(**one) for gpu, one in last["watched"].items()},
                        set(last["mig"]),
                    )
            else:
                series = _keeping(source.read(group, begin_s, end_s), keep)
                steps = max(1, round((end_s - begin_s) / source.step_s))
                _write(path, _page(series, site, begin_s, steps, kept), kept)
            on_page(group * len(found.pages) + page + 1, total)
    return found


@dataclass(slots=True)
class _Kept:
    """Of a group of GPUs, from page to page."""

    watched: dict[str, Watched] = field(default_factory=dict[str, Watched])
    mig: set[str] = field(default_factory=set[str])


def _page(
    series: Iterator[Series], site: SourceFacts, begin_s: float, steps: int, kept: _Kept
) -> Iterator[Segment]:
    gpus, mig = gpu_pages(series, site, begin_s, steps)
    kept.mig |= mig
    for gpu, page in sorted(gpus.items()):
        yield from segments(page, kept.watched.setdefault(gpu, Watched()), begin_s, site.step_s)


def _keeping(series: Iterator[Series], file: IO[bytes] | None) -> Iterator[Series]:
    for one in series:
        if file:
            write_lines(file, [one])
        yield one


def _write(path: Path, found: Iterator[Segment], kept: _Kept) -> None:
    lines = [json.dumps(_row(segment)) for segment in found]
    watched = {gpu: asdict(one) for gpu, one in kept.watched.items()}
    lines.append(json.dumps({"watched": watched, "mig": sorted(kept.mig)}))
    replace_file(path, "\n".join([*lines, ""]).encode(), durable=False)


def _row(one: Segment) -> Sequence[Any]:
    means = {name: float(f"{value:.6g}") for name, value in one.means.items()}
    return [
        *(one.gpu, one.model, one.host, one.owner, one.state, one.phase),
        *(one.begin_s, one.end_s, one.seen_s, means, round(one.spread, 4)),
    ]


def _segment(row: Sequence[Any]) -> Segment:
    gpu, model, host, owner, state, phase, begin_s, end_s, seen_s, means, spread = row
    return Segment(
        gpu=gpu,
        model=model,
        host=host,
        owner=Owner(*owner) if owner else None,
        state=state,
        phase=phase,
        begin_s=begin_s,
        end_s=end_s,
        seen_s=seen_s,
        means=means,
        spread=spread,
    )


def _last(path: Path) -> Any:
    return json.loads(path.read_bytes().rstrip(b"\n").rsplit(b"\n", 1)[-1])


def _watched(*, owner: Sequence[str] | None, blocks: Sequence[Any], **others: Any) -> Watched:
    number, mean, squares = blocks
    last = Owner(*owner) if owner else None
    return Watched(owner=last, blocks=(number, mean, squares), **others)
