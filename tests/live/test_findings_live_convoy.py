"""Convoys and commands that block, on real servers of every major version."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import MAJORS, Server
from live import captured, storm

pytestmark = pytest.mark.live


@pytest.mark.parametrize("major", MAJORS)
def test_convoys_are_named_with_their_lock(servers: Callable[[int], Server], tmp_path: Path, major: int) -> None:
    """Three convoys at once: a negative key, NOTIFY (whose lock is at the commit) and a table."""
    server = servers(major)
    server.sql("create table if not exists taken_in_turn (v int)")
    loads = {
        "advisory lock -5": "begin;\nselect pg_advisory_xact_lock(-5);\nselect pg_sleep(0.005);\ncommit",
        "lock of NOTIFY": "select count(pg_notify('somebody', repeat('x', 7000) || i)) from generate_series(1, 300) i",
        "table lock of public.taken_in_turn": "begin;\nlock table taken_in_turn;\nselect pg_sleep(0.005);\ncommit",
    }
    folders = [tmp_path / str(n) for n in range(3)]
    for folder in folders:
        folder.mkdir()
    one, two, three = ((folder, text, 6) for folder, text in zip(folders, loads.values()))
    with storm(server, *one), storm(server, *two), storm(server, *three):
        found = captured(server, tmp_path, 3.0, ["LOCK-CONVOY", "BLOCK-CHAIN", "DDL-QUEUE"]).findings
    assert {f.id for f in found} == {"LOCK-CONVOY"}
    by_lock = {f.subject.removesuffix(" in database postgres"): f for f in found}
    assert set(by_lock) == set(loads)
    for name in ("advisory lock -5", "table lock of public.taken_in_turn"):  # five of six wait
        assert by_lock[name].cost_s == pytest.approx(15, rel=0.2)
        assert re.search(r"[3-6] sessions were seen to hold it, none for long, application pgbench", by_lock[name].statement)
        assert "while they held it: Timeout:PgSleep" in by_lock[name].statement
