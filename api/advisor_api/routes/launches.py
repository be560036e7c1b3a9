"""Launches of registered jobs on GPUs of this host, and the overview of them."""

from typing import Annotated, TypeAlias, cast

from fastapi import Depends, Request
from fastapi.responses import Response

from advisor.launch.overview import (
    LaunchList,
    Overview,
)
from advisor.launch.spec import LaunchSpec
from advisor.launch.status import JobStatus, LaunchStatus
from advisor.wire.requests import LaunchRequest
from advisor_api.http.access import Launcher, Reader
from advisor_api.http.errors import may_refuse
from advisor_api.http.routing import answer, kept_answer, v1_router
from advisor_api.launches import launching
from advisor_api.launches.board import Board
from advisor_api.schemas import (
    ActiveInQuery,
    IdempotencyKey,
    JoinInPath,
    LaunchInPath,
    LaunchInQuery,
    LimitInQuery,
)
from advisor_api.service import Audited, Service, ServiceOf

launches = v1_router("launches")


async def _launching(_: Launcher, service: ServiceOf) -> Service:
    launching.check_on(service)
    return service


LaunchingService = Annotated[Service, Depends(_launching)]
"""The service, where requests may launch."""


@launches.post(
    "/launches",
    status_code=202,
    response_model=LaunchStatus,
    responses={
        200: {"model": LaunchSpec, "description": "With dry_run: what would run"},
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
    return answer(launching.visible_launch(status, caller), 202, place)


@launches.get("/launches", response_model=LaunchList)
def list_launches(
    caller: Reader,
    service: ServiceOf,
    active: ActiveInQuery = False,
    limit: LimitInQuery = 100,
    before: LaunchInQuery = None,
) -> Response:
    """Launches of all hosts of this database, the newest first; those of `advisor launch`, too."""
    found = launching.listed(service, active=active, limit=limit, before=before)
    return answer(
        LaunchList(launches=tuple(launching.visible_launch(one, caller) for one in found))
    )


@launches.get("/launches/{launch_id}", response_model=LaunchStatus)
def show_launch(launch_id: LaunchInPath, caller: Reader, service: ServiceOf) -> Response:
    """Where a launch stands: rates, power, and what it was expected to do."""
    return answer(launching.visible_launch(launching.find(service, launch_id), caller))


@launches.get("/launches/{launch_id}/history", response_model=LaunchStatus)
def show_history(launch_id: LaunchInPath, caller: Reader, service: ServiceOf) -> Response:
    """The same with what the jobs that run, or ran last, did from their start on."""
    return answer(launching.visible_launch(launching.history(service, launch_id), caller))


@launches.delete(
    "/launches/{launch_id}", status_code=202, response_model=LaunchStatus, responses=may_refuse(409)
)
def stop_launch(
    launch_id: LaunchInPath, service: LaunchingService, caller: Launcher, audited: Audited
) -> Response:
    """Ask for the end of a launch: its jobs are stopped in the safe order. Again does nothing."""
    status = launching.stop(service, launch_id, audited)
    return answer(launching.visible_launch(status, caller), 202)


@launches.post(
    "/launches/{launch_id}/joins",
    status_code=202,
    response_model=JobStatus,
    responses={202: {"headers": {"Location": {"schema": {"type": "string"}}}}, **may_refuse(409)},
)
def join_launch(
    launch_id: LaunchInPath,
    service: LaunchingService,
    caller: Launcher,
    wanted: LaunchRequest,
    audited: Audited,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Let one more job run beside those of a launch that runs; answers before it does."""
    asked = launching.join(service, launch_id, wanted, caller, idempotency_key, audited)
    return answer(asked, 202, {"Location": f"/v1/launches/{launch_id}/joins/{asked.join_id}"})


@launches.get("/launches/{launch_id}/joins/{join_id}", response_model=JobStatus)
def show_join(
    launch_id: LaunchInPath, join_id: JoinInPath, caller: Reader, service: ServiceOf
) -> Response:
    """How a job does that was to join: `waiting` until its supervisor has answered."""
    return answer(launching.find_join(service, launch_id, join_id, caller))


overview = v1_router("launches")


async def _board(request: Request) -> Board:
    return cast("Board", request.app.state.board)


BoardOf: TypeAlias = Annotated[Board, Depends(_board)]


@overview.get("/overview", response_model=Overview)
def show_overview(caller: Reader, board: BoardOf) -> Response:
    """The GPUs and who runs on them, launches with their history, and what was saved, observed."""
    return kept_answer(board.answer(caller))
