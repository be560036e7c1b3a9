"""Models, the audit log, and whether the service lives: the calls of those who look after it."""

from typing import Any

from advisor.client.errors import ApiError, TooSlowError, UnreachableError
from advisor.client.exchange import Ask, Flow, confirm, exchange, quoted
from advisor.wire.lists import AuditEntry, AuditLog, Champion, ModelDetails, ModelList


def models() -> Flow[ModelList]:
    """The models of the service, and when which of them became the champion."""
    return exchange(Ask(method="GET", path="/v1/models"), ModelList)


def model(version: str) -> Flow[ModelDetails]:
    """All that is known of one model; `bundled` came with advisor."""
    return exchange(Ask(method="GET", path=_of_model(version)), ModelDetails)


def evaluation(version: str) -> Flow[dict[str, Any]]:
    """What `advisor evaluate` found of a model that carries it."""
    ask = Ask(method="GET", path=f"{_of_model(version)}/evaluation")
    return exchange(ask, dict[str, Any])


def promote(version: str) -> Flow[Champion]:
    """Make a model the champion: the next answer is made with it."""
    return _change(f"{_of_model(version)}/promote")


def rollback() -> Flow[Champion]:
    """Go back to the champion that the last promotion replaced."""
    return _change("/v1/models/rollback")


def audit(*, limit: int = 100, before: int | None = None) -> Flow[tuple[AuditEntry, ...]]:
    """Who changed or launched what, the newest first.

    Args:
        limit: At most this many, up to 1000.
        before: Only entries with a lower number.
    """
    ask = Ask(method="GET", path="/v1/audit", query={"limit": limit, "before": before})
    return (yield from exchange(ask, AuditLog)).entries


def healthy() -> Flow[bool]:
    """Whether the service lives: now, so it is asked once."""
    return _says_ok("/healthz")


def ready() -> Flow[bool]:
    """Whether it can answer: its database and its model, too. It is asked once."""
    return _says_ok("/readyz")


def _of_model(version: str) -> str:
    return f"/v1/models/{quoted(version)}"


def _change(path: str) -> Flow[Champion]:
    # Not repeated: each one is a change of its own, and two rollbacks go back twice.
    return exchange(Ask(method="POST", path=path, repeatable=False), Champion)


def _says_ok(path: str) -> Flow[bool]:
    try:
        yield from confirm(Ask(method="GET", path=path, repeatable=False))
    except (UnreachableError, TooSlowError):
        return False
    except ApiError as error:
        if error.status != 503:
            raise
        return False
    return True
