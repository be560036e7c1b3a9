"""What a placement of running jobs says. docs/place.md explains each key."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatedJob:
    """One job of a set.

    Attributes:
        share_percent: Its limit; 100: none.
        speed: Relative to its own alone on that GPU.
        p99_ms: The most that is expected of a server, where it is known.
        environment: Variables that limit it.
    """

    job: str
    share_percent: float
    speed: float
    p99_ms: float | None
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatedSet:
    """Jobs that share a card, or one alone.

    Attributes:
        launch: What `advisor launch` is given, `a*3 b --split 100/100/100/50`; the name of a job
            alone, which it does not run.
        gpus: Numbers of the cards that have it, from 0, counted through all GPU models.
        power_w: Of one card.
    """

    launch: str
    gpu_model: str
    gpus: tuple[int, ...]
    jobs: tuple[SeatedJob, ...]
    power_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedGpus:
    """Cards of one GPU model: how many there are, and how many the plan uses."""

    gpu_model: str
    gpus: int
    used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJobs:
    """Jobs for which no card is left."""

    job: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPlacement:
    """Which jobs share a card from now on.

    Attributes:
        cards: In use; a card each takes as many as `seated`.
        cost: Of the plan: cards, W or money an hour, as `objective` counts, jobs that wait and
            work that lags behind among it.
        bound: No plan costs less.
        gap: By which part of its cost a better plan could be better.
        energy_saved: Of the same work on a card each, the cards that become free switched off.
        energy_saved_idle: The same where they idle.
        gpu_time_saved: Of the hours that cards are held for the same work.
        timed_out: The time was up before the search for sets had ended.
    """

    objective: str
    gpus: tuple[UsedGpus, ...]
    queued: int
    seated: int
    waiting: tuple[WaitingJobs, ...]
    cards: int
    power_w: float
    cost: float
    bound: float
    gap: float
    energy_saved: float
    energy_saved_idle: float
    gpu_time_saved: float
    sets: tuple[SeatedSet, ...]
    timed_out: bool
    bundled_profiles: tuple[str, ...]
    warnings: tuple[str, ...]
