"""Asks for launches, stops, finds and shows them; all but `Board.answer` may block."""

import asyncio
import hashlib
import re
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import cast

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from advisor.core.gpu import Gpu
from advisor.core.job import Job, ProgressSettings
from advisor.errors import AdvisorError, BusyError, InputError, UnsafeFileError
from advisor.formats.moments import now
from advisor.formats.wire import as_answer, read, write, write_bytes
from advisor.launch.folder import (
    MOST_ENDED,
    LaunchFolder,
    ask_join,
    close_unclaimed,
    create_folder,
    find_folder,
    first_status,
    join_status,
    overview,
    read_history,
    read_request,
)
from advisor.launch.guard import spawn_supervisor
from advisor.launch.spec import (
    OVER,
    History,
    JobStatus,
    LaunchPart,
    LaunchSpec,
    LaunchStatus,
    State,
    as_heard,
)
from advisor.settings import Settings
from advisor.wire.requests import LaunchRequest
from advisor_advice.launching import ResolvedLaunch, make_join, make_spec
from advisor_api.http.access import Caller
from advisor_api.http.routing import JSON, LOG, ready_answer
from advisor_api.service import RequestAudit, Service
from advisor_data.state import LaunchRow, ServiceState
from advisor_profiling import SUPERVISOR
from advisor_profiling.testbed import find_gpu, with_units

HOST = socket.gethostname()
"""Where launches run; in a container it changes with each start."""


def launches_folder(settings: Settings) -> Path:
    """Where the folders of all launches of this host are."""
    return settings.home / "launches"


def row_of(
    spec: LaunchSpec,
    status: LaunchStatus,
    home: str,
    hashed: str,
    *,
    created_at: str | None = None,
    key: str | None = None,
) -> LaunchRow:
    """The row of a launch of this host; without `created_at` it was created with the status."""
    return LaunchRow(
        launch_id=spec.launch_id,
        host=HOST,
        gpu=status.gpu_uuid or spec.gpu,
        gpu_uuid=status.gpu_uuid,
        state=status.state,
        spec=write(spec),
        status=write(status),
        asked_by=spec.asked_by,
        request_hash=hashed,
        created_at=created_at or status.updated_at,
        updated_at=status.updated_at,
        idempotency_key=key,
        home=home,
    )


def start_supervisor(row: LaunchRow, state: ServiceState, settings: Settings) -> None:
    """Make the folder of a launch and start its supervisor, if it is not over; again does no harm.

    Raises:
        OSError: the folder cannot be written; the launch is failed.
        StoreError: nor could that be kept; the reconciler tries again.
        UnsafeFileError: others could have a hand in the folder; the launch is failed.
    """
    if row.state in OVER:
        return
    try:
        folder = _folder_of(row, settings)
    except OSError as error:
        fail(row, state, "system", f"the folder of the launch cannot be written: {error.strerror}")
        raise
    except UnsafeFileError as error:
        fail(row, state, error.code, str(error))
        raise
    if folder.claimed():
        return
    try:
        spawn_supervisor(folder, settings, SUPERVISOR)
    except OSError as error:
        # It was accepted: the reconciler tries again.
        LOG.error("the supervisor of %s cannot be started: %s", row.launch_id, error)


def _folder_of(row: LaunchRow, settings: Settings) -> LaunchFolder:
    """The folder of a launch of this host, made where it is not there.

    Raises:
        OSError: it cannot be written.
        ValueError: the row is of another version of advisor.
    """
    return create_folder(launches_folder(settings), read(LaunchSpec, row.spec))


def fail(row: LaunchRow, state: ServiceState, code: str, cause: str) -> None:
    """Keep that a launch has failed.

    Raises:
        StoreError: it could not be kept.
    """
    at = now()
    status = replace(
        _stored_status(row), state="failed", code=code, cause=cause, updated_at=at, ended_at=at
    )
    state.update_launch(row.launch_id, status.state, write(status))


def keep_status(row: LaunchRow, status: LaunchStatus, state: ServiceState) -> None:
    """Keep where a launch stands, where that is news.

    Raises:
        StoreError: it could not be kept.
    """
    text = write(status)
    if row.state not in OVER and row.status != text:
        state.update_launch(row.launch_id, status.state, text)


def release_gpus(state: ServiceState, settings: Settings, home: str) -> None:
    """Let go of the GPUs of this home whose launches have ended since the reconciler last looked.

    Raises:
        StoreError: the database does not answer.
    """
    for row in state.launches(home=home, active_only=True):
        folder = LaunchFolder(launches_folder(settings) / row.launch_id)
        if folder.claimed() and (status := current_status(folder)).over:
            keep_status(row, status, state)


HIDDEN = "shown to tokens with the scope launch"

# Rates as images/s and splits as 30/70 have something before the slash.
_PLACE = re.compile(r"[\w+.-]+:/+[^\s;,]*|(?<![\w/])~?/[^\s;:,]*")


def current_status(folder: LaunchFolder) -> LaunchStatus:
    """Where a launch of this host stands now."""
    return replace(folder.read_status(), host=HOST)


def _stored_status(row: LaunchRow) -> LaunchStatus:
    """The last status that the database has."""
    try:
        status = read(LaunchStatus, row.status)
    except InputError:
        # Of another version of advisor: what is a column of its own is still known.
        state = cast("State", row.state)
        status = LaunchStatus(launch_id=row.launch_id, state=state, updated_at=row.updated_at)
    return replace(status, host=row.host)


def last_heard(row: LaunchRow) -> LaunchStatus:
    """Of a launch of another host, as of when its service has kept it last."""
    return as_heard(_stored_status(row))


def visible_launch(status: LaunchStatus, caller: Caller) -> LaunchStatus:
    """A launch as a caller may see it."""
    if "launch" in caller.scopes:
        return status
    return replace(
        status,
        cause=status.cause and HIDDEN,
        jobs=tuple(_visible_job(job, caller) for job in status.jobs),
        warnings=tuple(_PLACE.sub("…", text) for text in status.warnings),
    )


def _visible_job(job: JobStatus, caller: Caller) -> JobStatus:
    return job if "launch" in caller.scopes else replace(job, error=job.error and HIDDEN)


class LaunchingOffError(AdvisorError, code="launching-off"):
    """This service launches nothing."""


class _OtherHostError(AdvisorError, code="other-host"):
    """What was asked for can only be done on another host."""


def launch(
    service: Service, wanted: LaunchRequest, caller: Caller, key: str | None, audited: RequestAudit
) -> LaunchStatus:
    """Launch what is wanted, once for each key; returns before anything runs.

    Raises:
        BusyError: another launch holds the GPU.
        IdempotencyError: the key was used for another request.
        InputError: an unknown job, GPU or split; or no profile to recommend one by.
        ModelError: there is no model to recommend by.
        NoSplitError: nothing keeps every limit, or the memory is too small.
        OSError: the folder cannot be written; nothing was launched.
        SourceError: there is no GPU, or its driver does not answer.
        StoreError: the database does not answer. Where a key was sent, ask again with it.
        UnsafeCountError: the split has a count of SMs at which results are wrong.
    """
    hashed = request_hash(wanted)
    if key and (earlier := service.state.earlier_launch(caller.name, key, hashed)):
        return _status_of(service, earlier)
    spec, gpu = _spec(service, wanted, caller)
    row = row_of(spec, first_status(spec, now(), gpu), service.home, hashed, key=key)
    first, more = spec.pairs[0], len(spec.pairs) - 1
    then = f", then {more} more" if more else ""
    jobs = f"{' + '.join(job.name for job in first.jobs)} at {first.split}"
    with audited.of("launch.start", f"{spec.launch_id}: {jobs}{then}, on {gpu.uuid}"):
        release_gpus(service.state, service.settings, service.home)
        row = service.state.add_launch(row)
        # By the same key another service may have been asked at the same moment.
        if row.home == service.home:
            start_supervisor(row, service.state, service.settings)
    return _stored_status(row)


def plan(service: Service, wanted: LaunchRequest, caller: Caller) -> LaunchSpec:
    """What the same request would run; of the files of jobs, only what concerns sharing.

    Raises:
        AdvisorError: as `launch`.
    """
    spec = _spec(service, wanted, caller)[0]
    pairs = (replace(pair, parts=tuple(map(_named, pair.parts))) for pair in spec.pairs)
    return replace(spec, pairs=tuple(pairs))


def _named(part: LaunchPart) -> LaunchPart:
    """The same without the command, variables, paths and addresses of its job."""
    return replace(
        part,
        job=Job(
            name=part.job.name,
            command=(),
            progress=ProgressSettings(unit=part.job.progress.unit),
            memory_mib=part.job.memory_mib,
            offered_rate=part.job.offered_rate,
            max_p99_ms=part.job.max_p99_ms,
        ),
    )


def stop(service: Service, launch_id: str, audited: RequestAudit) -> LaunchStatus:
    """Ask for the end of a launch, and where it stands; again, or if it is over, nothing more.

    Raises:
        HTTPException: 404, there is none.
        OSError: the request cannot be written.
        _OtherHostError: it runs on another host, or under another home of this one.
        StoreError: the database does not answer, and the launch has no folder here.
    """
    status = find(service, launch_id)
    if status.over:
        return status
    with audited.of("launch.stop", launch_id):
        folder = _folder(service, launch_id, f"advisor launches stop {launch_id}")
        folder.ask_stop()
        close_unclaimed(folder)
    return current_status(folder)


def change(
    service: Service, launch_id: str, job: str | None, audited: RequestAudit
) -> LaunchStatus:
    """Ask for the end of a job, all copies of it; None: for a start at the split that is offered.

    Raises:
        HTTPException, OSError, _OtherHostError, StoreError: as `stop`.
        InputError: there is no such job, or a queue placed it.
        NoSplitError: no split is offered.
    """
    what = f"stop {launch_id} {job}" if job else f"resplit {launch_id}"
    folder = _folder(service, launch_id, f"advisor launches {what}")
    with audited.of("launch.end" if job else "launch.resplit", what.partition(" ")[2]):
        folder.ask_end(job) if job else folder.ask_resplit()
    return current_status(folder)


def find(service: Service, launch_id: str) -> LaunchStatus:
    """Where a launch stands: from its folder if that is here, else as last kept.

    Raises:
        HTTPException: 404, there is none.
        StoreError: the database does not answer, and the launch has no folder here.
    """
    if folder := _folder_here(service, launch_id):
        return current_status(folder)
    if (row := service.state.launch(launch_id)) is None:
        raise HTTPException(404, f"there is no launch {launch_id}. See GET /v1/launches.")
    return last_heard(row)


def history(service: Service, launch_id: str) -> LaunchStatus:
    """A launch with what it did over its time; the supervisor keeps it on its own host alone.

    Raises:
        HTTPException, StoreError: as `find`.
    """
    status, folder = find(service, launch_id), _folder_here(service, launch_id)
    return replace(status, history=folder and read_history(folder))


def listed(service: Service, *, active: bool, limit: int, before: str | None) -> list[LaunchStatus]:
    """Launches of all hosts of this database, the newest first.

    Raises:
        StoreError: the database does not answer.
    """
    rows = service.state.launches(active_only=active, limit=limit, before=before)
    statuses = (_status_of(service, row) for row in rows)
    return [status for status in statuses if not (active and status.over)]


def _check_launchable(service: Service, names: Iterable[str]) -> None:
    """Refuse jobs of which the server has no file, before anything reads one by that name.

    Raises:
        InputError: there is one.
    """
    launchable = set(service.engine.jobs.launchable())
    if unknown := next((name for name in names if name not in launchable), None):
        raise InputError(
            f"there is no job {unknown} to launch",
            why="only jobs with a good job file on the server can be launched",
            fix="see `launchable` in GET /v1/jobs",
        )


def _folder(service: Service, launch_id: str, command: str) -> LaunchFolder:
    """The folder of a launch in which its supervisor can be asked for something.

    Args:
        service: Of this host and home.
        launch_id: Of the launch.
        command: The same request at the command line, for the error.

    Raises:
        BusyError: the folder is lost.
        _OtherHostError: it runs on another host, or under another home of this one.
        HTTPException, OSError, StoreError: as `find`.
    """
    find(service, launch_id)
    if folder := _folder_here(service, launch_id):
        return folder
    row = service.state.launch(launch_id)
    if row and row.home != service.home:
        where = "under another home of this host" if row.host == HOST else f"on {row.host}"
        raise _OtherHostError(
            f"the launch {launch_id} runs {where}, and this service on {HOST} cannot reach it",
            fix=f"ask the service there, or in its environment: {command}",
        )
    # The process that was asked for it was killed before there was a folder: with one, nothing can
    # begin.
    if row is None or row.state != "accepted":
        raise BusyError(f"the launch {launch_id} has lost its folder", fix="ask again in a second")
    return _folder_of(row, service.settings)


def request_hash(wanted: LaunchRequest) -> str:
    """Identity of a request, however its JSON is written."""
    return hashlib.sha256(write(wanted).encode()).hexdigest()


def _spec(service: Service, wanted: LaunchRequest, caller: Caller) -> tuple[LaunchSpec, Gpu]:
    wanted.check()
    _check_launchable(service, (job.job for pair in wanted.pairs for job in pair))
    card = with_units(find_gpu(str(wanted.gpu)), service.settings)
    return make_spec(
        ResolvedLaunch(request=wanted, card=card, asked_by=caller.name), service.settings
    ), card


def _status_of(service: Service, row: LaunchRow) -> LaunchStatus:
    if row.state in OVER or row.home != service.home:
        return last_heard(row)
    folder = _folder_here(service, row.launch_id)
    return current_status(folder) if folder else last_heard(row)


def _folder_here(service: Service, launch_id: str) -> LaunchFolder | None:
    try:
        return find_folder(launches_folder(service.settings), launch_id)
    except InputError:
        return None


def join(
    service: Service,
    launch_id: str,
    wanted: LaunchRequest,
    caller: Caller,
    key: str | None,
    audited: RequestAudit,
) -> JobStatus:
    """Ask the supervisor of a launch to let a job join, once for each key and body.

    Raises:
        HTTPException: 404, there is no such launch.
        InputError: it does not run; an unknown job, or one without a profile to advise by.
        ModelError: there is no model to advise by.
        NoSplitError: no share keeps every limit, or none is worth it.
        OSError: the request cannot be written; the launch was not asked.
        _OtherHostError: it runs on another host, or under another home of this one.
        SourceError: there is no GPU, or its driver does not answer.
        StoreError: the database does not answer.
        UnsafeCountError: the share has a count of SMs at which results are wrong.
    """
    wanted.check_join()
    (name,) = wanted.names
    folder = _folder(service, launch_id, f"advisor launch --join {launch_id} {name}")
    # The same for the same key and body, so that it is asked once.
    identity = "\n".join((caller.name, key or "", request_hash(wanted)))
    join_id = hashlib.sha256(identity.encode()).hexdigest()[:16] if key else None
    if join_id and (before := read_request(folder, join_id)):
        return join_status(folder, join_id, before)
    _check_launchable(service, [name])
    gpu = folder.read_status().gpu_uuid or folder.read_spec().gpu
    launch = ResolvedLaunch(
        request=wanted, card=with_units(find_gpu(gpu), service.settings), asked_by=caller.name
    )
    request = make_join(folder, name, wanted.share_percent, launch, service.settings)
    share_percent = request.pairs[0].split.shares[-1]
    with audited.of("launch.join", f"{launch_id}: {name} at {share_percent:g} %"):
        join_id = ask_join(folder, request, join_id)
    return join_status(folder, join_id, request)


def find_join(service: Service, launch_id: str, join_id: str, caller: Caller) -> JobStatus:
    """What has become of a job that was to join.

    Raises:
        HTTPException: 404, there is none.
        _OtherHostError, StoreError: as `join`.
    """
    folder = _folder(service, launch_id, f"advisor launches show {launch_id}")
    if (request := read_request(folder, join_id)) is None:
        raise HTTPException(404, f"{launch_id} has no request to join {join_id}.")
    return _visible_job(join_status(folder, join_id, request), caller)


# Rows at the first look, and at each later one, which finds few that are new.
_PAGE, _FEW = 500, 20

# One that ended this week and began earlier is not found after a restart.
_LONGEST = timedelta(days=14)


class Books:
    """The launches of a database that are over.

    Attributes:
        newest: The last ones that began.
        ended: All of them, without what their jobs did.
    """

    def __init__(self, state: ServiceState) -> None:
        self._state = state
        self.ended: dict[str, LaunchStatus] = {}
        self._active = frozenset[str]()
        self._is_first = True
        self.newest: dict[str, LaunchStatus] = {}

    def look(self, active: Iterable[str], now: datetime) -> None:
        """Take in what has ended since the last look, beside the launches that run now.

        Raises:
            StoreError: the database does not answer.
        """
        horizon, there = f"{now - _LONGEST:%Y%m%d}", frozenset(active)
        # One that ran for long may stand behind many that are newer.
        self._take(filter(None, map(self._state.launch, self._active - there - self.ended.keys())))
        for rows in self._pages(_PAGE if self._is_first else _FEW):
            if not (self._take(rows) or self._is_first) or rows[-1].launch_id < horizon:
                break
        self._active, self._is_first = there, False
        self.ended = {
            launch_id: status
            for launch_id, status in self.ended.items()
            if launch_id >= horizon or ((ran := status.ran(now)) and ran[1] > now - _LONGEST)
        }
        self.newest = dict(sorted(self.newest.items(), reverse=True)[:MOST_ENDED])

    def _take(self, rows: Iterable[LaunchRow]) -> bool:
        """Whether one of them is over that was not known to be."""
        ended = [row for row in rows if row.state in OVER and row.launch_id not in self.ended]
        for row in ended:
            status = _stored_status(row)
            # There may be thousands.
            self.ended[row.launch_id] = replace(status, jobs=(), forecast=None, warnings=())
            if len(self.newest) < MOST_ENDED or row.launch_id > min(self.newest):
                self.newest[row.launch_id] = status
        return bool(ended)

    def _pages(self, size: int) -> Iterator[list[LaunchRow]]:
        before, count = None, 0
        # A launch a minute for two weeks.
        while count < 20_000 and (rows := self._state.launches(limit=size, before=before)):
            yield rows
            before, count = rows[-1].launch_id, count + len(rows)


# Supervisors write once a second.
_FRESH_S = 1.0

LookAtCards = Callable[[Collection[str]], list[tuple[Gpu, float | None]]]


class Board:
    """What `GET /v1/overview` answers.

    Args:
        service: Whose launches these are.
        cards: Reads the GPUs of this host, given which of them are held.
        now: The moment; None: the present one, in the zone of the host.
    """

    def __init__(
        self, service: Service, cards: LookAtCards, now: Callable[[], datetime] | None = None
    ) -> None:
        self._service, self._cards = service, cards
        self._now = now or (lambda: datetime.now().astimezone())
        self._books, self._lock = Books(service.state), threading.Lock()
        self._kept: dict[bool, tuple[float, asyncio.Task[Callable[[Request], Response]]]] = {}
        self._ended: dict[str, History | None] = {}

    async def answer(self, caller: Caller) -> Callable[[Request], Response]:
        """The JSON, as `caller` may see it; all that look within a second see the same.

        Raises:
            StoreError: the database does not answer.
        """
        in_full, now_s = "launch" in caller.scopes, time.monotonic()
        began_s, made = self._kept.get(in_full, (-_FRESH_S, None))
        if made is None or (made.done() and now_s - began_s >= _FRESH_S):
            made = asyncio.create_task(asyncio.to_thread(self._made, caller))
            self._kept[in_full] = now_s, made
        return await asyncio.shield(made)

    def _made(self, caller: Caller) -> Callable[[Request], Response]:
        with self._lock:
            service, now = self._service, self._now()
            active = listed(service, active=True, limit=64, before=None)
            self._books.look((launch.launch_id for launch in active), now)
            made = overview(
                now=now,
                running=[visible_launch(launch, caller) for launch in active],
                ended=[visible_launch(launch, caller) for launch in self._books.newest.values()],
                entries=[*self._books.ended.values(), *active],
                cards=self._cards(
                    {uuid for launch in active if launch.silent_s is None for uuid in launch.gpus}
                ),
                host=HOST,
                history_of=self._history,
                prices=service.settings.policy.prices,
                replayed=service.options.replayed,
            )
            return ready_answer(
                as_answer(write_bytes(made)), write_bytes(replace(made, at="")), JSON, "no-store"
            )

    def _history(self, launch_id: str) -> History | None:
        """Of one that is over it is read once."""
        if launch_id in self._ended:
            return self._ended[launch_id]
        history = read_history(LaunchFolder(launches_folder(self._service.settings) / launch_id))
        newest = self._books.newest
        if launch_id in newest:
            self._ended[launch_id] = history
            self._ended = {name: self._ended[name] for name in self._ended if name in newest}
        return history
