"""What to measure next: which jobs alone and which pairs teach a model most for GPU time."""

import itertools
import math
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from advisor.core.gpu import MEMORY_MIB, WHOLE, MemoryFit
from advisor.core.records import Observation, PairPoint, SoloPoint
from advisor.core.wording import count_of
from advisor.predict.profiles import ACTIVITY, Floats, Profile
from advisor_training.rows import make_data

Use: TypeAlias = tuple[float, ...]
"""What a job uses of the whole GPU, in parts of what there is; NaN where it is not known."""

PairUse: TypeAlias = tuple[Use, Use]

# Of pairs that are no different: what else is said of them then decides.
_LEAST_DISTANCE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPair:
    """A pair that could be measured.

    Attributes:
        minutes: GPU time that measuring it takes.
        requests: How often the two were launched together.
        uses: What each job uses of the GPU alone.
    """

    jobs: tuple[str, str]
    minutes: float
    uses: PairUse
    requests: int = 0


def choose_pairs(
    candidates: Iterable[OpenPair],
    measured: Mapping[str, int],
    minutes: float,
    learned: Sequence[PairUse] = (),
) -> list[OpenPair]:
    """The pairs to measure within a budget of minutes, the most telling first.

    One after the other: the pair that is worth most (`value`), where those that were chosen before
    count as measured, so that a plan asks neither the same job nor the same kind of pair again and
    again. A pair that takes more than what is left is passed over. `measured` says in how many
    measured pairs each job is, `learned` what the jobs of measured pairs use of the GPU.
    """
    counts, left = Counter(measured), sorted(candidates, key=lambda c: c.jobs)
    uses = [candidate.uses for candidate in left]
    apart = nearest(uses, learned)
    open_places, chosen = set(range(len(left))), list[OpenPair]()
    while fitting := [n for n in sorted(open_places) if left[n].minutes <= minutes]:
        best = max(fitting, key=lambda n: value(left[n], counts, float(apart[n])))
        chosen.append(left[best])
        open_places.remove(best)
        minutes -= left[best].minutes
        counts.update(set(left[best].jobs))
        apart = np.minimum(apart, distances(uses, left[best].uses))
    return chosen


def value(candidate: OpenPair, measured: Mapping[str, int], apart: float = math.inf) -> float:
    """What measuring a pair is worth; only the order of values has a meaning.

    How often the answer is needed, times how little its jobs have been measured, times how far
    `apart` it is from the nearest measured pair (`distances`; infinite where there is none). A job
    in no measured pair counts 1, in a single one a half; a job next to itself counts once. The
    distance is that of k-centre selection (T. F. Gonzalez, "Clustering to minimize the maximum
    intercluster distance", 1985). How unsure a model is of the pair does not count: that chose no
    better pairs (docs/next.md).
    """
    new = sum(1 / (1 + measured.get(job, 0)) for job in set(candidate.jobs))
    unlike = max(apart, _LEAST_DISTANCE) if math.isfinite(apart) else 1.0
    return (1 + candidate.requests) * new * unlike


def _use_of(profile: Profile) -> Use:
    """Activity of the units, power over its limit, and the rate at half of the GPU over the whole.

    A profile that begins above half of the GPU is asked where it begins.
    """
    return (
        *(float(profile.values[name][-1]) / WHOLE for name in ACTIVITY),
        profile.whole_gpu_power_w / (profile.power_limit_w or profile.whole_gpu_power_w),
        float(profile.at([max(WHOLE / 2, float(profile.shares[0]))])["rate"][0])
        / profile.whole_gpu_rate,
    )


def distances(pairs: Sequence[PairUse], other: PairUse) -> Floats:
    """How far each pair is from another one: Euclidean, jobs put together as they fit best.

    0 for the same use; what is not known counts as alike; shape (pairs,).
    """
    if not pairs:
        return np.zeros(0)
    uses = np.array(pairs, dtype=np.float64)
    first, second = (
        np.sqrt(np.nansum((uses - np.array(jobs)) ** 2, axis=(1, 2)))
        for jobs in (other, other[::-1])
    )
    return np.minimum(first, second)


def nearest(pairs: Sequence[PairUse], others: Sequence[PairUse]) -> Floats:
    """How far each pair is from the nearest of others; infinite without others; shape (pairs,)."""
    infinite = np.full(len(pairs), math.inf)
    return np.min([infinite, *(distances(pairs, other) for other in others)], axis=0)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MeasuredSoFar:
    """What is known of one GPU model, and of the jobs that can be measured on it.

    Attributes:
        jobs: Names of the jobs that can be started here.
        measured: Pairs of the GPU model that a model can learn from, names in order.
        learned: What the jobs of measured pairs use of the GPU, on any GPU model; of pairs that
            still are as they were measured.
        pairs_of: In how many measured pairs each job is, on any GPU model.
        requests: How often two jobs were launched together on the GPU model, names in order.
        checked: Whether its safe counts are known, or need not be.
        drifting: Jobs that are no longer as they were measured.
    """

    gpu_model: str
    jobs: Collection[str]
    profiles: Mapping[str, Profile]
    measured: Collection[tuple[str, str]]
    learned: Sequence[PairUse]
    pairs_of: Mapping[str, int]
    requests: Mapping[tuple[str, str], int]
    checked: bool
    drifting: Collection[str] = ()


def measured_so_far(
    pairs: Sequence[PairPoint],
    profiled: Sequence[SoloPoint],
    references: Sequence[SoloPoint],
    observations: Iterable[Observation],
    *,
    gpu_model: str,
    jobs: Collection[str],
    checked: bool,
    drifting: Collection[str] = (),
) -> MeasuredSoFar:
    """What is known of one GPU model by all points that a model would be trained on, of any.

    `checked` and `drifting` are as of `MeasuredSoFar`.

    Raises:
        InputError: nothing can be learned from the points.
    """
    data = make_data(pairs, profiled, references)
    pair_keys = {m.pair for m in data.measurements}
    uses = {key: _use_of(profile) for key, profile in data.profiles.items()}
    profiles = {job: of_job for (job, model), of_job in data.profiles.items() if model == gpu_model}
    # Recommendations leave no record; launches do, and they are what counts.
    launched = (o.jobs for o in observations if o.gpu_model == gpu_model and len(o.jobs) == 2)
    return MeasuredSoFar(
        gpu_model=gpu_model,
        jobs=jobs,
        profiles=profiles,
        measured={(a, b) for a, b, model in pair_keys if model == gpu_model},
        learned=[
            (uses[a, model], uses[b, model])
            for a, b, model in sorted(pair_keys)
            if {a, b}.isdisjoint(drifting)
        ],
        pairs_of=Counter(job for a, b, _ in pair_keys for job in {a, b}),
        requests=Counter((a, b) for a, b in launched),
        checked=checked,
        drifting=drifting,
    )


# A pair at one split, with its part of references, settling and start-ups: 2025 pair points in
# 264.5 GPU-minutes (docs/measurements/pairs.md).
_PAIR_POINT_S = 7.8

# Windows of a pair at `nine,uncapped`.
SPLITS = 10

# The same of a job next to itself.
SPLITS_BESIDE_ITSELF = 6

# A job alone at ten shares: median of 43 sweeps (docs/measurements/profiles.md).
_PROFILE_MINUTES = 80 / 60

# 63 counts of SMs on an H100 (docs/check.md).
_CHECK_MINUTES = 133 / 60


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """One thing to measure.

    Attributes:
        jobs: None for a check of a GPU model, one for a profile, two for a pair.
        minutes: GPU time, estimated; `total_minutes` with all steps before.
    """

    kind: Literal["check", "profile", "pair"]
    jobs: tuple[str, ...]
    why: str
    minutes: float
    total_minutes: float = 0.0

    @property
    def command(self) -> str:
        """What measures it, as it is typed into a shell."""
        if self.kind == "pair":
            return f"advisor colocate --pairs {shlex.quote('+'.join(self.jobs))}"
        return " ".join(["advisor", self.kind, *map(shlex.quote, self.jobs)])


def next_steps(so_far: MeasuredSoFar, minutes: float) -> tuple[NextStep, ...]:
    """What to measure within a budget of GPU minutes, the most telling first.

    First the safe counts: without them no other point can be trusted. Then profiles: of a job
    without one nothing is predicted. What is left goes to pairs.
    """
    steps = list[NextStep]()
    for step in _checks_and_profiles(so_far):
        if step.minutes <= minutes:
            steps.append(step)
            minutes -= step.minutes
    still_valid = {job: n for job, n in so_far.pairs_of.items() if job not in so_far.drifting}
    steps += (
        NextStep(kind="pair", jobs=pair.jobs, why=_why_pair(pair, so_far), minutes=pair.minutes)
        for pair in choose_pairs(_open_pairs(so_far), still_valid, minutes, so_far.learned)
    )
    totals = itertools.accumulate(step.minutes for step in steps)
    return tuple(
        replace(step, total_minutes=total) for step, total in zip(steps, totals, strict=True)
    )


def _checks_and_profiles(so_far: MeasuredSoFar) -> Iterator[NextStep]:
    if not so_far.checked:
        why = f"no check of SM counts was run on {so_far.gpu_model}"
        yield NextStep(kind="check", jobs=(), why=why, minutes=_CHECK_MINUTES)
    each = (Counter(dict.fromkeys(jobs, count)) for jobs, count in so_far.requests.items())
    requests = sum(each, Counter[str]())
    lacking = [job for job in so_far.jobs if job in so_far.drifting or job not in so_far.profiles]
    for job in sorted(lacking, key=lambda job: (-requests[job], job)):
        drifts = job in so_far.profiles
        why = "it drifts: no longer as it was measured" if drifts else "it has no profile"
        if requests[job]:
            why += f", launched {count_of(requests[job], 'time')}"
        yield NextStep(kind="profile", jobs=(job,), why=why, minutes=_PROFILE_MINUTES)


def _open_pairs(so_far: MeasuredSoFar) -> Iterator[OpenPair]:
    """Pairs of profiled jobs of one GPU that fit into memory, and that no measurement holds for."""
    profiled = so_far.profiles.keys() & set(so_far.jobs)
    names = sorted(job for job in profiled if so_far.profiles[job].gpus == 1)
    memory_mib = MEMORY_MIB.get(so_far.gpu_model)
    uses = {job: _use_of(so_far.profiles[job]) for job in names}
    for a, b in itertools.combinations_with_replacement(names, 2):
        if (a, b) in so_far.measured and not {a, b} & set(so_far.drifting):
            continue
        used = so_far.profiles[a].memory_used_mib, so_far.profiles[b].memory_used_mib
        if MemoryFit(used, memory_mib).fits is not False:
            yield OpenPair(
                jobs=(a, b),
                minutes=pair_minutes((a, b)),
                uses=(uses[a], uses[b]),
                requests=so_far.requests.get((a, b), 0),
            )


def pair_minutes(jobs: tuple[str, str]) -> float:
    """GPU time of a pair at the nine splits and without limits."""
    return (SPLITS_BESIDE_ITSELF if jobs[0] == jobs[1] else SPLITS) * _PAIR_POINT_S / 60


def _why_pair(pair: OpenPair, so_far: MeasuredSoFar) -> str:
    reasons = [f"launched {count_of(pair.requests, 'time')}"] if pair.requests else []
    for job in dict.fromkeys(pair.jobs):
        count = so_far.pairs_of.get(job, 0)
        measured = f"is in {count_of(count, 'measured pair') if count else 'no measured pair'}"
        reasons.append(f"{job} {'drifts' if job in so_far.drifting else measured}")
    return ", ".join(reasons)
