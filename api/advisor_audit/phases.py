"""When jobs began, paused, changed their load and ended: a detector that reads GPU by GPU.

It sees a page of one GPU at a time and keeps a few numbers of it in between, so that its memory
does not grow with the time that is read. Nothing is made up: a time in which nothing was seen
belongs to nobody, unless it is shorter than `PATIENCE_S` and the same job is there on both sides.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.core.telemetry import COLUMN_UNITS, most_of
from advisor.predict.profiles import Floats
from advisor_audit.sources import (
    ACTIVITY,
    ENERGY,
    FREE,
    LIMIT,
    POWER,
    USED,
    Owner,
    Series,
    gpu_of,
    owner_of,
)
from advisor_profiling.telemetry.dcgm import BLANK

NOBODY, SEVERAL = -1, -2


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """What a source says of all its series.

    Attributes:
        metrics: Of each channel the metric that is there, and the factor to its unit.
        within: Label; jobs share only where its value is equal.
        exporters: Workloads whose pods are exporters, not jobs.
    """

    metrics: Mapping[str, tuple[str, float]]
    within: str
    exporters: frozenset[str]
    step_s: float


@dataclass(slots=True, eq=False)
class _GpuPage:
    """One GPU over a page.

    Attributes:
        owners: Those of the page.
        held: Of each step the index of its owner, else `NOBODY` or `SEVERAL`; shape (steps,).
        values: Each channel; NaN where nothing was read; shape (steps,).
        left_out: Readings that no card can show, and one of them.
    """

    gpu: str
    model: str
    host: str
    owners: list[Owner] = field(default_factory=list[Owner])
    held: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    values: dict[str, Floats] = field(default_factory=dict[str, Floats])
    left_out: tuple[int, str] = (0, "")

    def first_of(self, channels: Sequence[str]) -> Floats:
        """The first of these that was read here; all NaN: none was."""
        found = next((self.values[name] for name in channels if name in self.values), None)
        return np.full(len(self.held), math.nan) if found is None else found


def gpu_pages(
    series: Iterable[Series], site: SourceFacts, begin_s: float, steps: int
) -> tuple[dict[str, _GpuPage], set[str]]:
    """Each GPU of a page, and the GPUs that are there as MIG instances only.

    Samples of one step count by their mean, totals by their newest; the order in which they come
    does not matter, nor do labels that are there a few steps longer than their pod.
    """
    by_metric = {name: (channel, scale) for channel, (name, scale) in site.metrics.items()}
    rows: dict[str, _GpuPage] = {}
    sums: dict[str, dict[str, Floats]] = defaultdict(dict)
    there: dict[str, dict[Owner | None, npt.NDArray[np.bool_]]] = defaultdict(dict)
    mig: set[str] = set()
    for one in series:
        channel, scale = by_metric.get(one.metric, ("", 1.0))
        gpu = gpu_of(one.labels)
        if gpu is None or not channel:
            if one.labels.get("GPU_I_ID"):
                mig.add(gpu_of({**one.labels, "GPU_I_ID": ""}) or "")
            continue
        place, values = _placed(one, site.step_s, begin_s, steps, scale)
        # Of a total the newest value counts.
        kept = sums[gpu].setdefault(channel, np.zeros((2, steps)))
        if channel == ENERGY:
            kept[0][place], kept[1][place] = values, 1
        else:
            np.add.at(kept[0], place, values)
            np.add.at(kept[1], place, 1)
        owner = owner_of(one.labels, site.within, site.exporters)
        there[gpu].setdefault(owner, np.zeros(steps, dtype=bool))[place] = True
        host = (
            one.labels.get("Hostname")
            or one.labels.get("hostname")
            or one.labels.get("instance", "")
        )
        rows.setdefault(gpu, _GpuPage(gpu, one.labels.get("modelName", ""), host))
    for gpu, page in rows.items():
        page.values, page.left_out = _means(sums[gpu], site.step_s)
        page.owners = [owner for owner in there[gpu] if owner is not None]
        page.held = _held([there[gpu][owner] for owner in page.owners], steps)
    return rows, mig - set(rows)


def _placed(
    one: Series, step_s: float, begin_s: float, steps: int, scale: float
) -> tuple[npt.NDArray[np.int64], Floats]:
    """Steps of the samples that are in the page and can be read, and their values."""
    times, values = np.array(one.times_s), np.array(one.values)
    place = np.ceil((times - begin_s) / step_s - 1e-6).astype(np.int64) - 1
    # Also false for NaN.
    read = (place >= 0) & (place < steps) & (values >= 0) & (values < BLANK)
    return place[read], values[read] * scale


def _means(sums: Mapping[str, Floats], step_s: float) -> tuple[dict[str, Floats], tuple[int, str]]:
    """Of each step, without what the card cannot read; how many of these, and one in words."""
    found = {
        channel: np.divide(total, count, out=np.full_like(total, math.nan), where=count > 0)
        for channel, (total, count) in sums.items()
    }
    limits_w = found.get(LIMIT, np.zeros(0))
    cards_mib = found[USED] + found[FREE] if {USED, FREE} <= found.keys() else np.zeros(0)
    most = most_of(
        max(limits_w[~np.isnan(limits_w)], default=None),
        # What the driver keeps for itself is in neither.
        1.1 * float(np.median(known)) if len(known := cards_mib[~np.isnan(cards_mib)]) else None,
    )
    if ENERGY in found and POWER not in found:
        found[POWER] = _power_w(found[ENERGY], step_s)
    found.pop(ENERGY, None)
    count, example = 0, ""
    for channel, values in found.items():
        unit = next(unit for end, unit in COLUMN_UNITS.items() if channel.endswith(end))
        wrong = values > most[unit]
        if wrong.any():
            count += int(wrong.sum())
            example = f"{channel} of {values[wrong].max():,.0f}"
        values[wrong] = math.nan
        if unit == "%":
            np.minimum(values, 100.0, out=values)
    return found, (count, example)


def _power_w(energy_j: Floats, step_s: float) -> Floats:
    """From a total between its readings; where it fell back the driver has begun anew."""
    watts = np.full_like(energy_j, math.nan)
    known = np.flatnonzero(~np.isnan(energy_j))
    rises, spans_s = np.diff(energy_j[known]), np.diff(known) * step_s
    watts[known[1:]] = np.where(rises >= 0, rises / spans_s, math.nan)
    return watts


def _held(there: Sequence[npt.NDArray[np.bool_]], steps: int) -> npt.NDArray[np.int64]:
    """Whose rows are there; of two for a few steps only the one that stays counts."""
    if not there:
        return np.full(steps, NOBODY)
    table = np.array(there)
    held = np.where(table.any(axis=0), table.argmax(axis=0), NOBODY)
    held[table.sum(axis=0) > 1] = SEVERAL
    for begin, end, code in _runs(held):
        # What is shorter is one pod that follows another.
        if code == SEVERAL and end - begin < 3:
            after = held[end] if end < steps else NOBODY
            before = held[begin - 1] if begin else NOBODY
            held[begin:end] = after if after >= 0 else before if before >= 0 else SEVERAL
    return held


def _runs(codes: npt.NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Stretches of equal codes: begin, end and code of each."""
    if not len(codes):
        return []
    edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    return [(a, b, int(codes[a])) for a, b in pairwise(edges)]


PATIENCE_S = 300.0
"""A gap, or a label that is missing, is bridged up to this long; a job that is quiet for longer
has paused."""

HELD_MIB = 200.0
"""Somebody holds a GPU of which more memory is in use, where no label says so."""

QUIET_PERCENT = 1.0
"""Activity of a job that waits."""

CHANGED_PERCENT, CHANGED_DEVIATIONS = 10.0, 3.0
"""How far a block is from the mean of its phase where the load has changed: at least so many points
of activity, and so many standard deviations of the phase's own blocks."""

_State: TypeAlias = Literal["busy", "paused", "free", "shared", "unseen"]

_UNSEEN = -3
_STATES: Mapping[int, _State] = {NOBODY: "free", SEVERAL: "shared", _UNSEEN: "unseen"}

Codes: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of a page in which a GPU did one thing.

    Attributes:
        owner: None: nobody, or several.
        phase: Number of the phase of the job, 0 for the first.
        seen_s: How much of it has readings.
        means: Of each channel that was read.
        spread: Standard deviation of the activity within a minute or so over its mean.
    """

    gpu: str
    model: str
    host: str
    owner: Owner | None
    state: _State
    phase: int
    begin_s: float
    end_s: float
    seen_s: float
    means: Mapping[str, float]
    spread: float


Blocks: TypeAlias = tuple[float, float, float]
"""Number or seconds of values, their mean, and the sum of squared deviations times seconds."""


def joined(before: Blocks, mean: float, seconds: float = 1, variance: float = 0.0) -> Blocks:
    """With one more stretch (B. Welford, Technometrics 4(3), 1962)."""
    total = before[0] + seconds
    if total <= 0:
        return before
    away = mean - before[1]
    squares = before[2] + variance * seconds + away * away * before[0] * seconds / total
    return total, before[1] + away * seconds / total, squares


@dataclass(slots=True)
class Watched:
    """What is kept of a GPU from page to page.

    Attributes:
        owner: Who held it last.
        seen_s: When that was.
        quiet_s: How long it has been quiet, at the end of the last page.
        blocks: Those of the phase.
        plain: Jobs without a name that were seen on it.
    """

    owner: Owner | None = None
    seen_s: float = -math.inf
    quiet_s: float = 0.0
    phase: int = 0
    blocks: Blocks = (0, 0.0, 0.0)
    plain: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Frame:
    """A page of one GPU, and where its steps lie in time."""

    page: _GpuPage
    activity: Floats
    begin_s: float
    step_s: float

    def at(self, step: int) -> float:
        """When a step begins."""
        return self.begin_s + step * self.step_s

    def segment(
        self, first: int, last: int, state: _State, owner: Owner | None = None, phase: int = 0
    ) -> Segment:
        """Some steps, as one."""
        means: dict[str, float] = {}
        seen = np.zeros(last - first, dtype=bool)
        for channel, values in self.page.values.items():
            part = values[first:last]
            known = ~np.isnan(part)
            seen |= known
            if known.any():
                # Memory of a job is what it needed at most.
                means[channel] = float(part[known].max() if channel == USED else part[known].mean())
        read = self.activity[first:last]
        read = read[~np.isnan(read)]
        middle = float(read.mean()) if len(read) else 0.0
        return Segment(
            gpu=self.page.gpu,
            model=self.page.model,
            host=self.page.host,
            owner=owner,
            state=state,
            phase=phase,
            begin_s=self.at(first),
            end_s=self.at(last),
            seen_s=float(seen.sum()) * self.step_s,
            means=means,
            spread=float(read.std()) / middle if middle > 0 else 0.0,
        )


def segments(page: _GpuPage, watched: Watched, begin_s: float, step_s: float) -> Iterator[Segment]:
    """What a GPU did over a page, in order; `watched` is brought to its end."""
    frame = _Frame(page, page.first_of(ACTIVITY), begin_s, step_s)
    owners = [*page.owners]
    held = _bridged(frame, _with_unnamed(frame, owners, watched), owners, watched)
    for first, last, code in _runs(held):
        if code >= 0:
            yield from _of_owner(frame, owners[code], watched, first, last)
        else:
            yield frame.segment(first, last, _STATES[code])


def _with_unnamed(frame: _Frame, owners: list[Owner], watched: Watched) -> Codes:
    """Who held it at each step; jobs that no label names are told by memory and activity."""
    page, patience = frame.page, PATIENCE_S / frame.step_s
    seen = ~np.isnan(np.array([*page.values.values()])).all(axis=0)
    used = page.first_of((USED,))
    taken = (used > HELD_MIB) | (np.isnan(used) & (frame.activity > QUIET_PERCENT))
    held = np.where(seen | (page.held != NOBODY), page.held, _UNSEEN)
    for first, last, is_unnamed in _runs(np.where((held == NOBODY) & taken, 1, 0)):
        if not is_unnamed:
            continue
        before = _before(frame, held[:first], owners, watched)
        short = last - first <= patience
        if before >= 0 and (short or owners[before].name.startswith(page.gpu)):
            held[first:last] = before  # the label is late, or nobody ever had one
        elif not short or not page.owners:
            watched.plain += 1
            owners.append(Owner("", f"{page.gpu} #{watched.plain}"))
            held[first:last] = len(owners) - 1
    return held


def _before(frame: _Frame, held: Codes, owners: list[Owner], watched: Watched) -> int:
    """Who held it until now, as one of this page; nobody where it was not seen for too long."""
    begin_s, seen = frame.at(len(held)), np.flatnonzero(held != _UNSEEN)
    if len(seen):
        last = int(seen[-1])
        return int(held[last]) if begin_s - frame.at(last + 1) <= PATIENCE_S else NOBODY
    if watched.owner is None or begin_s - watched.seen_s > PATIENCE_S:
        return NOBODY
    if watched.owner not in owners:
        owners.append(watched.owner)
    return owners.index(watched.owner)


def _bridged(frame: _Frame, held: Codes, owners: list[Owner], watched: Watched) -> Codes:
    """The same with short gaps given to the job that is there on both sides."""
    found = held.copy()
    for first, last, code in _runs(held):
        if code not in (_UNSEEN, NOBODY) or last == len(held) or held[last] < 0:
            continue
        if first:
            before, since_s = int(held[first - 1]), frame.at(last) - frame.at(first)
        else:
            before = next((n for n, one in enumerate(owners) if one == watched.owner), NOBODY)
            since_s = frame.at(last) - watched.seen_s
        if before == held[last] and since_s <= PATIENCE_S:
            found[first:last] = before
    return found


def _of_owner(
    frame: _Frame, owner: Owner, watched: Watched, first: int, last: int
) -> Iterator[Segment]:
    """A stretch of one job: busy and paused parts, and changes of load in the former."""
    if owner != watched.owner or frame.at(first) - watched.seen_s > PATIENCE_S:
        watched.owner, watched.quiet_s = owner, 0.0
        watched.phase, watched.blocks = 0, (0, 0.0, 0.0)
    quiet = np.where(frame.activity[first:last] < QUIET_PERCENT, 1, 0)
    for a, b, is_quiet in _runs(quiet):
        long_s = (b - a) * frame.step_s + (watched.quiet_s if a == 0 else 0.0)
        watched.quiet_s = long_s if is_quiet else 0.0
        quiet[a:b] = is_quiet and long_s > PATIENCE_S
    for a, b, paused in _runs(quiet):
        if paused:
            yield frame.segment(first + a, first + b, "paused", owner, watched.phase)
            continue
        yield from (
            frame.segment(x, y, "busy", owner, phase)
            for x, y, phase in _loads(frame, first + a, first + b, watched)
        )
    watched.seen_s = frame.at(last)


def _loads(
    frame: _Frame, first: int, last: int, watched: Watched
) -> Iterator[tuple[int, int, int]]:
    """Parts of a busy stretch with one load each, and the number of the phase."""
    start, suspect = first, None
    # Means over five minutes are compared to find a change of load; two in a row are needed.
    size = max(1, round(300.0 / frame.step_s))
    for a in range(first, last, size):
        block = frame.activity[a : min(a + size, last)]
        known = block[~np.isnan(block)]
        if not len(known):
            continue
        mean = float(known.mean())
        side = _side(mean, watched.blocks)
        if side == 0:
            suspect = None
            watched.blocks = joined(watched.blocks, mean)
        elif suspect is None or suspect[1] != side:
            suspect = (a, side, mean)
        else:
            if suspect[0] > start:
                yield start, suspect[0], watched.phase
            start = suspect[0]
            watched.phase += 1
            watched.blocks = joined(joined((0, 0.0, 0.0), suspect[2]), mean)
            suspect = None
    yield start, last, watched.phase


def _side(mean: float, blocks: Blocks) -> int:
    """1 and -1: above and below what the phase was; 0: as it was, or too early to say."""
    number, middle, squares = blocks
    if number < 2:
        return 0
    wide = max(CHANGED_PERCENT, CHANGED_DEVIATIONS * math.sqrt(squares / (number - 1)))
    return 0 if abs(mean - middle) <= wide else int(math.copysign(1, mean - middle))
