"""The audit log of routes: nothing is written or launched that could not be recorded first."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, TypeAlias, cast

from fastapi import Depends, Request

from advisor.errors import StoreError
from advisor.formats.moments import now
from advisor.formats.rows import P
from advisor_api.http.access import Caller
from advisor_api.http.errors import LOG, fault_of
from advisor_api.service.service import ServiceOf
from advisor_data.state import AuditEntry, ServiceState


class RequestAudit:
    """Records what one request does."""

    def __init__(self, state: ServiceState, caller: Caller, request_id: str, client: str) -> None:
        self._state, self._caller = state, caller
        self._request_id, self._client = request_id, client

    def signed(self, records: Iterable[P]) -> list[P]:
        """The records as this caller's, whoever they say wrote them."""
        return [replace(record, written_by=self._caller.name) for record in records]

    @contextmanager
    def of(self, action: str, subject: str) -> Generator[None]:
        """Record an action before it begins, and how it ended: `done`, or the code of its error.

        It writes to the database, so it belongs in a thread (a `def` route, or `to_thread`).

        Raises:
            StoreError: it could not be recorded; nothing was done.
        """
        self._record(action, subject, "begun")
        try:
            yield
        except Exception as error:  # only to write down how it ended
            self._record_end(action, subject, fault_of(error).code)
            raise
        self._record_end(action, subject, "done")

    def _record(self, action: str, subject: str, outcome: str) -> None:
        self._state.audit(
            AuditEntry(
                at=now(),
                who=self._caller.name,
                action=action,
                subject=subject,
                outcome=outcome,
                request_id=self._request_id,
                client=self._client,
            )
        )

    def _record_end(self, action: str, subject: str, outcome: str) -> None:
        # It has happened, and its beginning is in the log: an error now would tell a lie.
        try:
            self._record(action, subject, outcome)
        except StoreError as error:
            LOG.error("%s: the audit log has no end of %s: %s", self._request_id, action, error)


async def _audit(request: Request, service: ServiceOf) -> RequestAudit:
    scope = request.scope
    caller = cast("Caller", scope["advisor.caller"])
    request_id = cast("str", scope["advisor.request_id"])
    return RequestAudit(
        service.state, caller, request_id, request.client.host if request.client else ""
    )


Audited: TypeAlias = Annotated[RequestAudit, Depends(_audit)]
"""The parameter of a route that changes something: `with audited.of("replace-profile", job):`."""
