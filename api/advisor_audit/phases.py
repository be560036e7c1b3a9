"""When jobs began, paused, changed their load and ended: a detector that reads GPU by GPU.

It sees a page of one GPU at a time and keeps a few numbers of it in between, so that its memory
does not grow with the time that is read. A gap in the metrics is not attributed to any job, unless
it is shorter than `_PATIENCE_S` and the same job is on both sides.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.core.telemetry import COLUMN_UNITS, ENERGY_GPU, most_of, power_scope
from advisor.predict.profiles import Floats
from advisor_audit.sources import (
    ACTIVITY,
    BUSY,
    DRAM,
    ENERGY,
    FREE,
    INSTANCE,
    LIMIT,
    MEMORY_BUSY,
    MIG_MODE,
    POWER,
    SM,
    SM_OR_BUSY,
    TENSOR_ACTIVE,
    USED,
    Owner,
    Series,
    Source,
    gpu_of,
    owner_of,
)
from advisor_profiling.telemetry.dcgm import BLANK

NOBODY, SEVERAL, _UNSEEN, _MIG = -1, -2, -3, -4


_State: TypeAlias = Literal["busy", "paused", "free", "shared", "mig", "unseen"]


class Segment(NamedTuple):
    """A stretch of a page in which a GPU did one thing.

    Attributes:
        owner: None: no job, or several.
        label: That names the job, of several the first; empty: no label does.
        phase: Number of the phase of the job, 0 for the first.
        read_s: How much of it has readings.
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
    read_s: float
    means: Mapping[str, float]
    spread: float
    label: str = ""


@dataclass(slots=True, eq=False)
class _GpuPage:
    """One GPU over a page.

    Attributes:
        owners: Those of the page.
        labels: Of each owner the label that names it.
        mig: At which steps there are MIG instances; shape (steps,).
        held: Of each step the index of its owner, else `NOBODY` or `SEVERAL`; shape (steps,).
        values: Each channel; NaN where nothing was read; shape (steps,).
        activity: The best that was read; NaN where nothing was.
        left_out: Readings that no card can show, and one of them.
    """

    gpu: str
    model: str
    host: str
    begin_s: float
    step_s: float
    mig: npt.NDArray[np.bool_]
    owners: list[Owner] = field(default_factory=list[Owner])
    labels: dict[Owner, str] = field(default_factory=dict[Owner, str])
    held: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    values: dict[str, Floats] = field(default_factory=dict[str, Floats])
    activity: Floats = field(default_factory=lambda: np.zeros(0))
    left_out: "LeftOut" = (0, "")

    def first_of(self, channels: Sequence[str]) -> Floats:
        """The first of these that was read here; all NaN: none was."""
        values = next((self.values[name] for name in channels if name in self.values), None)
        return np.full(len(self.held), math.nan) if values is None else values

    def at(self, step: int) -> float:
        """When a step begins."""
        return self.begin_s + step * self.step_s

    def segment(
        self, first: int, last: int, state: _State, owner: Owner | None = None, phase: int = 0
    ) -> Segment:
        """Some steps, as one."""
        means: dict[str, float] = {}
        is_read = np.zeros(last - first, dtype=bool)
        for channel, values in self.values.items():
            part = values[first:last]
            present = ~np.isnan(part)
            is_read |= present
            if present.any():
                # Memory of a job is what it needed at most.
                means[channel] = float(
                    part[present].max() if channel == USED else part[present].mean()
                )
        read = self.activity[first:last]
        read = read[~np.isnan(read)]
        middle = float(read.mean()) if len(read) else 0.0
        labels = self.labels
        return Segment(
            gpu=self.gpu,
            model=self.model,
            host=self.host,
            owner=owner,
            state=state,
            phase=phase,
            begin_s=self.at(first),
            end_s=self.at(last),
            read_s=float(is_read.sum()) * self.step_s,
            means=means,
            spread=float(read.std()) / middle if middle > 0 else 0.0,
            label=labels.get(owner, "") if owner else next(iter(labels.values()), ""),
        )


def gpu_pages(
    series: Iterable[Series], source: Source, within: str, begin_s: float, steps: int
) -> dict[str, _GpuPage]:
    """Each GPU of a page of a source; jobs share only where the label `within` has one value.

    Samples of one step count by their mean, totals by their newest; the order in which they come
    does not matter, nor do labels that are there a few steps longer than their pod.
    """
    by_metric = {
        name: (channel, scale)
        for channel, names in source.metrics.items()
        for name, scale in names.items()
    }
    rows: dict[str, _GpuPage] = {}
    sums: dict[str, dict[str, Floats]] = defaultdict(dict)
    there: dict[str, dict[Owner, npt.NDArray[np.bool_]]] = defaultdict(dict)
    left_out = dict[str, LeftOut]()
    for row in series:
        gpu = gpu_of(row.labels)
        if gpu is None or row.metric not in by_metric:
            continue
        channel, scale = by_metric[row.metric]
        place, values = _placed(row, source.step_s, begin_s, steps, scale)
        if row.labels.get(INSTANCE) and channel in (POWER, ENERGY):
            # One part shows what the sensors of the whole read; others show nothing, or 0.
            place, values = place[values > 0], values[values > 0]
        is_read = values <= _bound(channel, most_of(None, None))
        left_out[gpu] = _and(left_out.get(gpu, (0, "")), channel, values[~is_read])
        place, values = place[is_read], values[is_read]
        # Of a total the newest value counts.
        kept = sums[gpu].setdefault(row.metric, np.zeros((2, steps)))
        if channel == ENERGY:
            kept[0][place], kept[1][place] = values, 1
        else:
            np.add.at(kept[0], place, values)
            np.add.at(kept[1], place, 1)
        host = (
            row.labels.get("Hostname")
            or row.labels.get("hostname")
            or row.labels.get("instance", "")
        )
        page = rows.setdefault(
            gpu,
            _GpuPage(
                gpu,
                row.labels.get("modelName", ""),
                host,
                begin_s,
                source.step_s,
                np.zeros(steps, dtype=bool),
            ),
        )
        page.mig[place] |= values > 0 if channel == MIG_MODE else bool(row.labels.get(INSTANCE))
        if named := owner_of(row.labels, within, source.carriers, source.families):
            owner, page.labels[owner] = named
            there[gpu].setdefault(owner, np.zeros(steps, dtype=bool))[place] = True
    for gpu, page in rows.items():
        page.values, page.left_out = _means(sums[gpu], source, page.model, left_out[gpu])
        page.owners = [*there[gpu]]
        page.held = _held([*there[gpu].values()], steps)
        page.activity = page.first_of(ACTIVITY)
    return rows


def _placed(
    row: Series, step_s: float, begin_s: float, steps: int, scale: float
) -> tuple[npt.NDArray[np.int64], Floats]:
    """Steps of the samples that are in the page and can be read, and their values."""
    times, values = np.array(row.times_s), np.array(row.values)
    place = np.ceil((times - begin_s) / step_s - 1e-6).astype(np.int64) - 1
    # Also false for NaN.
    read = (place >= 0) & (place < steps) & (values >= 0) & (values < BLANK)
    return place[read], values[read] * scale


LeftOut: TypeAlias = tuple[int, str]
"""Number of impossible readings, and one of them in words."""


def _bound(channel: str, most: Mapping[str, float]) -> float:
    """Of a column; energy alone has none."""
    unit = next((unit for end, unit in COLUMN_UNITS.items() if channel.endswith(end)), "")
    return most.get(unit, math.inf)


def _and(earlier: LeftOut, channel: str, values: Floats) -> LeftOut:
    """With some more."""
    return (
        (earlier[0] + len(values), f"{channel} of {values.max():,.0f}") if len(values) else earlier
    )


def _means(
    sums: Mapping[str, Floats], source: Source, model: str, left_out: LeftOut
) -> tuple[dict[str, Floats], LeftOut]:
    """Each channel of a GPU, at each step by the best metric that it has there.

    What the card, as its other readings show it, cannot read is left out.
    """
    means: dict[str, Floats] = {}
    for channel, names in source.metrics.items():
        for total, count in (sums[name] for name in names if name in sums):
            read = np.divide(total, count, out=np.full_like(total, math.nan), where=count > 0)
            best = means.get(channel)
            means[channel] = read if best is None else np.where(np.isnan(best), read, best)
    if SM_OR_BUSY in sums and TENSOR_ACTIVE not in means:
        for exact, rough in ((SM, BUSY), (DRAM, MEMORY_BUSY)):
            if exact in means:
                means[rough] = means.pop(exact)
    limits_w = means.get(LIMIT, np.zeros(0))
    cards_mib = means[USED] + means[FREE] if {USED, FREE} <= means.keys() else np.zeros(0)
    most = most_of(
        max(limits_w[~np.isnan(limits_w)], default=None),
        # What the driver keeps for itself is in neither.
        1.1 * float(np.median(sizes)) if len(sizes := cards_mib[~np.isnan(cards_mib)]) else None,
    )
    if ENERGY in means and POWER not in means and ENERGY_GPU not in power_scope(model)[0]:
        left_out = _without_jumps(means[ENERGY], most["W"] * source.step_s, left_out)
        energy_j = means[ENERGY]
        # From a total between its readings; where it fell back the driver has begun anew.
        watts = np.full_like(energy_j, math.nan)
        present = np.flatnonzero(~np.isnan(energy_j))
        rises, spans_s = np.diff(energy_j[present]), np.diff(present) * source.step_s
        watts[present[1:]] = np.where(rises >= 0, rises / spans_s, math.nan)
        means[POWER] = watts
    for channel_left in (ENERGY, MIG_MODE):
        means.pop(channel_left, None)
    for channel, values in means.items():
        wrong = values > _bound(channel, most)
        left_out = _and(left_out, channel, values[wrong])
        values[wrong] = math.nan
        if channel.endswith("_percent"):
            np.minimum(values, 100.0, out=values)
    return means, left_out


def _without_jumps(energy_j: Floats, most_j: float, left_out: LeftOut) -> LeftOut:
    """Leave out totals to which and from which no card gets in a step, as between their steps."""
    present = np.flatnonzero(~np.isnan(energy_j))
    rises = np.diff(energy_j[present])
    # The counter may show late what was drawn in the step before.
    jumps = (rises < 0) | (rises > most_j * (np.diff(present) + 1))
    wrong = present[1:-1][jumps[:-1] & jumps[1:]]
    left_out = _and(left_out, ENERGY, energy_j[wrong])
    energy_j[wrong] = math.nan
    return left_out


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


# A gap, or a label that is missing, is bridged up to this long; a job that is quiet for longer
# has paused.
_PATIENCE_S = 300.0

HELD_MIB = 200.0
"""Memory in use above which a GPU without labels has a job."""

# Activity of a job that waits.
_QUIET_PERCENT = 1.0

_STATES: Mapping[int, _State] = {
    NOBODY: "free",
    SEVERAL: "shared",
    _UNSEEN: "unseen",
    _MIG: "mig",
}

Codes: TypeAlias = npt.NDArray[np.int64]


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
        owner: The last owner.
        seen_s: When that was.
        quiet_s: How long it has been quiet, at the end of the last page.
        blocks: Those of the phase.
        plain: Jobs without a name that were seen on it.
        turns: Owners of the last minutes and when each was last seen, the newest at the end.
        turned_s: When one of them last came back after another.
        left_out: Impossible readings until the end of the last page.
    """

    owner: Owner | None = None
    seen_s: float = -math.inf
    quiet_s: float = 0.0
    phase: int = 0
    blocks: Blocks = (0, 0.0, 0.0)
    plain: int = 0
    turns: tuple[tuple[Owner, float], ...] = ()
    turned_s: float = -math.inf
    left_out: LeftOut = (0, "")


def segments(page: _GpuPage, watched: Watched) -> Iterator[Segment]:
    """What a GPU did over a page, in order; `watched` is brought to its end."""
    owners = [*page.owners]
    page.held = _by_slices(page, watched)
    held = _bridged(page, _with_unnamed(page, owners, watched), owners, watched)
    held[page.mig & (held >= SEVERAL) & (held != NOBODY)] = _MIG
    for first, last, code in _runs(held):
        if code >= 0:
            yield from _of_owner(page, owners[code], watched, first, last)
        else:
            yield page.segment(first, last, _STATES[code])


def _by_slices(page: _GpuPage, watched: Watched) -> Codes:
    """The owners, where an exporter names one of several pods, now this one and now that.

    A pod that comes back within minutes after another one was there has never left: around each
    return the GPU is shared, for as long as a return is waited for.
    """
    held, patience = page.held, math.ceil(_PATIENCE_S / page.step_s)
    codes = held.copy()
    for first, last, code in _runs(held):
        if code < 0:
            continue
        owner, begin_s = page.owners[code], page.at(first)
        recent = [turn for turn in watched.turns if begin_s - turn[1] <= _PATIENCE_S]
        if any(owner == earlier for earlier, _ in recent[:-1]):
            watched.turned_s = begin_s
            before = codes[max(0, first - patience) : first]
            before[before >= 0] = SEVERAL
        shared_s = max(0.0, min(page.at(last), watched.turned_s + _PATIENCE_S) - begin_s)
        codes[first : first + round(shared_s / page.step_s)] = SEVERAL
        watched.turns = (*(turn for turn in recent if turn[0] != owner), (owner, page.at(last)))
    return codes


def _with_unnamed(page: _GpuPage, owners: list[Owner], watched: Watched) -> Codes:
    """The owner at each step; jobs without a label are found by memory and activity."""
    patience = _PATIENCE_S / page.step_s
    is_read = ~np.isnan(np.array([*page.values.values()])).all(axis=0)
    used = page.first_of((USED,))
    taken = (used > HELD_MIB) | (np.isnan(used) & (page.activity > _QUIET_PERCENT))
    held = np.where(is_read | (page.held != NOBODY), page.held, _UNSEEN)
    for first, last, is_unnamed in _runs(np.where((held == NOBODY) & taken, 1, 0)):
        if not is_unnamed:
            continue
        before = _before(page, held[:first], owners, watched)
        short = last - first <= patience
        if before >= 0 and (short or owners[before].name.startswith(page.gpu)):
            held[first:last] = before  # the label is late, or there never was one
        elif not short or not page.owners:
            watched.plain += 1
            owners.append(Owner("", f"{page.gpu} #{watched.plain}"))
            held[first:last] = len(owners) - 1
    return held


def _before(page: _GpuPage, held: Codes, owners: list[Owner], watched: Watched) -> int:
    """The owner until now, by its index on this page; `NOBODY` after too long a gap."""
    begin_s, read_places = page.at(len(held)), np.flatnonzero(held != _UNSEEN)
    if len(read_places):
        last = int(read_places[-1])
        return int(held[last]) if begin_s - page.at(last + 1) <= _PATIENCE_S else NOBODY
    if watched.owner is None or begin_s - watched.seen_s > _PATIENCE_S:
        return NOBODY
    if watched.owner not in owners:
        owners.append(watched.owner)
    return owners.index(watched.owner)


def _bridged(page: _GpuPage, held: Codes, owners: list[Owner], watched: Watched) -> Codes:
    """The same with short gaps given to the job that is there on both sides."""
    codes = held.copy()
    for first, last, code in _runs(held):
        if code not in (_UNSEEN, NOBODY) or last == len(held) or held[last] < 0:
            continue
        if first:
            before, since_s = int(held[first - 1]), page.at(last) - page.at(first)
        else:
            before = next((n for n, owner in enumerate(owners) if owner == watched.owner), NOBODY)
            since_s = page.at(last) - watched.seen_s
        if before == held[last] and since_s <= _PATIENCE_S:
            codes[first:last] = before
    return codes


def _of_owner(
    page: _GpuPage, owner: Owner, watched: Watched, first: int, last: int
) -> Iterator[Segment]:
    """A stretch of one job: busy and paused parts, and changes of load in the former."""
    if owner != watched.owner or page.at(first) - watched.seen_s > _PATIENCE_S:
        watched.owner, watched.quiet_s = owner, 0.0
        watched.phase, watched.blocks = 0, (0, 0.0, 0.0)
    quiet = np.where(page.activity[first:last] < _QUIET_PERCENT, 1, 0)
    for a, b, is_quiet in _runs(quiet):
        long_s = (b - a) * page.step_s + (watched.quiet_s if a == 0 else 0.0)
        watched.quiet_s = long_s if is_quiet else 0.0
        quiet[a:b] = is_quiet and long_s > _PATIENCE_S
    for a, b, paused in _runs(quiet):
        if paused:
            yield page.segment(first + a, first + b, "paused", owner, watched.phase)
            continue
        yield from (
            page.segment(x, y, "busy", owner, phase)
            for x, y, phase in _loads(page, first + a, first + b, watched)
        )
    watched.seen_s = page.at(last)


def _loads(
    page: _GpuPage, first: int, last: int, watched: Watched
) -> Iterator[tuple[int, int, int]]:
    """Parts of a busy stretch with one load each, and the number of the phase."""
    start, suspect = first, None
    # Means over five minutes are compared to find a change of load; two in a row are needed.
    size = max(1, round(300.0 / page.step_s))
    for a in range(first, last, size):
        block = page.activity[a : min(a + size, last)]
        present = block[~np.isnan(block)]
        if not len(present):
            continue
        mean = float(present.mean())
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
    # The load has changed by ten points of activity at least, and by three standard deviations of
    # the phase's own blocks.
    wide = max(10.0, 3.0 * math.sqrt(squares / (number - 1)))
    return 0 if abs(mean - middle) <= wide else int(math.copysign(1, mean - middle))
