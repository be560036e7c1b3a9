"""Jobs that join launches which run, as `advisor launch --join` asks for them."""

import hashlib

from starlette.exceptions import HTTPException

from advisor.launch.records.answers import LaunchJoin
from advisor.launch.records.folder import LaunchFolder
from advisor.launch.records.joins import (
    JoinAnswer,
    JoinRequest,
    ask_join,
    last_answer,
    new_join_id,
    read_request,
)
from advisor.wire.launch_request import JoinLaunchRequest
from advisor_advice.launching import ResolvedLaunch, make_join
from advisor_api.http.access import Caller
from advisor_api.launches.launching import check_launchable, find, folder_reached, request_hash
from advisor_api.launches.view import HIDDEN
from advisor_api.service.audit import RequestAudit
from advisor_api.service.service import Service
from advisor_profiling.testbed.live import find_gpu, with_units


def join(
    service: Service,
    launch_id: str,
    wanted: JoinLaunchRequest,
    caller: Caller,
    key: str | None,
    audited: RequestAudit,
) -> LaunchJoin:
    """Ask the supervisor of a launch to let a job join, once for each key and body.

    Raises:
        HTTPException: 404, there is no such launch.
        InputError: it does not run; an unknown job, or one without a profile to advise by.
        ModelError: there is no model to advise by.
        NoSplitError: no share keeps every limit, or none is worth it.
        OSError: the request cannot be written; nobody was asked.
        OtherHostError: it runs on another host, or under another home of this one.
        SourceError: there is no GPU, or its driver does not answer.
        StoreError: the database does not answer.
        UnsafeCountError: the share has a count of SMs at which results are wrong.
    """
    (name,) = wanted.names
    folder = _folder(service, launch_id, f"advisor launch --join {launch_id} {name}")
    join_id = _id_of(wanted, caller, key)
    if key and (before := read_request(folder, join_id)):
        return _as_told(folder, join_id, before, caller)
    check_launchable(service, [name])
    gpu = find_gpu(folder.read_status().gpu_uuid or folder.read_spec().gpu)
    launch = ResolvedLaunch(
        request=wanted.as_launch(),
        gpu=gpu.uuid,
        card=with_units(gpu, service.settings),
        asked_by=caller.name,
    )
    request = make_join(folder, name, wanted.share_percent, launch, service.settings)
    with audited.of("launch.join", f"{launch_id}: {name} at {request.share_percent:g} %"):
        ask_join(folder, request, join_id)
    return _as_told(folder, join_id, request, caller)


def find_join(service: Service, launch_id: str, join_id: str, caller: Caller) -> LaunchJoin:
    """What has become of a job that was to join.

    Raises:
        HTTPException: 404, there is none.
        OtherHostError, StoreError: as `join`.
    """
    folder = _folder(service, launch_id, f"advisor launches show {launch_id}")
    if (request := read_request(folder, join_id)) is None:
        raise HTTPException(404, f"nobody asked to join {launch_id} by {join_id}.")
    return _as_told(folder, join_id, request, caller)


def _folder(service: Service, launch_id: str, command: str) -> LaunchFolder:
    find(service, launch_id)
    return folder_reached(service, launch_id, command)


def _id_of(wanted: JoinLaunchRequest, caller: Caller, key: str | None) -> str:
    """The same for the same key and body, so that it is asked once."""
    if key is None:
        return new_join_id()
    text = "\n".join((caller.name, key, request_hash(wanted)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _as_told(
    folder: LaunchFolder, join_id: str, request: JoinRequest, caller: Caller
) -> LaunchJoin:
    job = request.part.job.name
    answered = last_answer(folder, join_id, job)
    said = answered or JoinAnswer(job=job)
    told = "launch" in caller.scopes
    return LaunchJoin(
        launch_id=folder.launch_id,
        join_id=join_id,
        state="asked" if answered is None else "joined" if said.code is None else "refused",
        notes=request.notes if told else (),
        job=job,
        code=said.code,
        cause=said.cause if told else said.cause and HIDDEN,
        units_granted=said.units_granted,
        memory_limit_mib=said.memory_limit_mib,
        joined_at=said.joined_at,
        share_percent=request.share_percent,
        forecast=request.forecast,
    )
