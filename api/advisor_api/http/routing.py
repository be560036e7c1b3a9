"""Routers of the service: all of `/v1` alike, and added to the application as they are."""

from collections.abc import Iterable

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from advisor_api.http.access import say_where_no_token_is_needed
from advisor_api.http.errors import ERROR_ANSWERS
from advisor_api.http.query import KNOWN_QUERY
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
        app.router.routes.extend(router.routes)
