"""Who asks, and whether they may: bearer tokens with scopes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, TypeAlias, cast

from fastapi import Depends, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.routing import APIRoute
from fastapi.security.base import SecurityBase
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute

from advisor_api.http.tokens import TokenCache

_IMPLIED = {
    "read": frozenset({"read"}),
    "write": frozenset({"read", "write"}),
    "launch": frozenset({"read", "launch"}),
    "admin": frozenset({"read", "write", "launch", "admin"}),
}

ALL_SCOPES = _IMPLIED["admin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who sent a request."""

    name: str
    """Of the token; of a process of this host its user, such as `uid:1000`; else `anonymous`."""
    scopes: frozenset[str]
    """Those that others imply, too."""
    known: bool = True
    """Whether it is told apart from others."""


ANONYMOUS = Caller(name="anonymous", scopes=frozenset(), known=False)
ANONYMOUS_READER = Caller(name="anonymous", scopes=frozenset({"read"}), known=False)


async def caller_of(authorization: bytes, address: str, tokens: TokenCache) -> Caller:
    """The caller that an Authorization header names.

    Raises:
        HTTPException: 401, no bearer token or no good one; 429, too many wrong ones.
        StoreError: the database does not answer.
    """
    scheme, _, secret = authorization.decode("latin-1").partition(" ")
    if scheme.lower() != "bearer":
        raise _unauthorized("only bearer tokens are known here")
    token = await tokens.find(secret.strip(), address)
    if token is None:
        raise _unauthorized("the token is wrong, expired or revoked", error="invalid_token")
    scopes = frozenset[str]().union(*(_IMPLIED[scope] for scope in token.scopes))
    return Caller(name=token.name, scopes=scopes)


class _Needs(SecurityBase):
    """The caller, if it has the scope; in OpenAPI, the token that the route asks for."""

    def __init__(self, scope: str) -> None:
        self.model = HTTPBearer(description="Made by `advisor tokens create NAME --scope SCOPE`.")
        self.scheme_name = "token"
        self.scope = scope

    async def __call__(self, request: Request) -> Caller:
        caller = cast("Caller", request.scope["advisor.caller"])
        if self.scope in caller.scopes:
            return caller
        if not caller.known:
            raise _unauthorized(f"this needs a token with the scope {self.scope}", self.scope)
        raise HTTPException(
            403,
            f"the token {caller.name} has not the scope {self.scope}. "
            f"Make one: advisor tokens create NAME --scope {self.scope}.",
        )


def say_where_no_token_is_needed(routes: Iterable[BaseRoute]) -> None:
    """Let OpenAPI say of routes that read that some services ask for no token."""
    for route in routes:
        if isinstance(route, APIRoute):
            calls = (dependency.call for dependency in route.dependant.dependencies)
            if {call.scope for call in calls if isinstance(call, _Needs)} == {"read"}:
                route.openapi_extra = {"security": [{}]}


def _unauthorized(what: str, scope: str = "read", *, error: str = "") -> HTTPException:
    challenge = f'Bearer realm="advisor", error="{error}"' if error else 'Bearer realm="advisor"'
    return HTTPException(
        401,
        f"{what}. Make one: advisor tokens create NAME --scope {scope}, and send it as "
        "Authorization: Bearer TOKEN.",
        headers={"WWW-Authenticate": challenge},
    )


Reader: TypeAlias = Annotated[Caller, Depends(_Needs("read"))]
"""The parameter of a route that reads."""

Writer: TypeAlias = Annotated[Caller, Depends(_Needs("write"))]
"""The parameter of a route that changes points or observations."""

Launcher: TypeAlias = Annotated[Caller, Depends(_Needs("launch"))]
"""The parameter of a route that starts or stops jobs."""

Admin: TypeAlias = Annotated[Caller, Depends(_Needs("admin"))]
"""The parameter of a route that changes models or reads the audit log."""
