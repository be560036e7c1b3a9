"""Query parameters are refused where they are not known or there twice, as fields of bodies."""

from collections.abc import Iterator
from typing import Any

from fastapi import Depends, Request
from starlette.exceptions import HTTPException

_LONGEST = 80


async def _known_query(request: Request) -> None:
    if not request.scope["query_string"]:
        return
    route: Any = request.scope["route"]
    known = set(_parameters(route.dependant))
    given = [name for name, _ in request.query_params.multi_items()]
    if strangers := sorted(set(given) - known):
        there = ", ".join(sorted(known)) or "none"
        raise HTTPException(
            422, f"there is no query parameter {strangers[0][:_LONGEST]!r}. There is {there}."
        )
    if len(set(given)) < len(given):
        raise HTTPException(422, "a query parameter is there twice. Leave one of them out.")


def _parameters(dependant: Any) -> Iterator[str]:
    """Of a route, and of what its parameters are made of."""
    yield from (parameter.alias for parameter in dependant.query_params)
    for other in dependant.dependencies:
        yield from _parameters(other)


KNOWN_QUERY = Depends(_known_query)
"""For routers whose routes have parameters: a slip in one would answer another question."""
