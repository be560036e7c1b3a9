"""A queue as a person and a program see it: each job, how far it is, and what all take."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from advisor.core.wording import count_of
from advisor.formats.moments import duration_text
from advisor.launch.run_queue import EndedJob, LaunchedJob, SeenLaunch
from advisor_advice.filling.queue_run import QueueLook, QueueRun
from advisor_cli.launching.text import unread_text

_State = Literal["waiting", "starting", "running", "silent", "ending", "done", "failed", "ended"]
"""Of a job; `ended` is a server that was ended with the last batch job; of the launch of a `silent`
one nothing was heard for 10 s."""

_STATES: Mapping[str, _State] = {
    "waiting": "starting",
    "starting": "starting",
    "running": "running",
    "finished": "done",
    "failed": "failed",
    "hung": "failed",
    "ended": "ended",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunJob:
    """One job of the queue; docs/run.md has the keys."""

    job: str
    state: _State
    gpu: int | None = None
    share_percent: float | None = None
    steps: float | None = None
    progress: float | None = None
    speed: float | None = None
    predicted_speed: float | None = None
    launch_id: str | None = None
    error: str | None = None
    unread: str | None = None
    unread_since: str | None = None
    stalled_since: str | None = None

    @property
    def unread_text(self) -> str:
        """What is not known of it, or that it makes no progress."""
        return unread_text(self.unread, self.unread_since, self.stalled_since)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """The queue; docs/run.md has the keys."""

    state: Literal["running", "stopping", "done", "failed", "stopped"]
    jobs: tuple[RunJob, ...]
    left_s: float | None
    gpu_s: float
    energy_j: float | None
    starts_j: float
    unwatched_s: float
    alone_s: float | None
    alone_j: float | None

    def count(self, *states: _State) -> int:
        """How many jobs are in one of these states."""
        return sum(job.state in states for job in self.jobs)

    @property
    def headline(self) -> str:
        """Where it stands, in a line."""
        said = [f"{self.count('done', 'ended')} of {count_of(len(self.jobs), 'job')} done"]
        for words, number in (
            ("run", self.count("starting", "running", "ending")),
            ("not heard of", self.count("silent")),
            ("wait", self.count("waiting")),
            ("failed", self.count("failed")),
        ):
            said += [f"{number} {words}"] if number else []
        left = "" if self.left_s is None else f"; about {duration_text(self.left_s)} left"
        return ", ".join(said) + left


def run_state(queue: QueueRun, look: QueueLook, works_s: Mapping[str, float]) -> RunState:
    """Where a queue stands; `works_s` is what people say that jobs take alone, by name."""
    jobs = [*_jobs(queue, look, works_s)]
    counted = [one for one in look.record.ended if one.came in ("finished", "ended")]
    known_s, known_j = [one.alone_s for one in counted], [one.alone_j for one in counted]
    return RunState(
        state=_state(queue, look),
        jobs=tuple(jobs),
        left_s=_left_s(queue, jobs, look, works_s),
        gpu_s=look.record.held_s,
        energy_j=look.record.energy_j,
        starts_j=look.record.starts_j,
        unwatched_s=look.record.unwatched_s,
        alone_s=_sum(known_s),
        alone_j=_sum(known_j),
    )


def _state(
    queue: QueueRun, look: QueueLook
) -> Literal["running", "stopping", "done", "failed", "stopped"]:
    if queue.done(look):
        return "failed" if look.record.failed else "done"
    if queue.stopping:
        return "stopped" if look.over else "stopping"
    return "running"


def _jobs(queue: QueueRun, look: QueueLook, works_s: Mapping[str, float]) -> Iterator[RunJob]:
    """Of all jobs, in the order of the queue; of equal ones those that ended come first."""
    seats = defaultdict[str, list[RunJob]](list)
    for one in look.record.ended:
        if one.came != "lost":
            seats[one.job].append(_ended(one))
    for launch in look.launches:
        for number, job in enumerate(launch.jobs):
            seats[job.part.job.name].append(_seated(queue, look, launch, number, works_s))
    for name in queue.names:
        own = seats[name]
        yield own.pop(0) if own else RunJob(job=name, state="waiting")


def _ended(one: EndedJob) -> RunJob:
    return RunJob(
        job=one.job,
        state=_STATES[one.came],
        steps=one.steps,
        progress=1.0 if one.came == "finished" else None,
        launch_id=one.launch_id,
        error=one.error,
    )


def _seated(
    queue: QueueRun, look: QueueLook, launch: SeenLaunch, number: int, works_s: Mapping[str, float]
) -> RunJob:
    job = launch.jobs[number]
    card = next((card for card in queue.cards if card.gpu.uuid == launch.gpu), None)
    finished = job.status.outcome == "finished"
    silent = launch.status.silent_s is not None and job.status.ended_at is None
    return RunJob(
        job=job.part.job.name,
        state="silent" if silent else _STATES.get(job.status.outcome, "ending"),
        gpu=card and card.gpu.index,
        share_percent=job.status.share_percent,
        steps=job.status.steps,
        progress=1.0 if finished else _progress(job, look, works_s),
        speed=job.status.relative_speed,
        predicted_speed=_predicted(queue, launch, job),
        launch_id=launch.launch_id,
        error=job.status.trouble,
        unread=job.status.unread,
        unread_since=job.status.unread_since,
        stalled_since=job.status.stalled_since,
    )


def _predicted(queue: QueueRun, launch: SeenLaunch, job: LaunchedJob) -> float | None:
    """Of a job beside those that run with it now."""
    card = next((card for card in queue.cards if card.gpu.uuid == launch.gpu), None)
    running = launch.running
    if card is None or job not in running:
        return None
    expected = card.advice.expected(
        [one.part.job.name for one in running],
        [one.status.share_percent for one in running],
        launch.status.sharing,
    )
    return None if expected is None else expected.parts[running.index(job)].speed.value


def _progress(job: LaunchedJob, look: QueueLook, works_s: Mapping[str, float]) -> float | None:
    steps = _all_steps(job.part.job.name, job.part.solo_rate, look, works_s)
    return min(1.0, job.status.steps / steps) if steps else None


def _all_steps(
    name: str, solo_rate: float | None, look: QueueLook, works_s: Mapping[str, float]
) -> float | None:
    """How many steps a job has: by its work, else as many as an equal one had."""
    if name in works_s and solo_rate:
        return works_s[name] * solo_rate
    equal = _equal(name, look)
    return equal.steps if equal else None


def _left_s(
    queue: QueueRun, jobs: Sequence[RunJob], look: QueueLook, works_s: Mapping[str, float]
) -> float | None:
    """Until all batch jobs are done, at the pace of those that run; None: nobody knows."""
    left_s, pace = 0.0, 0.0
    for job in jobs:
        if queue.is_server(job.job) or job.state in ("done", "failed", "ended"):
            continue
        equal = _equal(job.job, look)
        alone_s = works_s.get(job.job) or (equal and equal.alone_s)
        if alone_s is None or (job.state == "running" and job.progress is None):
            return None
        left_s += alone_s * (1 - (job.progress or 0.0))
        if job.state == "running":
            pace += job.speed or job.predicted_speed or 0.0
    return left_s / pace if pace else None


def _equal(name: str, look: QueueLook) -> EndedJob | None:
    """A job of that name that has finished; None: none has."""
    ended = (one for one in look.record.ended if (one.job, one.came) == (name, "finished"))
    return next(ended, None)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
