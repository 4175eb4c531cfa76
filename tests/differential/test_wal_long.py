"""Long records of a real server, of which leadline does not keep everything: what it says of them is what the server says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import running
from leadline.cli import run
from wal_load import SETTINGS, LoggedServer, insert_lsn

MIB = 1 << 20
KEPT_MESSAGES = (MIB - 100) // 16  # of a commit, which says little else before them
WIDE = ", ".join(f"c{n} int" for n in range(1600))


@pytest.fixture(scope="module")
def log() -> Iterator[LoggedServer]:
    """A message of 8 MB, then a transaction with more invalidation messages than a MiB has: those of 24 tables of 1600 columns."""
    with running(18, **SETTINGS) as server:
        server.sql("create extension pg_walinspect")
        start = insert_lsn(server)
        server.sql("select pg_logical_emit_message(true, 'long', repeat('leadline', 1000000))")
        server.sql(f"do $$ begin for i in 1..24 loop execute 'create table wide' || i || ' ({WIDE})'; end loop; end $$")
        end = insert_lsn(server)
        server.sql("select pg_switch_wal()")
        yield LoggedServer(server, start, end)


def json_of(capsys: pytest.CaptureFixture[str], log: LoggedServer, verb: str, *line: str) -> Any:
    capsys.readouterr()
    assert run(["wal", verb, str(log.folder), "--from", log.start, "--to", log.end, *line, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def longest(log: LoggedServer, rmgr: str) -> tuple[Any, ...]:
    """Place, lengths and description of the longest record of a resource manager."""
    return log.sql(
        "select start_lsn::text, record_length, main_data_length, case when record_length < 3000000 then description end"
        f" from pg_get_wal_records_info('{log.start}', '{log.end}') where resource_manager = '{rmgr}' order by record_length desc limit 1"
    )[0]


@pytest.mark.live
def test_a_long_message_is_told_as_a_short_one(log: LoggedServer, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lsn, length, main_length, _ = longest(log, "LogicalMessage")
    found = next(row for row in json_of(capsys, log, "show", "--rmgr", "LogicalMessage") if row["lsn"] == lsn)
    assert (found["record_length"], found["main_data_length"]) == (length, main_length)
    assert length > 8_000_000
    said = found["description"]
    assert (said["prefix"], said["message_size"], "left_out" in said) == ("long", 8_000_000, False)
    sums = {r["record_type"]: r for r in json_of(capsys, log, "stats", "--rmgr", "LogicalMessage")}
    assert (sums["MESSAGE"]["records"], sums["MESSAGE"]["record_bytes"]) == (1, length)
    out = str(tmp_path / "out")
    assert json_of(capsys, log, "export", "-o", out)["status"] == "complete"
    query = f"select record_length, main_data_length from wal_record where record_length > {MIB} order by 1"
    assert run(["sql", f"{out}.leadline", query, "--json"]) == 0
    exported = json.loads(capsys.readouterr().out)
    assert exported[-1] == {"record_length": length, "main_data_length": main_length}


@pytest.mark.live
def test_a_commit_says_what_it_leaves_out_and_inval_has_all_of_it(log: LoggedServer, capsys: pytest.CaptureFixture[str]) -> None:
    lsn, length, main_length, description = longest(log, "Transaction")
    wanted = [(kind, int(number)) for kind, number in re.findall(r" (catcache|catalog|relcache|snapshot) (\d+)", description)]
    assert len(wanted) > KEPT_MESSAGES + 1000
    found = next(row for row in json_of(capsys, log, "show", "--rmgr", "Transaction") if row["lsn"] == lsn)
    assert (found["record_type"], found["record_length"], found["main_data_length"]) == ("COMMIT", length, main_length)
    shown, left_out = found["description"]["msgs"], found["description"]["left_out"]
    assert KEPT_MESSAGES - 10 < len(shown) <= KEPT_MESSAGES + 6
    assert left_out == {"msgs": len(wanted) - len(shown), "bytes": main_length - MIB}
    assert [(m["kind"], m["object"]) for m in shown] == wanted[: len(shown)]

    every = json_of(capsys, log, "inval")
    parts = [row for row in every if row["lsn"] == lsn]
    assert [(row["messages_before"], row["message_count"]) for row in parts] == [(0, len(wanted)), (len(shown), len(wanted))]
    assert [(m["kind"], m["object"]) for row in parts for m in row["messages"]] == wanted
    # --limit counts records, not parts.
    before = sum(1 for row in every if row["messages_before"] == 0 and row["lsn"] != lsn)
    assert json_of(capsys, log, "inval", "--limit", str(before + 1)) == every
    assert json_of(capsys, log, "inval", "--limit", "1") == every[:1]
    assert run(["wal", "inval", str(log.folder), "--from", lsn, "--to", log.end]) == 0
    text = capsys.readouterr().out
    assert f"  messages {len(shown) + 1:,} to {len(wanted):,} of {len(wanted):,}\n" in text
