"""The plan of a colocation campaign, and the windows that it means on one GPU.

docs/colocate.md describes the file; advisor_profiling.campaign.plan_file reads and writes it.
"""

import difflib
import functools
import itertools
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from advisor.core.flags import DOUBTFUL
from advisor.core.gpu import MEMORY_PART, Gpu, MemoryFit, Share
from advisor.core.job import Job
from advisor.core.records import Measured, PairPoint, SoloPoint
from advisor.core.split import Sharing, Split
from advisor.errors import InputError
from advisor.validity.safe_counts import Safety
from advisor_profiling.campaign.pairing import PairNames, all_pairs, kinds_of, sample
from advisor_profiling.campaign.safe_plan import (
    ANY_COUNT,
    CountRules,
    moved_splits_texts,
    nominal_splits,
    splits_to_measure,
)
from advisor_profiling.campaign.splits import (
    AroundBest,
    SplitRequest,
    UnitSplit,
    units_of,
)
from advisor_profiling.window.targets import Target, pair

_LIMITED = {"mps", "cu_mask"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEntry:
    """Pairs to be measured at the same splits.

    Attributes:
        splits: The first share is for the job that is named first.
        pairs: Names of two jobs each; a job may stand next to itself.
        among: Names of jobs of which every pair is meant, or all jobs there are.
        selves: `among` means each job next to itself as well.
        sample: How many pairs of `among` are drawn; None: all.
        repeats: Windows for each pair and split.
    """

    splits: tuple[SplitRequest, ...]
    pairs: tuple[PairNames, ...] = ()
    among: tuple[str, ...] | Literal["all"] = ()
    selves: bool = True
    sample: int | None = None
    repeats: int = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """A campaign.

    Attributes:
        name: Name of its run; the same name draws the same samples and orders.
        profiles: Each job is measured alone at every share of its pairs too, not only at 100 %.
    """

    name: str
    entries: tuple[PlanEntry, ...]
    profiles: bool = False

    def jobs(self, known: Collection[str]) -> set[str]:
        """Names of the jobs that it is about, of all that there are."""
        chosen = (known if entry.among == "all" else entry.among for entry in self.entries)
        paired = (name for entry in self.entries for names in entry.pairs for name in names)
        return {*itertools.chain.from_iterable(chosen), *paired}


@dataclass(frozen=True, slots=True)
class Skipped:
    """A pair that is not measured, or not at all of its splits."""

    pair: PairNames
    reason: str


@dataclass(frozen=True, slots=True)
class PlannedWindows:
    """The windows of a plan on one GPU, each once.

    Attributes:
        mps: Under limits, and at 100 % each for `uncapped`.
        time_sliced: At 100 % each, to be measured without MPS.
        notes: Which counts of units are not measured, and why.
    """

    mps: tuple[Target, ...]
    time_sliced: tuple[Target, ...]
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...] = ()


def expand(
    plan: Plan,
    gpu: Gpu,
    jobs: Mapping[str, Job],
    earlier: Sequence[PairPoint],
    solo: Sequence[SoloPoint],
    counts: CountRules = ANY_COUNT,
) -> PlannedWindows:
    """The windows that `plan` means on `gpu`.

    Points of the plan's own run, of other GPU models and doubtful ones are not looked at; so what a
    plan means does not change while it is carried out.

    The GPU's `units_total` must be known where the plan counts units. Earlier pairs are for
    `around-best`; solo points for that, for the memory of a pair and the kinds of a sample.

    Raises:
        InputError: a job that is not there, or counts of units that the GPU cannot grant.
        UnsafeCountError: a split that the plan names has an unsafe count.
    """
    past = _Past(plan.name, gpu, earlier, solo, counts)
    found = dict.fromkeys(_windows(plan, jobs, past))
    windows = [window for window in found if isinstance(window, _Window)]
    return PlannedWindows(
        mps=tuple(w.target for w in windows if w.sharing != "time-sliced"),
        time_sliced=tuple(w.target for w in windows if w.sharing == "time-sliced"),
        skipped=tuple(skipped for skipped in found if isinstance(skipped, Skipped)),
        notes=tuple(note for note in found if isinstance(note, str)),
    )


def no_such_job(name: str, known: Collection[str]) -> InputError:
    """The error for a name that no job has; it names the nearest."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0)
    return InputError(
        f"there is no job {name!r} among {len(known)}",
        fix=f"the nearest is {near[0]}" if near else "",
    )


@dataclass(frozen=True, slots=True)
class _Window:
    target: Target
    sharing: Sharing


class _Past:
    """What was measured on this GPU model before this run."""

    def __init__(
        self,
        run: str,
        gpu: Gpu,
        earlier: Iterable[PairPoint],
        solo: Sequence[SoloPoint],
        counts: CountRules,
    ) -> None:
        def usable(point: Measured) -> bool:
            good = DOUBTFUL.isdisjoint(point.flags)
            return good and point.gpu_model == gpu.model and point.run != run

        def of_job(name: str) -> Safety:
            return counts.safety(name, gpu, solo)

        self._gpu = gpu
        self._pairs = [point for point in earlier if usable(point)]
        self._solo = [point for point in solo if usable(point)]
        self.kinds = kinds_of(self._solo)
        self._safety = functools.cache(of_job)

    def two_ends(self, split: Split) -> bool:
        """Whether the two jobs get CU masks, which must not overlap."""
        return self._gpu.vendor == "amd" and split.is_limited

    def safety(self, first: Job, second: Job) -> tuple[Safety, Safety]:
        """What is known of the counts at which two jobs may run."""
        return self._safety(first.name), self._safety(second.name)

    def too_large(self, job_a: Job, job_b: Job) -> str:
        """Why the two do not fit into the GPU's memory; empty where they do, or nobody knows."""
        a_mib, b_mib = self._needs_mib(job_a), self._needs_mib(job_b)
        memory = MemoryFit((a_mib, b_mib), self._gpu.memory_mib)
        if memory.fits is not False:
            return ""
        return (
            f"{job_a.name} needs {a_mib:.0f} MiB and {job_b.name} {b_mib:.0f} MiB, together more "
            f"than {memory.most_mib:.0f} MiB ({100 * MEMORY_PART:g} % of {self._gpu.model})"
        )

    def splits(self, requested: SplitRequest, names: PairNames) -> tuple[Split, ...] | Skipped:
        """The splits that a pair is wished at; the first share is for the first name."""
        match requested:
            case Split():
                return (requested,)
            case UnitSplit():
                return (requested.on(self._gpu),)
            case AroundBest():
                best = self._best_units(names)
                if isinstance(best, str):
                    return Skipped(names, f"{requested}: {best}")
                return requested.on(self._gpu, best)

    def _best_units(self, names: PairNames) -> int | str:
        """Units of the first job at the best split, or why it is not known."""
        a, b = sorted(names)
        alone_a, alone_b = self._solo_rate(a), self._solo_rate(b)
        if not alone_a or not alone_b:
            return f"{b if alone_a else a} has no solo point at 100 % on {self._gpu.model}"
        total = units_of(self._gpu)
        known = [
            (worth, units)
            for point in self._pairs
            if point.jobs == (a, b)
            and point.mode in _LIMITED
            and (units := point.parts[0].units) is not None
            and (other := point.parts[1].units) is not None
            and units + other <= total
            and (worth := _worth(point, alone_a, alone_b)) is not None
        ]
        if not known:
            return f"no other run has measured a split of the pair on {self._gpu.model}"
        units_a = max(known)[1]
        return units_a if names[0] == a else total - units_a

    def _solo_rate(self, job: str) -> float | None:
        rates = [p.rate for p in self._solo if p.job == job and p.share_percent == 100]
        return statistics.fmean(rates) if rates else None

    def _needs_mib(self, job: Job) -> float | None:
        used = [
            (point.share_percent, point.started_at, point.memory_used_mib)
            for point in self._solo
            if point.job == job.name and point.memory_used_mib is not None
        ]
        return max(used)[2] if used else job.memory_mib


def _windows(plan: Plan, jobs: Mapping[str, Job], past: _Past) -> Iterator[_Window | Skipped | str]:
    for entry in plan.entries:
        nominal = nominal_splits(entry.splits)
        for names in _pairs(entry, plan.name, jobs, past):
            first, second = _job(names[0], jobs), _job(names[1], jobs)
            if reason := past.too_large(first, second):
                yield Skipped(names, reason)
                continue
            both, safety = (first, second), past.safety(first, second)
            if nominal:
                yield from moved_splits_texts(both, safety)
            for requested in entry.splits:
                splits = past.splits(requested, names)
                if isinstance(splits, Skipped):
                    yield splits
                    continue
                used = splits_to_measure(requested, splits, requested in nominal, both, safety)
                for split, repeat in itertools.product(used, range(entry.repeats)):
                    shares, apart = tuple(map(Share, split.shares)), past.two_ends(split)
                    target = pair(first, shares[0], second, shares[1], repeat, two_ends=apart)
                    yield _Window(target, split.sharing)


def _pairs(entry: PlanEntry, run: str, jobs: Mapping[str, Job], past: _Past) -> Sequence[PairNames]:
    names = jobs if entry.among == "all" else entry.among
    if entry.sample is None:
        return [*entry.pairs, *all_pairs(names, selves=entry.selves)]
    drawn = sample(names, entry.sample, run, past.kinds, selves=entry.selves)
    return [*entry.pairs, *drawn]


def _job(name: str, jobs: Mapping[str, Job]) -> Job:
    if name not in jobs:
        raise no_such_job(name, jobs)
    return jobs[name]


def _worth(point: PairPoint, alone_a: float, alone_b: float) -> float | None:
    """Sum of relative speeds per watt; None where a reading is missing."""
    rates = [part.rate for part in point.parts]
    if None in rates or not point.power_w:
        return None
    alone = zip(rates, (alone_a, alone_b), strict=True)
    return sum((rate or 0.0) / solo for rate, solo in alone) / point.power_w
