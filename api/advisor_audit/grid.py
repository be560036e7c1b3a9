"""A page of series as arrays: for each GPU a row for each step, and who held it then."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from advisor.predict.profiles import Floats
from advisor_audit.sources.series import BLANK, ENERGY, POWER, Owner, Series, gpu_of, owner_of

NOBODY, SEVERAL = -1, -2

SHORTEST_SHARED = 3
"""Steps; what is shorter is one pod that follows another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """What a source says of all its series.

    Attributes:
        metrics: Of each channel the metric that is there, and the factor to its unit.
        within: Label that says who may share with whom.
        exporters: Workloads whose pods are exporters, not jobs.
    """

    metrics: Mapping[str, tuple[str, float]]
    within: str
    exporters: frozenset[str]
    step_s: float


@dataclass(slots=True, eq=False)
class GpuPage:
    """One GPU over a page.

    Attributes:
        owners: Those of the page.
        held: Of each step the index of its owner, else `NOBODY` or `SEVERAL`; shape (steps,).
        values: Each channel; NaN where nothing was read; shape (steps,).
    """

    gpu: str
    model: str
    host: str
    owners: list[Owner] = field(default_factory=list[Owner])
    held: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    values: dict[str, Floats] = field(default_factory=dict[str, Floats])

    def first_of(self, channels: Sequence[str]) -> Floats:
        """The first of these that was read here; all NaN: none was."""
        found = next((self.values[name] for name in channels if name in self.values), None)
        return np.full(len(self.held), math.nan) if found is None else found


def gpu_pages(
    series: Iterable[Series], site: SourceFacts, begin_s: float, steps: int
) -> tuple[dict[str, GpuPage], set[str]]:
    """Each GPU of a page, and the GPUs that are there as MIG instances only.

    Samples of one step count by their mean, totals by their newest; the order in which they come
    does not matter, nor do labels that are there a few steps longer than their pod.
    """
    by_metric = {name: (channel, scale) for channel, (name, scale) in site.metrics.items()}
    rows: dict[str, GpuPage] = {}
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
        _add(sums[gpu], channel, place, values, steps)
        owner = owner_of(one.labels, site.within, site.exporters)
        seen = there[gpu].setdefault(owner, np.zeros(steps, dtype=bool))
        seen[place] = True
        rows.setdefault(gpu, _page(gpu, one.labels))
    for gpu, page in rows.items():
        page.values = _means(sums[gpu], site.step_s)
        page.owners = [owner for owner in there[gpu] if owner is not None]
        page.held = _held([there[gpu][owner] for owner in page.owners], steps)
    return rows, mig - set(rows)


def _page(gpu: str, labels: Mapping[str, str]) -> GpuPage:
    host = labels.get("Hostname") or labels.get("hostname") or labels.get("instance", "")
    return GpuPage(gpu, labels.get("modelName", ""), host)


def _placed(
    one: Series, step_s: float, begin_s: float, steps: int, scale: float
) -> tuple[npt.NDArray[np.int64], Floats]:
    """Steps of the samples that are in the page and can be read, and their values."""
    times, values = np.array(one.times_s), np.array(one.values)
    place = np.ceil((times - begin_s) / step_s - 1e-6).astype(np.int64) - 1
    # Also false for NaN.
    read = (place >= 0) & (place < steps) & (values >= 0) & (values < BLANK)
    return place[read], values[read] * scale


def _add(
    sums: dict[str, Floats],
    channel: str,
    place: npt.NDArray[np.int64],
    values: Floats,
    steps: int,
) -> None:
    """Into the rows of sums and counts of a channel; of a total into that of the newest."""
    kept = sums.setdefault(channel, np.zeros((2, steps)))
    if channel == ENERGY:
        kept[0][place], kept[1][place] = values, 1
    else:
        np.add.at(kept[0], place, values)
        np.add.at(kept[1], place, 1)


def _means(sums: Mapping[str, Floats], step_s: float) -> dict[str, Floats]:
    found = {
        channel: np.divide(total, count, out=np.full_like(total, math.nan), where=count > 0)
        for channel, (total, count) in sums.items()
    }
    if ENERGY in found and POWER not in found:
        found[POWER] = _power_w(found[ENERGY], step_s)
    found.pop(ENERGY, None)
    for channel, values in found.items():
        if channel.endswith("_percent"):
            values[values > 110] = math.nan
            np.minimum(values, 100.0, out=values)
    return found


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
    for begin, end, code in runs(held):
        if code == SEVERAL and end - begin < SHORTEST_SHARED:
            after = held[end] if end < steps else NOBODY
            before = held[begin - 1] if begin else NOBODY
            held[begin:end] = after if after >= 0 else before if before >= 0 else SEVERAL
    return held


def runs(codes: npt.NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Stretches of equal codes: begin, end and code of each."""
    if not len(codes):
        return []
    edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    return [(a, b, int(codes[a])) for a, b in pairwise(edges)]
