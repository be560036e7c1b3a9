"""The plan of a colocation campaign, and the windows that it means on one GPU.

A plan is made from a YAML file or from command-line options, and goes back to YAML:

    name: h200-pairs
    measure:
      - among: [bert-train, triad, gemm, fft]
        splits: [nine, uncapped]

docs/colocate.md has every key and word. A fault names its line, its key and what was expected.
"""

import difflib
import functools
import hashlib
import itertools
import random
import re
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from advisor.core.gpu import MEMORY_PART, WHOLE, Gpu, MemoryFit, Share, percent_for_units, quantum
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
from advisor.core.split import (
    MOST_JOBS,
    NINE,
    TIME_SLICED,
    UNCAPPED,
    Split,
    parse_split,
    split_of_units,
)
from advisor.core.wording import listed
from advisor.errors import InputError
from advisor.files import NAME, RULE
from advisor.formats import yaml_fields as read
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
from advisor_profiling.window import Target, pair, together

PAIR = 2
"""Jobs that a plan measures together."""


@dataclass(frozen=True, slots=True)
class UnitSplit:
    """Exact counts of units that sum to a GPU's.

    Attributes:
        where: Where it was written, for messages.
    """

    first: int
    second: int
    where: str = field(default="splits", compare=False)

    def __str__(self) -> str:
        return f"{self.first}+{self.second} units"

    def on(self, gpu: Gpu) -> Split:
        """The split in percent of `gpu`.

        Raises:
            InputError: the counts do not sum to the GPU's units, or it cannot grant them.
        """
        total = units_of(gpu)
        if self.first + self.second != total:
            raise InputError(
                f"{self.where}: expected counts that sum to the {total} units of {gpu.model}, "
                f"got {self} ({self.first + self.second})",
                fix=f"{self.first}+{total - self.first} units" if self.first < total else "",
            )
        try:
            return _on_units(self.first, gpu)
        except InputError as error:
            raise InputError(
                f"{self.where}: {self}: {error.what}", why=error.why, fix=error.fix
            ) from error


@dataclass(frozen=True, slots=True)
class AroundBest:
    """Counts in steps of the GPU's quantum, up to `units` away from the best one so far."""

    units: int

    def __str__(self) -> str:
        return f"around-best {self.units}"

    def on(self, gpu: Gpu, best: int) -> tuple[Split, ...]:
        """The splits in percent of `gpu`; at the best one the first job has `best` units."""
        total = units_of(gpu)
        step = quantum(total, gpu.vendor)
        grid = range(best % step, total, step)
        near = [count for count in grid if abs(count - best) <= self.units]
        return tuple(_on_units(count, gpu) for count in near if _grantable(count, gpu))


SplitRequest = Split | UnitSplit | AroundBest

_WORDS: dict[str, tuple[Split, ...]] = {
    "nine": NINE,
    "uncapped": (UNCAPPED,),
    "time-sliced": (TIME_SLICED,),
}

_EXPECTED = "nine, uncapped, time-sliced, 70/30 (percent), 66+66 units or around-best 8 (units)"


def read_split(text: str, where: str) -> tuple[SplitRequest, ...]:
    """The splits that a word of a plan stands for; messages say `where` it is.

    Raises:
        InputError: it stands for none.
    """
    if text in _WORDS:
        return _WORDS[text]
    if "/" in text:
        return (_percentages(text, where),)
    if found := re.fullmatch(r"(\d{1,6}) ?\+ ?(\d{1,6}) units", text):
        return (UnitSplit(int(found[1]), int(found[2]), where),)
    found = re.fullmatch(r"around-best (\d{1,6})", text)
    # With fewer units it would be the best split alone.
    if found and int(found[1]) >= 2:
        return (AroundBest(int(found[1])),)
    near = difflib.get_close_matches(text, [*_WORDS, "around-best 8"], n=1)
    raise InputError(
        f"{where}: expected {_EXPECTED}, got {text!r}",
        fix=f"the nearest is {near[0]}" if near else "",
    )


def check_set_splits(splits: Iterable[SplitRequest], where: str) -> None:
    """Refuse splits for sets of jobs, whose limits stand behind their names.

    Raises:
        InputError: one of them is not a word for sharing without limits.
    """
    if other := [split for split in splits if split not in (UNCAPPED, TIME_SLICED)]:
        raise InputError(
            f"{where}: sets are measured uncapped or time-sliced, got {other[0]}",
            fix="write a limit behind the job that has it, such as a+b@50+c",
        )


def write_splits(splits: Iterable[SplitRequest]) -> list[str]:
    """The shortest words that `read_split` reads as these splits."""
    left = dict.fromkeys(splits)
    words = list[str]()
    if left.keys() >= set(NINE):
        words.append("nine")
        left = dict.fromkeys(split for split in left if split not in NINE)
    return words + [str(split) for split in left]


def _on_units(first: int, gpu: Gpu) -> Split:
    """`first` units for one job, all others for the other.

    Raises:
        InputError: the GPU cannot grant these counts.
    """
    total = units_of(gpu)
    return split_of_units((first, total - first), total, gpu.vendor)


def units_of(gpu: Gpu) -> int:
    """Units of the whole GPU.

    Raises:
        InputError: they were not read.
    """
    if gpu.units_total is None:
        raise InputError(
            f"the number of units of {gpu.model} is not known", fix="run `advisor doctor`"
        )
    return gpu.units_total


def best_units(
    names: tuple[str, str], pairs: Sequence[PairPoint], solo: Sequence[SoloPoint], gpu: Gpu
) -> int | str:
    """Units of the first job at the best measured split of a pair, or why it is not known.

    The points are of that GPU model.
    """
    a, b = sorted(names)
    alone_a, alone_b = _solo_rate(a, solo), _solo_rate(b, solo)
    if not alone_a or not alone_b:
        return f"{b if alone_a else a} has no solo point at 100 % on {gpu.model}"
    total = units_of(gpu)
    known = [
        (worth, units)
        for point in pairs
        if point.jobs == (a, b)
        and point.mode in {"mps", "cu_mask"}
        and (units := point.parts[0].units) is not None
        and (other := point.parts[1].units) is not None
        and units + other <= total
        and (worth := _worth(point, alone_a, alone_b)) is not None
    ]
    if not known:
        return f"no other run has measured a split of the pair on {gpu.model}"
    units_a = max(known)[1]
    return units_a if names[0] == a else total - units_a


def _solo_rate(job: str, solo: Iterable[SoloPoint]) -> float | None:
    rates = [p.rate for p in solo if p.job == job and p.share_percent == WHOLE]
    return statistics.fmean(rates) if rates else None


def _worth(point: PairPoint, alone_a: float, alone_b: float) -> float | None:
    """Sum of relative speeds per watt; None where a reading is missing."""
    rates = [part.rate for part in point.parts]
    if None in rates or not point.power_w:
        return None
    alone = zip(rates, (alone_a, alone_b), strict=True)
    return sum((rate or 0.0) / solo for rate, solo in alone) / point.power_w


def _percentages(text: str, where: str) -> Split:
    """Shares of two jobs at normal priority: plans measure pairs."""
    why, fix = "a plan measures two jobs at a time", ""
    try:
        if len((split := parse_split(text)).shares) == PAIR and not split.below_normal:
            return split
    except InputError as error:
        why, fix = error.why, error.fix if error.why else ""
    raise InputError(f"{where}: expected {_EXPECTED}, got {text!r}", why=why, fix=fix)


def _grantable(first: int, gpu: Gpu) -> bool:
    try:
        _on_units(first, gpu)
    except InputError:
        return False
    return True


LIMITS = (Share(26.0), Share(50.0), Share(90.0))
"""For a job that fills the card: 34, 66 and 118 SMs of 132, where libraries computed right results
on H100 and H200 (docs/check.md)."""

_SMALL, _BIG = 7, 3
"""Jobs of each kind that are drawn for a round, so that few processes are started."""


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """A job of a set, and its limit in percent of the GPU's units; 100: none."""

    job: str
    percent: float = WHOLE

    def __str__(self) -> str:
        return self.job if self.percent == WHOLE else f"{self.job}@{self.percent:g}"


JobSet = tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class DrawnSets:
    """So many sets, drawn by chance: the same ones for the same jobs and seed."""

    count: int
    seed: int = 1


def read_set(text: str, where: str) -> JobSet:
    """The set that a text stands for; messages say `where` it is.

    Raises:
        InputError: it stands for none.
    """
    found = [
        re.fullmatch(r"([^@\s]+)(?:@(\d{1,3}(?:\.\d{1,3})?))?", word.strip())
        for word in text.split("+")
    ]
    members = [Member(m[1], float(m[2] or WHOLE)) for m in found if m]
    if len(members) < len(found) or not 2 <= len(members) <= MOST_JOBS:
        raise InputError(
            f"{where}: expected two to {MOST_JOBS} jobs such as a+b+c, or a+b@50 with a limit for "
            f"b in percent, got {text!r}"
        )
    for member in members:
        Share(member.percent)
    return tuple(members)


def write_set(members: JobSet) -> str:
    """The text that `read_set` reads as this set."""
    return "+".join(map(str, members))


@dataclass(frozen=True, slots=True)
class _Shape:
    """How many jobs of each kind a set has; alike: they are copies of one job."""

    small: int = 0
    big: int = 0
    alike: bool = False


_ROUND = (
    _Shape(small=3), _Shape(small=1, big=1), _Shape(small=2, alike=True), _Shape(small=5),
    _Shape(small=2, big=1), _Shape(small=4), _Shape(small=3, alike=True), _Shape(small=3, big=1),
    _Shape(small=7), _Shape(big=2), _Shape(small=2), _Shape(small=4, big=1),
    _Shape(small=5, alike=True), _Shape(small=6), _Shape(small=1, big=1), _Shape(small=3),
    _Shape(small=2, alike=True), _Shape(small=5), _Shape(small=2, big=1), _Shape(small=1, big=2),
    _Shape(small=3, alike=True),
)  # fmt: skip
"""27 sets, since those with one big job come without and with a limit for it; the first ones of a
round are of every kind."""


def draw(
    wanted: DrawnSets,
    kinds: Mapping[str, Hashable],
    filling: Collection[str],
    limits: Callable[[str], Sequence[float]],
) -> list[JobSet]:
    """Sets of every size and kind, each once; fewer where the jobs make fewer.

    A round has jobs of as many kinds as it can, and each job is in about equally many rounds.

    Args:
        wanted: How many, by which seed.
        kinds: The jobs, each with a kind; those that resemble each other have the same.
        filling: Those that fill the GPU, and maybe others; the rest leaves most of it idle.
        limits: The limits in percent that a job that fills it may be given; empty: it has none.
    """
    chance, found = random.Random(wanted.seed), dict[JobSet, None]()
    small = {job: kind for job, kind in kinds.items() if job not in filling}
    big = {job: kind for job, kind in kinds.items() if job in filling}
    rounds = zip(_hands(small, _SMALL, chance), _hands(big, _BIG, chance), strict=True)
    for few, some in itertools.islice(rounds, wanted.count):
        for number, shape in enumerate(_ROUND):
            found |= dict.fromkeys(_drawn(shape, number, few, some, limits, chance))
        if len(found) >= wanted.count:
            break
    return list(found)[: wanted.count]


def _hands(kinds: Mapping[str, Hashable], most: int, chance: random.Random) -> Iterator[list[str]]:
    """The jobs of each round: of unlike kinds, and of those the ones that were drawn least."""
    drawn = Counter[str]()
    while True:
        hand = list[str]()
        left = chance.sample(sorted(kinds), len(kinds))
        while left and len(hand) < most:
            taken = Counter(kinds[job] for job in hand)
            hand.append(min(left, key=lambda job: (taken[kinds[job]], drawn[job])))
            left.remove(hand[-1])
        drawn.update(hand)
        yield hand


def _drawn(
    shape: _Shape, number: int, small: Sequence[str], big: Sequence[str],
    limits: Callable[[str], Sequence[float]], chance: random.Random,
) -> Iterator[JobSet]:  # fmt: skip
    """The sets of a shape, the `number`-th of its round; none where there are too few jobs."""
    if shape.alike:
        if small:
            # Every fourth or so is of copies: of another job each.
            yield (Member(small[number // 4 % len(small)]),) * shape.small
        return
    if shape.small > 2 * len(small) or shape.big > len(big):
        return
    # Some of them twice.
    others = [Member(name) for name in chance.sample([*small, *small], shape.small)]
    filling = [big[(number + k) % len(big)] for k in range(shape.big)]
    yield tuple(sorted([*map(Member, filling), *others]))
    if shape.big == 1 and (choices := limits(filling[0])):
        yield tuple(sorted([Member(filling[0], chance.choice(choices)), *others]))


BoundBy = Literal["compute", "memory", "launch"]
PairNames = tuple[str, str]

_HALF_PERCENT = 50
"""Below it in SM activity a GPU idles most of the time, so two such jobs fit into each other's
gaps; from it on in DRAM activity two jobs together ask for more than the memory interface has.
"Energy-efficient GPU SM allocation" (table 1) parts its workloads at 50 % of both as well, and so
does `advisor_training.rows`, by the same counters. On an H200 no job is near: 47 % and
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


def default_shares(shares: Sequence[Share], safety: Safety) -> tuple[Share, ...]:
    """The shares of a sweep, each moved to the nearest safe count."""
    return tuple(map(Share, safe_solo_shares([share.percent for share in shares], safety)))


def check_asked_shares(shares: Iterable[Share], job: Job, safety: Safety) -> None:
    """Refuse shares that were asked for at unsafe counts, where nothing would judge the results.

    A job that reports its results judges each of its points itself.

    Raises:
        UnsafeCountError: one of them is.
    """
    for share in shares if job.results is None else ():
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
    judged = [s if job.results is None else Safety() for job, s in zip(jobs, safety, strict=True)]
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
            yield from (
                f"{text}; the nearest safe splits are measured instead"
                for text in (avoided_texts(NINE, names, safety) if nominal else ())
            )
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
            yield from (
                (together(parts, repeat), split == TIME_SLICED)
                for split, repeat in itertools.product(splits, range(entry.repeats))
            )


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


DEFAULT_SPLITS = "nine,uncapped"
"""Default splits of measured pairs."""

DEFAULT_SET_SPLITS = "uncapped"
"""The same of sets, beside the limits that stand behind their jobs."""


def load_plan(path: Path, jobs: Collection[str]) -> Plan:
    """The plan that a file describes; without `name` it is called as the file.

    Raises:
        InputError: the file cannot be read or describes no plan; the message names line and column.
    """
    root = read.load(path)
    readers: Mapping[str, read.FieldReader] = {
        "name": _name,
        "measure": lambda field: tuple(
            _plan_entry(item, jobs) for item in _items(field, "a list of what to measure")
        ),
        "profiles": read.flag,
    }
    fields = read.whole_record(root, readers, required=("measure",))
    name = fields.get("name", path.stem)
    if not NAME.fullmatch(name):
        raise root.fault(f"{name!r} cannot name a run", fix=f"add a name: {RULE}")
    plan = Plan(name, fields["measure"])
    return replace(plan, profiles=fields.get("profiles", plan.has_sets))


def plan_from_options(
    among: str,
    pairs: str,
    splits: str,
    repeats: int = 1,
    name: str | None = None,
    *,
    sample: int | None = None,
    sets: str = "",
    seed: int | None = None,
) -> Plan:
    """The plan that options of the command line describe.

    Such as "bert-train,triad" or "all" for `among`, "bert-train+triad,gemm+gemm" for `pairs`,
    "a+b+c,a+b@50" or "40" for `sets` and "nine,uncapped" for `splits`. Without a name the run has
    one that the same options always give.

    Raises:
        InputError: there is nothing to measure, or an option cannot be understood.
    """
    every = _flat(read_split(word, "--splits") for word in _words(splits))
    named = tuple(_pair_option(text) for text in _words(pairs))
    jobs = "all" if among.strip() == "all" else _words(among)
    if sets.strip():
        entry = _sets_option(sets, jobs, every, repeats, seed)
        return _named(Plan("", (entry,), profiles=True), name, "sets")
    if not every or not (jobs or named):
        raise InputError(
            f"there is nothing to measure: jobs {among!r}, pairs {pairs!r}, splits {splits!r}",
            fix="give splits, and jobs (all pairs of them) or pairs such as bert-train+triad",
        )
    entries = (
        PlanEntry(among=jobs, splits=every, repeats=repeats, sample=sample),
        PlanEntry(pairs=named, splits=every, repeats=repeats),
    )
    plan = Plan("", tuple(entry for entry in entries if entry.among or entry.pairs))
    return _named(plan, name, "pairs")


def _named(plan: Plan, name: str | None, prefix: str) -> Plan:
    """The plan with that name, or with one that the same plan always gets."""
    if name is None:
        digest = hashlib.sha256(_to_yaml(plan).encode()).hexdigest()
        return replace(plan, name=f"{prefix}-{digest[:8]}")
    return replace(plan, name=run_name(name))


def run_name(name: str) -> str:
    """The name itself.

    Raises:
        InputError: it cannot name a run.
    """
    if not NAME.fullmatch(name):
        raise InputError(f"{name!r} cannot name a run", fix=f"use {RULE}")
    return name


def to_yaml(plan: Plan) -> str:
    """The plan as a file that `load_plan` reads."""
    return read.with_schema(_to_yaml(plan))


def _to_yaml(plan: Plan) -> str:
    entries = [_entry_json(entry) for entry in plan.entries]
    content: dict[str, Any] = {"name": plan.name, "measure": entries}
    if plan.profiles != plan.has_sets:
        content["profiles"] = plan.profiles
    return yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=100)


def _name(field: read.YamlField) -> str:
    name = read.text(field)
    if not NAME.fullmatch(name):
        raise field.expected(RULE)
    return name


def _plan_entry(field: read.YamlField, jobs: Collection[str]) -> PlanEntry:
    readers: Mapping[str, read.FieldReader] = {
        "among": lambda field: _among(field, jobs),
        "pairs": lambda field: tuple(
            _pair(item, jobs) for item in _items(field, "a list of pairs")
        ),
        "sample": read.count,
        "selves": read.flag,
        "sets": lambda field: _read_sets(field, jobs),
        "seed": read.count,
        "splits": _splits,
        "repeats": read.count,
    }
    values = read.record(field, readers, required=("splits",))
    if "sets" in values:
        return _sets_entry(field, values)
    if "seed" in values:
        raise read.entries(field)["seed"].fault("has a meaning only together with sets")
    if ("among" in values) == ("pairs" in values):
        got = "both" if "pairs" in values else "neither"
        raise field.fault(f"expected among or pairs, got {got}")
    for key in ("sample", "selves"):
        if key in values and "pairs" in values:
            raise read.entries(field)[key].fault("has a meaning only together with among")
    return PlanEntry(**values)


def _sets_entry(field: read.YamlField, values: dict[str, Any]) -> PlanEntry:
    """An entry with `sets`, which are named, or drawn of `among` by `seed`."""
    drawn, keys = isinstance(values["sets"], int), read.entries(field)
    allowed = {"sets", "splits", "repeats", *(("among", "seed") if drawn else ())}
    for key in values.keys() - allowed:
        raise keys[key].fault("has no meaning together with " + ("sets" if drawn else "named sets"))
    check_set_splits(values["splits"], _where(keys["splits"]))
    if drawn:
        values["sets"] = DrawnSets(values["sets"], values.pop("seed", 1))
        values.setdefault("among", "all")
    return PlanEntry(**values)


def _read_sets(field: read.YamlField, jobs: Collection[str]) -> tuple[JobSet, ...] | int:
    if not field.is_list:
        return read.count(field)
    items = _items(field, "how many sets, or a list of them such as [a+b+c, a+b@50]")
    found = tuple(read_set(read.text(item), _where(item)) for item in items)
    for item, members in zip(items, found, strict=True):
        for member in members:
            _known(member.job, item, jobs)
    return found


def _among(field: read.YamlField, jobs: Collection[str]) -> tuple[str, ...] | Literal["all"]:
    if not field.is_list and read.text(field) == "all":
        return "all"
    items = _items(field, "all, or a list of jobs")
    return tuple(_known(read.text(item), item, jobs) for item in items)


def _pair(field: read.YamlField, jobs: Collection[str]) -> PairNames:
    items = _items(field, "a pair such as [bert-train, triad]")
    if len(items) != 2:
        raise field.fault(f"expected two jobs, got {len(items)}")
    first, second = (_known(read.text(item), item, jobs) for item in items)
    return first, second


def _known(name: str, field: read.YamlField, jobs: Collection[str]) -> str:
    """The name itself; a fault of the field where no job has it."""
    if name not in jobs:
        error = no_such_job(name, jobs)
        raise field.fault(error.what, error.fix)
    return name


def _splits(field: read.YamlField) -> tuple[SplitRequest, ...]:
    items = _items(field, "a list of splits such as [nine, uncapped]")
    return _flat(read_split(read.text(item), _where(item)) for item in items)


def _items(field: read.YamlField, what: str) -> list[read.YamlField]:
    """The entries of a list that is not empty."""
    if not isinstance(field.node, yaml.SequenceNode):
        raise field.expected(what)
    if not field.node.value:
        raise field.fault(f"expected {what}, got an empty one")
    return [read.YamlField(field.path, field.key, node) for node in field.node.value]


def _where(field: read.YamlField) -> str:
    mark = field.node.start_mark
    return f"{field.path}:{mark.line + 1}:{mark.column + 1}: {field.key}"


def _flat(splits: Iterable[tuple[SplitRequest, ...]]) -> tuple[SplitRequest, ...]:
    return tuple(dict.fromkeys(itertools.chain.from_iterable(splits)))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for part in text.split(",") if (word := part.strip()))


def _pair_option(text: str) -> PairNames:
    names = [name.strip() for name in text.split("+")]
    if len(names) != 2 or not all(names):
        raise InputError(f"--pairs: expected two jobs such as bert-train+triad, got {text!r}")
    return names[0], names[1]


def _sets_option(
    sets: str,
    among: tuple[str, ...] | Literal["all"],
    splits: tuple[SplitRequest, ...],
    repeats: int,
    seed: int | None,
) -> PlanEntry:
    check_set_splits(splits, "--splits")
    if sets.strip().isdecimal():
        if not (count := int(sets)):
            raise InputError("--sets 0 are none", fix="draw one or more, such as --sets 40")
        drawn = DrawnSets(count, 1 if seed is None else seed)
        return PlanEntry(among=among or "all", sets=drawn, splits=splits, repeats=repeats)
    if among or seed is not None:
        raise InputError(
            "--among and --seed say which sets are drawn",
            fix="give their number, such as --sets 40, or name sets alone",
        )
    named = tuple(read_set(text, "--sets") for text in _words(sets))
    return PlanEntry(sets=named, splits=splits, repeats=repeats)


def _entry_json(entry: PlanEntry) -> dict[str, Any]:
    drawn = entry.sets if isinstance(entry.sets, DrawnSets) else None
    written = {
        "pairs": [list(names) for names in entry.pairs],
        "among": entry.among if entry.among == "all" else list(entry.among),
        "sample": entry.sample,
        "selves": None if entry.selves else False,
        "sets": drawn.count if drawn else [write_set(members) for members in entry.named_sets],
        "seed": drawn and drawn.seed,
        "splits": write_splits(entry.splits),
        "repeats": entry.repeats if entry.repeats > 1 else None,
    }
    return {key: value for key, value in written.items() if value not in (None, [])}
