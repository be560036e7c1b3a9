"""Which methods a path has: a refusal of one names all others (RFC 9110, section 15.5.6)."""

from fastapi import FastAPI
from starlette.routing import Match
from starlette.types import Scope

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


def allowed_methods(app: FastAPI, scope: Scope) -> str:
    """The methods of the path of a request, as the header `Allow` has them.

    Several routes may share a path, and each of them knows its own methods alone.
    """
    asked = ({**scope, "method": method} for method in _METHODS)
    return ", ".join(s["method"] for s in asked if _is_answered(app, s))


def _is_answered(app: FastAPI, scope: Scope) -> bool:
    return any(route.matches(scope)[0] is Match.FULL for route in app.routes)
