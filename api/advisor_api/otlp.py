"""Traces and metrics that are sent over OTLP, by the variables that all of its exporters read."""

from collections.abc import Iterator, Mapping
from functools import partial

from opentelemetry import metrics, trace
from prometheus_client.registry import Collector

from advisor.errors import InputError

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_METRICS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
_PROTOCOL = "http/protobuf"


def send_all(environment: Mapping[str, str]) -> None:
    """Send all spans and metrics of this process; what is left when it ends is sent then.

    Raises:
        InputError: there is nowhere to send to, or in another way than we can.
        ModuleNotFoundError: the extra `otel` is not installed.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    if not any(map(environment.get, _ENDPOINTS)):
        raise InputError(
            "--otel has nowhere to send to",
            why=f"neither {_ENDPOINTS[0]} nor {_ENDPOINTS[1]} is set",
            fix=f"give the address of a collector, such as {_ENDPOINTS[0]}=http://localhost:4318",
        )
    for name in _PROTOCOLS:
        if (given := environment.get(name, _PROTOCOL)) != _PROTOCOL:
            raise InputError(
                f"{name} is {given}",
                why=f"traces are sent as {_PROTOCOL} alone",
                fix="leave it out, and give the port for that, 4318 as a rule",
            )
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    # As the variables are meant: an endpoint of traces alone, or `none`, keeps metrics here.
    if any(map(environment.get, _METRICS)) and environment.get("OTEL_METRICS_EXPORTER") != "none":
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        metrics.set_meter_provider(
            MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())])
        )


def tell_metrics(collector: Collector) -> None:
    """Send what a collector shows Prometheus, under the same names; by `send_all`, else nowhere."""
    meter = metrics.get_meter("advisor")
    for family in collector.collect():
        is_sum = family.type == "counter"
        make = meter.create_observable_counter if is_sum else meter.create_observable_gauge
        callbacks = [partial(_observed, collector, family.name)]
        make(family.name, callbacks, description=family.documentation)


def _observed(
    collector: Collector, name: str, _options: metrics.CallbackOptions
) -> Iterator[metrics.Observation]:
    return (
        metrics.Observation(sample.value, sample.labels)
        for family in collector.collect()
        if family.name == name
        for sample in family.samples
    )
