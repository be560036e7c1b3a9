"""Who changed or launched what."""

from typing import Annotated, Any

from fastapi import Query

from advisor.formats.typed_json import to_plain
from advisor_api.http.access import Admin
from advisor_api.http.routing import v1_router
from advisor_api.schemas.answers import AuditAnswer
from advisor_api.schemas.requests import LimitInQuery
from advisor_api.service.service import ServiceOf

router = v1_router("audit")

_LARGEST_NUMBER = 2**63 - 1


@router.get("/audit", response_model=AuditAnswer)
def audit(
    _: Admin,
    service: ServiceOf,
    limit: LimitInQuery = 100,
    before: Annotated[
        int | None,
        Query(ge=1, le=_LARGEST_NUMBER, description="only entries with a lower number"),
    ] = None,
) -> dict[str, Any]:
    """The audit log, the newest first."""
    return {"entries": [to_plain(entry) for entry in service.state.audit_log(limit, before)]}
