"""Models, the audit log, and whether the service lives: the calls of those who look after it."""

from typing import Any

from advisor.client.errors import ApiError, TooSlowError, UnreachableError
from advisor.client.exchange import Ask, Exchange, quoted
from advisor.wire.lists import AuditEntry, AuditLog, Champion, ModelDetails, ModelList


class Managing(Exchange):
    """Calls of those who look after the service."""

    def models(self) -> ModelList:
        """The models of the service, and when which of them became the champion."""
        return self._get("/v1/models", ModelList)

    def model(self, version: str) -> ModelDetails:
        """All that is known of one model; `bundled` came with advisor."""
        return self._get(_of_model(version), ModelDetails)

    def evaluation(self, version: str) -> dict[str, Any]:
        """What `advisor evaluate` found of a model that carries it."""
        return self._get(f"{_of_model(version)}/evaluation", dict[str, Any])

    def promote(self, version: str) -> Champion:
        """Make a model the champion: the next answer is made with it."""
        return self._change(f"{_of_model(version)}/promote")

    def rollback(self) -> Champion:
        """Go back to the champion that the last promotion replaced."""
        return self._change("/v1/models/rollback")

    def audit(self, *, limit: int = 100, before: int | None = None) -> tuple[AuditEntry, ...]:
        """Who changed or launched what, the newest first.

        Args:
            limit: At most this many, up to 1000.
            before: Only entries with a lower number.
        """
        return self._get("/v1/audit", AuditLog, limit=limit, before=before).entries

    def healthy(self) -> bool:
        """Whether the service lives: now, so it is asked once."""
        return self._says_ok("/healthz")

    def ready(self) -> bool:
        """Whether it can answer: its database and its model, too. It is asked once."""
        return self._says_ok("/readyz")

    def _change(self, path: str) -> Champion:
        # Not repeated: each one is a change of its own, and two rollbacks go back twice.
        return self._ask(Ask(method="POST", path=path, repeatable=False), Champion)

    def _says_ok(self, path: str) -> bool:
        try:
            self._answered(Ask(method="GET", path=path, repeatable=False))
        except (UnreachableError, TooSlowError):
            return False
        except ApiError as error:
            if error.status != 503:
                raise
            return False
        return True


def _of_model(version: str) -> str:
    return f"/v1/models/{quoted(version)}"
