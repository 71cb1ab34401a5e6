"""Knows `penstock telemetry`: sends the daemon's metrics and cycles by OTLP; only this file imports OpenTelemetry.

It runs as a process of its own beside the daemon, which opens no such connection and never loads these libraries. The
environment variables of OpenTelemetry's specification state the endpoint, headers and certificates.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.daemon import call, socket_option
from penstock.cli.examples import examples
from penstock.cli.quantities import PERIOD
from penstock.cli.trouble import TroubleError
from penstock.client.connection import NoDaemonError, ask

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric, MetricsData
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan

NOT_INSTALLED = "it takes OpenTelemetry: pip install 'penstock[daemon,otlp]'"
_SCOPE = "penstock"


@click.command(
    epilog=examples(
        "penstock telemetry                              to a collector on this host, port 4318",
        "OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318 penstock telemetry --interval 15s",
    )
)
@click.option(
    "--interval", "interval_seconds", type=PERIOD, default="60s", show_default=True, help="How often."
)
@click.option("--json", "as_json", is_flag=True, help="Print what was sent, and taken, as lines of JSON.")
@socket_option
def telemetry(*, interval_seconds: float, as_json: bool, socket_path: str) -> None:
    """Send metrics and traces of the daemon by OTLP (HTTP and protobuf), until Ctrl-C.

    The metrics are those of /metrics. Each cycle of the daemon is a trace, and the probe in it a span. The variables
    OTEL_EXPORTER_OTLP_ENDPOINT, _HEADERS, _CERTIFICATE and OTEL_RESOURCE_ATTRIBUTES are obeyed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics.export import MetricExportResult
        from opentelemetry.sdk.trace.export import SpanExportResult
    except ImportError as trouble:
        raise TroubleError(f"nothing was sent: {NOT_INSTALLED} ({trouble})") from trouble
    metrics, traces = OTLPMetricExporter(), OTLPSpanExporter()
    sent_count: int | None = None
    while True:
        try:
            status = call(socket_path, "GET", "/v1/status")
            exposition = ask(socket_path, "GET", "/metrics").body.decode()
        except NoDaemonError as trouble:
            click.echo(f"{trouble}; asked again in {interval_seconds:g} s", err=True)
        else:  # the exporters themselves log what is not accepted
            resource = resource_of(status)
            told = metrics_data(exposition, status, resource)
            is_taken = metrics.export(told) is MetricExportResult.SUCCESS
            cycles = fresh_cycles(status, sent_count)
            if not cycles or traces.export(spans(cycles, resource)) is SpanExportResult.SUCCESS:
                sent_count = status["cycle_count"]
            else:
                is_taken = False
            if as_json:
                click.echo(json.dumps({"cycle_count": len(cycles), "is_taken": is_taken}))
        time.sleep(interval_seconds)


def resource_of(status: Mapping[str, Any]) -> Resource:
    """The resource that identifies the daemon; OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME override it."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    own = {
        "service.name": "penstock",
        "service.version": status["version"],
        "host.name": platform.node(),
        "cloud.region": status["region"] or "",
        "host.type": status["instance_type"] or "",
    }
    return Resource({name: value for name, value in own.items() if value}).merge(
        OTELResourceDetector().detect()
    )


def metrics_data(exposition: str, status: Mapping[str, Any], resource: Resource) -> MetricsData:
    """The Prometheus metrics in OpenTelemetry's form: counters since the daemon's start, and gauges."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    told = list(_metrics(exposition, _nanoseconds(status["started_at"])))
    scope = InstrumentationScope(_SCOPE, status["version"])
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, told, "")], "")])


def _metrics(exposition: str, started_at: int) -> Iterator[Metric]:
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Metric, NumberDataPoint, Sum
    from prometheus_client.parser import text_string_to_metric_families

    now = time.time_ns()
    for family in text_string_to_metric_families(exposition):
        is_counter = family.type == "counter"
        points = [
            NumberDataPoint(dict(sample.labels), started_at if is_counter else 0, now, sample.value)
            for sample in family.samples
        ]
        total = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
        yield Metric(family.name, family.documentation, "", total if is_counter else Gauge(points))


def fresh_cycles(status: Mapping[str, Any], sent_count: int | None) -> Sequence[Mapping[str, Any]]:
    """The cycles since `sent_count`; none at first, and all that are shown after a daemon's restart."""
    count, shown = status["cycle_count"], status["cycles"]
    if sent_count is None:
        return []
    fresh_count = count - sent_count if count >= sent_count else count
    return shown[max(0, len(shown) - fresh_count) :]  # type: ignore[no-any-return]  # it is JSON


def spans(cycles: Sequence[Mapping[str, Any]], resource: Resource) -> Sequence[ReadableSpan]:
    """A trace for each cycle, from its beginning to the advice, with a span for its probe."""
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.trace import set_span_in_context

    made = InMemorySpanExporter()
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(made))
    tracer = provider.get_tracer(_SCOPE)
    for cycle in cycles:
        labels = {name: cycle[name] for name in ("operation", "region", "payload_size_bytes")}
        told = {**labels, "sentence": cycle["sentence"], "is_conclusive": cycle["is_conclusive"]}
        whole = tracer.start_span(
            "cycle", Context(), attributes=told, start_time=_nanoseconds(cycle["began_at"])
        )
        if (probe := cycle["probe"]) is not None:
            numbers = {name: value for name, value in probe["setting"].items() if value is not None}
            seen = {**labels, **numbers, **{n: probe[n] for n in probe if n.endswith(("_count", "_bytes"))}}
            began = _nanoseconds(probe["began_at"])
            inner = tracer.start_span("probe", set_span_in_context(whole), attributes=seen, start_time=began)
            inner.end(_nanoseconds(probe["began_at"], probe["duration_seconds"]))
        whole.end(_nanoseconds(cycle["at"]))
    return made.get_finished_spans()


def _nanoseconds(date: str, seconds: float = 0.0) -> int:
    """Nanoseconds since 1970 of a date, plus these seconds."""
    moment = datetime.fromisoformat(date) + timedelta(seconds=seconds)
    return int(moment.timestamp() * 1e6) * 1000
