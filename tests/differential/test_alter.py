"""leadline alter against real servers: what is pending equals a slow reference through pageinspect; resolve loses nothing."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from conftest import SETTINGS, CopiedServer, Server, no_oracle, wait_until
from leadline._core import pending_scan
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.files.alter import pending, resolve, session
from leadline.files.alter.order import Page, blocks_between, passes
from leadline.files.alter.pacing import Pacer
from leadline.postgres.server.binaries import host_dirs, wheel_dirs
from leadline.postgres.server.private import PrivateServer

ROWS = 1500


@pytest.fixture(params=(13, 15, 18), ids=lambda major: f"pg{major}")
def some(request: pytest.FixtureRequest, servers: Any) -> Server:
    """Where the majors between behave as their neighbours."""
    server: Server = servers(request.param)
    return server


def alter(capsys: pytest.CaptureFixture[str], *arguments: Any, code: int = 0) -> Any:
    """The JSON that a command printed; its exit code is checked."""
    assert run(["alter", *map(str, arguments), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def make(connection: Any, name: str, major: int) -> None:
    """A table that was altered in every way after it was filled, with rows of all ages, dead ones and NULLs."""
    connection.execute(f"drop table if exists {name}")
    connection.execute(
        f"create table {name} (id int primary key, n int, gone text, t text, e text, wide text)"
        " with (autovacuum_enabled = off, fillfactor = 80)"
    )
    connection.execute(f"alter table {name} alter e set storage external")
    compressible, noise = "repeat('long ' || i, 800)", "(select string_agg(md5(j::text || i), '') from generate_series(1, 120) j)"
    connection.execute(
        f"insert into {name} select i, i, case when i % 3 > 0 then 'gone ' || i end, 't' || i,"
        f" case when i % 50 = 0 then {noise} end, case when i % 20 = 0 then {compressible} when i % 97 = 0 then {noise} end"
        f" from generate_series(1, {ROWS}) i"
    )
    connection.execute(f"update {name} set n = n + 1 where id % 7 = 0")
    connection.execute(f"delete from {name} where id % 11 = 0")
    connection.execute(f"alter table {name} add column added int default 42, drop column gone")
    if lz4(connection, major):
        connection.execute(f"alter table {name} alter wide set compression lz4")
    connection.execute(f"update {name} set n = n + 1 where id % 13 = 0")  # current now, but what was packed stays as it was
    connection.execute(f"insert into {name} (id, wide) select i, repeat('new ' || i, 800) from generate_series(-20, 0) i")
    connection.execute(f"alter table {name} add column late text")
    connection.execute("begin")
    connection.execute(f"update {name} set n = -1 where id < 40")
    connection.execute("rollback")
    connection.execute("checkpoint")


def lz4(connection: Any, major: int) -> bool:
    values = connection.execute("select enumvals from pg_settings where name = 'default_toast_compression'").fetchone()
    return major >= 14 and bool(values) and "lz4" in values[0]


# Straight from the bytes of heap_page_items, row for row, of rows that a snapshot sees.
REFERENCE = """
with tuples as (
  select b as block, lp, t_infomask2 & 2047 as natts, t_bits from generate_series(0, pg_relation_size('{name}') / 8192 - 1) b,
    lateral heap_page_items(get_raw_page('{name}', b::int)) where lp_flags = 1
), visible as (select ctid, * from {name}),
attributes as (select attnum from pg_attribute where attrelid = '{name}'::regclass and attisdropped),
judged as (
  select block, lp,
    natts < (select relnatts from pg_class where oid = '{name}'::regclass) as short,
    exists (select from attributes a where natts >= attnum and coalesce(substr(t_bits, attnum, 1), '1') = '1') as dropped,
    coalesce({packed}, false) as compression
  from tuples join visible v on v.ctid = format('(%s,%s)', block, lp)::tid
)
select reason, count(*), count(distinct block) from judged,
  lateral (values ('short', short), ('dropped', dropped), ('compression', compression), ('any', short or dropped or compression))
    r (reason, holds)
  where holds group by reason
"""


def reference(server: Server, connection: Any, name: str) -> dict[str, tuple[int, int]]:
    """Rows and pages of each reason, as pageinspect shows them."""
    connection.execute("create extension if not exists pageinspect")
    packed = "pg_column_compression(v.wide) <> 'lz4'" if lz4(connection, server.major) else "false"
    return {reason: (rows, pages) for reason, rows, pages in connection.execute(REFERENCE.format(name=name, packed=packed))}


def test_pending_is_what_pageinspect_shows(pg: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with pg.connect() as connection:
        make(connection, "altered", pg.major)
        wanted = reference(pg, connection, "altered")
        gone = connection.execute(
            "select sum(octet_length(i.t_attrs[3]))::int from generate_series(0, pg_relation_size('altered') / 8192 - 1) b"
            " cross join lateral heap_page_item_attrs(get_raw_page('altered', b::int), 'altered'::regclass) i"
            " join altered v on v.ctid = format('(%s,%s)', b, i.lp)::tid"
        ).fetchone()
        assert wanted["short"][0] > 1000 and wanted["dropped"][0] > 500
        assert ("compression" in wanted) == lz4(connection, pg.major)
    found = alter(capsys, "pending", pg.dsn, "--table", "altered")
    assert {row["relation"] for row in found} == {"public.altered"}
    by_reason = {row["reason"]: row for row in found}
    assert {reason: (row["rows"], row["pages"]) for reason, row in by_reason.items()} == {k: v for k, v in wanted.items() if k != "any"}
    assert by_reason["dropped"]["bytes"] == gone[0]
    assert by_reason["short"]["bytes"] == 0


# -- resolve -----------------------------------------------------------------------------------------------------------


def sums(connection: Any, name: str, columns: str) -> dict[int, str]:
    """A sum over some columns of each row, by its key."""
    return dict(connection.execute(f"select id, md5(row({columns})::text) from {name}"))


def test_resolve_rewrites_every_old_row_and_changes_none(pg: Server, capsys: pytest.CaptureFixture[str]) -> None:
    everything = "id, n, t, e, wide, added, late"
    with pg.connect() as connection:
        make(connection, "resolved", pg.major)
        before = sums(connection, "resolved", everything)
        old = reference(pg, connection, "resolved")["any"][0]
        [planned] = alter(capsys, "resolve", pg.dsn, "--table", "resolved", "--dry-run")
        assert (planned["rows"], planned["transactions"]) == (old, -(-old // 1000))
        assert reference(pg, connection, "resolved")["any"][0] == old
        [done] = alter(capsys, "resolve", pg.dsn, "--table", "resolved", "--batch", "200")
        assert (done["rows_before"], done["rows_rewritten"], done["rows_remaining"]) == (old, old, 0)
        assert done["is_proven"] and done["after"] == [] and done["rounds"] == 1
        assert done["transactions"] >= old / 200
        assert done["rows_hot"] > (0.8 if pg.major >= 14 else 0.2) * old
        assert done["longest_transaction_ms"] > 0 and done["longest_wait_ms"] == 0 and done["wal_bytes"] > 0
        assert sums(connection, "resolved", everything) == before
        connection.execute("checkpoint")
        assert reference(pg, connection, "resolved") == {}
    [again] = alter(capsys, "resolve", pg.dsn, "--table", "resolved")
    assert (again["rows_before"], again["rows_rewritten"], again["transactions"]) == (0, 0, 0)


@contextmanager
def updates(server: Server, name: str, rows: int) -> Iterator[dict[int, int]]:
    """Updates of rows at random from two connections, and how often each row was changed."""
    stopping = threading.Event()
    changed: dict[int, int] = {}
    counting = threading.Lock()

    def work(seed: int) -> None:
        rng = random.Random(seed)
        with server.connect(autocommit=False) as connection:
            while not stopping.is_set():
                row = rng.randint(1, rows)
                found = connection.execute(f"update {name} set n = n + 1 where id = %s", [row]).rowcount
                connection.commit()
                with counting:
                    changed[row] = changed.get(row, 0) + found

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(changed) > 50, what="the load")
        yield changed
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("major", [13, 18])
def test_killed_under_load_and_begun_again_it_ends_with_nothing_old_and_nothing_lost(
    major: int, servers: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    server, rows = servers(major), 20_000
    rest = "id, t, added"
    with server.connect() as connection:
        connection.execute("drop table if exists busy")
        connection.execute("create table busy (id int primary key, n int, gone text, t text)")
        connection.execute(f"insert into busy select i, 0, 'gone ' || i, 't' || i from generate_series(1, {rows}) i")
        connection.execute("create index on busy (t)")
        connection.execute("alter table busy drop column gone, add column added int default 1")
        before = sums(connection, "busy", rest)
        rewritten = "select count(*) from busy where xmin::text <> %s"
        [old_xmin] = connection.execute("select min(xmin::text::int8)::text from busy").fetchone()
        command = [sys.executable, "-m", "leadline", "alter", "resolve", server.dsn, "--table", "busy", "--batch", "20"]
        with updates(server, "busy", rows) as changed:
            process = subprocess.Popen([*command, "--max-wal-rate", "2MB"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                wait_until(lambda: connection.execute(rewritten, [old_xmin]).fetchone()[0] > rows / 3, what="a third of the rows")
            finally:
                process.send_signal(signal.SIGKILL)
                assert process.wait() == -signal.SIGKILL  # it had not ended by itself
            [done] = alter(capsys, "resolve", server.dsn, "--table", "busy", "--batch", "200")
        assert 0 < done["rows_before"] < rows
        assert (done["rows_remaining"], done["is_proven"]) == (0, True)
        assert done["longest_wait_ms"] <= done["longest_transaction_ms"]
        assert sums(connection, "busy", rest) == before
        assert dict(connection.execute("select id, n from busy where n <> 0")) == {row: n for row, n in changed.items() if n}
        connection.execute("checkpoint")
    assert alter(capsys, "pending", server.dsn, "--table", "busy") == []


def test_rows_that_stay_locked_are_left_and_told(servers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server = servers(17)
    with server.connect() as connection, server.connect(autocommit=False) as other:
        make_small(connection, "locked")
        other.execute("select from locked where id in (3, 4) for update")
        [done] = alter(capsys, "resolve", server.dsn, "--table", "locked", code=1)
        assert (done["rows_rewritten"], done["rows_remaining"], done["is_proven"]) == (98, 2, True)
        assert {row["reason"]: row["rows"] for row in done["after"]} == {"short": 2}
        assert done["notes"] == ["2 rows stayed locked, or of transactions that had not ended: begin again later"]
        other.rollback()
    [done] = alter(capsys, "resolve", server.dsn, "--table", "locked")
    assert (done["rows_rewritten"], done["rows_remaining"]) == (2, 0)


def test_a_row_that_its_constraint_forbids_is_passed_over(servers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server = servers(17)
    with server.connect() as connection:
        make_small(connection, "strict")
        connection.execute("alter table strict add constraint few check (n < 100) not valid")
        [place] = connection.execute("select ctid::text from strict where n = 100").fetchone()
        [done] = alter(capsys, "resolve", server.dsn, "--table", "strict", "--batch", 30, code=1)
        assert (done["rows_rewritten"], done["rows_remaining"], done["rows_unwritable"]) == (99, 1, 1)
        about = [note for note in done["notes"] if note.startswith("a row may not be written as it is; at " + place)]
        assert len(about) == 1 and '"few"' in about[0] and "have to be mended first" in about[0]
        assert not [note for note in done["notes"] if "stayed" in note]
        connection.execute("delete from strict where n = 100")
        [done] = alter(capsys, "resolve", server.dsn, "--table", "strict")
        assert (done["rows_rewritten"], done["rows_remaining"], done["rows_unwritable"]) == (0, 0, 0)
        assert done["rows_before"] == 0


def test_a_table_of_which_most_rows_are_forbidden_ends_it_with_one_error(
    servers: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = servers(17)
    monkeypatch.setattr(resolve, "MOST_UNWRITABLE", 10)
    with server.connect() as connection:
        make_small(connection, "forbidden")
        connection.execute("alter table forbidden add constraint some_or_few check (n % 9 > 0 or n > 90) not valid")
        [done] = alter(capsys, "resolve", server.dsn, "--table", "forbidden", code=1)
        assert (done["rows_rewritten"], done["rows_remaining"], done["rows_unwritable"]) == (90, 10, 10)
        make_small(connection, "forbidden")
        connection.execute("alter table forbidden add constraint none check (n < 0) not valid")
        failed = alter(capsys, "resolve", server.dsn, "--table", "forbidden", code=2)["error"]
        assert (failed["kind"], '"none"' in failed["detail"]) == ("invalid", True)
        assert failed["message"] == "more than 10 rows of public.forbidden may not be written as they are"


def test_what_stayed_on_its_page_is_not_said_where_nobody_counts(servers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server = servers(17)
    with server.connect() as connection:
        make_small(connection, "uncounted")
    dsn = psycopg.conninfo.make_conninfo(server.dsn, options="-c track_counts=off")
    assert run(["alter", "resolve", dsn, "--table", "uncounted"]) == 0
    printed = capsys.readouterr().out
    assert "no row is left" in printed and "not known: track_counts is off" in printed
    assert max(map(len, printed.splitlines())) <= 80


class Said:
    """A progress line that remembers."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def share(self, _done: int, _total: int, text: str) -> None:
        self.texts.append(text)

    def note(self, text: str) -> None:
        self.texts.append(text)

    def done(self) -> None: ...


def test_it_steps_back_while_somebody_waits_for_the_table(servers: Any) -> None:
    server, said, done = servers(16), Said(), []
    progress: Any = said

    def alter_it() -> None:
        with server.connect() as connection:
            connection.execute("alter table wanted add column more int default 2")

    def resolve_it() -> None:
        done.extend(resolve.resolve(server.dsn, "wanted", resolve.Options(), progress))

    with server.connect() as connection, server.connect(autocommit=False) as reader:
        make_small(connection, "wanted")
        reader.execute("select count(*) from wanted")
        threads = [threading.Thread(target=alter_it)]
        threads[0].start()
        waiting = "select count(*) from pg_locks where relation = 'wanted'::regclass and not granted"
        wait_until(lambda: connection.execute(waiting).fetchone()[0] == 1, what="somebody who waits")
        threads.append(threading.Thread(target=resolve_it))
        threads[1].start()
        try:
            wait_until(lambda: "somebody waits for the table" in said.texts, what="a step back")
        finally:
            reader.rollback()
            for thread in threads:
                thread.join()
    [outcome] = done  # with the column that was added meanwhile every row was old again
    assert (outcome.rows_before, outcome.rows_remaining, outcome.is_proven) == (100, 0, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it_between_two_transactions_with_a_summary(number: signal.Signals, servers: Any) -> None:
    server = servers(17)
    with server.connect() as connection:
        connection.execute("drop table if exists halted")
        connection.execute("create table halted as select i as id, 0 as n from generate_series(1, 5000) i")
        connection.execute("alter table halted add column added int")
        [old_xmin] = connection.execute("select min(xmin::text) from halted").fetchone()
        command = [sys.executable, "-m", "leadline", "alter", "resolve", server.dsn, "--table", "halted", "--json"]
        command += ["--batch", "10", "--max-wal-rate", "100kB"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            count = "select count(*) from halted where xmin::text <> %s"
            wait_until(lambda: connection.execute(count, [old_xmin]).fetchone()[0] > 0, what="the first rows")
            process.send_signal(number)
            out, _ = process.communicate(timeout=60)
        [done] = json.loads(out)
        assert process.returncode == 130
        assert done["is_interrupted"] and done["is_proven"]
        assert done["rows_rewritten"] == connection.execute(count, [old_xmin]).fetchone()[0]
        assert done["rows_rewritten"] + done["rows_remaining"] == 5000


def make_small(connection: Any, name: str, columns: str = "id int primary key, n int") -> None:
    """A hundred short rows."""
    connection.execute(f"drop table if exists {name} cascade")
    connection.execute(f"create table {name} ({columns})")
    named = "(n) select i" if "identity" in columns else "select i, i"
    connection.execute(f"insert into {name} {named} from generate_series(1, 100) i")
    connection.execute(f"alter table {name} add column added int")


def test_triggers_do_not_fire_and_those_that_always_do_are_refused(some: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with some.connect() as connection:
        make_small(connection, "triggered")
        connection.execute("create or replace function spoil() returns trigger language plpgsql as 'begin new.n = -1; return new; end'")
        connection.execute("create trigger spoil before update on triggered for each row execute function spoil()")
        connection.execute("alter table triggered enable always trigger spoil")
        refused = alter(capsys, "resolve", some.dsn, "--table", "triggered", code=2)["error"]
        assert (refused["kind"], "spoil fires in any mode" in refused["detail"]) == ("unsupported", True)
        connection.execute("alter table triggered enable trigger spoil")
        [done] = alter(capsys, "resolve", some.dsn, "--table", "triggered")
        assert done["rows_rewritten"] == 100 and "triggers: spoil does not fire" in " ".join(done["notes"])
        assert connection.execute("select sum(n) from triggered").fetchone() == (5050,)
        connection.execute("update triggered set id = id where id = 1")
        assert connection.execute("select n from triggered where id = 1").fetchone() == (-1,)
        make_small(connection, "ruled")
        connection.execute("create rule nothing as on update to ruled do instead nothing")
        assert "rule nothing" in alter(capsys, "resolve", some.dsn, "--table", "ruled", code=2)["error"]["detail"]


def test_generated_and_identity_columns_keep_their_values(some: Server, capsys: pytest.CaptureFixture[str]) -> None:
    columns = "id int generated always as identity primary key, n int, twice int generated always as (n * 2) stored, free int default 5"
    with some.connect() as connection:
        make_small(connection, "computed", columns)
        before = sums(connection, "computed", "id, n, twice, free")
        [planned] = alter(capsys, "resolve", some.dsn, "--table", "computed", "--dry-run")
        assert "set free = t.free where" in planned["statement"]
        assert {"generated columns: copied, not recomputed", "identity columns: never set"} <= set(planned["notes"])
        [done] = alter(capsys, "resolve", some.dsn, "--table", "computed")
        assert (done["rows_rewritten"], done["rows_remaining"]) == (100, 0)
        assert sums(connection, "computed", "id, n, twice, free") == before
        connection.execute("alter table computed drop column n cascade, drop column free, drop column added")
        assert "no column that an UPDATE may set" in alter(capsys, "resolve", some.dsn, "--table", "computed", code=2)["error"]["detail"]


def test_publications_need_a_replica_identity(some: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with some.connect() as connection:
        make_small(connection, "published", "id int, n int")
        connection.execute("drop publication if exists sent")
        connection.execute("create publication sent for table published")
        refused = alter(capsys, "resolve", some.dsn, "--table", "published", code=2)["error"]
        assert "no usable replica identity" in refused["detail"]
        connection.execute("alter table published replica identity full")
        [done] = alter(capsys, "resolve", some.dsn, "--table", "published")
        assert done["rows_remaining"] == 0 and "publication sent: each rewritten row" in " ".join(done["notes"])
        connection.execute("drop publication sent")


def test_row_security_and_missing_rights_are_refused(some: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with some.connect() as connection:
        connection.execute("drop table if exists guarded")
        connection.execute("drop role if exists clerk")
        connection.execute("create role clerk login")
        make_small(connection, "guarded")
        connection.execute("alter table guarded owner to clerk")
        connection.execute("grant pg_read_all_settings to clerk")
        connection.execute("alter table guarded enable row level security")
        connection.execute("alter table guarded force row level security")
        dsn = psycopg.conninfo.make_conninfo(some.dsn, user="clerk")
        assert "row security" in alter(capsys, "resolve", dsn, "--table", "guarded", code=2)["error"]["detail"]
        connection.execute("alter table guarded no force row level security")
        connection.execute("checkpoint")
        [done] = alter(capsys, "resolve", dsn, "--table", "guarded", code=1)  # it may not run CHECKPOINT: the files stay as they are
        assert (done["is_proven"], done["rows_rewritten"], done["rows_remaining"]) == (False, 100, 100)
        assert "CHECKPOINT was refused" in " ".join(done["notes"])
        [done] = alter(capsys, "resolve", some.dsn, "--table", "guarded")
        assert (done["rows_before"], done["is_proven"]) == (0, True)
        connection.execute("alter table guarded owner to postgres")
        connection.execute("grant select on guarded to clerk")
        connection.execute("alter table guarded add column again int")
        connection.execute("checkpoint")
        refused = alter(capsys, "resolve", dsn, "--table", "guarded", code=2)["error"]
        assert (refused["kind"], refused["message"]) == ("unsupported", "the rows of public.guarded cannot be rewritten")
        connection.execute("alter table guarded disable row level security")
        refused = alter(capsys, "resolve", dsn, "--table", "guarded", code=2)["error"]
        assert (refused["kind"], refused["detail"]) == ("rights", "it may update no column")
        connection.execute("grant update (n) on guarded to clerk")
        [planned] = alter(capsys, "resolve", dsn, "--table", "guarded", "--dry-run")
        assert "set n = t.n where" in planned["statement"]
        connection.execute("drop table guarded")
        connection.execute("drop role clerk")


def test_partitions_are_resolved_one_by_one_and_other_relations_refused(some: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with some.connect() as connection:
        connection.execute("drop table if exists parted cascade")
        connection.execute("create table parted (id int, n int) partition by list (n)")
        connection.execute("create table parted_1 partition of parted for values in (1)")
        connection.execute("create table parted_2 partition of parted for values in (2) partition by list (id)")
        connection.execute("create table parted_2_5 partition of parted_2 for values in (5)")
        connection.execute("insert into parted values (1, 1), (5, 2)")
        connection.execute("alter table parted add column added int default 3")
        connection.execute("checkpoint")
        found = alter(capsys, "pending", some.dsn, "--table", "parted")
        assert [(r["relation"], r["rows"]) for r in found] == [("public.parted_1", 1), ("public.parted_2_5", 1)]
        done = alter(capsys, "resolve", some.dsn, "--table", "parted")
        counts = [(r["relation"], r["rows_rewritten"], r["rows_remaining"]) for r in done]
        assert counts == [("public.parted_1", 1, 0), ("public.parted_2_5", 1, 0)]
        connection.execute("create or replace view seen as select 1 as id")
        connection.execute("create unlogged table if not exists loose (id int)")
        for name, why in [("seen", "a view"), ("pg_class", "of the system"), ("nowhere", ""), ("loose", "unlogged")]:
            error = alter(capsys, "resolve", some.dsn, "--table", name, code=2)["error"]
            assert why in error["detail"], name


# -- compression, where a server has lz4 ---------------------------------------------------------------------------------

VALUES = {
    "text": "repeat('long ' || i, 600)",
    "varchar(9000)": "repeat('long ' || i, 600)",
    "char(3000)": "'padded ' || i",
    "bytea": "convert_to(repeat('long ' || i, 600), 'UTF8')",
    "jsonb": "jsonb_build_object('k', repeat('long ' || i, 600), 'n', array[i, null])",
    "xml": "xmlelement(name a, repeat('long ' || i, 600))",
    "numeric": "(repeat('12', 3000) || '.' || i || '0')::numeric",
    "text[]": "array_fill('v' || i, array[40, 20], array[3, -1])",
    "int[]": "(select array_agg(case when j % 9 > 0 then i end) from generate_series(1, 3000) j)",
    "tsvector": "(select array_to_tsvector(array_agg(repeat('word', 20) || i * j)) from generate_series(1, 60) j)",
    "int4range[]": "array_fill(int4range(i, i + 7), array[600])",
    "t_pair": "row(i, repeat('long ' || i, 600))::t_pair",
    "t_words": "array_fill('w' || i, array[900])::t_words",
}


@pytest.fixture(scope="module")
def with_lz4() -> Iterator[PrivateServer]:
    """A server that has lz4: those that tests fetch have not."""
    for found in [*host_dirs(), *wheel_dirs()]:
        config = found.bin_dir / "pg_config"
        if found.major < 14 or not config.is_file():
            continue
        built = subprocess.run([config, "--configure"], capture_output=True, text=True, check=False).stdout
        if "lz4" in built:
            with CopiedServer(found.bin_dir, settings=SETTINGS) as server:
                yield server
            return
    no_oracle("no server here was built with lz4")


def test_values_of_any_type_are_packed_anew_and_stay_the_same(with_lz4: PrivateServer, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"c{i}" for i in range(len(VALUES))]
    with psycopg.connect(with_lz4.dsn, autocommit=True) as connection:
        connection.execute("create type t_pair as (a int, b text)")
        connection.execute("create domain t_words as text[]")
        for name, (kind, value) in zip(names, VALUES.items()):
            table = f"packed_{name}"
            connection.execute(f"create table {table} (id int, v {kind})")
            connection.execute(f"insert into {table} select i, {value} from generate_series(1, 20) i")
            connection.execute(f"insert into {table} values (21, null)")
            connection.execute(f"alter table {table} alter v set compression lz4")
            image = "id, v::text, pg_column_compression(v)"
            before = {row[0]: row[1:] for row in connection.execute(f"select {image} from {table}")}
            assert all(method == "pglz" for number, (_, method) in before.items() if number <= 20), kind
            connection.execute("checkpoint")
            [found] = alter(capsys, "pending", with_lz4.dsn, "--table", table)
            assert (found["reason"], found["rows"], found["bytes"]) == ("compression", 20, stored(connection, table)), kind
            [done] = alter(capsys, "resolve", with_lz4.dsn, "--table", table)
            assert (done["rows_rewritten"], done["rows_remaining"]) == (20, 0), kind
            after = {row[0]: row[1:] for row in connection.execute(f"select {image} from {table}")}
            assert {n: text for n, (text, _) in after.items()} == {n: text for n, (text, _) in before.items()}, kind
            assert all(method in ("lz4", None) for _, method in after.values()), kind


def stored(connection: Any, table: str) -> int:
    """Bytes that values take: in the row with their header, outside as they are."""
    [inside] = connection.execute(f"select sum(pg_column_size(v)) from {table}").fetchone()
    return int(inside)


def test_what_two_altered_columns_ask_for_is_done_row_by_row(with_lz4: PrivateServer, capsys: pytest.CaptureFixture[str]) -> None:
    with psycopg.connect(with_lz4.dsn, autocommit=True) as connection:
        connection.execute("create table mixed (id int, a text compression pglz, b text compression lz4)")
        connection.execute("insert into mixed select i, repeat('a' || i, 900), repeat('b' || i, 900) from generate_series(1, 30) i")
        connection.execute("alter table mixed alter a set compression lz4")
        connection.execute("insert into mixed select i, repeat('a' || i, 900), repeat('b' || i, 900) from generate_series(31, 40) i")
        connection.execute("alter table mixed alter b set compression pglz, add column c int")
        before = sums(connection, "mixed", "id, a, b, c")
        connection.execute("checkpoint")
        found = {row["reason"]: row["rows"] for row in alter(capsys, "pending", with_lz4.dsn, "--table", "mixed")}
        assert found == {"short": 40, "compression": 40}
        [done] = alter(capsys, "resolve", with_lz4.dsn, "--table", "mixed")
        assert (done["rows_rewritten"], done["rows_remaining"]) == (40, 0)
        assert sums(connection, "mixed", "id, a, b, c") == before
        methods = "select distinct pg_column_compression(a), pg_column_compression(b) from mixed"
        assert {("lz4", "pglz")} <= set(connection.execute(methods)) <= {("lz4", "pglz"), ("lz4", None)}


def test_packed_values_of_generated_columns_are_packed_anew(with_lz4: PrivateServer, capsys: pytest.CaptureFixture[str]) -> None:
    with psycopg.connect(with_lz4.dsn, autocommit=True) as connection:
        connection.execute("create table derived (id int, n int, t text, g text generated always as (repeat(t || n, 900)) stored)")
        connection.execute("insert into derived (id, n, t) select i, i, 't' || i from generate_series(1, 30) i")
        connection.execute("alter table derived alter g set compression lz4")
        before = sums(connection, "derived", "id, n, t, g")
        [done] = alter(capsys, "resolve", with_lz4.dsn, "--table", "derived")
        assert (done["rows_rewritten"], done["rows_remaining"], done["rounds"]) == (30, 0, 1)
        assert sums(connection, "derived", "id, n, t, g") == before
        assert connection.execute("select distinct pg_column_compression(g) from derived").fetchall() == [("lz4",)]


# -- indexes, paths, errors ----------------------------------------------------------------------------------------------


def test_indexes_that_reindex_would_improve(fresh_server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server = fresh_server(18)
    with server.connect() as connection:
        connection.execute("create table keyed (id int, t text, n numeric, f float8, tags int[])")
        connection.execute("insert into keyed (id) values (1)")
        [table] = connection.execute("select pg_relation_filepath('keyed')").fetchone()
        connection.execute("create collation loose (provider = icu, locale = 'und', deterministic = false)")
        indexes = ["keyed_id on keyed (id)", "keyed_t on keyed (t, id)", "keyed_n on keyed (n)", "keyed_f on keyed (f)"]
        indexes += ["keyed_more on keyed (id) include (t)", "keyed_loose on keyed (t collate loose)", "keyed_hash on keyed using hash (id)"]
        for index in [*indexes, "keyed_gin on keyed using gin (tags)"]:
            connection.execute(f"create index {index}")
        connection.execute("checkpoint")
        paths = dict(connection.execute("select relname, pg_relation_filepath(oid) from pg_class where relname like 'keyed_%'"))
    assert alter(capsys, "pending", server.dsn) == []  # those that cannot be deduplicated are as new as they can be
    server.private.stop()
    root = Path(server.private.data_dir)
    for name, path in paths.items():
        if name in ("keyed_hash", "keyed_gin"):
            patch(root / path, 28 if name == "keyed_hash" else 72, 3 if name == "keyed_hash" else 1)
        else:
            patch(root / path, 64, 0)  # as pg_upgrade from 12 leaves it
    patch(root / paths["keyed_f"], 28, 3)
    found = {row["relation"]: (row["reason"], row["rows"], row["pages"]) for row in alter(capsys, "pending", root)}
    assert found == {
        "public.keyed_id": ("btree-dedup", None, 2),
        "public.keyed_t": ("btree-dedup", None, 2),
        "public.keyed_f": ("btree-version", None, 2),
        "public.keyed_hash": ("hash", None, found["public.keyed_hash"][2]),
        "public.keyed_gin": ("gin", None, 1),
    }
    patch(root / table, 4000, 7)  # between line pointers and rows: only the checksum tells
    torn = [sum(r["unread_pages"] for r in pending_scan(str(root / table), verify=verify)) for verify in (False, True)]
    assert torn == [0, 1]


def patch(path: Path, at: int, value: int) -> None:
    """Overwrites four bytes."""
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(value.to_bytes(4, "little"))


def test_paths_name_databases_and_files(servers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server = servers(15)
    with server.connect() as connection:
        connection.execute("drop database if exists other")
        connection.execute("create database other")
        make_small(connection, "here")
        with server.connect(dbname="other") as elsewhere:
            make_small(elsewhere, "there")
        connection.execute("checkpoint")
        [file] = connection.execute("select pg_relation_filepath('here')").fetchone()
    root = server.private.data_dir

    def names(*arguments: Any) -> set[tuple[str, str]]:
        return {(row["database"], row["relation"]) for row in alter(capsys, "pending", *arguments)}

    assert {("other", "public.there"), ("postgres", "public.here")} <= names(root)
    assert names(root, "--table", "other.public.there") == names(root, "--table", "there") == {("other", "public.there")}
    assert names(f"{root}/{file}") == {("postgres", "public.here")}
    assert ("other", "public.there") not in names(server.dsn)
    assert names(str(server.pid), "--table", "public.here") == {("postgres", "public.here")}


def test_what_cannot_be_read_is_told(
    servers: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert alter(capsys, "pending", tmp_path, code=2)["error"]["kind"] == "invalid"
    assert alter(capsys, "pending", tmp_path / "none", code=2)["error"]["kind"] == "not_found"
    server = servers(15)
    unknown = alter(capsys, "pending", server.dsn, "--table", "unknown", code=2)["error"]
    assert (unknown["kind"], unknown["message"]) == ("not_found", "there is no table unknown")
    assert alter(capsys, "resolve", server.dsn, "--table", "t", "--max-lag", "many", code=2)["error"]["kind"] == "usage"

    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(pending, "open", refuse, raising=False)
    refused = alter(capsys, "pending", server.dsn, code=2)["error"]
    assert refused["kind"] == "rights" and refused["hint"].startswith("sudo -u ")


# -- order and pace ------------------------------------------------------------------------------------------------------


def test_rows_are_taken_as_they_fit_and_moved_where_nothing_does() -> None:
    rows = [(lp, 1, 60, 60) for lp in range(1, 17)]
    roomy, full = Page(5, 3 * 68, list(rows)), Page(6, 0, list(rows))
    taken = list(passes([roomy, full], can_prune=True))
    assert taken[0] == [(5, 1), (5, 2), (5, 3), (6, 1), (6, 2)]
    assert sorted(place for each in taken for place in each) == [(block, lp) for block in (5, 6) for lp in range(1, 17)]
    without = list(passes([Page(5, 3 * 68, list(rows)), Page(6, 0, list(rows))], can_prune=False))
    assert [len(each) for each in without] == [3 + 16, 13]
    assert blocks_between([(7, 1), (5, 2), (6, 1), (9, 1), (7, 3)]) == [(5, 7), (9, 9)]


class Answers:
    """A connection that gives these answers in turn, whatever it is asked."""

    def __init__(self, *answers: tuple[Any, ...]) -> None:
        self.answers = list(answers)

    def execute(self, _query: str, _parameters: Any = None) -> Answers:
        return self

    def fetchone(self) -> tuple[Any, ...]:
        return self.answers.pop(0)


def test_it_waits_for_those_who_wait_and_for_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    clock = [100.0]
    time = SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    monkeypatch.setattr("leadline.files.alter.pacing.time", time)
    connection: Any = Answers((2,), (1,), (0,), (0, 9 << 20), (0, 1 << 20), ("away", 5 << 20), (0, 0), ("away", 1 << 20))
    pacer = Pacer(connection, 1 << 20, 4 << 20, said.append)
    pacer.wrote(3 << 20)
    pacer.wait(1)
    waits = ["somebody waits for the table"] * 2 + ["a replica is 9 MB behind"]
    assert said == [*waits, "replication slot away, which nobody reads now, is 5 MB behind"]
    assert connection.answers == [] and 103.0 <= clock[0] <= 103.1
    hidden: Any = Answers((0,), (1, 0))
    with pytest.raises(LeadlineError, match="how far replicas are"):
        Pacer(hidden, None, 1, said.append).wait(1)


def test_nothing_of_the_session_waits_long(servers: Any) -> None:
    with session.open_session(servers(18).dsn) as connection:
        shown = {name: connection.execute(f"show {name}").fetchone()[0] for name in session.SETTINGS}
    assert shown == session.SETTINGS
