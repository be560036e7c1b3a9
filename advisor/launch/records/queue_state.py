"""Where a queue stands, by the folders of its launches and what is kept of those that are over."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from advisor.core.split import MOST_JOBS
from advisor.launch.records.folder import LaunchFolder
from advisor.launch.records.joins import joins
from advisor.launch.records.queue_record import Came, EndedJob, QueueRecord
from advisor.launch.records.spec import LaunchPart, LaunchSpec
from advisor.launch.records.status import GOING, JobOutcome, JobStatus, LaunchStatus
from advisor.launch.records.status_writer import first_status

LOST: tuple[JobOutcome, ...] = (*GOING, "stopped", "taken-down")
"""How jobs stand in a launch that is over, if they came to no end of their own."""

_STARTS_ALONE = ("job", "job-hung")
"""Codes of what goes wrong with one job while it starts; whoever started with it has no part."""


@dataclass(frozen=True, slots=True)
class LaunchedJob:
    """A job of a launch: what is known of it, and how it does."""

    part: LaunchPart
    status: JobStatus

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self.status.outcome in GOING


@dataclass(frozen=True, slots=True)
class SeenLaunch:
    """One launch of a queue.

    Attributes:
        jobs: Those that began with it and those that have joined, or are about to.
        refused: Names of jobs that could not join.
        joining: Somebody waits for an answer.
        stop_asked: Somebody wants it stopped.
    """

    launch_id: str
    gpu: str
    status: LaunchStatus
    jobs: tuple[LaunchedJob, ...]
    refused: frozenset[str]
    joining: bool
    stop_asked: bool

    @property
    def running(self) -> tuple[LaunchedJob, ...]:
        """Jobs that have not ended."""
        return tuple(job for job in self.jobs if job.runs)

    @property
    def is_ending(self) -> bool:
        """Whether its jobs have ended, and only its supervisor is left: it lets go of the GPU."""
        return not (self.running or self.joining)

    @property
    def has_room(self) -> bool:
        """Whether a job can be asked to join."""
        heard = self.status.state == "running" and self.status.silent_s is None
        is_open = heard and not (self.joining or self.stop_asked)
        return is_open and 0 < len(self.running) < MOST_JOBS


def see(folder: LaunchFolder) -> SeenLaunch:
    """A launch as it is now.

    Raises:
        InputError: its spec cannot be read.
    """
    # Requests before the status: who is answered in between is seen as one that starts.
    asked = [*joins(folder)]
    spec, status = folder.read_spec(), folder.read_status()
    jobs = status.jobs or first_status(spec, status.updated_at).jobs
    first = [job for job in jobs if job.joined_at is None]
    joined = [job for job in jobs if job.joined_at is not None]
    seated = [*_seated(spec, first)]
    refused: set[str] = set()
    for request, answer in asked:
        job = request.part.job
        start = JobStatus(
            job=job.name, rate_unit=job.progress.unit, share_percent=request.share_percent
        )
        if answer is None or answer.code is None:
            own = next((one for one in joined if one.job == job.name), None)
            if own is not None:
                joined.remove(own)
            seated.append(LaunchedJob(request.part, own or replace(start, outcome="starting")))
        elif answer.code in _STARTS_ALONE:
            failed = replace(start, outcome="failed", error=answer.cause)
            seated.append(LaunchedJob(request.part, failed))
        else:
            refused.add(job.name)
    return SeenLaunch(
        launch_id=folder.launch_id,
        gpu=spec.gpu,
        status=status,
        jobs=tuple(seated),
        refused=frozenset(refused),
        joining=any(answer is None for _, answer in asked),
        stop_asked=folder.stop_asked(),
    )


def account_for(record: QueueRecord, seen: SeenLaunch, counts: Mapping[str, int]) -> QueueRecord:
    """The record with a launch that is over; `counts` are of all jobs by name."""
    ended = tuple(_ended(record, seen, counts))
    energy_j = _energy_j(seen.status)
    return replace(
        record,
        launches=tuple(name for name in record.launches if name != seen.launch_id),
        ended=(*record.ended, *ended),
        held_s=record.held_s + _held_s(seen.status),
        starts_j=record.starts_j + (seen.status.starts_energy_j or 0.0),
        unwatched_s=record.unwatched_s + seen.status.unwatched_s,
        energy_j=None
        if energy_j is None or record.energy_j is None
        else record.energy_j + energy_j,
    )


def waiting(
    jobs: Sequence[str], record: QueueRecord, seen: Sequence[SeenLaunch]
) -> tuple[str, ...]:
    """Jobs that are neither done nor in a launch, in the order of the queue."""
    taken = Counter(one.job for one in record.ended if one.came != "lost")
    taken.update(job.status.job for launch in seen for job in launch.jobs)
    left: list[str] = []
    for job in jobs:
        if taken[job] > 0:
            taken[job] -= 1
        else:
            left.append(job)
    return tuple(left)


def must_be_alone(record: QueueRecord) -> tuple[Collection[str], Collection[str]]:
    """Names of jobs that have the GPU for themselves, and of those that start no set with others.

    Which job of a set caused a fault no driver tells, so each runs alone. Where one did not start,
    each starts when the others run.
    """
    lost = [one for one in record.ended if one.came == "lost"]
    one_by_one = {one.job for one in lost if one.code in _STARTS_ALONE}
    return {one.job for one in lost} - one_by_one, one_by_one


def _seated(spec: LaunchSpec, first: Sequence[JobStatus]) -> Iterator[LaunchedJob]:
    for part, status in zip(spec.pairs[0].parts, first, strict=True):
        yield LaunchedJob(part, status)


def _ended(record: QueueRecord, seen: SeenLaunch, counts: Mapping[str, int]) -> Iterator[EndedJob]:
    for job in seen.jobs:
        came = _came(job, record, seen, counts)
        if came is None:
            continue
        part, status = job.part, job.status
        known = part.solo_rate and part.solo_power_w
        alone_s = status.steps / part.solo_rate if part.solo_rate and known else None
        blamed = came in ("failed", "lost")
        yield EndedJob(
            job=status.job,
            launch_id=seen.launch_id,
            came=came,
            code=seen.status.code if blamed else None,
            error=(status.error or seen.status.cause) if blamed else status.trouble,
            steps=status.steps,
            alone_s=alone_s,
            alone_j=None if alone_s is None else alone_s * (part.solo_power_w or 0.0),
        )


def _came(
    job: LaunchedJob, record: QueueRecord, seen: SeenLaunch, counts: Mapping[str, int]
) -> Came | None:
    """What came of a job; None: it was stopped, and waits again."""
    outcome, name = job.status.outcome, job.status.job
    if outcome == "finished":
        return "finished"
    if outcome not in LOST:
        return "failed"
    if seen.stop_asked:
        is_server = job.part.job.offered_rate is not None
        return "ended" if is_server and record.servers_ended else None
    # Beside others it may have been ended for a crash of theirs; alone it has no excuse twice.
    is_alone, is_again = len(seen.jobs) == 1, record.count(name, "lost") >= counts[name]
    return "failed" if is_alone and (seen.status.code in _STARTS_ALONE or is_again) else "lost"


def _energy_j(status: LaunchStatus) -> float | None:
    """Of its GPU from taking it to the end; of an older version while jobs ran."""
    if status.whole_energy_j is not None:
        return status.whole_energy_j
    if status.energy_j is None or (status.rest_s and status.rest_energy_j is None):
        # One that never ran took none.
        return 0.0 if status.overlap_s == 0 else None
    return status.energy_j + (status.rest_energy_j or 0.0)


def _held_s(status: LaunchStatus) -> float:
    ended_at = status.ended_at or status.updated_at
    if status.started_at is None:
        return 0.0
    begun, ended = map(datetime.fromisoformat, (status.started_at, ended_at))
    return max(0.0, (ended - begun).total_seconds())
