"""`advisor tokens`: rights of users and programs at the service."""

import dataclasses
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.formats.moments import now
from advisor.settings import read_settings
from advisor_cli.console import AsJson, Columns, as_json_text, print_table, say, table_of

if TYPE_CHECKING:
    from advisor_data.state import ServiceState, Token


app = typer.Typer(help="Make, list and revoke access tokens of the service.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Owner or use of the token, as shown in the audit log")]


@app.command("create")
def create(
    name: Name,
    scope: Annotated[
        list[str],
        typer.Option(
            help="Scope, repeatable. read: ask; write: also add points; launch: start and "
            "stop jobs; admin: everything"
        ),
    ],
    days: Annotated[
        int | None, typer.Option(help="Days until it expires (default: never)", min=1, max=36500)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a token and print its secret, once: only its hash is kept.

    Example: advisor tokens create scheduler --scope read --days 90
    """
    expires_at = None if days is None else (datetime.now(UTC) + timedelta(days=days)).isoformat()
    with _state() as state:
        token, secret = state.make_token(name, tuple(scope), expires_at)
        _note(state, "token.create", name)
    if as_json:
        say(as_json_text({**_plain(token), "secret": secret}))
        return
    until = f" until {token.expires_at}" if token.expires_at else ", and does not expire"
    say(f"{name} may {', '.join(token.scopes)}{until}. Its secret, shown once:", err=True)
    say(secret)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List all tokens, revoked ones included, the newest first; secrets are not stored.

    Example: advisor tokens list
    """
    with _state() as state:
        tokens = state.tokens()
    if as_json:
        say(as_json_text({"tokens": [_plain(token) for token in tokens]}))
    elif tokens:
        print_table(table_of(_COLUMNS, tokens))
    else:
        say("no token yet: advisor tokens create NAME --scope read")


@app.command("revoke")
def revoke(name: Name, as_json: AsJson = False) -> None:
    """Revoke a token; servers accept it for one more second at most.

    Example: advisor tokens revoke scheduler
    """
    with _state() as state:
        state.revoke_token(name)
        _note(state, "token.revoke", name)
    say(as_json_text({"revoked": name}) if as_json else f"{name} is revoked")


def _state() -> "ServiceState":
    from advisor_data.state import ServiceState  # SQLAlchemy takes time to load

    settings = read_settings()
    return ServiceState(settings.database_url, settings.home)


def _note(state: "ServiceState", action: str, name: str) -> None:
    from advisor_data.state import AuditEntry

    state.audit(
        AuditEntry(
            at=now(), who=f"user id {os.getuid()}", action=action, subject=name, outcome="ok"
        )
    )


def _plain(token: "Token") -> dict[str, object]:
    return {**dataclasses.asdict(token), "state": _standing(token)}


def _standing(token: "Token") -> str:
    return "valid" if token.lives() else "revoked" if token.revoked_at else "expired"


_COLUMNS: "Columns[Token]" = (
    ("token", lambda token: token.name),
    ("may", lambda token: ", ".join(token.scopes)),
    ("made", lambda token: token.created_at[:10]),
    ("expires", lambda token: (token.expires_at or "never")[:10]),
    ("state", _standing),
)
