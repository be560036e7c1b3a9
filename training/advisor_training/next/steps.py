"""The next things to measure on one GPU model, in order, with a reason and the time of each.

GPU times are those that campaigns took; docs/measurements prints each figure.
"""

import itertools
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from advisor.core.gpu import MEMORY_MIB, MemoryFit
from advisor.core.wording import count_of
from advisor_training.next.choice import OpenPair, PairNames, choose_pairs, use_of
from advisor_training.next.measured import MeasuredSoFar

StepKind = Literal["check", "profile", "pair"]

PAIR_POINT_S = 7.8
"""A pair at one split, with its part of references, settling and start-ups: 2025 pair points in
264.5 GPU-minutes (docs/measurements/pairs/cost.py)."""

SPLITS, SPLITS_BESIDE_ITSELF = 10, 6
"""Windows of a pair at `nine,uncapped`, and of a job next to itself."""

PROFILE_MINUTES = 80 / 60
"""A job alone at ten shares: median of 43 sweeps (docs/measurements/cost.py)."""

CHECK_MINUTES = 133 / 60
"""63 counts of SMs on an H100 (docs/check.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """One thing to measure.

    Attributes:
        jobs: None for a check of a GPU model, one for a profile, two for a pair.
        minutes: GPU time, estimated; `total_minutes` with all steps before.
    """

    kind: StepKind
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


def next_steps(known: MeasuredSoFar, minutes: float) -> tuple[NextStep, ...]:
    """What to measure within a budget of GPU minutes, the most telling first.

    First the safe counts: without them no other point can be trusted. Then profiles: of a job
    without one nothing is predicted. What is left goes to pairs.
    """
    steps = list[NextStep]()
    for step in _checks_and_profiles(known):
        if step.minutes <= minutes:
            steps.append(step)
            minutes -= step.minutes
    steps += (
        NextStep(kind="pair", jobs=pair.jobs, why=_why_pair(pair, known), minutes=pair.minutes)
        for pair in _chosen_pairs(known, minutes)
    )
    totals = itertools.accumulate(step.minutes for step in steps)
    return tuple(
        replace(step, total_minutes=total) for step, total in zip(steps, totals, strict=True)
    )


def _checks_and_profiles(known: MeasuredSoFar) -> Iterator[NextStep]:
    if not known.checked:
        why = f"nobody has checked at which SM counts results are right on {known.gpu_model}"
        yield NextStep(kind="check", jobs=(), why=why, minutes=CHECK_MINUTES)
    lacking = [job for job in known.jobs if job in known.drifting or job not in known.profiles]
    for job in sorted(lacking, key=lambda job: (-_asked_of(job, known), job)):
        yield NextStep(
            kind="profile", jobs=(job,), why=_why_profile(job, known), minutes=PROFILE_MINUTES
        )


def _asked_of(job: str, known: MeasuredSoFar) -> int:
    return sum(count for jobs, count in known.asked.items() if job in jobs)


def _why_profile(job: str, known: MeasuredSoFar) -> str:
    drifts = job in known.profiles
    reasons = ["it drifts: no longer as it was measured" if drifts else "it has no profile"]
    if asked := _asked_of(job, known):
        reasons.append(f"launched {count_of(asked, 'time')}")
    return ", ".join(reasons)


def _chosen_pairs(known: MeasuredSoFar, minutes: float) -> list[OpenPair]:
    uses = {job: use_of(profile) for job, profile in known.profiles.items()}
    candidates = (
        OpenPair(
            jobs=jobs,
            minutes=pair_minutes(jobs),
            uses=(uses[jobs[0]], uses[jobs[1]]),
            asked=known.asked.get(jobs, 0),
        )
        for jobs in _open_pairs(known)
    )
    still_valid = {job: n for job, n in known.pairs_of.items() if job not in known.drifting}
    return choose_pairs(candidates, still_valid, minutes, known.learned)


def _open_pairs(known: MeasuredSoFar) -> Iterator[PairNames]:
    """Pairs of profiled jobs that fit into memory together, and that no measurement holds for."""
    names = sorted(known.profiles.keys() & set(known.jobs))
    memory_mib = MEMORY_MIB.get(known.gpu_model)
    for a, b in itertools.combinations_with_replacement(names, 2):
        if (a, b) in known.measured and not {a, b} & set(known.drifting):
            continue
        used = known.profiles[a].memory_used_mib, known.profiles[b].memory_used_mib
        if MemoryFit(used, memory_mib).fits is not False:
            yield a, b


def pair_minutes(jobs: tuple[str, str]) -> float:
    """GPU time of a pair at the nine splits and without limits."""
    splits = SPLITS_BESIDE_ITSELF if jobs[0] == jobs[1] else SPLITS
    return splits * PAIR_POINT_S / 60


def _why_pair(found: OpenPair, known: MeasuredSoFar) -> str:
    reasons = [f"launched {count_of(found.asked, 'time')}"] if found.asked else []
    reasons += (_why_job(job, known) for job in dict.fromkeys(found.jobs))
    return ", ".join(reasons)


def _why_job(job: str, known: MeasuredSoFar) -> str:
    if job in known.drifting:
        return f"{job} drifts"
    count = known.pairs_of.get(job, 0)
    return f"{job} is in {count_of(count, 'measured pair') if count else 'no measured pair'}"


def chosen_pairs(steps: Iterable[NextStep]) -> list[PairNames]:
    """The pairs among steps, as a plan of a campaign takes them."""
    return [(step.jobs[0], step.jobs[1]) for step in steps if step.kind == "pair"]
