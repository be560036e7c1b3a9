"""An audit from beginning to end: read, survey, pack, add up.

Series become segments on disk, page by page, so that an audit that ended early goes on. Each page
of a group of GPUs is a file: a line for each segment, and a last line with what is kept of the GPUs
until the next page. A file is there whole or not at all.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby, pairwise
from pathlib import Path
from typing import IO, Any, Protocol

from advisor.core.objectives import NO_PRICES, Aim, Prices
from advisor.decide.limits import Request, with_card_memory
from advisor.errors import InputError
from advisor.files import replace_file
from advisor.formats.moments import now, to_text
from advisor.predict.profiles import Profile
from advisor_audit.kinds import SeenKind, Survey
from advisor_audit.packing import ALL, SLOT_S, Packer, Walk, Walked, make_packer
from advisor_audit.phases import Segment, SourceFacts, Watched, gpu_pages, segments
from advisor_audit.result import (
    WORLDS,
    Audit,
    AuditTotals,
    Hours,
    ReadSpan,
    not_seen,
    saved,
    to_prove,
)
from advisor_audit.sources.prometheus import Asked, write_lines
from advisor_audit.sources.series import Owner, Series
from advisor_models.one_window import OneWindowHead


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


_FEWEST_SLOTS = 96

SAMPLE = 12
"""Slots that are packed in each world."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is asked for.

    Attributes:
        within: Label of who may share with whom, or `all`.
        known: Profiles that the store has, by GPU model and job.
    """

    head: OneWindowHead
    within: str = "namespace"
    objective: Aim = "energy-efficiency"
    limits: Request = field(default_factory=Request)
    prices: Prices = NO_PRICES
    known: Mapping[tuple[str, str], Profile] = field(default_factory=dict[tuple[str, str], Profile])


TellProgress = Callable[[str, int, int], None]
"""Called with what is done, how much of it, and how much there is."""


def audit(
    source: Source,
    folder: Path,
    wanted: Wanted,
    on_progress: TellProgress,
    keep: IO[bytes] | None = None,
) -> Audit:
    """Read a source, or go on reading it, and say what sharing would give.

    Args:
        source: Of the series.
        folder: Where pages are kept until the audit is done.
        wanted: What is asked for.
        on_progress: Told how far it is.
        keep: A file that gets every series that is read.

    Raises:
        SourceError: the source is gone, or answers nonsense.
        InputError: limits or prices that cannot be meant, or nobody held a GPU.
    """
    label = "namespace" if wanted.within == ALL else wanted.within
    pages = read_all(source, label, folder, lambda n, of: on_progress("reading", n, of), keep)
    survey, hours = _surveyed(pages, wanted, on_progress)
    if not survey.seen:
        # Or the same command would tell the same again, whatever has begun since.
        for file in folder.iterdir():
            file.unlink()
        raise InputError(
            "no job was seen on any GPU", fix="ask for other days, or see that the exporter runs"
        )
    span_s = source.end_s - source.begin_s
    # Shorter where little was read.
    slot_s = min(SLOT_S, max(source.step_s, span_s / _FEWEST_SLOTS))
    every = max(1, round(span_s / slot_s / SAMPLE))
    walk = _packed(pages, survey, wanted, Walked(slot_s, every), on_progress)
    totals = AuditTotals(
        survey=survey,
        packers=walk.packers,
        walked=walk.walked,
        hours=hours,
        prices=wanted.prices,
        saved=saved(walk.walked, walk.packers, _told(worlds_of(walk, wanted), on_progress)),
    )
    return _answer(source, wanted, totals, len(pages.mig()))


def _answer(source: Source, wanted: Wanted, totals: AuditTotals, mig: int) -> Audit:
    strays = source.asked.strays
    left_out = f"{strays:,} samples are left out: their times are over a year off the others"
    begin, end = (to_text(datetime.fromtimestamp(s, UTC)) for s in (source.begin_s, source.end_s))
    held, jobs = totals.now(), totals.jobs()
    return Audit(
        made_at=now(),
        span=ReadSpan(
            source=source.url,
            begin=begin,
            end=end,
            step_s=source.step_s,
            slot_s=totals.walked.slot_s,
            within=wanted.within,
            objective=wanted.objective,
            min_speed=wanted.limits.policy.min_speed,
            requests=source.asked.requests,
            received_bytes=source.asked.received_bytes,
            waits=source.asked.waits,
        ),
        now=held,
        shared=totals.shared(held),
        sets=totals.sets(),
        jobs=jobs,
        left_out=len(totals.survey.seen) - len(jobs),
        profile_next=totals.profile_next(),
        not_seen=(*([left_out] if strays else []), *not_seen(totals, mig)),
        to_prove=tuple(to_prove(totals.walked.slot_s)),
    )


def _surveyed(pages: Pages, wanted: Wanted, on_progress: TellProgress) -> tuple[Survey, Hours]:
    """All jobs, and what the GPUs did."""
    survey, hours = Survey(known=wanted.known), Hours()
    for page in range(len(pages.pages)):
        segments = [*pages.segments(page)]
        survey.add_page(segments)
        hours.add_page(segments)
        on_progress("finding jobs", page + 1, len(pages.pages))
    return survey, hours


def _packed(
    pages: Pages, survey: Survey, wanted: Wanted, walked: Walked, on_progress: TellProgress
) -> Walk:
    """Through all pages once more, slot by slot."""
    read = (one for page in range(len(pages.pages)) for one in pages.segments(page))
    walk = walk_of(read, survey, wanted, walked)
    for page, (begin_s, end_s) in enumerate(pages.pages):
        walk.page(pages.segments(page), begin_s, end_s)
        on_progress("packing", page + 1, len(pages.pages))
    return walk


def walk_of(read: Iterable[Segment], survey: Survey, wanted: Wanted, walked: Walked) -> Walk:
    """What packs the segments that were surveyed, slot by slot.

    Raises:
        InputError: limits or prices that cannot be meant.
    """
    kinds = _kinds(read, survey)
    numbers = {kind: n for of_model in kinds.values() for n, kind in enumerate(of_model)}
    profiles = {model: survey.profiles(of, wanted.head) for model, of in kinds.items()}
    return Walk(survey, _packers(kinds, profiles, survey, wanted), numbers, wanted.within, walked)


def _kinds(read: Iterable[Segment], survey: Survey) -> dict[str, list[SeenKind]]:
    """Of each GPU model, in a fixed order."""
    found: set[SeenKind] = set()
    for one in read:
        kind = survey.kind_of(one) if one.owner not in survey.several else None
        if kind:
            found.add(kind)
            survey.count(one, kind)
    return {model: [*of] for model, of in groupby(sorted(found), lambda kind: kind.model)}


def _told(
    worlds: Iterable[dict[str, Packer]], on_progress: TellProgress
) -> Iterator[dict[str, Packer]]:
    for number, world in enumerate(worlds, 1):
        yield world
        on_progress("drawing ranges", number, WORLDS)


def worlds_of(walk: Walk, wanted: Wanted) -> Iterator[dict[str, Packer]]:
    """Packers of what jobs might be, of each world."""
    kinds = {model: packer.kinds for model, packer in walk.packers.items()}
    guesses = {model: walk.survey.guesses(of, wanted.head) for model, of in kinds.items()}
    for world in range(WORLDS):
        profiles = {model: guess(world) for model, guess in guesses.items()}
        yield _packers(kinds, profiles, walk.survey, wanted)


def _packers(
    kinds: Mapping[str, Sequence[SeenKind]],
    profiles: Mapping[str, Sequence[Profile]],
    survey: Survey,
    wanted: Wanted,
) -> dict[str, Packer]:
    return {m: _packer(m, of, survey, wanted, profiles[m]) for m, of in kinds.items()}


def _packer(
    model: str,
    kinds: Sequence[SeenKind],
    survey: Survey,
    wanted: Wanted,
    profiles: Sequence[Profile],
) -> Packer:
    limits = with_card_memory(wanted.limits, model)
    if limits.memory_mib is None:
        limits = replace(limits, memory_mib=survey.memory_mib(model))
    return make_packer(
        kinds,
        profiles,
        survey.idle_power_w(model),
        wanted.objective,
        limits,
        wanted.prices,
    )
