"""Routers of the service: all of `/v1` alike, and added to the application as they are."""

from collections.abc import Iterable, Iterator
from typing import Any, cast

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from advisor.core.wording import shown
from advisor_api.http.access import say_where_no_token_is_needed
from advisor_api.http.errors import ERROR_ANSWERS
from advisor_api.http.sent import SentRoute


def v1_router(tag: str, route_class: type[APIRoute] = SentRoute) -> APIRouter:
    """A router below `/v1`, with one tag for the description of the service."""
    return APIRouter(
        prefix="/v1",
        tags=[tag],
        dependencies=[KNOWN_QUERY],
        route_class=route_class,
        responses=ERROR_ANSWERS,
    )


def add_routes(app: FastAPI, routers: Iterable[APIRouter]) -> None:
    """Add the routes of routers one by one: to find one in a router takes two searches."""
    for router in routers:
        say_where_no_token_is_needed(router.routes)
        for route in router.routes:
            # Programs are generated from it: its function's name reads better than the path.
            cast("APIRoute", route).unique_id = cast("APIRoute", route).name
        app.router.routes.extend(router.routes)


async def _known_query(request: Request) -> None:
    if not request.scope["query_string"]:
        return
    route: Any = request.scope["route"]
    known = set(_parameters(route.dependant))
    given = [name for name, _ in request.query_params.multi_items()]
    if strangers := sorted(set(given) - known):
        there = ", ".join(sorted(known)) or "none"
        raise HTTPException(
            422, f"there is no query parameter {shown(strangers[0])}. There is {there}."
        )
    if len(set(given)) < len(given):
        twice = next(name for name in given if given.count(name) > 1)
        raise HTTPException(422, f"the query parameter {twice} is there twice. Leave one out.")


def _parameters(dependant: Any) -> Iterator[str]:
    """Of a route, and of what its parameters are made of."""
    yield from (parameter.alias for parameter in dependant.query_params)
    for other in dependant.dependencies:
        yield from _parameters(other)


KNOWN_QUERY = Depends(_known_query)
"""For routers whose routes have parameters: a slip in one would answer another question."""
