"""The findings engine: reads the rules of the folders beside this file and evaluates them over a capture.

One rule is NNNN_name.sql and NNNN_name.md. The SQL begins with a header of `-- key: value` lines:

    id, title, question, unit, wrong when      text
    needs                                      tables and views without which the rule says nothing, comma separated
    threshold: name = number (where from)      any number of lines; getvariable('name') in the query
    minimum: table rows                        any number of lines; with fewer rows the rule is not evaluated
    evaluable when: condition | reason         any number of lines; a SQL condition, and why the rule is silent without it

and is one query with the columns of a finding (COLUMNS, docs/concepts/contracts.md). Reading never changes the capture.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from typing import Any

import duckdb

from leadline.capture.reader import Capture
from leadline.errors import LeadlineError

COLUMNS = {
    "id": "VARCHAR",
    "severity": "VARCHAR",
    "confidence": "VARCHAR",
    "subject": "VARCHAR",
    "statement": "VARCHAR",
    "cost_s": "DOUBLE",
    "share_of_db_time": "DOUBLE",
    "samples": "BIGINT",
    "ts_from": "BIGINT",
    "ts_to": "BIGINT",
    "evidence": "JSON",
}
SEVERITIES = ("critical", "high", "medium", "low", "info")
CONFIDENCES = ("high", "medium", "low")
SECTIONS = ("What it shows", "Why it matters", "Wrong when", "What to do", "How to verify", "References")
HEADER_KEYS = ("id", "title", "question", "needs", "unit", "threshold", "minimum", "evaluable when", "wrong when")
# Views that most rules read: computed once per evaluation while they stay small enough for memory (270 bytes a row, measured,
# and two of them have nearly all rows: about 1 GB at the limit). Larger captures are evaluated from the files, rule by rule.
SHARED_VIEWS = ("session_tick", "session_sample", "db_time", "lock_chain", "hot_block")
SHARED_ROWS_LIMIT = 2_000_000


@dataclass(frozen=True)
class Threshold:
    """A number of a rule that a user may set. origin: where the default comes from."""

    name: str
    value: float
    origin: str


@dataclass(frozen=True)
class Definition:
    """One rule as its two files say it. sections: the text of the .md by heading (SECTIONS)."""

    id: str
    title: str
    question: str
    needs: tuple[str, ...]
    unit: str
    wrong_when: str
    thresholds: tuple[Threshold, ...]
    minimums: tuple[tuple[str, int], ...]
    conditions: tuple[tuple[str, str], ...]
    file: str
    query: str
    sections: Mapping[str, str] = field(hash=False)

    def sql(self, thresholds: Mapping[str, float] | None = None) -> str:
        """The query with its thresholds set: paste it into DuckDB after the capture's views.sql."""
        given = thresholds or {}
        settings = [f"set variable {t.name} = {_number(given.get(t.name, t.value))};\n" for t in self.thresholds]
        return "".join(settings) + self.query


@dataclass(frozen=True)
class Finding:
    """One row of a rule, with what to do about it. cost_s: seconds lost by the victims; ts: ns on CLOCK_MONOTONIC.

    share_of_db_time is null when the cost is null, and when the lost time lies outside database time (clients that
    sit in a transaction without asking anything).
    """

    id: str
    severity: str
    confidence: str
    subject: str
    statement: str
    cost_s: float | None
    share_of_db_time: float | None
    samples: int
    ts_from: int
    ts_to: int
    evidence: list[dict[str, Any]]
    title: str
    action: str
    verify: str
    sql: str
    file: str

    def as_dict(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True)
class Evaluation:
    """findings: most costly first. not_evaluated: (id, reason). clean: ids of rules that were evaluated and gave no row."""

    findings: list[Finding]
    not_evaluated: list[tuple[str, str]]
    clean: list[str]


@functools.cache
def all_findings() -> tuple[Definition, ...]:
    """Every rule, in the order of the file numbers: each .sql with its .md. Raises AssertionError when one breaks the form."""
    folders = [entry for entry in resources.files(__package__).iterdir() if entry.is_dir()]
    texts = {entry.name: entry for folder in folders for entry in folder.iterdir() if entry.name.endswith((".sql", ".md"))}
    rules = sorted(name.removesuffix(".sql") for name in texts if name.endswith(".sql"))
    return tuple(
        parse_finding(f"{rule}.sql", texts[f"{rule}.sql"].read_text(encoding="utf-8"), texts[f"{rule}.md"].read_text(encoding="utf-8"))
        for rule in rules
        if f"{rule}.md" in texts  # tests/golden/test_findings_engine.py checks that none is missing
    )


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

    return Definition(
        id=one("id"),
        title=one("title"),
        question=one("question"),
        needs=tuple(name.strip() for name in one("needs").split(",")),
        unit=one("unit"),
        wrong_when=one("wrong when"),
        thresholds=tuple(_threshold(file, text) for text in header.get("threshold", [])),
        minimums=tuple(_minimum(file, text) for text in header.get("minimum", [])),
        conditions=tuple(_condition(file, text) for text in header.get("evaluable when", [])),
        file=file,
        query="".join(lines[length:]).strip().rstrip(";"),
        sections=_sections(file, notes),
    )


def _threshold(file: str, text: str) -> Threshold:
    match = re.fullmatch(r"(\w+) = (-?[\d.]+) \((.+)\)", text)
    assert match, f"{file}: a threshold reads 'name = number (where from)', not: {text}"
    return Threshold(match[1], float(match[2]), match[3])


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


def _number(value: float) -> str:
    """As DuckDB reads it, always of type double so that a whole number computes like any other: 60.0::double."""
    return f"{float(value)!r}::double"


def evaluate(capture: Capture, only: Collection[str] | None = None, thresholds: Mapping[str, float] | None = None) -> Evaluation:
    """Every rule (or those of `only`, by id) over the capture.

    thresholds: other values, by `name` (every rule that has it) or `RULE-ID.name`.
    Raises LeadlineError('usage') for an id or threshold that does not exist. What the capture lacks is no error:
    the rule is then not evaluated and says why.
    """
    chosen = _chosen(only)
    values = {d.id: _values(d, thresholds or {}) for d in all_findings()}
    _check_names(thresholds or {})
    findings: list[Finding] = []
    not_evaluated: list[tuple[str, str]] = []
    clean: list[str] = []
    db = capture.db.cursor()  # temporary tables and variables end with it
    try:
        _compute_shared_views(db, chosen)
        for definition in chosen:
            try:
                reason = _not_evaluable(capture, db, definition)
                rows = [] if reason else _run(db, definition, values[definition.id])
            except LeadlineError as e:
                reason, rows = f"{e.message}: {e.detail}", []
            if reason:
                not_evaluated.append((definition.id, reason))
            elif rows:
                findings += rows
            else:
                clean.append(definition.id)
    finally:
        db.close()
    return Evaluation(sorted(findings, key=_rank), not_evaluated, clean)


def _rank(finding: Finding) -> tuple[Any, ...]:
    cost = (1, 0.0) if finding.cost_s is None else (0, -finding.cost_s)
    return (*cost, SEVERITIES.index(finding.severity), finding.id, finding.subject)


def _chosen(only: Collection[str] | None) -> list[Definition]:
    known = {d.id: d for d in all_findings()}
    unknown = sorted(set(only or ()) - set(known))
    if unknown:
        raise LeadlineError("usage", f"there is no finding {unknown[0]}", hint=f"known: {', '.join(known)}")
    return [d for d in known.values() if only is None or d.id in only]


def _values(definition: Definition, given: Mapping[str, float]) -> dict[str, float]:
    defaults = {t.name: t.value for t in definition.thresholds}
    return {name: given.get(f"{definition.id}.{name}", given.get(name, value)) for name, value in defaults.items()}


def _check_names(given: Mapping[str, float]) -> None:
    known = {name for d in all_findings() for t in d.thresholds for name in (t.name, f"{d.id}.{t.name}")}
    unknown = sorted(set(given) - known)
    if unknown:
        hint = "known: " + ", ".join(f"{d.id}.{t.name}" for d in all_findings() for t in d.thresholds)
        raise LeadlineError("usage", f"there is no threshold {unknown[0]}", hint=hint)


def _compute_shared_views(db: duckdb.DuckDBPyConnection, chosen: list[Definition]) -> None:
    """Temporary tables that stand before the views of the same names, so that each is computed once and not per rule."""
    count = db.execute("select coalesce(sum(ticks), 0) from session_run").fetchone()
    if count is None or count[0] > SHARED_ROWS_LIMIT:
        return
    for view in SHARED_VIEWS:
        if any(re.search(rf"\b{view}\b", d.query) for d in chosen):
            db.execute(f'create temp table "{view}" as select * from "{view}"')


def _not_evaluable(capture: Capture, db: duckdb.DuckDBPyConnection, definition: Definition) -> str | None:
    """Why the capture has too little for this rule; None when it has enough."""
    for table in definition.needs:
        if why := capture.unavailable(table):
            return f"{table}: {why}"
    for table, least in definition.minimums:
        rows = _first(db, f'select count(*) from "{table}"')
        if rows < least:
            return f"too few samples: {rows} rows of {table}, at least {least} are needed"
    for condition, reason in definition.conditions:
        if not _first(db, f"select {condition}"):
            return reason
    return None


def _first(db: duckdb.DuckDBPyConnection, sql: str) -> Any:
    try:
        row = db.execute(sql).fetchone()
    except duckdb.Error as e:
        raise _broken(e) from e
    return row[0] if row else None


def _run(db: duckdb.DuckDBPyConnection, definition: Definition, values: Mapping[str, float]) -> list[Finding]:
    """The rows of the rule. Raises LeadlineError('query') when it does not run or has other columns than COLUMNS."""
    sql = definition.sql(values)
    try:
        cursor = db.execute(sql)
        columns = {name: str(kind) for name, kind, *_ in cursor.description or []}
        if list(columns.items()) != list(COLUMNS.items()):
            wrong = [f"{name} {kind}" for name, kind in columns.items() if COLUMNS.get(name) != kind] or [", ".join(columns)]
            raise LeadlineError("query", "the columns are not those of a finding", detail="; ".join(wrong), where=definition.file)
        rows = cursor.fetchall()
    except duckdb.Error as e:
        raise _broken(e) from e
    finally:
        for name in values:
            db.execute(f"reset variable {name}")
    return [_finding(definition, sql, dict(zip(COLUMNS, row))) for row in rows]


def _broken(e: duckdb.Error) -> LeadlineError:
    return LeadlineError("query", "the query does not run", detail=str(e).strip().splitlines()[0])


def _finding(definition: Definition, sql: str, row: dict[str, Any]) -> Finding:
    row["evidence"] = json.loads(row["evidence"] or "[]")
    for column in ("cost_s", "share_of_db_time"):  # sums made in parallel differ in their last digits
        row[column] = None if row[column] is None else round(row[column], 9)
    return Finding(
        **row,
        title=definition.title,
        action=definition.sections["What to do"],
        verify=definition.sections["How to verify"],
        sql=sql,
        file=definition.file,
    )
