"""Launches: registered jobs that run together on a GPU of this host."""

from typing import Annotated

from fastapi import Depends
from fastapi.responses import Response

from advisor.launch.records.answers import Launch, LaunchHistory, LaunchJoin, LaunchList, LaunchPlan
from advisor.wire.requests import JoinLaunchRequest, LaunchRequest
from advisor_api.http.access import Launcher, Reader
from advisor_api.http.errors import may_refuse
from advisor_api.http.routing import v1_router
from advisor_api.http.sent import answer
from advisor_api.launches import joining, launching
from advisor_api.launches.view import visible_launch
from advisor_api.schemas.query import (
    ActiveInQuery,
    IdempotencyKey,
    JoinInPath,
    LaunchInPath,
    LaunchInQuery,
    LimitInQuery,
)
from advisor_api.service.audit import Audited
from advisor_api.service.service import Service, ServiceOf

router = v1_router("launches")


async def _launching(_: Launcher, service: ServiceOf) -> Service:
    launching.check_on(service)
    return service


LaunchingService = Annotated[Service, Depends(_launching)]
"""The service, where requests may launch."""


@router.post(
    "/launches",
    status_code=202,
    response_model=Launch,
    responses={
        200: {"model": LaunchPlan, "description": "With dry_run: what would run"},
        202: {"headers": {"Location": {"schema": {"type": "string"}}}},
        **may_refuse(409),
    },
)
def launch_jobs(
    service: LaunchingService,
    caller: Launcher,
    wanted: LaunchRequest,
    audited: Audited,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Run two to seven jobs together on a GPU of this server; answers before they run."""
    if wanted.dry_run:
        return answer(launching.plan(service, wanted, caller), 200)
    status = launching.launch(service, wanted, caller, idempotency_key, audited)
    place = {"Location": f"/v1/launches/{status.launch_id}"}
    return answer(visible_launch(status, launching.HOST, caller), 202, place)


@router.get("/launches", response_model=LaunchList)
def list_launches(
    caller: Reader,
    service: ServiceOf,
    active: ActiveInQuery = False,
    limit: LimitInQuery = 100,
    before: LaunchInQuery = None,
) -> Response:
    """Launches of all hosts of this database, the newest first; those of `advisor launch`, too."""
    found = launching.listed(service, active=active, limit=limit, before=before)
    return answer(LaunchList(launches=tuple(visible_launch(*one, caller) for one in found)))


@router.get("/launches/{launch_id}", response_model=Launch)
def show_launch(launch_id: LaunchInPath, caller: Reader, service: ServiceOf) -> Response:
    """Where a launch stands: rates, power, and what it was expected to do."""
    status, host = launching.find(service, launch_id)
    return answer(visible_launch(status, host, caller))


@router.get("/launches/{launch_id}/history", response_model=LaunchHistory)
def show_history(launch_id: LaunchInPath, _: Reader, service: ServiceOf) -> Response:
    """What the jobs that run, or ran last, did from their start on: power and speeds."""
    return answer(launching.history(service, launch_id))


@router.delete(
    "/launches/{launch_id}", status_code=202, response_model=Launch, responses=may_refuse(409)
)
def stop_launch(
    launch_id: LaunchInPath, service: LaunchingService, caller: Launcher, audited: Audited
) -> Response:
    """Ask for the end of a launch: its jobs are stopped in the safe order. Again does nothing."""
    status, host = launching.stop(service, launch_id, audited)
    return answer(visible_launch(status, host, caller), 202)


@router.post(
    "/launches/{launch_id}/joins",
    status_code=202,
    response_model=LaunchJoin,
    responses={202: {"headers": {"Location": {"schema": {"type": "string"}}}}, **may_refuse(409)},
)
def join_launch(
    launch_id: LaunchInPath,
    service: LaunchingService,
    caller: Launcher,
    wanted: JoinLaunchRequest,
    audited: Audited,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Let one more job run beside those of a launch that runs; answers before it does."""
    asked = joining.join(service, launch_id, wanted, caller, idempotency_key, audited)
    return answer(asked, 202, {"Location": f"/v1/launches/{launch_id}/joins/{asked.join_id}"})


@router.get("/launches/{launch_id}/joins/{join_id}", response_model=LaunchJoin)
def show_join(
    launch_id: LaunchInPath, join_id: JoinInPath, caller: Reader, service: ServiceOf
) -> Response:
    """What has become of a job that was to join: it runs with the others, or why not."""
    return answer(joining.find_join(service, launch_id, join_id, caller))
