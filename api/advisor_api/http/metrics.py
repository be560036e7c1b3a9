"""What every server of ours counts of HTTP, in a registry of its own process."""

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class HttpMetrics:
    """The numbers of one process; what else is to be shown is made with its registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        of_route = ("route", "method", "status")
        self._requests = self.counter("requests", "Requests answered", of_route)
        self._latency = Histogram(
            "advisor_request_duration_seconds",
            "From the head of a request to the end of its answer, s",
            ("route",),
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        self.in_flight = self.gauge("requests_in_flight", "Requests being answered")
        self.open_connections = self.gauge("connections_open", "Open connections")
        self.refused_tokens = self.counter("tokens_refused", "Requests with no good token")
        self.refused_connections = self.counter(
            "connections_refused", "Connections closed to make room, or at once for want of it"
        )
        # To look children up by their labels takes a lock each time.
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def count(self, route: str, method: str, status: int, duration_s: float) -> None:
        """Count an answer by the template of its path: names in paths make no new series."""
        key = (route, method, status)
        children = self._children.get(key)
        if children is None:
            children = (self._requests.labels(*map(str, key)), self._latency.labels(route))
            self._children[key] = children
        children[0].inc()
        children[1].observe(duration_s)

    def text(self) -> bytes:
        """All numbers in the text format of Prometheus."""
        return generate_latest(self.registry)

    def gauge(self, name: str, text: str) -> Gauge:
        """A new number that goes up and down."""
        return Gauge(f"advisor_{name}", text, registry=self.registry)

    def counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        """A new number that only goes up."""
        return Counter(f"advisor_{name}", text, labels, registry=self.registry)


def family(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
    name: str,
    text: str,
    labels: Sequence[str],
    values: Iterable[tuple[Sequence[str | None], float | None]],
) -> Metric:
    """What a collector gives: a metric with the values that are known, of labels that are."""
    found = kind(f"advisor_{name}", text, labels=labels)
    for of, value in values:
        known = [label for label in of if label is not None]
        if value is not None and len(known) == len(of):
            found.add_metric(known, float(value))
    return found
