"""Every command and query that advice gives runs on each major version that it is given for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import psycopg
import pytest
from conftest import MAJORS, Server
from findings_synthetic import SyntheticCapture
from leadline.capture.reader import open_capture
from leadline.findings import all_findings
from leadline.findings.advice import blocks, filled, names, of_server
from leadline.tables.macros import macros

COMMAND = re.compile(
    r"(?i)(select|show|set|alter|create (index|extension)|(commit|rollback) prepared|vacuum|reindex|truncate|analyze|explain)\b.* .*"
)
# Forms of commands, what PgBouncer's console understands, and what only a standby does: test_replication.py runs that on one.
NO_COMMAND = re.compile(r"\.\.\.|^CREATE INDEX CONCURRENTLY$|^VACUUM (FULL|VERBOSE)$|^SHOW POOLS$|pg_(wal|is_wal)_replay_(resume|paused)")
# What stands for names in the texts: rows, roles and objects that are made here.
FACTS = {
    "role": "app", "index": "public.p", "gin_index": "public.i", "block": 1, "relation": "public.t", "sequence": "public.s",
    "owner": "public.t", "slot": "'a slot'", "gid": "'it''s'", "gid_database": "postgres",
    "event": "x", "timeout_ms": 10, "isolation": "serializable",
    "command": "CLUSTER", "after_command": "CLUSTER", "progress": "1 of 2 blocks", "table_name": "public.t",
    "of_server": "autovacuum", "statement_id": 1, "classid": 0, "objid": 42, "objsubid": 1, "regclass": "'public.t'",
    "condition": "m.oid = 0", "database": "postgres", "others": "public.t.words",
    "lru_pages": 1000, "gone": "a", "one_fewer": "'ANY 1 (a, b)'", "standby": "standby feedback of a",
}  # fmt: skip


def spans(text: str) -> Iterator[str]:
    """The code of a text: fences, and what stands between back-ticks."""
    for fence in re.findall(r"```sql\n(.*?)```", text, re.S):
        yield from (line for line in re.sub(r"--.*", "", fence).split(";") if line.strip())
    yield from (" ".join(code.split()) for code in re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.S)))


def advice(major: int, pid: int) -> Iterator[tuple[str, str]]:
    """(rule, span) of every block that is shown for this version to somebody."""
    for rule in all_findings():
        for text in (rule.sections["What to do"], rule.sections["How to verify"]):
            for block in blocks(text):
                known: dict[str, object] = {name: pid if name.endswith("pid") else True for name in names(block)}
                missing = {name: None for name in re.findall(r"\{!(\w+)\}", block)}
                shown = filled(block, known | FACTS | missing | of_server(major * 10_000))
                yield from ((rule.id, span) for span in spans(shown))


@pytest.fixture
def prepared(fresh_server: Callable[..., Server], request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of its own: the commands change its settings."""
    server = fresh_server(request.param, shared_preload_libraries="pg_stat_statements")
    with server.connect(autocommit=True) as db:
        db.execute("create extension pg_stat_statements; create role app; create role reporting; create sequence s")
        db.execute("create table t (id int generated always as identity, words text)")
        db.execute("create index p on t (id); insert into t (words) select 'a' from generate_series(1, 1000)")
        db.execute("create index i on t using gin (to_tsvector('simple', words))")
    yield server


@pytest.mark.parametrize("prepared", MAJORS, indirect=True)
def test_every_command_of_advice_runs(prepared: Server) -> None:
    ran, wrong = 0, []
    with prepared.connect(autocommit=True) as db:
        for rule, span in advice(prepared.major, -1):
            for command in (part.strip() for part in span.split(";")):
                if not COMMAND.match(command) or NO_COMMAND.search(command):
                    continue
                try:
                    before(db, command)
                    db.execute(command.replace("'a slot'", "'a_slot'"))  # type: ignore[arg-type]
                    ran += 1
                except psycopg.Error as e:
                    wrong.append(f"{rule}: {command}: {e}")
                    db.execute("rollback")
    assert not wrong, "\n".join(wrong)
    assert ran > 60


def before(db: psycopg.Connection, command: str) -> None:
    """Makes what the command ends."""
    if "PREPARED 'it''s'" in command:
        db.execute("begin; insert into t (words) values ('a'); prepare transaction 'it''s'")
    if command.startswith("SELECT pg_drop_replication_slot"):
        db.execute("select pg_create_physical_replication_slot('a_slot')")


def test_every_query_of_a_capture_in_advice_runs(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path)
    cap.background()
    capture = open_capture(cap.write(), whole=True)
    ran = 0
    for _, span in advice(16, 1):
        if found := re.fullmatch(r'leadline sql \S+ "(.*)"', span):
            capture.rows(found[1])
            ran += 1
    capture.close()
    assert ran > 10


def test_names_in_advice_are_quoted_where_the_server_needs_it(servers: Callable[[int], Server]) -> None:
    names = ["t", "T", "a b", 'a"b', "été", "1st", "_x$1", "", *(word for (word,) in servers(18).sql("select word from pg_get_keywords()"))]
    needed = {word for (word,) in servers(18).sql("select word from pg_get_keywords() where catcode in ('R', 'T')")}
    db = duckdb.connect()
    db.execute(macros().sql)
    quoted = {name: db.execute("select pg_ident(?)", [name]).fetchall()[0][0] for name in names}
    assert {name for name in names if quoted[name] != name} == needed | {"T", "a b", 'a"b', "été", "1st", ""}
    [given] = servers(18).sql("select " + ", ".join(f"quote_ident('{name}')" for name in names))
    assert [quoted[name] for name in names if quoted[name] != name] == [g for g, name in zip(given, names) if quoted[name] != name]
