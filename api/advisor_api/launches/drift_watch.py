"""Looks once a minute whether jobs drift: for advice, the audit log and `/metrics`."""

from collections.abc import Generator
from contextlib import contextmanager

from prometheus_client import Gauge

from advisor.formats.moments import now
from advisor_advice.conditions import checks_of, experience_of
from advisor_api.launches.reconciler import looking
from advisor_api.service import Service
from advisor_data.lists import Span
from advisor_data.state import AuditEntry

LOOK_S = 60.0

# In the audit log: nobody asked for it.
_WHO = "advisor"

BEGUN, ENDED = "begun", "done"

_QUANTITIES = ("rate", "power")


class DriftWatch:
    """Holds the observations of a store against the model; its engine is given what is found."""

    def __init__(self, service: Service, gauge: Gauge) -> None:
        self._service, self._gauge = service, gauge
        self._seen: object = None
        self._open: set[str] | None = None

    def look(self) -> None:
        """One look; nothing is worked out where there is no new observation and no new model.

        Raises:
            ModelError: there is no model, or it is damaged.
            StoreError: the database does not answer.
        """
        service = self._service
        newest = service.store.observation_page(None, Span(limit=1)).records
        state = (
            newest and newest[0].point_id,
            service.registry.stamp(),
            service.state.change_count(),
        )
        if not newest or state == self._seen:
            return
        predictor, settings = service.registry.open_champion(), service.settings
        found = experience_of(service.store, predictor, checks_of(settings), settings.home)
        service.engine.present.observed(found)
        for quantity in _QUANTITIES:
            count = sum(drift.quantity == quantity for drift in found.drifts)
            self._gauge.labels(quantity).set(count)
        known = self._begun() if self._open is None else self._open
        there = {
            f"{one.job} {one.quantity} {one.gpu_uuid or one.gpu_model} since {one.since}"
            for one in found.drifts
        }
        for subject, outcome in (
            *((subject, BEGUN) for subject in sorted(there - known)),
            *((subject, ENDED) for subject in sorted(known - there)),
        ):
            service.state.audit(
                AuditEntry(at=now(), who=_WHO, action="drift", subject=subject, outcome=outcome)
            )
        self._open, self._seen = there, state

    def _begun(self) -> set[str]:
        """Drifts that an earlier service saw begin, and none end."""
        last: dict[str, str] = {}
        for entry in self._service.state.audit_log(1000):
            if entry.action == "drift":
                last.setdefault(entry.subject, entry.outcome)
        return {subject for subject, outcome in last.items() if outcome == BEGUN}


@contextmanager
def watching_drift(service: Service) -> Generator[DriftWatch]:
    """Look at the observations until the end of the block."""
    gauge = Gauge(
        "advisor_drifting",
        "Quantities of jobs on cards that do other than the model in use expects",
        ("quantity",),
        registry=service.metrics.registry,
    )
    for quantity in _QUANTITIES:
        gauge.labels(quantity).set(0)
    watch = DriftWatch(service, gauge)
    try:
        with looking("drift", watch.look, LOOK_S):
            yield watch
    finally:
        service.metrics.registry.unregister(gauge)
