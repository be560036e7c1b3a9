"""Traces that are sent over OTLP, by the variables that all of its exporters read."""

from collections.abc import Mapping

from opentelemetry import trace

from advisor.errors import InputError

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
_PROTOCOL = "http/protobuf"


def send_traces(environment: Mapping[str, str]) -> None:
    """Send all spans of this process from now on; what is left when it ends is sent then.

    Raises:
        InputError: there is nowhere to send to, or in another way than we can.
        ModuleNotFoundError: the extra `otel` is not installed.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    if not any(map(environment.get, _ENDPOINTS)):
        raise InputError(
            "--otel has nowhere to send traces to",
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
