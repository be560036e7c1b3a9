"""The plan of a colocation campaign, and the windows that it means on one GPU.

docs/colocate.md describes the file; advisor_profiling.campaign.plan_file reads and writes it.
"""

import functools
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from advisor.core.gpu import MEMORY_PART, WHOLE, Gpu, MemoryFit, Share
from advisor.core.job import Job
from advisor.core.records import DOUBTFUL, Measured, PairPoint, SoloPoint
from advisor.core.split import TIME_SLICED, UNCAPPED, Split
from advisor.core.wording import listed
from advisor.validity.safe_counts import Safety
from advisor_profiling.campaign.pairing import (
    PairNames,
    all_pairs,
    filling_jobs,
    kinds_of,
    named,
    sample,
)
from advisor_profiling.campaign.safe_plan import (
    ANY_COUNT,
    CountRules,
    check_asked_shares,
    default_shares,
    moved_splits_texts,
    nominal_splits,
    splits_to_measure,
)
from advisor_profiling.campaign.sets import LIMITS, MOST_JOBS, DrawnSets, JobSet, draw
from advisor_profiling.campaign.splits import (
    AroundBest,
    SplitRequest,
    UnitSplit,
    best_units,
)
from advisor_profiling.window.targets import Target, pair, together


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEntry:
    """Pairs, or sets of more jobs, to be measured at the same splits.

    Attributes:
        splits: The first share is for the job that is named first.
        pairs: Names of two jobs each; a job may stand next to itself.
        among: Names of jobs of which every pair is meant, or all jobs there are.
        selves: `among` means each job next to itself as well.
        sample: How many pairs of `among` are drawn; None: all.
        sets: Sets of jobs with their own limits, or how many of them are drawn of `among`; those
            without a limit are measured at the splits, which are words.
        repeats: Windows for each pair or set, and split.
    """

    splits: tuple[SplitRequest, ...]
    pairs: tuple[PairNames, ...] = ()
    among: tuple[str, ...] | Literal["all"] = ()
    selves: bool = True
    sample: int | None = None
    sets: tuple[JobSet, ...] | DrawnSets = ()
    repeats: int = 1

    @property
    def named_sets(self) -> tuple[JobSet, ...]:
        """Those that are not drawn."""
        return () if isinstance(self.sets, DrawnSets) else self.sets


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
        in_sets = (m.job for entry in self.entries for members in entry.named_sets for m in members)
        return {*itertools.chain.from_iterable(chosen), *paired, *in_sets}

    @property
    def has_sets(self) -> bool:
        """Whether it is not about pairs alone."""
        return any(entry.sets for entry in self.entries)

    @property
    def most_jobs(self) -> int:
        """Of one window."""
        if any(isinstance(entry.sets, DrawnSets) for entry in self.entries):
            return MOST_JOBS
        return max((len(s) for entry in self.entries for s in entry.named_sets), default=2)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A pair or set that is not measured, or not at all of its splits."""

    pair: tuple[str, ...]
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
        mps=tuple(w.target for w in windows if not w.is_sliced),
        time_sliced=tuple(w.target for w in windows if w.is_sliced),
        skipped=tuple(skipped for skipped in found if isinstance(skipped, Skipped)),
        notes=tuple(note for note in found if isinstance(note, str)),
    )


@dataclass(frozen=True, slots=True)
class _Window:
    target: Target
    is_sliced: bool


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
        self.filling = filling_jobs((p for p in solo if p.run != run), gpu.model)
        self.safety_of = functools.cache(of_job)

    @property
    def masks(self) -> bool:
        """Whether limits are CU masks, which must not overlap."""
        return self._gpu.vendor == "amd"

    def too_large(self, jobs: Sequence[Job]) -> str:
        """Why jobs do not fit into the GPU's memory; empty where they do, or nobody knows."""
        needs_mib = [self._needs_mib(job) for job in jobs]
        memory = MemoryFit(tuple(needs_mib), self._gpu.memory_mib)
        if memory.fits is not False:
            return ""
        both = zip(jobs, needs_mib, strict=True)
        known = listed(f"{job.name} {mib:.0f} MiB" for job, mib in both if mib)
        return (
            f"{known.replace(' ', ' needs ', 1)}, together more than {memory.most_mib:.0f} MiB "
            f"({100 * MEMORY_PART:g} % of {self._gpu.model})"
        )

    def splits(self, requested: SplitRequest, names: PairNames) -> tuple[Split, ...] | Skipped:
        """The splits that a pair is wished at; the first share is for the first name."""
        match requested:
            case Split():
                return (requested,)
            case UnitSplit():
                return (requested.on(self._gpu),)
            case AroundBest():
                best = best_units(names, self._pairs, self._solo, self._gpu)
                if isinstance(best, str):
                    return Skipped(names, f"{requested}: {best}")
                return requested.on(self._gpu, best)

    def _needs_mib(self, job: Job) -> float | None:
        used = [
            (point.share_percent, point.started_at, point.memory_used_mib)
            for point in self._solo
            if point.job == job.name and point.memory_used_mib is not None
        ]
        return max(used)[2] if used else job.memory_mib


def _windows(plan: Plan, jobs: Mapping[str, Job], past: _Past) -> Iterator[_Window | Skipped | str]:
    for entry in plan.entries:
        if entry.sets:
            yield from _set_windows(entry, jobs, past)
            continue
        nominal = nominal_splits(entry.splits)
        for names in _pairs(entry, plan.name, jobs, past):
            first, second = named(names[0], jobs), named(names[1], jobs)
            both, safety = (first, second), (past.safety_of(names[0]), past.safety_of(names[1]))
            if reason := past.too_large(both):
                yield Skipped(names, reason)
                continue
            if nominal:
                yield from moved_splits_texts(both, safety)
            for requested in entry.splits:
                splits = past.splits(requested, names)
                if isinstance(splits, Skipped):
                    yield splits
                    continue
                used = splits_to_measure(requested, splits, requested in nominal, both, safety)
                for split, repeat in itertools.product(used, range(entry.repeats)):
                    shares, apart = tuple(map(Share, split.shares)), past.masks and split.is_limited
                    target = pair(first, shares[0], second, shares[1], repeat, two_ends=apart)
                    yield _Window(target, split == TIME_SLICED)


def _set_windows(
    entry: PlanEntry, jobs: Mapping[str, Job], past: _Past
) -> Iterator[_Window | Skipped]:
    """Sets at the entry's splits; those with limits of their own only under MPS."""
    for members in _sets(entry, jobs, past):
        parts = [(named(member.job, jobs), Share(member.percent)) for member in members]
        names, limits = tuple(m.job for m in members), [p for p in parts if p[1] != Share(WHOLE)]
        for job, share in limits:
            check_asked_shares([share], job, past.safety_of(job.name))
        if reason := past.too_large([job for job, _ in parts]):
            yield Skipped(names, reason)
        elif len(limits) > 1 and past.masks:
            yield Skipped(names, "CU masks of several limits would overlap: limit one job")
        elif limits and UNCAPPED not in entry.splits:
            yield Skipped(names, "it has a limit, which needs MPS: add uncapped to the splits")
        else:
            splits = (UNCAPPED,) if limits else entry.splits
            for split, repeat in itertools.product(splits, range(entry.repeats)):
                yield _Window(together(parts, repeat), split == TIME_SLICED)


def _sets(entry: PlanEntry, jobs: Mapping[str, Job], past: _Past) -> Sequence[JobSet]:
    if not isinstance(entry.sets, DrawnSets):
        return entry.sets
    chosen = (named(name, jobs) for name in (jobs if entry.among == "all" else entry.among))
    gated = (job for job in chosen if job.progress.gate)
    kinds = {job.name: (job.progress.unit, job.offered_rate is not None) for job in gated}

    def limits(name: str) -> list[float]:
        shares = default_shares(LIMITS, past.safety_of(name))
        return [share.percent for share in shares] if UNCAPPED in entry.splits else []

    return draw(entry.sets, kinds, past.filling, limits)


def _pairs(entry: PlanEntry, run: str, jobs: Mapping[str, Job], past: _Past) -> Sequence[PairNames]:
    names = jobs if entry.among == "all" else entry.among
    if entry.sample is None:
        return [*entry.pairs, *all_pairs(names, selves=entry.selves)]
    drawn = sample(names, entry.sample, run, past.kinds, selves=entry.selves)
    return [*entry.pairs, *drawn]
