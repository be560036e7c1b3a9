"""Who changed or launched what."""

from typing import Annotated

from fastapi import Query
from fastapi.responses import Response

from advisor.wire.lists import AuditLog
from advisor_api.http.access import Admin
from advisor_api.http.routing import v1_router
from advisor_api.http.sent import answer
from advisor_api.schemas.query import LimitInQuery
from advisor_api.service.service import ServiceOf

router = v1_router("audit")

_LARGEST_NUMBER = 2**63 - 1


@router.get("/audit", response_model=AuditLog)
def show_audit_log(
    _: Admin,
    service: ServiceOf,
    limit: LimitInQuery = 100,
    before: Annotated[
        int | None, Query(ge=1, le=_LARGEST_NUMBER, description="only entries with a lower number")
    ] = None,
) -> Response:
    """The audit log, the newest first."""
    return answer(AuditLog(entries=tuple(service.state.audit_log(limit, before))))
