"""Metrics are sent to a collector of OpenTelemetry, which may be slow, away or odd."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from struct import pack

import pytest
from collecting import Collecting, collecting, read_request
from conftest import no_oracle, wait_until
from leadline.errors import LeadlineError
from leadline.export.protobuf import double, fields, number, text
from leadline.metrics import push
from leadline.metrics.collector import Collector, read_collector
from leadline.metrics.families import DB_TIME, DOING, FAMILIES, GAUGE, LEVEL, OWN_MEMORY, Reading
from leadline.metrics.otlp import request
from leadline.metrics.push import Pusher

READINGS = [
    Reading(DB_TIME, ((("IO", "DataFileRead"), 1_500_000_000), (("CPU", "CPU"), 0)), 77),
    Reading(OWN_MEMORY, (((), 1 << 40),), 77),
    Reading(DOING, ((("recording",), 1), (("waiting",), 0)), 77),
]


# -- what the environment says ---------------------------------------------------------------------------------------------


def collector(url: str = "", **environ: str) -> Collector:
    return read_collector(url, environ)


def test_where_it_is() -> None:
    assert collector().name == "http://localhost:4318/v1/metrics"
    assert collector("http://[::1]:4318").host == "::1"
    assert collector("http://c/otlp/").name == "http://c:80/otlp/v1/metrics"
    assert collector("http://c:1/v1/metrics").name == "http://c:1/v1/metrics"
    assert collector(OTEL_EXPORTER_OTLP_ENDPOINT="https://c").name == "https://c:443/v1/metrics"
    assert collector(OTEL_EXPORTER_OTLP_METRICS_ENDPOINT="http://c:9/as/it/is", OTEL_EXPORTER_OTLP_ENDPOINT="http://d").name == "http://c:9/as/it/is"
    assert collector("http://u", OTEL_EXPORTER_OTLP_METRICS_ENDPOINT="http://c").host == "u", "what the user says goes before"


def test_what_else_it_says() -> None:
    found = collector(
        OTEL_EXPORTER_OTLP_HEADERS="api-key=a%20b%2C, x = y==", OTEL_METRIC_EXPORT_INTERVAL="5000", OTEL_EXPORTER_OTLP_TIMEOUT="2000",
        OTEL_EXPORTER_OTLP_COMPRESSION="gzip", OTEL_RESOURCE_ATTRIBUTES="deployment.environment=test,service.name=a", OTEL_SERVICE_NAME="b",
    )  # fmt: skip
    assert found.headers == {"api-key": "a b,", "x": "y=="}
    assert (found.interval_s, found.timeout_s, found.gzip) == (5.0, 2.0, True)
    assert found.resource == {"deployment.environment": "test", "service.name": "b"}
    assert collector(OTEL_EXPORTER_OTLP_METRICS_HEADERS="a=1", OTEL_EXPORTER_OTLP_HEADERS="b=2").headers == {"a": "1"}
    assert collector(OTEL_EXPORTER_OTLP_HEADERS=" ", OTEL_METRIC_EXPORT_INTERVAL="").interval_s == 60.0
    assert "secret" not in repr(collector(OTEL_EXPORTER_OTLP_HEADERS="k=secret"))


@pytest.mark.parametrize(
    ("url", "environ"),
    [
        ("postgres:///shop", {}), ("c:4318", {}), ("http://", {}), ("http://c:x", {}), ("http://c:99999", {}), ("ftp://c", {}),
        ("--unit", {}),
        ("http://user:secret@c", {}), ("http://secret@c", {}), ("grpc://user:secret@c", {}), ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": "grpc://secret@c"}),
        ("", {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}), ("", {"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/json"}),
        ("", {"OTEL_EXPORTER_OTLP_COMPRESSION": "zstd"}),
        ("", {"OTEL_EXPORTER_OTLP_HEADERS": "secret"}), ("", {"OTEL_EXPORTER_OTLP_HEADERS": "a=secret%0d%0ab"}),
        ("", {"OTEL_EXPORTER_OTLP_HEADERS": "a b=secret"}), ("", {"OTEL_EXPORTER_OTLP_HEADERS": "=secret"}),
        ("", {"OTEL_METRIC_EXPORT_INTERVAL": "0"}), ("", {"OTEL_METRIC_EXPORT_INTERVAL": "1e3"}),
        ("", {"OTEL_EXPORTER_OTLP_TIMEOUT": "-1"}),
        ("https://c", {"OTEL_EXPORTER_OTLP_CERTIFICATE": "/none"}),
    ],
)  # fmt: skip
def test_what_it_says_wrong_is_one_error_without_secrets(url: str, environ: dict[str, str]) -> None:
    with pytest.raises(LeadlineError) as raised:
        read_collector(url, environ)
    assert raised.value.kind == "usage" and raised.value.hint
    assert "secret" not in str(raised.value.as_dict())


def test_what_a_collector_answers_is_read_as_far_as_it_is_whole() -> None:
    whole = number(1, 300) + text(2, "why") + double(3, 1.5) + number(2, 1)
    assert fields(whole) == {1: [300], 2: [b"why", 1], 3: [pack("<d", 1.5)]}
    for length in range(1, len(whole)):
        if length not in (3, 8, 17):  # between two fields
            with pytest.raises(ValueError):
                fields(whole[:length])
    for odd in (b"\x0b", b"\x0d1234", b"\xff" * 30):
        with pytest.raises(ValueError):
            fields(odd)


# -- what is sent ----------------------------------------------------------------------------------------------------------


def test_the_request_by_the_document_of_its_format() -> None:
    resource, found = read_request(request(READINGS, {"service.name": "leadline"}, "1.2", 99))
    assert resource == {"service.name": "leadline"}
    time, memory, doing = found["leadline.db.time"], found["process.memory.usage"], found["leadline.recorder.doing"]
    assert (time.unit, time.kind, time.monotonic, time.since, time.at) == ("s", "sum", True, {77}, {99})
    assert time.points == {("IO", "DataFileRead"): 1.5, ("CPU", "CPU"): 0.0}
    assert time.attributes == ["leadline.wait.class", "leadline.wait.event"]
    assert (memory.unit, memory.kind, memory.monotonic, memory.points) == ("By", "sum", False, {(): 1 << 40})
    assert (doing.kind, doing.points, doing.since) == ("gauge", {("recording",): 1, ("waiting",): 0}, set())


def test_the_request_by_the_official_descriptors() -> None:
    try:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    except ImportError:
        no_oracle("no opentelemetry-proto")
    body = request([Reading(f, ((tuple("x" for _ in f.labels), 3),), 77) for f in FAMILIES], {"a": "\u00e4"}, "1.2", 99)
    found = ExportMetricsServiceRequest.FromString(body)
    assert found.SerializeToString() == body, "nothing that the descriptors do not know, in their order"
    [of_resource] = found.resource_metrics
    assert of_resource.resource.attributes[0].value.string_value == "\u00e4"
    [scope] = of_resource.scope_metrics
    assert (scope.scope.name, scope.scope.version) == ("leadline", "1.2")
    pushed = [f for f in FAMILIES if f.otlp]
    assert [metric.name for metric in scope.metrics] == [f.otlp for f in pushed]
    for metric, family in zip(scope.metrics, pushed, strict=True):
        assert metric.WhichOneof("data") == ("gauge" if family.kind == GAUGE else "sum")
        data = metric.gauge if family.kind == GAUGE else metric.sum
        [point] = data.data_points
        assert (point.time_unix_nano, point.start_time_unix_nano) == (99, 0 if family.kind == GAUGE else 77)
        assert [a.key for a in point.attributes] == [name for _, name in family.labels]
        assert (point.as_double, point.as_int) == ((3e-9, 0) if family.unit == "s" else (0.0, 3))
        if family.kind != GAUGE:
            assert (data.aggregation_temporality, data.is_monotonic) == (2, family.kind != LEVEL)


# -- how it is sent --------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "FIRST_S", 0.05)


@contextmanager
def pushing(to: Collecting | str, said: list[str], **environ: str) -> Iterator[Pusher]:
    url = to if isinstance(to, str) else to.url
    wanted = read_collector(url, {"OTEL_METRIC_EXPORT_INTERVAL": "1000", "OTEL_EXPORTER_OTLP_TIMEOUT": "1000"} | environ)
    with closing(Pusher(wanted, lambda: READINGS, 77, said.append)) as pusher:
        yield pusher


def outcomes(pusher: Pusher) -> dict[str, int]:
    [reading] = pusher.readings()
    return {outcome: n for (outcome,), n in reading.points}


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_what_is_sent_arrives_with_its_headers_and_once_more_at_the_end(compression: str) -> None:
    said: list[str] = []
    environ = {"OTEL_EXPORTER_OTLP_HEADERS": "x-key=secret", "OTEL_EXPORTER_OTLP_COMPRESSION": compression, "OTEL_SERVICE_NAME": "shop"}
    with collecting() as to, pushing(to, said, **environ) as pusher:
        wait_until(lambda: outcomes(pusher)["ok"] >= 1, what="the first push")
        before = len(to.bodies)
        pusher.close()
        assert len(to.bodies) == before + 1
        assert outcomes(pusher) == {"ok": len(to.bodies), "failed": 0, "rejected": 0, "skipped": 0}
        resource, found = read_request(to.bodies[-1])
        assert resource["service.name"] == "shop" and resource.keys() >= {"service.version", "service.instance.id", "host.name"}
        assert found["leadline.db.time"].points["IO", "DataFileRead"] == 1.5
        assert to.headers[0]["x-key"] == "secret" and to.headers[0]["content-type"] == "application/x-protobuf"
        assert set(to.paths) == {"/v1/metrics"} and said == []


def test_a_collector_that_is_away_is_told_once_and_counted_and_when_it_is_back() -> None:
    said: list[str] = []
    with collecting() as to:
        to.status = 503
        with pushing(to, said) as pusher:
            wait_until(lambda: outcomes(pusher)["failed"] >= 2, what="two failures")
            assert said == [f"note: metrics cannot be sent to {to.url}/v1/metrics: it answered 503 Service Unavailable; trying again"]
            to.status = 200
            wait_until(lambda: len(said) == 2, what="the end of it")
            assert said[1].endswith(" again")
    with closing(socket.socket()) as sock:
        sock.bind(("127.0.0.1", 0))
        with pushing(f"http://127.0.0.1:{sock.getsockname()[1]}", said) as pusher:
            wait_until(lambda: outcomes(pusher)["failed"] >= 1, what="a refused connection")
    assert said[2].endswith("Connection refused; trying again")


def test_a_redirection_is_not_followed() -> None:
    """The headers may hold a key, which is for this host alone."""
    said: list[str] = []
    with collecting() as to:
        to.status = 307
        with pushing(to, said) as pusher:
            wait_until(lambda: outcomes(pusher)["failed"] >= 1, what="the failure")
        assert set(to.paths) == {"/v1/metrics"}


def test_a_collector_that_never_ends_its_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    with collecting() as to:
        to.dribbles = True
        with pushing(to, said) as pusher:
            wait_until(lambda: outcomes(pusher)["failed"] >= 2, what="two pushes that were given up")
            monkeypatch.setattr(push, "LAST_S", 0.2)
            pusher.close()
            assert not pusher._thread.is_alive()


def test_what_the_collector_does_not_take_is_counted() -> None:
    said: list[str] = []
    with collecting() as to:
        to.answer = bytes([0x0A, 9, 0x08, 3, 0x12, 5]) + b"quota"
        with pushing(to, said) as pusher:
            wait_until(lambda: outcomes(pusher)["rejected"] >= 2, what="two answers")
        assert said == ["note: the collector did not take all metrics: 3 points: quota"]
        to.answer = bytes([0x0A, 7, 0x12, 5]) + b"hello"  # a warning
        with pushing(to, said) as pusher:
            wait_until(lambda: outcomes(pusher)["ok"] >= 1, what="an answer")
        for odd in (b"\xff" * 30, b'{"partialSuccess":{}}', b"\x0a\xff\xff\xff\xff\x0f"):
            to.answer = odd
            with pushing(to, said) as pusher:
                wait_until(lambda: outcomes(pusher)["ok"] >= 1, what="an answer")
    assert len(said) == 1


def test_readings_that_fail_do_not_end_the_pushes() -> None:
    said: list[str] = []
    failing = [True]

    def readings() -> list[Reading]:
        if failing:
            failing.clear()
            raise RuntimeError("once")
        return READINGS

    with collecting() as to:
        wanted = read_collector(to.url, {"OTEL_METRIC_EXPORT_INTERVAL": "1000"})
        with closing(Pusher(wanted, readings, 77, said.append)) as pusher:
            wait_until(lambda: outcomes(pusher)["ok"] >= 1, what="the push after it")
            assert outcomes(pusher)["failed"] == 1
