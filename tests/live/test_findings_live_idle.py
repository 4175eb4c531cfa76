"""Connections that do nothing, on a real server: what /proc says of their memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from conftest import Server
from leadline.host import proc
from live import captured

pytestmark = pytest.mark.live


@pytest.mark.parametrize("major", [13, 18])
def test_memory_of_idle_sessions(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    server = fresh_server(major)
    with ExitStack() as stack:
        pool = [stack.enter_context(server.connect(application_name="pool")) for _ in range(12)]
        for n in range(400):
            pool[5].execute(f"prepare p{n} as select count(*) from pg_class a join pg_class b on a.oid = b.oid and a.oid = {n}")
        pid = pool[5].info.backend_pid
        [finding] = captured(server, tmp_path, 1.0, ["IDLE-CONNECTIONS"], {"idle_connections": 10}).findings
        status = proc.status_fields(pid)
    resident, own = int(status["RssAnon"].split()[0]) * 1024, finding.evidence[0]["largest_bytes"]
    assert finding.evidence[0]["sessions"] == 12 and f"WHERE pid = {pid};" in finding.action
    assert 0.4 * resident < own < 1.2 * resident
