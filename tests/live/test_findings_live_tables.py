"""Findings about tables and statements on real servers: one server of each major with all the troubles at once, and nothing else found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import MAJORS, Server, wait_until
from leadline.capture.reader import open_capture
from leadline.findings import Finding, evaluate
from leadline.probes.take import take

RULES = ["AUTOVACUUM-OFF", "AUTOVACUUM-BLOCKED", "AUTOVACUUM-SLOW", "STALE-STATISTICS"]


def counted(server: Server, table: str, metric: str, value: int) -> None:
    """Until the server's statistics have it: a session hands its counts over at most once a second."""
    query = f"select {metric} >= %s from pg_stat_user_tables where relname = %s"
    wait_until(lambda: server.sql(query, [value, table])[0][0], what=f"{metric} of {table}")


@pytest.mark.parametrize("major", MAJORS)
def test_dead_rows_and_old_statistics_by_table(fresh_server: Callable[..., Server], tmp_path: Path, major: int) -> None:
    server = fresh_server(major, autovacuum_naptime="600s")
    for name, options in {"off": " with (autovacuum_enabled = off)", "kept": "", "clean": ""}.items():
        server.sql(f'create table "{name}" (a int primary key, b text){options}')
        server.sql(f"insert into \"{name}\" select i, 'x' from generate_series(1, 40000) i")
        server.sql(f'vacuum analyze "{name}"')
    with server.connect(application_name="report") as holder:
        holder.autocommit = False
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select count(*) from kept")
        server.sql('delete from "off" where a <= 30000')
        server.sql("delete from kept where a <= 30000")
        counted(server, "kept", "n_dead_tup", 30000)
        server.sql("vacuum kept")
        wait_until(
            lambda: server.sql(
                "select last_vacuum > now() - interval '1 min' and n_dead_tup = 30000 from pg_stat_user_tables where relname = 'kept'"
            )[0][0]
        )
        counted(server, "off", "n_dead_tup", 30000)
        path = take(dsn=server.dsn, pid=server.pid, for_s=2.0, out=tmp_path / "c.leadline", probes=["sessions"])
        pid = holder.info.backend_pid
    capture = open_capture(path)
    result = evaluate(capture, RULES)
    capture.close()
    assert result.not_evaluated == []
    found: dict[tuple[str, str], Finding] = {(f.id, f.subject): f for f in result.findings}
    off, kept = found.pop(("AUTOVACUUM-OFF", "table public.off")), found.pop(("AUTOVACUUM-BLOCKED", "table public.kept"))
    stale = found.pop(("STALE-STATISTICS", "table public.off"))
    assert found == {}
    [(size,)] = server.sql("select pg_relation_size('\"off\"')")
    assert off.evidence[0]["dead_rows"] == 30_000 and off.evidence[0]["dead_bytes_estimate"] == pytest.approx(0.75 * size, rel=0.02)
    assert kept.evidence[0]["pid"] == pid and "application report" in kept.statement
    assert stale.evidence[0]["changed_rows"] == 30_000
