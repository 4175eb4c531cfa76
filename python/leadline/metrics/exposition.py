"""The text format of Prometheus, version 0.0.4: https://prometheus.io/docs/instrumenting/exposition_formats/

Written here, and not by prometheus_client: it is forty lines, and that package is a megabyte on the host of a database. Counters are
exact: seconds are written from whole nanoseconds. There is no NaN: what is not known is absent.
"""

from __future__ import annotations

from collections.abc import Iterable

from leadline.metrics.families import COUNTER, SECONDS, Family, Reading

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECOND_NS = 1_000_000_000


def exposition(readings: Iterable[Reading]) -> str:
    lines = []
    for reading in readings:
        family = reading.family
        lines.append(f"# HELP {family.name} {_escaped(family.help)}")
        lines.append(f"# TYPE {family.name} {COUNTER if family.kind == COUNTER else 'gauge'}")
        lines += [f"{family.name}{_labels(family, values)} {_number(family, value)}" for values, value in reading.points]
    return "\n".join(lines) + "\n"


def _labels(family: Family, values: tuple[str, ...]) -> str:
    pairs = ",".join(f'{name}="{label(value)}"' for (name, _), value in zip(family.labels, values, strict=True))
    return f"{{{pairs}}}" if pairs else ""


def label(text: str) -> str:
    """A value of a label between its quotes."""
    return _escaped(text).replace('"', '\\"')


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(family: Family, value: int) -> str:
    if family.unit != SECONDS:
        return str(value)
    sign, (whole, part) = "-" if value < 0 else "", divmod(abs(value), SECOND_NS)
    return f"{sign}{whole}.{part:09d}"
