"""The plan of a colocation campaign, the windows that it means on one GPU, and their measurement.

A plan is made from a YAML file or from command-line options, and goes back to YAML:

    name: h200-pairs
    measure:
      - among: [bert-train, triad, gemm, fft]
        splits: [nine, uncapped]

docs/colocate.md has every key and word. A fault names its line, its key and what was expected.

Windows under limits are measured first, then those that are to be time-sliced.
"""

import difflib
import functools
import hashlib
import itertools
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from advisor.core.gpu import (
    MEMORY_PART,
    MOST_JOBS,
    NINE,
    TIME_SLICED,
    UNCAPPED,
    WHOLE,
    Gpu,
    MemoryFit,
    Share,
    Split,
    percent_for_units,
    without_limits,
)
from advisor.core.job import Job
from advisor.core.records import (
    CPU_BOUND,
    DOUBTFUL,
    PairPoint,
    Point,
    SoloPoint,
    grouped,
)
from advisor.core.wording import count_of, listed
from advisor.errors import InputError
from advisor.files import NAME, RULE
from advisor.formats import yaml_fields as read
from advisor.validity.points import results_of_job, with_solo_flags
from advisor.validity.safe_counts import (
    CheckedCounts,
    Safety,
    avoided_texts,
    check_share,
    check_split,
    safe_splits,
)
from advisor_data import Store
from advisor_data.bundled import checked_counts
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
from advisor_profiling.testbed import Mode, Testbed
from advisor_profiling.window import Target, WindowRules, pair, pair_mode, part_alone, together


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
            InputError: the counts do not sum to the GPU's units, which are not known, or it cannot
                grant them.
        """
        if (total := gpu.units_total) is None:
            raise InputError(
                f"the number of units of {gpu.model} is not known", fix="run `advisor doctor`"
            )
        if self.first + self.second != total:
            raise InputError(
                f"{self.where}: expected counts that sum to the {total} units of {gpu.model}, "
                f"got {self} ({self.first + self.second})",
                fix=f"{self.first}+{total - self.first} units" if self.first < total else "",
            )
        try:
            return Split.of_units((self.first, self.second), total, gpu.vendor)
        except InputError as error:
            raise InputError(
                f"{self.where}: {self}: {error.what}", why=error.why, fix=error.fix
            ) from error


SplitRequest = Split | UnitSplit

_WORDS: dict[str, tuple[Split, ...]] = {
    "nine": NINE,
    "uncapped": (UNCAPPED,),
    "time-sliced": (TIME_SLICED,),
}


def read_split(text: str, where: str) -> tuple[SplitRequest, ...]:
    """The splits that a word of a plan stands for; messages say `where` it is.

    Raises:
        InputError: it stands for none.
    """
    if text in _WORDS:
        return _WORDS[text]
    why, fix = "", ""
    if "/" in text:
        # Shares of two jobs at normal priority.
        why = "a plan measures two jobs at a time"
        try:
            if len((split := Split.parse(text)).shares) == 2 and not split.below_normal:
                return (split,)
        except InputError as error:
            why, fix = error.why, error.fix if error.why else ""
    elif match := re.fullmatch(r"(\d{1,6}) ?\+ ?(\d{1,6}) units", text):
        return (UnitSplit(int(match[1]), int(match[2]), where),)
    elif near := difflib.get_close_matches(text, _WORDS, n=1):
        fix = f"the nearest is {near[0]}"
    raise InputError(
        f"{where}: expected nine, uncapped, time-sliced, 70/30 (percent) or 66+66 units, "
        f"got {text!r}",
        why=why,
        fix=fix,
    )


def _check_set_splits(splits: Iterable[SplitRequest], where: str) -> None:
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


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """A job of a set, and its limit in percent of the GPU's units; 100: none."""

    job: str
    percent: float = WHOLE

    def __str__(self) -> str:
        return self.job if self.percent == WHOLE else f"{self.job}@{self.percent:g}"


JobSet = tuple[Member, ...]


def read_set(text: str, where: str) -> JobSet:
    """The set that a text stands for; messages say `where` it is.

    Raises:
        InputError: it stands for none.
    """
    matches = [
        re.fullmatch(r"([^@\s]+)(?:@(\d{1,3}(?:\.\d{1,3})?))?", word.strip())
        for word in text.split("+")
    ]
    members = [Member(m[1], float(m[2] or WHOLE)) for m in matches if m]
    if len(members) < len(matches) or not 2 <= len(members) <= MOST_JOBS:
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


BoundBy = Literal["compute", "memory", "launch"]
PairNames = tuple[str, str]

# Below it in SM activity a GPU idles most of the time, so two such jobs fit into each other's
# gaps; from it on in DRAM activity two jobs together ask for more than the memory interface has.
# "Energy-efficient GPU SM allocation" (table 1) parts its workloads at 50 % of both as well, and so
# does `advisor_training.rows`, by the same counters. On an H200 no job is near: 47 % and
# 76 % are the nearest in SM activity, 45 % and 51 % in DRAM activity.
_HALF_PERCENT = 50


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
        raise _no_such_job(name, jobs)
    return jobs[name]


def _no_such_job(name: str, jobs: Collection[str]) -> InputError:
    """The error for a name that no job has; it names the nearest."""
    near = difflib.get_close_matches(name, jobs, n=1, cutoff=0)
    return InputError(
        f"there is no job {name!r} among {len(jobs)}",
        fix=f"the nearest is {near[0]}" if near else "",
    )


HostCounts = CheckedCounts | Literal["any"] | None
"""What the check of a GPU model found, None: there was none; "any": nothing is avoided, as where
points are replayed and nothing is computed."""


def safety_of(job: str, gpu: Gpu, solo: Iterable[SoloPoint], counts: HostCounts) -> Safety:
    """What is known of one job on the GPU, of solo points of any job and GPU model."""
    # Percentages are counted as MPS counts them.
    if counts == "any" or gpu.vendor != "nvidia":
        return Safety()
    right, wrong = results_of_job(p for p in solo if (p.job, p.gpu_model) == (job, gpu.model))
    return Safety(units_total=gpu.units_total, host=counts, right=right, wrong=wrong)


def counts_on(gpu: Gpu, home: Path, *, allow_unsafe: bool) -> HostCounts:
    """At which counts of units of a GPU of this host results are wrong.

    Raises:
        StoreError: what its check found cannot be read.
    """
    return "any" if allow_unsafe else checked_counts(home, gpu.model, gpu.units_total)


def check_safe_count(
    units: int | None, gpu: Gpu, home: Path, *, allow_unsafe: bool = False
) -> None:
    """Refuse units, None for the whole GPU, at which results of this host's libraries are wrong.

    Raises:
        UnsafeCountError: they are wrong there.
        StoreError: what its check found cannot be read.
    """
    if units:
        safety = safety_of("", gpu, (), counts_on(gpu, home, allow_unsafe=allow_unsafe))
        check_share(percent_for_units(units, gpu.units_total or 0), safety)


def check_requested_shares(shares: Iterable[Share], job: Job, safety: Safety) -> None:
    """Refuse shares that were asked for at unsafe counts, where nothing would judge the results.

    A job that reports its results judges each of its points itself.

    Raises:
        UnsafeCountError: one of them is.
    """
    for share in shares if job.results is None else ():
        check_share(share.percent, safety)


def _split_to_measure(
    split: Split, nominal: bool, jobs: tuple[Job, Job], safety: tuple[Safety, Safety]
) -> Split | None:
    """The split at which a pair is measured; one of `nine` is moved to the nearest safe one.

    Returns:
        None where there is no safe one.

    Raises:
        UnsafeCountError: a split that was asked for is at an unsafe count, where nothing would
            judge the results.
    """
    if not split.is_limited:
        return split
    mirrored = jobs[0].name > jobs[1].name
    if nominal:
        return safe_splits([split], safety, mirrored=mirrored)[0]
    judged = [s if job.results is None else Safety() for job, s in zip(jobs, safety, strict=True)]
    check_split(split, judged, mirrored=mirrored)
    return split


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEntry:
    """Pairs, or sets of more jobs, to be measured at the same splits.

    Attributes:
        splits: The first share is for the job that is named first.
        pairs: Names of two jobs each; a job may stand next to itself.
        among: Names of jobs of which every pair is meant, or all jobs there are.
        selves: `among` means each job next to itself as well.
        sample: How many pairs of `among` are drawn; None: all.
        sets: Sets of jobs with their own limits; those without a limit are measured at the splits,
            which are words.
        repeats: Windows for each pair or set, and split.
    """

    splits: tuple[SplitRequest, ...]
    pairs: tuple[PairNames, ...] = ()
    among: tuple[str, ...] | Literal["all"] = ()
    selves: bool = True
    sample: int | None = None
    sets: tuple[JobSet, ...] = ()
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

    def jobs(self, all_jobs: Collection[str]) -> set[str]:
        """Names of the jobs that it is about, of all that there are."""
        chosen = (all_jobs if entry.among == "all" else entry.among for entry in self.entries)
        paired = (name for entry in self.entries for names in entry.pairs for name in names)
        in_sets = (m.job for entry in self.entries for members in entry.sets for m in members)
        return {*itertools.chain.from_iterable(chosen), *paired, *in_sets}

    @property
    def has_sets(self) -> bool:
        """Whether it is not about pairs alone."""
        return any(entry.sets for entry in self.entries)

    @property
    def most_jobs(self) -> int:
        """Of one window."""
        return max((len(s) for entry in self.entries for s in entry.sets), default=2)


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
    solo: Sequence[SoloPoint],
    counts: HostCounts = "any",
) -> PlannedWindows:
    """The windows that `plan` means on `gpu`.

    Points of the plan's own run, of other GPU models and doubtful ones are not looked at; so what a
    plan means does not change while it is carried out.

    The GPU's `units_total` must be known where the plan counts units. Solo points are for the
    memory of a pair and the kinds of a sample.

    Raises:
        InputError: a job that is not there, or counts of units that the GPU cannot grant.
        UnsafeCountError: a split that the plan names has an unsafe count.
    """
    planned = dict.fromkeys(_windows(plan, jobs, _Past(plan.name, gpu, solo, counts)))
    windows = [window for window in planned if isinstance(window, tuple)]
    return PlannedWindows(
        mps=tuple(target for target, is_sliced in windows if not is_sliced),
        time_sliced=tuple(target for target, is_sliced in windows if is_sliced),
        skipped=tuple(skipped for skipped in planned if isinstance(skipped, Skipped)),
        notes=tuple(note for note in planned if isinstance(note, str)),
    )


# A window, and whether it is time-sliced.
_Window = tuple[Target, bool]


class _Past:
    """What was measured on this GPU model before this run."""

    def __init__(
        self,
        run: str,
        gpu: Gpu,
        solo: Sequence[SoloPoint],
        counts: HostCounts,
    ) -> None:
        self.gpu, self.masks = gpu, gpu.vendor == "amd"  # CU masks, which must not overlap
        self._solo = [
            point
            for point in solo
            if DOUBTFUL.isdisjoint(point.flags)
            and point.gpu_model == gpu.model
            and point.run != run
        ]
        self.kinds = kinds_of(self._solo)
        self.safety_of = functools.cache(
            functools.partial(safety_of, gpu=gpu, solo=solo, counts=counts)
        )

    def too_large(self, jobs: Sequence[Job]) -> str:
        """Why jobs do not fit into the GPU's memory; empty if they do, or if unknown."""
        needs_mib = [self._needs_mib(job) for job in jobs]
        memory = MemoryFit(tuple(needs_mib), self.gpu.memory_mib)
        if memory.fits is not False:
            return ""
        both = zip(jobs, needs_mib, strict=True)
        needs = listed(f"{job.name} {mib:.0f} MiB" for job, mib in both if mib)
        return (
            f"{needs.replace(' ', ' needs ', 1)}, together more than {memory.most_mib:.0f} MiB "
            f"({100 * MEMORY_PART:g} % of {self.gpu.model})"
        )

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
        # The word `nine` was given, not each of them.
        nominal = frozenset(NINE) if set(entry.splits).issuperset(NINE) else frozenset[Split]()
        among = jobs if entry.among == "all" else entry.among
        drawn = (
            all_pairs(among, selves=entry.selves)
            if entry.sample is None
            else sample(among, entry.sample, plan.name, past.kinds, selves=entry.selves)
        )
        for names in (*entry.pairs, *drawn):
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
                wanted_split = requested if isinstance(requested, Split) else requested.on(past.gpu)
                split = _split_to_measure(wanted_split, requested in nominal, both, safety)
                if split is None:
                    continue
                for repeat in range(entry.repeats):
                    shares, apart = tuple(map(Share, split.shares)), past.masks and split.is_limited
                    target = pair(first, shares[0], second, shares[1], repeat, two_ends=apart)
                    yield target, split == TIME_SLICED


def _set_windows(
    entry: PlanEntry, jobs: Mapping[str, Job], past: _Past
) -> Iterator[_Window | Skipped]:
    """Sets at the entry's splits; those with limits of their own only under MPS."""
    for members in entry.sets:
        parts = [(named(member.job, jobs), Share(member.percent)) for member in members]
        names, limits = tuple(m.job for m in members), [p for p in parts if p[1] != Share(WHOLE)]
        for job, share in limits:
            check_requested_shares([share], job, past.safety_of(job.name))
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
) -> Plan:
    """The plan that options of the command line describe.

    Such as "bert-train,triad" or "all" for `among`, "bert-train+triad,gemm+gemm" for `pairs`,
    "a+b+c,a+b@50" for `sets` and "nine,uncapped" for `splits`. Without a name the run has
    one that the same options always give.

    Raises:
        InputError: there is nothing to measure, or an option cannot be understood.
    """
    every = _flat(read_split(word, "--splits") for word in _words(splits))
    named = tuple(_pair_option(text) for text in _words(pairs))
    jobs = "all" if among.strip() == "all" else _words(among)
    if sets.strip():
        _check_set_splits(every, "--splits")
        members = tuple(read_set(text, "--sets") for text in _words(sets))
        entry = PlanEntry(sets=members, splits=every, repeats=repeats)
        plan = Plan("", (entry,), profiles=True)
    elif every and (jobs or named):
        entries = (
            PlanEntry(among=jobs, splits=every, repeats=repeats, sample=sample),
            PlanEntry(pairs=named, splits=every, repeats=repeats),
        )
        plan = Plan("", tuple(entry for entry in entries if entry.among or entry.pairs))
    else:
        raise InputError(
            f"there is nothing to measure: jobs {among!r}, pairs {pairs!r}, splits {splits!r}",
            fix="give splits, and jobs (all pairs of them) or pairs such as bert-train+triad",
        )
    if name is not None:
        return replace(plan, name=run_name(name))
    digest = hashlib.sha256(_to_yaml(plan).encode()).hexdigest()
    return replace(plan, name=f"{'sets' if plan.has_sets else 'pairs'}-{digest[:8]}")


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
    content: dict[str, Any] = {"name": plan.name, "measure": [*map(_entry_json, plan.entries)]}
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
        "splits": lambda field: _flat(
            read_split(read.text(item), _where(item))
            for item in _items(field, "a list of splits such as [nine, uncapped]")
        ),
        "repeats": read.count,
    }
    values = read.record(field, readers, required=("splits",))
    if "sets" in values:
        keys = read.entries(field)
        for key in values.keys() - {"sets", "splits", "repeats"}:
            raise keys[key].fault("has no meaning together with sets")
        _check_set_splits(values["splits"], _where(keys["splits"]))
        return PlanEntry(**values)
    if ("among" in values) == ("pairs" in values):
        got = "both" if "pairs" in values else "neither"
        raise field.fault(f"expected among or pairs, got {got}")
    for key in ("sample", "selves"):
        if key in values and "pairs" in values:
            raise read.entries(field)[key].fault("has a meaning only together with among")
    return PlanEntry(**values)


def _read_sets(field: read.YamlField, jobs: Collection[str]) -> tuple[JobSet, ...]:
    items = _items(field, "a list of sets such as [a+b+c, a+b@50]")
    sets = tuple(read_set(read.text(item), _where(item)) for item in items)
    for item, members in zip(items, sets, strict=True):
        for member in members:
            _job_name(member.job, item, jobs)
    return sets


def _among(field: read.YamlField, jobs: Collection[str]) -> tuple[str, ...] | Literal["all"]:
    if not field.is_list and read.text(field) == "all":
        return "all"
    items = _items(field, "all, or a list of jobs")
    return tuple(_job_name(read.text(item), item, jobs) for item in items)


def _pair(field: read.YamlField, jobs: Collection[str]) -> PairNames:
    items = _items(field, "a pair such as [bert-train, triad]")
    if len(items) != 2:
        raise field.fault(f"expected two jobs, got {len(items)}")
    first, second = (_job_name(read.text(item), item, jobs) for item in items)
    return first, second


def _job_name(name: str, field: read.YamlField, jobs: Collection[str]) -> str:
    """The name itself; a fault of the field where no job has it."""
    if name not in jobs:
        error = _no_such_job(name, jobs)
        raise field.fault(error.what, error.fix)
    return name


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


def _entry_json(entry: PlanEntry) -> dict[str, Any]:
    written = {
        "pairs": [list(names) for names in entry.pairs],
        "among": entry.among if entry.among == "all" else list(entry.among),
        "sample": entry.sample,
        "selves": None if entry.selves else False,
        "sets": [write_set(members) for members in entry.sets],
        "splits": write_splits(entry.splits),
        "repeats": entry.repeats if entry.repeats > 1 else None,
    }
    return {key: value for key, value in written.items() if value not in (None, [])}


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
    others = grouped(beside, lambda of: of[1].jobs)
    done: set[Target] = set()
    for names, group in grouped(targets, lambda target: target.jobs).items():
        keys = {target: _key(target, mode) for target in group}
        there = {_key(target, other) for other, target in others.get(names, ())}
        wanted = {*keys.values(), *there}
        whole = len(names) > 1 and any(keys >= wanted for keys in cards.values())
        here = cards.get(gpu.uuid, set[_WindowKey]())
        done |= {target for target, key in keys.items() if whole or key in here}
    measured = set[_WindowKey]().union(*cards.values())
    # A block whose pairs are done needs no windows of jobs alone that another card has.
    return [
        block
        for block in remaining(blocks, done)
        if any(len(t.specs) > 1 or _key(t, mode) not in measured for t in block.targets)
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
        measured: Points of other places that say how jobs behave, next to those of the store.
        dry_run: Only say what would be measured.
        counts: At which counts of units of a GPU results are wrong.
    """

    plan: Plan
    part: tuple[int, int]
    jobs: Mapping[str, Job]
    measured: Sequence[Point]
    store: Store
    reporter: Reporter
    rules: WindowRules
    dry_run: bool = False
    counts: Callable[[Gpu], HostCounts] = lambda gpu: "any"


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
        solo = campaign.store.solo_points(gpu_model=testbed.gpu.model)
        solo += [p for p in campaign.measured if isinstance(p, SoloPoint)]
        alone, counts = with_solo_flags(solo), campaign.counts(testbed.gpu)
        work = expand(campaign.plan, testbed.gpu, campaign.jobs, alone, counts)
        for note in work.notes:
            campaign.reporter.phase(note)
        _tell(campaign, work.skipped)
        targets, refused = _possible(campaign, work.mps, testbed)
        parts = _parts(campaign, targets, testbed, alone=True)
        beside = [(_WITHOUT, target) for target in work.time_sliced]
        first, idle_power_w = _measure(
            campaign, parts[campaign.part[0] - 1], testbed, beside, (*work.skipped, *refused)
        )
        limited = testbed.mode
    if not work.time_sliced:
        return first
    with open_testbed(_WITHOUT) as testbed:
        targets, refused = _possible(campaign, work.time_sliced, testbed)
        blocks = _time_sliced(campaign, targets, parts, testbed)
        beside = [(limited, target) for target in work.mps]
        second, _ = _measure(campaign, blocks, testbed, beside, refused, idle_power_w)
        summed = [field.name for field in fields(CampaignReport) if field.name != "gpu_model"]
        return replace(first, **{n: getattr(first, n) + getattr(second, n) for n in summed})


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
    measured = [*campaign.store.solo_points(run=run), *campaign.store.pair_points(run=run)]
    left = left_to_measure(blocks, measured, testbed.gpu, testbed.mode, beside)
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
    return CampaignReport(
        testbed.gpu.model,
        windows_in(blocks),
        windows_in(left),
        tuple(PlannedSplit(jobs, split, count) for (jobs, split), count in sorted(planned.items())),
        expected_s,
        len(outcome.points),
        outcome.cost,
        skipped,
        outcome.failures,
    ), idle_power_w


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
    partitions = [
        [shard(blocks, part, count) for part in range(1, count + 1)]
        for size in sorted(sizes, reverse=True)
        for blocks in [
            cut(targets, size, memory_mib, seed, alone=alone, profiles=campaign.plan.profiles)
        ]
    ]
    return min(
        partitions, key=lambda parts: max(estimate_s(part, campaign.rules) for part in parts)
    )


def _time_sliced(
    campaign: Campaign, targets: Sequence[Target], parts: list[list[Block]], testbed: Testbed
) -> list[Block]:
    """Windows without MPS of the pairs that this part has under limits: the same card for both.

    Speeds are relative to the jobs alone under MPS, so they are not measured alone once more; a
    plan with profiles, all of which is time-sliced, has them measured here.
    """
    pairs = [{target.jobs for block in part for target in block.targets} for part in parts]
    mine = campaign.part[0] - 1
    targets_of_pair = [t for t in targets if t.jobs in pairs[mine]]
    free = [t for t in targets if not any(t.jobs in jobs_of_pairs for jobs_of_pairs in pairs)]
    seed, memory_mib = campaign.plan.name, testbed.gpu.memory_mib
    blocks = cut(targets_of_pair, testbed.max_clients, memory_mib, seed, alone=False)
    return blocks + _parts(campaign, free, testbed, alone=campaign.plan.profiles)[mine]


def _split_text(target: Target, mode: str) -> str:
    split = Split(tuple(spec.share.percent for spec in target.specs))
    if len(target.specs) == 1 or set(split.shares) != {100}:
        return str(split)
    return str(without_limits("time-sliced" if mode == _WITHOUT else "uncapped"))
