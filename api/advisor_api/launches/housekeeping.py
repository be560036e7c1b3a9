"""Removes what is beyond the bounds of its site, about once an hour; a part of the reconciler."""

import math
import time
from datetime import UTC, datetime, timedelta

from advisor.formats.moments import to_text
from advisor_api.http.errors import LOG
from advisor_api.launches.steps import launches_folder
from advisor_api.service.service import Service
from advisor_data.cleaning import Cleaned, Cleaner

EVERY_S = 3600.0

WHO = "service"
"""Who removed something, in the audit log."""


class Housekeeping:
    """Keeps launch folders and the audit log of a service within their bounds."""

    def __init__(self, service: Service) -> None:
        self._state, self._bounds = service.state, service.settings.retention
        self._cleaner = Cleaner(
            root=launches_folder(service.settings),
            bounds=self._bounds,
            store=service.store,
            state=service.state,
            who=WHO,
        )
        self._next_s = -math.inf
        self._said = set[str]()

    def look(self) -> None:
        """Remove what is beyond its bound, where the last time is an hour ago.

        Raises:
            StoreError: the database does not answer.
            UnsafeFileError: other users may write to the folder of launches.
        """
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + EVERY_S
        self._tell(self._cleaner.clean())
        self._prune()

    def _prune(self) -> None:
        if math.isinf(self._bounds.audit_days):
            return
        before = to_text(datetime.now(UTC) - timedelta(days=self._bounds.audit_days))
        if count := self._state.prune_audit_log(before, WHO):
            LOG.info("%s entries of the audit log before %s were removed", count, before)

    def _tell(self, cleaned: Cleaned) -> None:
        for one in cleaned.removed:
            LOG.info(
                "the folder of the launch %s, which ended %s, was removed for its %s: %.1f MiB",
                one.launch_id, one.ended_at, one.reason, one.size_bytes / 2**20,
            )  # fmt: skip
        said = [f"the launch {one.launch_id} is not removed: {one.why}" for one in cleaned.kept]
        # Once, however often it is looked at.
        for text in said:
            if text not in self._said:
                LOG.error("%s", text)
        self._said = set(said)
