"""Carries out a plan on one GPU: under limits first, then what is to be time-sliced."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace

from advisor.core.gpu import Gpu, Split, without_limits
from advisor.core.job import Job
from advisor.core.records import PairPoint, Point, SoloPoint, grouped
from advisor.core.wording import count_of
from advisor.validity.points import with_solo_flags
from advisor_data import Store
from advisor_profiling.campaign.campaign import (
    Block,
    CampaignOutcome,
    Cost,
    Failure,
    Reporter,
    conditions_on,
    cut,
    estimate_s,
    measure_blocks,
    remaining,
    shard,
    windows_in,
)
from advisor_profiling.campaign.plan import (
    ANY_COUNT,
    CountRules,
    Plan,
    PlannedWindows,
    Skipped,
    expand,
)
from advisor_profiling.testbed import Mode, Testbed
from advisor_profiling.window import Target, WindowRules, pair_mode, part_alone

# What makes a window the one that was wanted: jobs, hashes and shares; mode; repeat.
_WindowKey = tuple[tuple[tuple[str, str | None, float], ...], str, int]


def left_to_measure(
    blocks: Sequence[Block],
    points: Iterable[Point],
    gpu: Gpu,
    mode: str,
    beside: Sequence[tuple[str, Target]] = (),
) -> list[Block]:
    """The blocks without what the run's points already answer.

    All splits of a pair are compared with each other, so they come from one card: a pair that
    another card has only in part is measured again on this one.

    The points are those of the same run, of any card; `beside` are windows of the plan on a testbed
    of another mode, each with that mode: with and without limits a pair is compared as well.
    """
    cards: defaultdict[str, set[_WindowKey]] = defaultdict(set)
    for point in points:
        if point.gpu_model == gpu.model and "failed" not in point.flags:
            parts = point.parts if isinstance(point, PairPoint) else (part_alone(point),)
            slots = tuple((part.job, part.job_hash, part.share_percent) for part in parts)
            cards[point.gpu_uuid].add((slots, point.mode, point.repeat))
    targets = [target for block in blocks for target in block.targets]
    others: defaultdict[tuple[str, ...], set[_WindowKey]] = defaultdict(set)
    for other, target in beside:
        others[target.jobs].add(_key(target, other))
    done: set[Target] = set()
    for names, group in grouped(targets, lambda target: target.jobs).items():
        keys = {target: _key(target, mode) for target in group}
        wanted = {*keys.values(), *others.get(names, ())}
        whole = len(names) > 1 and any(found >= wanted for found in cards.values())
        here = cards.get(gpu.uuid, set[_WindowKey]())
        done |= {target for target, key in keys.items() if whole or key in here}
    known = set[_WindowKey]().union(*cards.values())
    left = remaining(blocks, done)
    # A block whose pairs are done needs no windows of jobs alone that another card has.
    return [
        block
        for block in left
        if any(len(t.specs) > 1 or _key(t, mode) not in known for t in block.targets)
    ]


def _key(target: Target, mode: str) -> _WindowKey:
    slots = tuple((r.job.name, r.job.job_hash, r.share.percent) for r in target.specs)
    return slots, pair_mode(mode, target) if len(slots) > 1 else mode, target.repeat


# The testbed without MPS, on which pairs are time-sliced.
_WITHOUT: Mode = "uncapped"

OpenTestbed = Callable[[Mode | None], AbstractContextManager[Testbed]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """A plan, or a part of it, and how it is carried out.

    Attributes:
        part: Number, from 1, and count of the parts that the plan is cut into.
        known: Points of other places that say how jobs behave, next to those of the store.
        dry_run: Only say what would be measured.
        counts: At which counts of units of a GPU results are wrong.
    """

    plan: Plan
    part: tuple[int, int]
    jobs: Mapping[str, Job]
    known: Sequence[Point]
    store: Store
    reporter: Reporter
    rules: WindowRules
    dry_run: bool = False
    counts: Callable[[Gpu], CountRules] = lambda gpu: ANY_COUNT


@dataclass(frozen=True, slots=True)
class PlannedSplit:
    """What is measured together, and how often; one job is alone."""

    jobs: tuple[str, ...]
    split: str
    windows: int


@dataclass(frozen=True, slots=True)
class CampaignReport:
    """What came of it on one GPU.

    Attributes:
        windows: Of this part of the plan.
        to_measure: Of them, those that no earlier point answered.
        planned: The same, by jobs and split.
        estimated_s: How long those were expected to take.
        measured: Of them, those that were measured.
        failures: Windows that failed for good.
    """

    gpu_model: str
    windows: int
    to_measure: int
    planned: tuple[PlannedSplit, ...]
    estimated_s: float
    measured: int
    cost: Cost
    skipped: tuple[Skipped, ...]
    failures: tuple[Failure, ...]


def carry_out(campaign: Campaign, open_testbed: OpenTestbed) -> CampaignReport:
    """Measure what is left of the campaign.

    Args:
        campaign: What is wanted.
        open_testbed: Opens the GPU with limits (None) or without MPS ("uncapped").

    Raises:
        InputError: the plan cannot be carried out on this GPU.
        PartitionError: what enforces the shares broke; finished points are in the store.
        StoreError: a point could not be written; those before it are in the store.
        UnsafeCountError: a split that the plan names has a count at which results are wrong.
    """
    with open_testbed(None) as testbed:
        work, limited = _work(campaign, testbed), testbed.mode
        targets, refused = _possible(campaign, work.mps, testbed)
        parts = _parts(campaign, targets, testbed, alone=True)
        beside = [(_WITHOUT, target) for target in work.time_sliced]
        skipped = (*work.skipped, *refused)
        first, idle_power_w = _measure(
            campaign, parts[campaign.part[0] - 1], testbed, beside, skipped
        )
    if not work.time_sliced:
        return first
    with open_testbed(_WITHOUT) as testbed:
        targets, refused = _possible(campaign, work.time_sliced, testbed)
        blocks = _time_sliced(campaign, targets, parts, testbed)
        beside = [(limited, target) for target in work.mps]
        second, _ = _measure(campaign, blocks, testbed, beside, refused, idle_power_w)
        summed = [field.name for field in fields(CampaignReport) if field.name != "gpu_model"]
        return replace(first, **{n: getattr(first, n) + getattr(second, n) for n in summed})


def _work(campaign: Campaign, testbed: Testbed) -> PlannedWindows:
    solo = campaign.store.solo_points(gpu_model=testbed.gpu.model)
    solo += [p for p in campaign.known if isinstance(p, SoloPoint)]
    alone, counts = with_solo_flags(solo), campaign.counts(testbed.gpu)
    work = expand(campaign.plan, testbed.gpu, campaign.jobs, alone, counts)
    for note in work.notes:
        campaign.reporter.phase(note)
    _tell(campaign, work.skipped)
    return work


def _possible(
    campaign: Campaign, targets: Sequence[Target], testbed: Testbed
) -> tuple[list[Target], tuple[Skipped, ...]]:
    """The windows that the testbed can measure, and by pair how many it cannot."""
    refused = Counter((t.jobs, why) for t in targets if (why := testbed.refuses(t)))
    skipped = tuple(
        Skipped(jobs, f"{count_of(count, 'window')}: {why}")
        for (jobs, why), count in refused.items()
    )
    _tell(campaign, skipped)
    return [t for t in targets if not testbed.refuses(t)], skipped


def _tell(campaign: Campaign, skipped: Sequence[Skipped]) -> None:
    for item in skipped:
        campaign.reporter.phase(f"skipping {' + '.join(item.pair)}: {item.reason}")


def _measure(
    campaign: Campaign,
    blocks: list[Block],
    testbed: Testbed,
    beside: Sequence[tuple[str, Target]],
    skipped: tuple[Skipped, ...],
    idle_power_w: float | None = None,
) -> tuple[CampaignReport, float | None]:
    """Measure what is left of the blocks; also the idle power from before the first job."""
    run = campaign.plan.name
    known = [*campaign.store.solo_points(run=run), *campaign.store.pair_points(run=run)]
    left = left_to_measure(blocks, known, testbed.gpu, testbed.mode, beside)
    expected_s = estimate_s(left, campaign.rules)
    outcome = CampaignOutcome((), (), Cost())
    if left:
        many = f"{count_of(windows_in(left), 'window')} in {count_of(len(left), 'block')}"
        campaign.reporter.phase(f"{many}, about {expected_s / 60:.1f} GPU-minutes")
    if left and not campaign.dry_run:
        conditions = conditions_on(testbed, run, campaign.rules, idle_power_w)
        outcome = measure_blocks(left, conditions, testbed, campaign.store, campaign.reporter)
        idle_power_w = conditions.idle_power_w
    planned = Counter((t.jobs, _split_text(t, testbed.mode)) for b in left for t in b.targets)
    report = CampaignReport(
        testbed.gpu.model,
        windows_in(blocks),
        windows_in(left),
        tuple(PlannedSplit(jobs, split, count) for (jobs, split), count in sorted(planned.items())),
        expected_s,
        len(outcome.points),
        outcome.cost,
        skipped,
        outcome.failures,
    )
    return report, idle_power_w


def _parts(
    campaign: Campaign, targets: Sequence[Target], testbed: Testbed, *, alone: bool
) -> list[list[Block]]:
    """The blocks of every part of the plan; the same whatever was measured before.

    Large blocks need few starts, but a small plan would be one block, and all parts but one idle.
    So of several sizes the one whose longest part is the shortest is taken.
    """
    _, count = campaign.part
    seed, memory_mib = campaign.plan.name, testbed.gpu.memory_mib
    most = min(testbed.max_clients, len({spec for t in targets for spec in t.specs}))
    # Blocks as large as they can be, and so many times smaller.
    sizes = {
        max(1, round(most / by))
        for by in ((1, 1.2, 1.5, 2, 3, 4, 6, 12, 24) if count > 1 else (1,))
    }
    ways = [
        [shard(blocks, part, count) for part in range(1, count + 1)]
        for size in sorted(sizes, reverse=True)
        for blocks in [
            cut(targets, size, memory_mib, seed, alone=alone, profiles=campaign.plan.profiles)
        ]
    ]
    return min(ways, key=lambda way: max(estimate_s(part, campaign.rules) for part in way))


def _time_sliced(
    campaign: Campaign, targets: Sequence[Target], parts: list[list[Block]], testbed: Testbed
) -> list[Block]:
    """Windows without MPS of the pairs that this part has under limits: the same card for both.

    Speeds are relative to the jobs alone under MPS, so they are not measured alone once more; a
    plan with profiles, all of which is time-sliced, has them measured here.
    """
    pairs = [{target.jobs for block in part for target in block.targets} for part in parts]
    mine = campaign.part[0] - 1
    own = [t for t in targets if t.jobs in pairs[mine]]
    free = [t for t in targets if not any(t.jobs in known for known in pairs)]
    seed, memory_mib = campaign.plan.name, testbed.gpu.memory_mib
    blocks = cut(own, testbed.max_clients, memory_mib, seed, alone=False)
    return blocks + _parts(campaign, free, testbed, alone=campaign.plan.profiles)[mine]


def _split_text(target: Target, mode: str) -> str:
    split = Split(tuple(spec.share.percent for spec in target.specs))
    if len(target.specs) == 1 or set(split.shares) != {100}:
        return str(split)
    return str(without_limits("time-sliced" if mode == _WITHOUT else "uncapped"))
