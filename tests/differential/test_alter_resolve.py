"""`leadline alter resolve` against real servers: it loses nothing, whatever else happens meanwhile."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from alter_parts import Said, alter, make, make_small, reference, sums
from conftest import Server, wait_until
from leadline.cli import run
from leadline.files.alter import resolve


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
        assert done["notes"] == ["2 rows still in an old form, locked or part of unfinished transactions: run the command again later"]
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
        about = [note for note in done["notes"] if note.startswith("a row cannot be rewritten unchanged; at " + place)]
        assert len(about) == 1 and '"few"' in about[0] and "NOT VALID first" in about[0]
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
        assert failed["message"] == "more than 10 rows of public.forbidden cannot be rewritten unchanged"


def test_what_stayed_on_its_page_is_not_said_where_nobody_counts(servers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server = servers(17)
    with server.connect() as connection:
        make_small(connection, "uncounted")
    dsn = psycopg.conninfo.make_conninfo(server.dsn, options="-c track_counts=off")
    assert run(["alter", "resolve", dsn, "--table", "uncounted"]) == 0
    printed = capsys.readouterr().out
    assert "no row is left" in printed and "not known: track_counts is off" in printed
    assert max(map(len, printed.splitlines())) <= 80


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
            wait_until(lambda: "another session is waiting for the table" in said.texts, what="a step back")
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
