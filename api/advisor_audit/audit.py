"""An audit from beginning to end: read, survey, pack, add up.

Series become segments on disk, page by page, so that an audit that ended early goes on. Each page
of a group of GPUs is a file: a line for each segment, and a last line with what is kept of the GPUs
until the next page. A file is there whole or not at all.

What runs on the GPUs of this host now, and who could share a card, is an audit of a minute: what is
said of other shares and of sets is estimated from what a GPU read over the last minute.
"""

import json
import math
import pwd
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby, pairwise
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from advisor.core.gpu import WHOLE, Gpu
from advisor.core.interval import Interval
from advisor.core.objectives import NO_PRICES, Aim, Prices
from advisor.core.records import FILLS_PERCENT
from advisor.decide.limits import Request, with_card_memory
from advisor.errors import InputError
from advisor.files import replace_file
from advisor.formats.moments import now, to_text
from advisor.predict.profiles import Profile
from advisor.runtime.processes import descendants, name_of, owner_of
from advisor_audit.kinds import SM, SeenKind, Survey
from advisor_audit.packing import ALL, SLOT_S, Packer, Walk, Walked, make_packer
from advisor_audit.phases import HELD_MIB, Segment, SourceFacts, Watched, gpu_pages, segments
from advisor_audit.result import (
    WORLDS,
    Audit,
    AuditTotals,
    Hours,
    ReadSpan,
    interval,
    not_seen,
    saved,
    saved_w,
    to_prove,
)
from advisor_audit.sources import POWER, USED, Asked, Owner, Series, write_lines
from advisor_models.one_window import OneWindowHead
from advisor_profiling.attached import GpuLook, HostGpus


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
                        yield _segment_of_row(json.loads(line))

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


def _segment_of_row(row: Sequence[Any]) -> Segment:
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


WINDOW_S = 60.0
HALF = WHOLE / 2

Means = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostJob:
    """Who holds a GPU.

    Attributes:
        job: Its name here, in sets, too.
        pids: Of its processes that began without each other; none: NVML names none.
        user: None: the host does not say.
        power_w: Of the whole card, as `sm_active_percent` and `memory_mib`.
        half_speed: Speed at half of the card for each 1 on all of it, estimated, with the ends of
            90 %; None: too little was read, several share the card, or it is on several.
        fills: Whether it keeps the SMs active half of the time; None: not read, or
            several are there.
    """

    job: str
    gpu: int | None
    gpu_model: str
    pids: tuple[int, ...]
    user: str | None
    power_w: float | None
    sm_active_percent: float | None
    memory_mib: float | None
    half_speed: Interval | None
    fills: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSet:
    """Jobs that could move to one card, as a set of an audit; its ranges are of 90 %."""

    jobs: tuple[str, ...]
    speeds: tuple[float, ...]
    limits_percent: tuple[float, ...]
    power_w: float
    saved_w: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSeen:
    """All of it; what is said of half a card and of sets is `basis`."""

    at: str
    basis: str
    jobs: tuple[HostJob, ...]
    free_gpus: tuple[int | None, ...]
    together: tuple[HostSet, ...]


@dataclass(slots=True)
class _Card:
    """A GPU and its last minute with the same processes."""

    looks: "deque[Means]"
    pids: tuple[int, ...] = ()

    def add(self, pids: tuple[int, ...], read: Means) -> Means:
        """One more look; the means of the minute, of memory the most."""
        if pids != self.pids:
            self.pids = pids
            self.looks.clear()
        self.looks.append(read)
        values = {name: [one[name] for one in self.looks if name in one] for name in read}
        return {n: max(of) if n == USED else sum(of) / len(of) for n, of in values.items()}


class HostWatch:
    """The GPUs of this host, looked at again and again.

    Raises:
        SourceError: no driver, or no GPU.
    """

    def __init__(self, wanted: Wanted, every_s: float) -> None:
        self._host, self._wanted = HostGpus(), wanted
        self._looks = max(1, round(WINDOW_S / every_s))
        self._cards: dict[str, _Card] = {}

    def look(self) -> HostSeen:
        """What is there now, a while after the last look.

        Raises:
            SourceError: a GPU does not answer any more.
        """
        there: list[tuple[GpuLook, Segment]] = []
        for seen in self._host.look():
            # Those that compute and were not started by another one of them.
            below = {child for pid in seen.pids for child in descendants(pid)}
            pids = tuple(pid for pid in seen.pids if pid not in below)
            card = self._cards.setdefault(seen.gpu.uuid, _Card(deque(maxlen=self._looks)))
            there.append((seen, _segment_of_gpu(seen.gpu, card.add(pids, seen.means), pids)))
        segments = [one for _, one in there]
        survey = Survey()
        survey.add_page(segments)
        walk = walk_of(segments, survey, self._wanted, Walked(WINDOW_S))
        walk.page(segments, 0.0, WINDOW_S)
        return HostSeen(
            at=now(),
            basis="estimated",
            jobs=tuple(self._job(seen, one, survey) for seen, one in there if one.state != "free"),
            free_gpus=tuple(seen.gpu.index for seen, one in there if one.state == "free"),
            together=tuple(_together(walk, self._wanted)),
        )

    def _job(self, seen: GpuLook, one: Segment, survey: Survey) -> HostJob:
        gpu, read = seen.gpu, seen.means
        pids, active = self._cards[gpu.uuid].pids, one.means.get(SM)
        return HostJob(
            job=one.owner.name if one.owner else " + ".join(map(_name, pids)),
            gpu=gpu.index,
            gpu_model=gpu.model,
            pids=pids,
            user=_users(pids),
            power_w=read.get(POWER),
            sm_active_percent=read.get(SM),
            memory_mib=read.get(USED),
            half_speed=self._half_speed(one, survey),
            fills=None if active is None or not one.owner else active >= FILLS_PERCENT,
        )

    def _half_speed(self, one: Segment, survey: Survey) -> Interval | None:
        kind = survey.kind_of(one) if one.owner not in survey.several else None
        if kind is None:
            return None
        guess = survey.guesses([kind], self._wanted.head)
        return interval(np.array([[_at_half(*guess(world))] for world in range(WORLDS)]))

    def close(self) -> None:
        """Let the driver go."""
        self._host.close()


def _segment_of_gpu(gpu: Gpu, means: Means, pids: tuple[int, ...]) -> Segment:
    """The last minute of a GPU, as an audit sees it."""
    held = bool(pids) or means.get(USED, 0.0) > HELD_MIB
    name = _name(pids[0]) if pids else f"of GPU {gpu.index}"
    return Segment(
        gpu=gpu.uuid,
        model=gpu.model,
        host="",
        owner=Owner(_users(pids) or "", name) if held and len(pids) < 2 else None,
        state="free" if not held else "busy" if len(pids) < 2 else "shared",
        phase=0,
        begin_s=0.0,
        end_s=WINDOW_S,
        seen_s=WINDOW_S,
        means=means,
        spread=0.0,
    )


def _name(pid: int) -> str:
    """The script or program, and the number."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        words = []
    script = next((word for word in words if word.endswith(".py")), words[0] if words else "")
    return f"{Path(script).name or name_of(pid) or 'process'} ({pid})"


def _users(pids: Sequence[int]) -> str | None:
    found = {_user(uid) for pid in pids if (uid := owner_of(pid)) is not None}
    return ", ".join(sorted(found)) or None


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _at_half(profile: Profile) -> float:
    rates = profile.values["rate"]
    return float(np.interp(HALF, profile.shares, rates) / rates[-1])


def _together(walk: Walk, wanted: Wanted) -> list[HostSet]:
    """Sets that save most first."""
    found, worlds = list[HostSet](), worlds_of(walk, wanted)
    saved = saved_w(walk.walked.hours, worlds) if walk.walked.hours else {}
    for jobs, key in walk.walked.teams:
        one = walk.packers[key.model].set_of(key.members, key.level)
        found.append(
            HostSet(
                jobs=tuple(job.name for job in jobs),
                speeds=one.speeds,
                limits_percent=one.shares,
                power_w=one.power_w,
                saved_w=saved[key],
            )
        )
    return sorted(found, key=lambda one: -one.saved_w.value)
