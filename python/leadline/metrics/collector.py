"""Where metrics are sent to, as the user and the environment say: https://opentelemetry.io/docs/specs/otel/protocol/exporter/"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from leadline.errors import LeadlineError

DEFAULT = "http://localhost:4318"
SIGNAL = "/v1/metrics"
MOST_INTERVAL_MS, LEAST_INTERVAL_MS = 86_400_000, 1000


@dataclass(frozen=True)
class Collector:
    """interval_s: between two pushes. timeout_s: of one. context: for https. resource: attributes that the user adds."""

    host: str
    port: int
    path: str
    context: ssl.SSLContext | None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    interval_s: float = 60.0
    timeout_s: float = 10.0
    gzip: bool = False
    resource: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{'http' if self.context is None else 'https'}://{self.host}:{self.port}{self.path}"


def read_collector(url: str, environ: Mapping[str, str]) -> Collector:
    """url: what the user gave, which goes before the variables; empty for nothing. Raises LeadlineError."""

    def given(name: str, default: str = "") -> str:
        """Of metrics alone, or of all that is sent."""
        names = (f"OTEL_EXPORTER_OTLP_METRICS_{name}", f"OTEL_EXPORTER_OTLP_{name}")
        return next(filter(None, (environ.get(variable, "").strip() for variable in names)), default)

    whole = "" if url else environ.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "").strip()
    base = url or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip() or DEFAULT
    parts = urlsplit(whole or base)
    try:
        port = parts.port
    except ValueError:
        port = 0
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise _wrong(
            f"{_shown(whole or base)} is no address of a collector", hint="--otlp http://HOST:4318; without an address, --otlp comes last"
        )
    if parts.username is not None or parts.password is not None:
        raise _wrong("the address of a collector is no place for a password", "put it into OTEL_EXPORTER_OTLP_HEADERS")
    if (protocol := given("PROTOCOL", "http/protobuf")) != "http/protobuf":
        raise _wrong(f"OTLP is sent by http/protobuf alone, not by {protocol}", "unset OTEL_EXPORTER_OTLP_PROTOCOL; port 4318, not 4317")
    if (compression := given("COMPRESSION", "none")) not in ("gzip", "none"):
        raise _wrong(f"there is no compression {compression}", "OTEL_EXPORTER_OTLP_COMPRESSION=gzip")
    path = parts.path if whole or parts.path.rstrip("/").endswith(SIGNAL) else parts.path.rstrip("/") + SIGNAL
    secure = parts.scheme == "https"
    return Collector(
        parts.hostname, port or (443 if secure else 80), path + (f"?{parts.query}" if parts.query else ""),
        _context(given("CERTIFICATE")) if secure else None,
        _pairs("OTEL_EXPORTER_OTLP_HEADERS", given("HEADERS")),
        _milliseconds(environ, "OTEL_METRIC_EXPORT_INTERVAL", 60_000) / 1000,
        _milliseconds({"OTEL_EXPORTER_OTLP_TIMEOUT": given("TIMEOUT")}, "OTEL_EXPORTER_OTLP_TIMEOUT", 10_000) / 1000,
        compression == "gzip", _resource(environ),
    )  # fmt: skip


def _resource(environ: Mapping[str, str]) -> dict[str, str]:
    found = _pairs("OTEL_RESOURCE_ATTRIBUTES", environ.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    name = environ.get("OTEL_SERVICE_NAME", "").strip()
    return found | ({"service.name": name} if name else {})


def _pairs(variable: str, text: str) -> dict[str, str]:
    """Of key=value,key=value, percent-encoded. What is wrong is not shown: it may be a secret."""
    found = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, equals, value = part.partition("=")
        name, value = unquote(name.strip()), unquote(value.strip())
        if not equals or not name.isascii() or not name.isprintable() or " " in name or not name or not value.isprintable():
            raise _wrong(f"{variable} is not a list of NAME=VALUE", "write other characters as %20, with commas between the pairs")
        found[name] = value
    return found


def _milliseconds(environ: Mapping[str, str], variable: str, default: int) -> int:
    text = environ.get(variable, "").strip()
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or not LEAST_INTERVAL_MS <= int(text) <= MOST_INTERVAL_MS:
        raise _wrong(f"{variable} is not a number of milliseconds from {LEAST_INTERVAL_MS} to {MOST_INTERVAL_MS}", f"{variable}={default}")
    return int(text)


def _context(certificate: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=certificate or None)
    except OSError as e:
        raise _wrong(f"the certificate cannot be used: {e.strerror or e}", f"OTEL_EXPORTER_OTLP_CERTIFICATE: {certificate}") from None


def _shown(url: str) -> str:
    """Without what may be a password."""
    return repr(url if "@" not in url else f"...@{url.rpartition('@')[2]}")


def _wrong(message: str, hint: str) -> LeadlineError:
    return LeadlineError("usage", message, hint=hint, where="--otlp")
