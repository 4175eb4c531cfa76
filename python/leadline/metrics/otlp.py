"""Metrics as OpenTelemetry's ExportMetricsServiceRequest: https://opentelemetry.io/docs/specs/otlp/ and opentelemetry-proto.

Written with our own writer of protobuf: the packages of OpenTelemetry are 11 MB and seven dependencies on the host of a database, and the
request needs a dozen fields. A test decodes it with the official descriptors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from leadline.export.protobuf import double, fixed, message, number, text
from leadline.metrics.families import COUNTER, GAUGE, SECONDS, Family, Reading

CUMULATIVE = 2
SCOPE = "leadline"
Attributes = Mapping[str, str]


def request(readings: Iterable[Reading], resource: Attributes, version: str, at_ns: int) -> bytes:
    """at_ns: now, ns since 1970."""
    scope = message(1, text(1, SCOPE) + text(2, version))
    metrics = b"".join(message(2, _metric(reading, at_ns)) for reading in readings if reading.family.otlp and reading.points)
    about = message(1, _attributes(1, resource))
    return message(1, about + message(2, scope + metrics))


def _metric(reading: Reading, at_ns: int) -> bytes:
    family = reading.family
    since = b"" if family.kind == GAUGE else fixed(2, reading.since_ns)
    names = [attribute for _, attribute in family.labels]
    points = b"".join(
        message(1, since + fixed(3, at_ns) + _value(family, value) + _attributes(7, dict(zip(names, values, strict=True))))
        for values, value in reading.points
    )
    head = text(1, family.otlp) + text(2, family.help) + text(3, family.unit)
    if family.kind == GAUGE:
        return head + message(5, points)
    return head + message(7, points + number(2, CUMULATIVE) + number(3, int(family.kind == COUNTER)))


def _value(family: Family, value: int) -> bytes:
    return double(4, value / 1e9) if family.unit == SECONDS else fixed(6, value)


def _attributes(field: int, attributes: Attributes) -> bytes:
    return b"".join(message(field, text(1, name) + message(2, text(1, value))) for name, value in attributes.items())
