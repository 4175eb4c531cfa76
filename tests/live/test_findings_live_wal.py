"""SLOT-KEEPS-WAL and ARCHIVER-FAILS on servers whose slot nobody reads and whose archive_command fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import MAJORS, Server
from leadline.capture.reader import open_capture
from leadline.findings import evaluate
from leadline.probes.take import take

RULES = ["SLOT-KEEPS-WAL", "ARCHIVER-FAILS"]


@pytest.mark.parametrize("major", MAJORS)
def test_wal_that_cannot_be_removed(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    server = fresh_server(major, archive_mode="on", archive_command="false", max_wal_size="32MB", min_wal_size="32MB")
    server.sql("select pg_create_physical_replication_slot('forgotten', true)")
    for _ in range(4):  # a segment each
        server.sql("create table if not exists w (a text)")
        server.sql("insert into w select repeat('x', 1000) from generate_series(1, 14000)")
        server.sql("select pg_switch_wal()")
    path = take(dsn=server.dsn, pid=server.pid, for_s=3.0, out=tmp_path / "c.leadline", probes=["sessions"])
    found = {f.id: f for f in evaluate(open_capture(path), RULES, {"slot_bytes": 50e6, "archive_waiting": 3}).findings}
    slot, archive = found["SLOT-KEEPS-WAL"], found["ARCHIVER-FAILS"]
    [[kept]] = server.sql("select pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::float8 from pg_replication_slots")
    assert slot.evidence[0]["retained_bytes"] == pytest.approx(kept, rel=0.1) and slot.subject == "replication slot forgotten"
    [[waiting]] = server.sql("select count(*) from pg_ls_archive_statusdir() where name like '%.ready'")
    assert waiting >= 4 and archive.evidence[0]["waiting"] == waiting and archive.evidence[0]["archived"] == 0
