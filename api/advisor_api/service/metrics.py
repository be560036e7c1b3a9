"""What `/metrics` of the service shows beside HTTP: model and recommendations."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import datetime

from prometheus_client import Gauge
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from advisor_api.engine.engine import Engine
from advisor_api.http.metrics import HttpMetrics
from advisor_models.manifest import Manifest


class Metrics(HttpMetrics):
    """The numbers of one process of the service."""

    def __init__(self) -> None:
        super().__init__()
        self._model = Gauge(
            "advisor_model_info", "1 for the model in use", ("version",), registry=self.registry
        )
        self._model_made = self.gauge(
            "model_created_timestamp_seconds", "When the model in use was made, s since 1970"
        )

    def show_model(self, model: Manifest) -> None:
        """Show which model is in use, and when it was made."""
        self._model.clear()
        self._model.labels(model.version).set(1)
        self._model_made.set(datetime.fromisoformat(model.created_at).timestamp())

    @contextmanager
    def of_engine(self, engine: Engine) -> Generator[None]:
        """Show what an engine has counted, while it is in use."""
        collector = _OfEngine(engine)
        self.registry.register(collector)
        try:
            yield
        finally:
            self.registry.unregister(collector)


class _OfEngine(Collector):
    """What the engine counts by itself, as it has no registry."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[CounterMetricFamily]:
        """As the registry asks for it, at each scrape."""
        text = "Recommendations, by whether an equal one was kept in memory"
        family = CounterMetricFamily("advisor_recommendations", text, labels=("kept",))
        family.add_metric(("yes",), self._engine.hits)
        family.add_metric(("no",), self._engine.misses)
        yield family
