"""At which shares and splits jobs are measured on a GPU where results are wrong at some counts."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.core.gpu import Gpu, Share, percent_for_units
from advisor.core.job import Job
from advisor.core.records import SoloPoint
from advisor.core.split import NINE, Split
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
from advisor_profiling.campaign.splits import AroundBest, SplitRequest


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


def splits_to_measure(
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


def nominal_splits(requested: Iterable[SplitRequest]) -> frozenset[SplitRequest]:
    """Those that stand for `nine`: where all nine are wished, nobody asked for each by hand."""
    every = set(requested)
    return frozenset(NINE) if every.issuperset(NINE) else frozenset()


def moved_splits_texts(jobs: tuple[Job, Job], safety: tuple[Safety, Safety]) -> Iterator[str]:
    """Why `nine` are not measured as they are."""
    for text in avoided_texts(NINE, [job.name for job in jobs], safety):
        yield f"{text}; the nearest safe splits are measured instead"
