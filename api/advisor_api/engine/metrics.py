"""What `/metrics` shows, in a registry of this service alone."""

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from advisor_api.engine.engine import Engine
from advisor_models.manifest import Manifest

_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """The numbers of one process.

    Attributes:
        registry: What else is to be shown is made with this registry.
        in_flight: Requests being answered.
        refused_tokens: Requests with a token that is not good.
        refused_connections: Connections closed at once, as there were too many.
        open_connections: Connections that are open.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        of_route = ("route", "method", "status")
        self._requests = Counter(
            "advisor_requests", "Requests answered", of_route, registry=self.registry
        )
        self._latency = Histogram(
            "advisor_request_duration_seconds",
            "From the head of a request to the end of its answer, s",
            ("route",),
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        self._model = Gauge(
            "advisor_model_info", "1 for the model in use", ("version",), registry=self.registry
        )
        self._model_age = Gauge(
            "advisor_model_age_seconds",
            "Age of the model in use, s",
            registry=self.registry,
        )
        self.in_flight = self._gauge("requests_in_flight", "Requests being answered")
        self.open_connections = self._gauge("connections_open", "Open connections")
        self.refused_tokens = self._counter("tokens_refused", "Requests with no good token")
        self.refused_connections = self._counter(
            "connections_refused", "Connections closed to make room, or at once for want of it"
        )
        # To look children up by their labels takes a lock each time.
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def count(self, route: str, method: str, status: int, duration_s: float) -> None:
        """Count an answer.

        Args:
            route: Template of its path, so that names in paths make no new series.
            method: Its HTTP method.
            status: Its HTTP status.
            duration_s: How long it took, s.
        """
        key = (route, method, status)
        children = self._children.get(key)
        if children is None:
            children = (self._requests.labels(*map(str, key)), self._latency.labels(route))
            self._children[key] = children
        children[0].inc()
        children[1].observe(duration_s)

    def show_model(self, model: Manifest) -> None:
        """Show which model is in use, and how old it is."""
        self._model.clear()
        self._model.labels(model.version).set(1)
        made_s = datetime.fromisoformat(model.created_at).timestamp()
        # Asked each time: a service runs for months. A clock that was set back makes nobody younger
        # than new.
        self._model_age.set_function(lambda: max(0.0, time.time() - made_s))

    @contextmanager
    def of_engine(self, engine: Engine) -> Generator[None]:
        """Show what an engine has counted, while it is in use."""
        collector = _OfEngine(engine)
        self.registry.register(collector)
        try:
            yield
        finally:
            self.registry.unregister(collector)

    def text(self) -> bytes:
        """All numbers in the text format of Prometheus."""
        return generate_latest(self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"advisor_{name}", text, registry=self.registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"advisor_{name}", text, registry=self.registry)


class _OfEngine(Collector):
    """What the engine counts by itself, as it has no registry."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[CounterMetricFamily]:
        text = "Recommendations, by whether an equal one was kept in memory"
        family = CounterMetricFamily("advisor_recommendations", text, labels=("kept",))
        family.add_metric(("yes",), self._engine.hits)
        family.add_metric(("no",), self._engine.misses)
        yield family
