"""All at one look: for the first page, for `advisor top`, and for whoever builds another one."""

from typing import Annotated, TypeAlias, cast

from fastapi import Depends, Request
from fastapi.responses import Response

from advisor.launch.overview import Overview
from advisor_api.http.access import Reader
from advisor_api.http.routing import v1_router
from advisor_api.http.sent import kept_answer
from advisor_api.launches.board import Board

router = v1_router("launches")


async def _board(request: Request) -> Board:
    return cast("Board", request.app.state.board)


BoardOf: TypeAlias = Annotated[Board, Depends(_board)]


@router.get("/overview", response_model=Overview)
def show_overview(caller: Reader, board: BoardOf) -> Response:
    """The GPUs and who runs on them, launches with their history, and what was saved, observed."""
    return kept_answer(board.answer(caller))
