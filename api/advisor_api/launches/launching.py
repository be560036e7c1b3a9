"""Asks for launches, stops them and finds them; everything here may block."""

import hashlib
from collections.abc import Iterable

from starlette.exceptions import HTTPException

from advisor.core.gpu import Gpu
from advisor.errors import AdvisorError, BusyError, InputError
from advisor.formats.wire import write
from advisor.launch.records.answers import LaunchHistory, LaunchPlan
from advisor.launch.records.folder import LaunchFolder, find_folder
from advisor.launch.records.history import read_history
from advisor.launch.records.spec import LaunchSpec
from advisor.launch.records.status import OVER, LaunchStatus
from advisor.launch.start.plan import plan_of
from advisor.launch.start.starting import check_memory
from advisor.wire.launch_request import JoinLaunchRequest, LaunchRequest, check_launch
from advisor_advice.launching import ResolvedLaunch, make_spec
from advisor_api.http.access import Caller
from advisor_api.launches.steps import (
    HOST,
    close_unclaimed,
    folder_of,
    is_ours,
    launches_folder,
    new_row,
    release_gpus,
    start_supervisor,
)
from advisor_api.launches.view import current_status, last_heard, stored_status
from advisor_api.service.audit import RequestAudit
from advisor_api.service.service import Service
from advisor_data.service.state import LaunchRow
from advisor_profiling.testbed.live import find_gpu, with_units


class LaunchingOffError(AdvisorError):
    """This service launches nothing."""

    code = "launching-off"


class OtherHostError(AdvisorError):
    """What was asked for can only be done on another host."""

    code = "other-host"


def check_on(service: Service) -> None:
    """Let a request pass where requests may launch.

    Raises:
        LaunchingOffError: they may not.
    """
    if not service.options.launching:
        raise LaunchingOffError(
            "this service launches nothing", fix="start it with: advisor serve --launching"
        )


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
    if key and (earlier := service.state.asked_before(caller.name, key, hashed)):
        return _status_of(service, earlier)
    gpu = find_gpu(str(wanted.gpu))
    spec = _spec(service, wanted, gpu, caller)
    for pair in spec.pairs:
        check_memory(pair, gpu)
    row = new_row(spec, gpu, service.home, hashed, key)
    with audited.of("launch.start", _subject(spec, gpu)):
        release_gpus(service.state, service.settings, service.home)
        row = service.state.add_launch(row)
        # By the same key another service may have been asked at the same moment.
        if is_ours(row, service.home):
            start_supervisor(row, service.state, service.settings)
    return stored_status(row)


def plan(service: Service, wanted: LaunchRequest, caller: Caller) -> LaunchPlan:
    """What the same request would run (`plan_of`).

    Raises:
        AdvisorError: as `launch`, but whether the memory suffices is part of the answer.
    """
    gpu = find_gpu(str(wanted.gpu))
    spec = _spec(service, wanted, gpu, caller)
    return plan_of(spec, with_units(gpu, service.settings), service.settings)


def stop(service: Service, launch_id: str, audited: RequestAudit) -> tuple[LaunchStatus, str]:
    """Ask for the end of a launch; of one that is over, or asked already, nothing more.

    Returns:
        Where it stands, and its host.

    Raises:
        HTTPException: 404, there is none.
        OSError: the request cannot be written.
        OtherHostError: it runs on another host, or under another home of this one.
        StoreError: the database does not answer, and the launch has no folder here.
    """
    status, host = find(service, launch_id)
    if status.over:
        return status, host
    with audited.of("launch.stop", launch_id):
        folder = folder_reached(service, launch_id, f"advisor launches stop {launch_id}")
        folder.ask_stop()
        if not folder.claimed():
            close_unclaimed(folder, "stopped")
    return current_status(folder), host


def find(service: Service, launch_id: str) -> tuple[LaunchStatus, str]:
    """Where a launch stands, and its host: from its folder if that is here, else as last kept.

    Raises:
        HTTPException: 404, there is none.
        StoreError: the database does not answer, and the launch has no folder here.
    """
    if folder := _folder_here(service, launch_id):
        return current_status(folder), HOST
    row = service.state.launch(launch_id)
    if row is None:
        raise HTTPException(404, f"there is no launch {launch_id}. See GET /v1/launches.")
    return last_heard(row), row.host


def history(service: Service, launch_id: str) -> LaunchHistory:
    """What a launch did over its time; the supervisor keeps it on its own host alone.

    Raises:
        HTTPException, StoreError: as `find`.
    """
    find(service, launch_id)
    folder = _folder_here(service, launch_id)
    return LaunchHistory(launch_id=launch_id, history=folder and read_history(folder))


def listed(
    service: Service, *, active: bool, limit: int, before: str | None
) -> list[tuple[LaunchStatus, str]]:
    """Launches of all hosts of this database, the newest first, each with its host.

    Raises:
        StoreError: the database does not answer.
    """
    rows = service.state.launches(active_only=active, limit=limit, before=before)
    found = [(_status_of(service, row), row.host) for row in rows]
    return [(status, host) for status, host in found if not (active and status.over)]


def check_launchable(service: Service, names: Iterable[str]) -> None:
    """Refuse jobs of which the server has no file, before anything reads one by that name.

    Raises:
        InputError: there is one.
    """
    known = set(service.engine.jobs.launchable())
    for name in dict.fromkeys(names):
        if name not in known:
            raise InputError(
                f"there is no job {name} to launch",
                why="only jobs with a good job file on the server can be launched",
                fix="see `launchable` in GET /v1/jobs",
            )


def folder_reached(service: Service, launch_id: str, command: str) -> LaunchFolder:
    """The folder of a launch in which its supervisor can be asked for something.

    Args:
        service: Of this host and home.
        launch_id: Of one that there is.
        command: What asks the same at the command line, for those who are refused.

    Raises:
        BusyError: the folder is lost.
        OtherHostError: it runs on another host, or under another home of this one.
        OSError, StoreError: as `find`.
    """
    if folder := _folder_here(service, launch_id):
        return folder
    row = service.state.launch(launch_id)
    if row and not is_ours(row, service.home):
        where = "under another home of this host" if row.host == HOST else f"on {row.host}"
        raise OtherHostError(
            f"the launch {launch_id} runs {where}, and this service on {HOST} cannot reach it",
            fix=f"ask the service there, or in its environment: {command}",
        )
    # The process that was asked for it was killed before there was a folder: with one, nothing can
    # begin.
    if row is None or row.state != "accepted":
        raise BusyError(f"the launch {launch_id} has lost its folder", fix="ask again in a second")
    return folder_of(row, service.settings)


def request_hash(wanted: LaunchRequest | JoinLaunchRequest) -> str:
    """Identity of what is asked for, however the JSON is written."""
    return hashlib.sha256(write(wanted).encode()).hexdigest()


def _spec(service: Service, wanted: LaunchRequest, gpu: Gpu, caller: Caller) -> LaunchSpec:
    check_launch(wanted)
    check_launchable(service, (job.job for pair in wanted.pairs for job in pair))
    launch = ResolvedLaunch(request=wanted, gpu=gpu.uuid, card=gpu, asked_by=caller.name)
    return make_spec(launch, service.settings)


def _status_of(service: Service, row: LaunchRow) -> LaunchStatus:
    if row.state in OVER or not is_ours(row, service.home):
        return last_heard(row)
    folder = _folder_here(service, row.launch_id)
    return current_status(folder) if folder else last_heard(row)


def _folder_here(service: Service, launch_id: str) -> LaunchFolder | None:
    try:
        return find_folder(launches_folder(service.settings), launch_id)
    except InputError:
        return None


def _subject(spec: LaunchSpec, gpu: Gpu) -> str:
    """As the audit log has it."""
    first, more = spec.pairs[0], len(spec.pairs) - 1
    then = f", then {more} more" if more else ""
    jobs = f"{' + '.join(job.name for job in first.jobs)} at {first.split}"
    return f"{spec.launch_id}: {jobs}{then}, on {gpu.uuid}"
