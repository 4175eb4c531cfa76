"""BACKEND-WRITES and what else surrounds the sessions, on real servers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import MAJORS, Server
from live import WINDOW_S, captured, storm, wait_for_event

pytestmark = pytest.mark.live


@pytest.mark.parametrize("major", MAJORS)
def test_sessions_that_write_pages_and_a_load_that_only_grows(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    """The same server: COPY and files that grow cost their sessions writes too, but nobody else should have made these."""
    server = fresh_server(major, shared_buffers="1MB", bgwriter_lru_maxpages=0, track_io_timing=True, autovacuum=False)
    server.sql("create table page as select i as id, repeat('x', 500) as words from generate_series(1, 30000) i")
    server.sql("create table grown (words text); create index on page (id)")
    with storm(server, tmp_path, "\\set i random(1, 30000)\nupdate page set words = repeat('y', 500) where id = :i", 4):
        wait_for_event(server, "DataFileWrite")
        [finding] = captured(server, tmp_path / "writes", WINDOW_S, ["BACKEND-WRITES"]).findings
    assert finding.cost_s is not None and finding.cost_s > 0.01 * WINDOW_S
    assert "the background writer is off (bgwriter_lru_maxpages = 0)" in finding.statement
    assert finding.evidence[0]["query"].startswith("update page")
    server.sql("checkpoint")
    with storm(server, tmp_path, "copy grown from program 'seq 20000'", 1):
        assert captured(server, tmp_path / "copy", 1, ["BACKEND-WRITES"]).findings == []
