"""The rules: the .sql and .md files of the directories beside this file and of the engines, parsed.

One rule is NNNN_name.sql and NNNN_name.md. The SQL begins with a header of `-- key: value` lines:

    id, title, question, unit, wrong when      text
    domain                                     what the rule is about: a name of domains() (domain.py)
    needs                                      tables and views without which the rule says nothing, comma separated
    cost                                       what the cost is counted in: a name of COST_BASES
    threshold: name = number (where from)      any number of lines; getvariable('name') in the query
    minimum: table rows                        any number of lines; with fewer rows the rule is not evaluated
    evaluable when: condition | reason         any number of lines; a SQL condition, and why the rule is silent without it
    silent unless: condition                   at most one; a cheap SQL condition without which the query has no rows, so that it
                                               need not run; it may read the rule's thresholds

and is one query with the columns of a finding (docs/concepts/contracts.md), and `facts` where its advice has values (advice.py). Macros
that rules share: tables/macros.sql.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from leadline.engines import directories
from leadline.findings.domain import domains
from leadline.tables import all_tables
from leadline.tables.thresholds import Threshold, number, parse_threshold

SECTIONS = ("What it shows", "Why it matters", "Wrong when", "What to do", "How to verify", "References")
TEXTS = ("id", "title", "question", "domain", "needs", "unit", "cost")
HEADER_KEYS = (*TEXTS, "threshold", "minimum", "evaluable when", "silent unless", "wrong when")
# Of what cost_s is a part: seconds of active sessions, seconds somebody stood still outside of these, seconds on or for a CPU,
# seconds spent in round trips or in moving bytes. 'none': the rule has no cost in time, and cost_s is null.
COST_BASES = ("database time", "wall time", "CPU", "round trips", "bytes", "none")


@dataclass(frozen=True)
class Definition:
    """One rule as its two files say it. sections: the text of the .md by heading (SECTIONS)."""

    id: str
    title: str
    question: str
    domain: str
    needs: tuple[str, ...]
    unit: str
    cost: str
    wrong_when: str
    thresholds: tuple[Threshold, ...]
    minimums: tuple[tuple[str, int], ...]
    conditions: tuple[tuple[str, str], ...]
    silent_unless: str
    file: str
    query: str
    sections: Mapping[str, str] = field(hash=False)

    @functools.cached_property
    def reads(self) -> frozenset[str]:
        """The tables and views that the query or the header names."""
        return frozenset(re.findall(r"\w+", self.query)) & all_tables().keys() | set(self.needs)

    def silent(self, values: Mapping[str, float]) -> str:
        """The condition of `silent unless` with these thresholds; empty when the rule has none."""
        return _with(values, self.silent_unless)

    def query_with(self, values: Mapping[str, float]) -> str:
        """The query with these thresholds in it: to set them takes longer than many a query."""
        return _with(values, self.query)

    def sql(self, thresholds: Mapping[str, float] | None = None) -> str:
        """The query with its thresholds set: paste it into DuckDB after the capture's views.sql.

        thresholds: other values, also of views and macros.
        """
        values = {t.name: t.value for t in self.thresholds} | dict(thresholds or {})
        settings = [f"set variable {name} = {number(value)};\n" for name, value in values.items()]
        return "".join(settings) + self.query


def _with(values: Mapping[str, float], sql: str) -> str:
    """The SQL with these values; other variables stay."""
    return re.sub(r"getvariable\('(\w+)'\)", lambda match: number(values[match[1]]) if match[1] in values else match[0], sql)


@functools.cache
def all_findings() -> tuple[Definition, ...]:
    """Every rule, in the order of the file numbers: each .sql with its .md. Raises AssertionError when one breaks the form."""
    return tuple(
        parse_finding(query.name, query.read_text(encoding="utf-8"), notes.read_text(encoding="utf-8"))
        for query in sorted(_queries(), key=lambda path: path.name)
        if (notes := query.with_suffix(".md")).exists()  # tests/unit/test_findings_engine.py checks that none is missing
    )


def _queries() -> list[Path]:
    """The .sql files: of what stands beside the engines here, and of each engine."""
    return [*Path(__file__).parent.glob("*/*.sql"), *(query for directory in directories("findings") for query in directory.glob("*.sql"))]


def parse_finding(file: str, sql: str, notes: str) -> Definition:
    """A rule from the texts of its two files. file: name of the .sql. Raises AssertionError when they break the form."""
    header: dict[str, list[str]] = {}
    lines = sql.splitlines(keepends=True)
    length = next((n for n, line in enumerate(lines) if not line.startswith("--")), len(lines))
    for line in lines[:length]:
        key, colon, value = line[2:].partition(":")
        assert colon and key.strip() in HEADER_KEYS, f"{file}: not a header line: {line.strip()}"
        header.setdefault(key.strip(), []).append(value.strip())

    def one(key: str) -> str:
        values = header.get(key, [])
        assert len(values) == 1 and values[0], f"{file}: the header needs one line '{key}'"
        return values[0]

    def known(key: str, names: Iterable[str]) -> str:
        assert one(key) in names, f"{file}: {key} is one of {', '.join(names)}, not {one(key)}"
        return one(key)

    return Definition(
        id=one("id"),
        title=one("title"),
        question=one("question"),
        domain=known("domain", domains()),
        needs=tuple(name.strip() for name in one("needs").split(",")),
        unit=one("unit"),
        cost=known("cost", COST_BASES),
        wrong_when=one("wrong when"),
        thresholds=tuple(parse_threshold(file, text) for text in header.get("threshold", [])),
        minimums=tuple(_minimum(file, text) for text in header.get("minimum", [])),
        conditions=tuple(_condition(file, text) for text in header.get("evaluable when", [])),
        silent_unless=one("silent unless") if "silent unless" in header else "",
        file=file,
        query="".join(lines[length:]).strip().rstrip(";"),
        sections=_sections(file, notes),
    )


def _minimum(file: str, text: str) -> tuple[str, int]:
    match = re.fullmatch(r"(\w+) (\d+)", text)
    assert match, f"{file}: a minimum reads 'table rows', not: {text}"
    return match[1], int(match[2])


def _condition(file: str, text: str) -> tuple[str, str]:
    condition, bar, reason = text.rpartition(" | ")
    assert bar and condition and reason, f"{file}: 'evaluable when' reads 'condition | reason', not: {text}"
    return condition.strip(), reason.strip()


def _sections(file: str, notes: str) -> dict[str, str]:
    """The text under each `## heading`. The fixed headings must be there, once, in order, and not empty."""
    parts = re.split(r"^## (.+)$", notes, flags=re.MULTILINE)
    headings, texts = [h.strip() for h in parts[1::2]], [t.strip() for t in parts[2::2]]
    assert tuple(headings) == SECTIONS, f"{file}: the sections of the .md are {headings}, not {list(SECTIONS)}"
    assert all(texts), f"{file}: a section of the .md is empty"
    return dict(zip(headings, texts))
