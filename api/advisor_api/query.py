"""Query parameters are refused where they are not known or there twice, as fields of bodies."""

from typing import Any

from fastapi import Depends, Request
from starlette.exceptions import HTTPException

_LONGEST = 80


async def _known_query(request: Request) -> None:
    route: Any = request.scope["route"]
    known = {parameter.alias for parameter in route.dependant.query_params}
    given = [name for name, _ in request.query_params.multi_items()]
    if strangers := sorted(set(given) - known):
        there = ", ".join(sorted(known)) or "none"
        raise HTTPException(
            422, f"there is no query parameter {strangers[0][:_LONGEST]!r}. There is {there}."
        )
    if len(set(given)) < len(given):
        raise HTTPException(422, "a query parameter is there twice. Leave one of them out.")


KNOWN_QUERY = Depends(_known_query)
"""For routers whose routes have parameters: a slip in one would answer another question."""
