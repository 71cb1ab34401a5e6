"""`penstock telemetry` beside a real daemon: what a collector hears, decoded with OpenTelemetry's own messages."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from penstock.cli import telemetry
from penstock.client.connection import ask
from penstock.trial.stage import process
from tests.daemon_house import DaemonHouse
from tests.integration import test_daemon
from tests.loopback import Answers, Server, serving

endpoints, stage = test_daemon.endpoints, test_daemon.stage
_MESSAGES: dict[str, Any] = {
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/traces": ExportTraceServiceRequest,
}


class _Heard(Answers):
    server: Collector

    def reply(self) -> None:
        body, collector = self.rfile.read(int(self.headers["Content-Length"])), self.server
        is_refused = self.path == "/v1/traces" and collector.refused_count > 0
        if is_refused:
            collector.refused_count -= 1
        else:
            collector.heard.append((self.path, _MESSAGES[self.path].FromString(body)))
        self.answer(400 if is_refused else 200)


class Collector(Server):
    """An OTLP receiver: what was sent to it, by path."""

    def __init__(self) -> None:
        super().__init__(_Heard)
        self.heard: list[tuple[str, Any]] = []
        self.refused_count = 0  # so many traces more are not taken

    def of(self, path: str) -> list[Any]:
        return [message for heard_path, message in self.heard if heard_path == path]


def test_a_collector_hears_metrics_and_cycles(stage: DaemonHouse) -> None:
    """All that Prometheus would be told, and of each cycle once a trace, also where it was refused at first."""
    collector = Collector()
    collector.refused_count = 1
    with stage.daemon(), serving(collector) as url:
        stage.wait_for(lambda status: status["cycle_count"] >= 1)
        command = ["-m", "penstock", "telemetry", "--interval", "0.2s", "--socket", str(stage.socket_path)]
        named = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test",
        }
        with process([sys.executable, *command], named):
            stage.wait_for(lambda _: _probes(collector) != [])
        exposition = ask(str(stage.socket_path), "GET", "/metrics").body.decode()

    (resource,) = collector.of("/v1/metrics")[-1].resource_metrics
    said = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
    assert said["service.name"] == "penstock"
    assert said["cloud.region"] == "lab-1"
    assert said["deployment.environment"] == "test"
    heard = {metric.name for metric in resource.scope_metrics[0].metrics}
    told = {line.split()[2] for line in exposition.splitlines() if line.startswith("# TYPE ")}
    assert {name.removesuffix("_total") for name in told} == heard
    whole = [span for span in _spans(collector) if span.name == "cycle"]
    began = [span.start_time_unix_nano for span in whole]
    assert len(began) == len(set(began))
    probe = _probes(collector)[0]
    (cycle,) = [span for span in whole if span.span_id == probe.parent_span_id]
    assert cycle.start_time_unix_nano <= probe.start_time_unix_nano < probe.end_time_unix_nano
    assert probe.end_time_unix_nano <= cycle.end_time_unix_nano
    assert {key.key for key in cycle.attributes} >= {"operation", "region", "sentence", "is_conclusive"}
    assert {"transferred_bytes", "throttled_count"} <= {key.key for key in probe.attributes}


def _spans(collector: Collector) -> list[Any]:
    return [
        span
        for message in collector.of("/v1/traces")
        for resource in message.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _probes(collector: Collector) -> list[Any]:
    return [span for span in _spans(collector) if span.name == "probe"]


@pytest.mark.parametrize(
    ("count", "sent_count", "fresh"),
    [(5, None, []), (5, 5, []), (5, 3, [4, 5]), (2, 9, [1, 2]), (9, 1, [7, 8, 9]), (0, 0, [])],
)
def test_each_cycle_is_sent_once(count: int, sent_count: int | None, fresh: list[int]) -> None:
    """From the start of the command on, of those that are shown; after a restart of the daemon from its first."""
    shown = [{"number": number} for number in range(max(1, count - 2), count + 1)]
    found = telemetry.fresh_cycles({"cycle_count": count, "cycles": shown}, sent_count)
    assert [cycle["number"] for cycle in found] == fresh
