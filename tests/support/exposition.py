"""Reads what Prometheus is given, by the document of its text format, and without the code that writes it."""

from __future__ import annotations

import re

SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (-?[0-9.]+)')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
Series = tuple[str, tuple[tuple[str, str], ...]]


def parse(text: str) -> tuple[dict[str, str], dict[Series, str]]:
    """The type of each family, and the value of each series as it is written. Raises ValueError for what has not the form."""
    types: dict[str, str] = {}
    found: dict[Series, str] = {}
    helped = ""
    if not text.endswith("\n"):
        raise ValueError("the last line does not end")
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# HELP "):
            helped = line.split(" ")[2]
            continue
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            if name != helped or name in types or kind not in ("counter", "gauge"):
                raise ValueError(line)
            types[name] = kind
            continue
        match = SAMPLE.fullmatch(line)
        if match is None or match[1] != next(reversed(types), None):
            raise ValueError(line)
        labels = tuple((name, _plain(value)) for name, value in LABEL.findall(match[2] or ""))
        if (match[1], labels) in found:
            raise ValueError(f"twice: {line}")
        found[match[1], labels] = match[3]
    return types, found


def _plain(value: str) -> str:
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], value)


def ns(value: str) -> int:
    """Seconds as whole nanoseconds."""
    whole, _, part = value.partition(".")
    return int(whole) * 10**9 + int(part.ljust(9, "0"))


def counters(text: str, name: str) -> dict[tuple[str, ...], int]:
    """The series of one family in seconds, by the values of their labels, in ns."""
    return {tuple(v for _, v in labels): ns(value) for (family, labels), value in parse(text)[1].items() if family == name}


def value(text: str, name: str, **labels: str) -> str:
    return parse(text)[1][name, tuple(labels.items())]
