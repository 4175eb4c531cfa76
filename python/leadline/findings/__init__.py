"""The findings engine: evaluates the rules (rules.py) over a capture. Reading never changes the capture."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, fields
from typing import Any

from leadline.capture.gaps import gaps
from leadline.capture.hold import create_views
from leadline.capture.reader import Capture, open_capture
from leadline.capture.steps import for_each
from leadline.duck import duckdb
from leadline.errors import LeadlineError
from leadline.findings.advice import filled, of_server
from leadline.findings.domain import not_applicable
from leadline.findings.rules import COST_BASES, SECTIONS, Definition, all_findings, parse_finding
from leadline.tables import all_tables
from leadline.tables.macros import macros
from leadline.tables.thresholds import Threshold, number

__all__ = ["COST_BASES", "SECTIONS", "Definition", "Evaluation", "Finding", "Threshold", "all_findings", "evaluate", "parse_finding"]

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
FACTS = ("facts", "JSON")  # a rule may have them after the others: what its advice puts in place of names (advice.py)
_SAID = ("id", "severity", "confidence", "subject", "statement")  # the first of them, which a finding cannot do without
SEVERITIES = ("critical", "high", "medium", "low", "info")
OF_HOST = ("host", "kernel")  # domains whose seconds are of all processes, not of the sessions
CONFIDENCES = ("high", "medium", "low")


@dataclass(frozen=True)
class Finding:
    """One row of a rule, with what to do about it. cost_s: seconds lost by the victims; ts: ns on CLOCK_MONOTONIC.

    share_of_db_time is null when the cost is null, and when the lost time lies outside database time (clients that
    sit in a transaction without asking anything). domain: what the rule is about; cost_base: what cost_s is a part of
    (domains() and COST_BASES).
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
    domain: str
    cost_base: str

    def as_dict(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True)
class Evaluation:
    """findings: most costly first. not_evaluated: (id, reason). clean: ids of rules that were evaluated and gave no row.

    not_applicable: (id, reason) of rules about something else than the capture. unseen: what could not be seen of the sessions; a rule
    that reads them and found nothing is not clean then. every_pass: as of Capture. span_s: of a coarse capture, as in its manifest.
    """

    findings: list[Finding]
    not_evaluated: list[tuple[str, str]]
    clean: list[str]
    not_applicable: list[tuple[str, str]]
    every_pass: int = 1
    unseen: str = ""
    span_s: int | None = None


def evaluate(capture: Capture, only: Collection[str] | None = None, thresholds: Mapping[str, float] | None = None) -> Evaluation:
    """Every rule (or those of `only`, by id) over the capture.

    thresholds: other values, by `name` (every rule that has it) or `RULE-ID.name`.
    Raises LeadlineError('usage') for an id or threshold that does not exist. What the capture lacks is no error:
    the rule is then not evaluated and says why.
    """
    chosen = _chosen(only)
    _check_names(thresholds or {})
    foreign = {domain: not_applicable(capture, domain) for domain in {d.domain for d in chosen}}
    skipped = [(d.id, reason) for d in chosen if (reason := foreign[d.domain])]
    chosen = [d for d in chosen if not foreign[d.domain]]
    with nullcontext(capture) if capture.held else closing(open_capture(capture.path, hold=True)) as held:
        answers, every = _answers(held, chosen, thresholds or {}), held.every_pass
    findings = [row for definition in chosen for row in answers[definition.id].rows]
    not_evaluated = [(d.id, answers[d.id].reason) for d in chosen if answers[d.id].reason]
    clean = [d.id for d in chosen if not answers[d.id].reason and not answers[d.id].rows]
    unseen = "; ".join(filter(None, (capture.unseen(["session_run"]), *gaps(capture))))
    return Evaluation(sorted(findings, key=_rank), not_evaluated, clean, skipped, every, unseen, capture.manifest.clock.span_s)


@dataclass(frozen=True)
class _Answer:
    """What became of one rule: its findings, or why it was not evaluated."""

    rows: list[Finding]
    reason: str = ""


def _answers(capture: Capture, chosen: list[Definition], thresholds: Mapping[str, float]) -> dict[str, _Answer]:
    """Every chosen rule of a held capture by id. They run beside each other."""
    shared = {t.name: thresholds[t.name] for t in shared_thresholds() if t.name in thresholds}
    values = {d.id: _values(d, thresholds) for d in chosen}
    asked = _asked(capture, chosen, values)
    if shared:
        capture.prepare(" ".join(all_tables()))  # what the views read
        with closing(capture.db.cursor()) as db:  # variables and temporary views end with the cursor
            for name, value in shared.items():
                db.execute(f"set variable {name} = {number(value)}")
            create_views(db, held=True, every=capture.every_pass, temporary=True)  # they were computed with other thresholds
            told = _told(capture, db, asked)
            return {d.id: _answer(capture, db, d, shared | values[d.id], told) for d in chosen}

    answers: dict[str, _Answer] = {}
    told = {}

    def ask(cursor: duckdb.DuckDBPyConnection, part: list[str]) -> None:
        told.update(_told(capture, cursor, part))

    def work(cursor: duckdb.DuckDBPyConnection, rule: Definition) -> None:
        answers[rule.id] = _answer(capture, cursor, rule, values[rule.id], told)

    for_each(capture.db, [asked[::2], asked[1::2]], ask)
    for_each(capture.db, sorted(chosen, key=lambda rule: -len(rule.query)), work)  # a long one begun last would run alone
    return answers


def _answer(
    capture: Capture, db: duckdb.DuckDBPyConnection, definition: Definition, values: Mapping[str, float], told: Mapping[str, Any]
) -> _Answer:
    try:
        if reason := _not_evaluable(capture, db, definition, told):
            return _Answer([], reason)
        if silent := definition.silent(values):
            value = told[silent] if silent in told else _first(capture, db, f"select {silent}")
            if not value:
                return _Answer([], capture.unseen(definition.reads))
        rows, nameless = _run(capture, db, definition, values)
        if not rows and (gap := capture.unseen(definition.reads)):
            return _Answer([], gap)
        return _Answer(rows, f"{nameless} of its rows lack a value that their sentence needs" if nameless else "")
    except LeadlineError as e:
        return _Answer([], f"{e.message}: {e.detail}")


def shared_thresholds() -> list[Threshold]:
    """Those of macros and views, which are no rule's own."""
    return [*macros().thresholds, *(t for table in all_tables().values() for t in table.thresholds)]


def _rank(finding: Finding) -> tuple[Any, ...]:
    """Seconds of the server's victims first; the host has more seconds to lose, of all its processes, and they say less."""
    of_host = finding.domain in OF_HOST
    without_cost = 1 if not of_host and finding.severity in ("critical", "high") else 3
    with_cost = 2 if of_host else 0
    group = without_cost if finding.cost_s is None else with_cost
    return (group, -(finding.cost_s or 0.0), SEVERITIES.index(finding.severity), finding.id, finding.subject)


def _chosen(only: Collection[str] | None) -> list[Definition]:
    known = {d.id: d for d in all_findings()}
    unknown = sorted(set(only or ()) - set(known))
    if unknown:
        raise LeadlineError("usage", f"no finding named {unknown[0]}", hint=f"known: {', '.join(known)}")
    return [d for d in known.values() if only is None or d.id in only]


def _values(definition: Definition, given: Mapping[str, float]) -> dict[str, float]:
    defaults = {t.name: t.value for t in definition.thresholds}
    return {name: given.get(f"{definition.id}.{name}", given.get(name, value)) for name, value in defaults.items()}


def _check_names(given: Mapping[str, float]) -> None:
    own = [f"{d.id}.{t.name}" for d in all_findings() for t in d.thresholds]
    shared = [t.name for t in shared_thresholds()]
    unknown = sorted(set(given) - {*own, *shared, *(name.partition(".")[2] for name in own)})
    if unknown:
        raise LeadlineError("usage", f"no threshold named {unknown[0]}", hint=f"known: {', '.join([*own, *shared])}")


def _asked(capture: Capture, rules: list[Definition], values: Mapping[str, Mapping[str, float]]) -> list[str]:
    """What the header lines of the rules ask, each expression once."""
    known = [d for d in rules if not any(capture.unavailable(table) for table in d.needs)]
    asked = [question for d in known for question in _questions(d, values[d.id])]
    return list(dict.fromkeys(asked))


def _told(capture: Capture, db: duckdb.DuckDBPyConnection, asked: list[str]) -> dict[str, Any]:
    """The value of each expression, from one query. One that does not run is missing: its rule asks for itself and says what is wrong."""
    if not asked:
        return {}
    query = f"select {', '.join(asked)}"
    capture.prepare(query)
    try:
        row = db.execute(query).fetchone()
    except duckdb.Error:  # of one of them, and nobody knows which
        half = len(asked) // 2
        return _told(capture, db, asked[:half]) | _told(capture, db, asked[half:]) if half else {}
    return dict(zip(asked, row or ()))


def _questions(definition: Definition, values: Mapping[str, float]) -> list[str]:
    """The expressions of the header lines, with these thresholds."""
    counted = [_count(table) for table, _ in definition.minimums]
    needed = [condition for condition, _ in definition.conditions]
    silent = definition.silent(values)
    return [*counted, *needed, *([silent] if silent else [])]


def _count(table: str) -> str:
    return f'(select count(*) from "{table}")'


def _not_evaluable(capture: Capture, db: duckdb.DuckDBPyConnection, definition: Definition, told: Mapping[str, Any]) -> str:
    """Why the capture has too little for this rule; empty when it has enough."""

    def value(expression: str) -> Any:
        return told[expression] if expression in told else _first(capture, db, f"select {expression}")

    for table in definition.needs:
        if why := capture.unavailable(table):
            return f"{table}: {why}"
    for table, least in definition.minimums:
        rows = value(_count(table))
        if rows < least:
            return f"too few samples: {rows} rows of {table}, at least {least} are needed"
    for condition, reason in definition.conditions:
        if not value(condition):
            return reason
    return ""


def _first(capture: Capture, db: duckdb.DuckDBPyConnection, sql: str) -> Any:
    capture.prepare(sql)
    try:
        row = db.execute(sql).fetchone()
    except duckdb.Error as e:
        raise _broken(e) from e
    return row[0] if row else None


def _run(capture: Capture, db: duckdb.DuckDBPyConnection, definition: Definition, values: Mapping[str, float]) -> tuple[list[Finding], int]:
    """The rows of the rule, and how many others say nothing, as a value that their sentence needs is null.

    Raises LeadlineError('query') when it does not run or has other columns than COLUMNS.
    """
    query = definition.query_with(values)
    capture.prepare(query)
    try:
        cursor = db.execute(query)
        columns = {name: str(kind) for name, kind, *_ in cursor.description or []}
        known = [*COLUMNS.items(), FACTS] if FACTS[0] in columns else list(COLUMNS.items())
        if list(columns.items()) != known:
            wrong = [f"{name} {kind}" for name, kind in columns.items() if COLUMNS.get(name) != kind] or [", ".join(columns)]
            raise LeadlineError("query", "the columns are not those of a finding", detail="; ".join(wrong), where=definition.file)
        rows = cursor.fetchall()
        _check_cost(definition, rows)
    except duckdb.Error as e:
        raise _broken(e) from e
    sql = definition.sql(values)
    whole = [row for row in rows if None not in row[: len(_SAID)]]
    server = of_server(capture.manifest.target.version_num)
    return [_finding(definition, sql, dict(zip(columns, row)), server) for row in whole], len(rows) - len(whole)


def _check_cost(definition: Definition, rows: list[tuple[Any, ...]]) -> None:
    """A cost is of the base that the header names. Raises LeadlineError('query')."""
    cost, share = list(COLUMNS).index("cost_s"), list(COLUMNS).index("share_of_db_time")
    if definition.cost == "none" and any(row[cost] is not None for row in rows):
        raise LeadlineError("query", "the rule has a cost but no base for it", where=definition.file)
    if definition.cost != "database time" and any(row[share] is not None for row in rows):
        raise LeadlineError("query", f"a share of database time cannot be of a cost in {definition.cost}", where=definition.file)


def _broken(e: duckdb.Error) -> LeadlineError:
    return LeadlineError("query", "the query failed", detail=str(e).strip().splitlines()[0])


def _finding(definition: Definition, sql: str, row: dict[str, Any], server: Mapping[str, bool]) -> Finding:
    facts = json.loads(row.pop(FACTS[0], None) or "{}") | server
    row["evidence"] = json.loads(row["evidence"] or "[]")
    for column in ("cost_s", "share_of_db_time"):  # sums made in parallel differ in their last digits
        row[column] = None if row[column] is None else round(row[column], 9)
    return Finding(
        **row,
        title=definition.title,
        action=filled(definition.sections["What to do"], facts),
        verify=filled(definition.sections["How to verify"], facts),
        sql=sql,
        file=definition.file,
        domain=definition.domain,
        cost_base=definition.cost,
    )
