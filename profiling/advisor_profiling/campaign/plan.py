"""The plan of a colocation campaign, and the windows that it means on one GPU.

docs/colocate.md describes the file; advisor_profiling.campaign.plan_file reads and writes it.
"""

import difflib
import functools
import itertools
import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from advisor.core.gpu import MEMORY_PART, WHOLE, Gpu, MemoryFit, Share, percent_for_units
from advisor.core.job import Job
from advisor.core.records import (
    CPU_BOUND,
    DOUBTFUL,
    FILLS_PERCENT,
    Measured,
    PairPoint,
    SoloPoint,
    grouped,
)
from advisor.core.split import NINE, TIME_SLICED, UNCAPPED, Split
from advisor.core.wording import listed
from advisor.errors import InputError
from advisor.validity.points import own_results
from advisor.validity.safe_counts import (
    CheckedCounts,
    Safety,
    avoided_texts,
    check_share,
    check_split,
    safe_solo_shares,
    safe_splits,
    unsafe_texts,
)
from advisor_data.known import checked_counts
from advisor_profiling.campaign.splits import (
    LIMITS,
    MOST_JOBS,
    AroundBest,
    DrawnSets,
    JobSet,
    SplitRequest,
    UnitSplit,
    best_units,
    draw,
)
from advisor_profiling.window.points import Target, pair, together

BoundBy = Literal["compute", "memory", "launch"]
PairNames = tuple[str, str]

_HALF_PERCENT = 50
"""Below it in SM activity a GPU idles most of the time, so two such jobs fit into each other's
gaps; from it on in DRAM activity two jobs together ask for more than the memory interface has.
"Energy-efficient GPU SM allocation" (table 1) parts its workloads at 50 % of both as well, and so
does `advisor_training.pairs`, by the same counters. On an H200 no job is near: 47 % and
76 % are the nearest in SM activity, 45 % and 51 % in DRAM activity.
"""


def kind_of(points: Iterable[SoloPoint]) -> BoundBy | None:
    """What bounds a job, by its newest point at its largest share.

    Args:
        points: Solo points of one job on one GPU model.

    Returns:
        "launch" for a job that keeps the GPU waiting, "memory" or "compute"; None where there is
        no point, or its counters were not available.
    """
    point = max(points, key=lambda p: (p.share_percent, p.started_at), default=None)
    if point is None:
        return None
    if CPU_BOUND in point.flags:
        return "launch"
    if point.sm_active_percent is None or point.dram_active_percent is None:
        return None
    if point.sm_active_percent < _HALF_PERCENT:
        return "launch"
    return "memory" if point.dram_active_percent >= _HALF_PERCENT else "compute"


def kinds_of(points: Iterable[SoloPoint]) -> dict[str, BoundBy]:
    """The kind of each job that has one; on several GPU models that with most of its points."""
    most = {
        job: max(grouped(its, lambda point: point.gpu_model).values(), key=len)
        for job, its in grouped(points, lambda point: point.job).items()
    }
    return {job: kind for job, its in most.items() if (kind := kind_of(its)) is not None}


def filling_jobs(points: Iterable[SoloPoint], gpu_model: str) -> set[str]:
    """Jobs that fill the GPU: at their largest share its SMs are active half of the time or more.

    What was measured on that GPU model goes before the same on others; a job of which nothing is
    known is not among them.
    """
    read = [p for p in points if p.sm_active_percent is not None]
    read.sort(key=lambda p: (p.gpu_model == gpu_model, p.share_percent, p.started_at))
    newest = {p.job: p.sm_active_percent or 0.0 for p in read}
    return {job for job, active in newest.items() if active >= FILLS_PERCENT}


def all_pairs(jobs: Iterable[str], *, selves: bool = True) -> list[PairNames]:
    """Every pair of the jobs, each in the order of names; with `selves` also each beside itself."""
    combinations = itertools.combinations_with_replacement if selves else itertools.combinations
    return list(combinations(sorted(set(jobs)), 2))


def sample(
    jobs: Iterable[str], count: int, seed: str, kinds: Mapping[str, BoundBy], *, selves: bool = True
) -> list[PairNames]:
    """A balanced sample of the pairs of `jobs`, the same for the same seed.

    One pair after the other: that of the two jobs that were drawn least, and of those one whose
    jobs met the other's kind least. Jobs next to themselves have the same part of the sample as of
    all pairs.

    Jobs without a kind count as a kind of their own; of fewer pairs than `count` all are drawn.
    """
    names, chance = sorted(set(jobs)), random.Random(seed)
    left, drawn = all_pairs(names, selves=False), list[PairNames]()
    chance.shuffle(left)
    if selves and names:
        part = min(1, count / (len(left) + len(names)))
        drawn = [(name, name) for name in chance.sample(names, round(part * len(names)))]
    times = Counter(name for name, _ in drawn)
    met = Counter((name, kinds.get(name)) for name, _ in drawn)

    def cost(pair: PairNames) -> tuple[int, int]:
        a, b = pair
        return times[a] + times[b], met[a, kinds.get(b)] + met[b, kinds.get(a)]

    while left and len(drawn) < count:
        a, b = min(left, key=cost)
        left.remove((a, b))
        drawn.append((a, b))
        times.update((a, b))
        met.update([(a, kinds.get(b)), (b, kinds.get(a))])
    return sorted(drawn)


def named(name: str, jobs: Mapping[str, Job]) -> Job:
    """The job of that name.

    Raises:
        InputError: there is none.
    """
    if name not in jobs:
        raise no_such_job(name, jobs)
    return jobs[name]


def no_such_job(name: str, known: Collection[str]) -> InputError:
    """The error for a name that no job has; it names the nearest."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0)
    return InputError(
        f"there is no job {name!r} among {len(known)}",
        fix=f"the nearest is {near[0]}" if near else "",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRules:
    """What decides at which counts of units of one GPU jobs are measured.

    Attributes:
        host: What the check of the GPU model found; None: there was none.
        allow_unsafe: Measure what was asked for as it is, and the defaults, too.
    """

    host: CheckedCounts | None = None
    allow_unsafe: bool = False

    def safety(self, job: str, gpu: Gpu, solo: Iterable[SoloPoint]) -> Safety:
        """What is known of one job on the GPU, of solo points of any job and GPU model."""
        # Percentages are counted as MPS counts them.
        if self.allow_unsafe or gpu.vendor != "nvidia":
            return Safety()
        right, wrong = own_results(p for p in solo if (p.job, p.gpu_model) == (job, gpu.model))
        return Safety(units_total=gpu.units_total, host=self.host, right=right, wrong=wrong)


ANY_COUNT = CountRules(allow_unsafe=True)
"""Nothing is avoided: where points are replayed, nothing is computed."""


def counts_on(gpu: Gpu, home: Path, *, allow_unsafe: bool) -> CountRules:
    """What decides on a GPU of this host.

    Raises:
        StoreError: what its check found cannot be read.
    """
    if allow_unsafe:
        return ANY_COUNT
    return CountRules(host=checked_counts(home, gpu.model, gpu.units_total))


def check_safe_count(
    units: int | None, gpu: Gpu, home: Path, *, allow_unsafe: bool = False
) -> None:
    """Refuse units, None for the whole GPU, at which results of this host's libraries are wrong.

    Raises:
        UnsafeCountError: they are wrong there.
        StoreError: what its check found cannot be read.
    """
    if units:
        safety = counts_on(gpu, home, allow_unsafe=allow_unsafe).safety("", gpu, ())
        check_share(percent_for_units(units, gpu.units_total or 0), safety)


def reports_results(job: Job) -> bool:
    """Whether a job says itself whether its results are right, which judges each of its points."""
    return job.results is not None


def default_shares(shares: Sequence[Share], safety: Safety) -> tuple[Share, ...]:
    """The shares of a sweep, each moved to the nearest safe count."""
    return tuple(map(Share, safe_solo_shares([share.percent for share in shares], safety)))


def check_asked_shares(shares: Iterable[Share], job: Job, safety: Safety) -> None:
    """Refuse shares that were asked for at unsafe counts, where nothing would judge the results.

    Raises:
        UnsafeCountError: one of them is.
    """
    for share in shares if not reports_results(job) else ():
        check_share(share.percent, safety)


def _splits_to_measure(
    requested: SplitRequest, splits: Sequence[Split], nominal: bool, jobs: tuple[Job, Job],
    safety: tuple[Safety, Safety],
) -> Iterator[Split]:  # fmt: skip
    """The splits at which a pair is measured, of those that a `requested` one means on the GPU.

    Those of `nine` are moved to the nearest safe ones, and of `around-best` unsafe ones left out.

    Raises:
        UnsafeCountError: a split that was asked for is at an unsafe count, where nothing would
            judge the results.
    """
    mirrored = jobs[0].name > jobs[1].name
    judged = [Safety() if reports_results(j) else s for j, s in zip(jobs, safety, strict=True)]
    for split in splits:
        if not split.is_limited:
            yield split
        elif nominal:
            yield from filter(None, safe_splits([split], safety, mirrored=mirrored))
        elif isinstance(requested, AroundBest):
            if not unsafe_texts(*zip(split.shares, safety, strict=True)):
                yield split
        else:
            check_split(split, judged, mirrored=mirrored)
            yield split


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
    windows = [window for window in found if isinstance(window, tuple)]
    return PlannedWindows(
        mps=tuple(target for target, is_sliced in windows if not is_sliced),
        time_sliced=tuple(target for target, is_sliced in windows if is_sliced),
        skipped=tuple(skipped for skipped in found if isinstance(skipped, Skipped)),
        notes=tuple(note for note in found if isinstance(note, str)),
    )


_Window = tuple[Target, bool]
"""A window, and whether it is time-sliced."""


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

        self._gpu = gpu
        self._pairs = [point for point in earlier if usable(point)]
        self._solo = [point for point in solo if usable(point)]
        self.kinds = kinds_of(self._solo)
        self.filling = filling_jobs((p for p in solo if p.run != run), gpu.model)
        self.safety_of = functools.cache(functools.partial(counts.safety, gpu=gpu, solo=solo))

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
        # Where all nine are wished, nobody asked for each by hand.
        nominal = frozenset(NINE) if set(entry.splits).issuperset(NINE) else frozenset[Split]()
        for names in _pairs(entry, plan.name, jobs, past):
            first, second = named(names[0], jobs), named(names[1], jobs)
            both, safety = (first, second), (past.safety_of(names[0]), past.safety_of(names[1]))
            if reason := past.too_large(both):
                yield Skipped(names, reason)
                continue
            for text in avoided_texts(NINE, names, safety) if nominal else ():
                yield f"{text}; the nearest safe splits are measured instead"
            for requested in entry.splits:
                splits = past.splits(requested, names)
                if isinstance(splits, Skipped):
                    yield splits
                    continue
                used = _splits_to_measure(requested, splits, requested in nominal, both, safety)
                for split, repeat in itertools.product(used, range(entry.repeats)):
                    shares, apart = tuple(map(Share, split.shares)), past.masks and split.is_limited
                    target = pair(first, shares[0], second, shares[1], repeat, two_ends=apart)
                    yield target, split == TIME_SLICED


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
                yield together(parts, repeat), split == TIME_SLICED


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
