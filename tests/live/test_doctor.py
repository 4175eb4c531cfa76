"""leadline doctor: each state of a host and a server is told with the command that helps."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Server
from leadline import _core, doctor
from leadline.cli import run
from leadline.engines.check import INFO, LIMITED, MISSING, OK, Check
from leadline.engines.postgres.doctor import shared_memory_kind
from leadline.engines.postgres.target import resolve
from leadline.errors import LeadlineError
from leadline.host import proc
from test_take import NOBODY, as_user


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {f"{check.area} {check.name}": check for check in checks}


def test_a_healthy_server_can_be_captured_both_ways(pg: Server) -> None:
    target = resolve(dsn=pg.dsn)
    checks = doctor.doctor(target)
    found = by_name(checks)
    assert doctor.tiers(checks) == ["shared memory", "SQL"]
    assert found["server postmaster"].found.startswith(f"pid {pg.pid}")
    assert found["server major version"] == Check("server", "major version", OK, f"PostgreSQL {pg.major}")
    assert "mmap" in found["server shared memory"].found
    assert found["capture shared memory"].status == OK and "layout checks passed" in found["capture shared memory"].found
    assert found["sql track_activities"].status == OK
    assert found["sql track_io_timing"].command == "alter system set track_io_timing = on; select pg_reload_conf()"
    assert ("sql compute_query_id" in found) == (pg.major >= 14)
    assert "can be captured with shared memory" in doctor.verdict(checks, target)
    assert all(check.effect or check.command for check in checks if check.status in (LIMITED, MISSING))


def test_settings_that_are_on_cost_nothing(fresh_server: Callable[..., Server]) -> None:
    server = fresh_server(16, compute_query_id="on", track_io_timing="on", shared_preload_libraries="pg_stat_statements")
    found = by_name(doctor.doctor(resolve(dsn=server.dsn)))
    assert found["sql compute_query_id"].status == found["sql track_io_timing"].status == OK
    assert found["sql pg_stat_statements"].command == "create extension pg_stat_statements"
    server.sql("create extension pg_stat_statements")
    assert by_name(doctor.doctor(resolve(dsn=server.dsn)))["sql pg_stat_statements"].status == OK


def test_query_ids_on_auto_are_on_with_pg_stat_statements(fresh_server: Callable[..., Server]) -> None:
    server = fresh_server(16, shared_preload_libraries="pg_stat_statements")
    assert by_name(doctor.doctor(resolve(dsn=server.dsn)))["sql compute_query_id"].status == OK


def test_missing_sql_rights_name_the_grant(servers: Callable[[int], Server]) -> None:
    server = servers(16)
    server.sql("drop role if exists bare")
    server.sql("create role bare login")
    found = by_name(doctor.doctor(resolve(dsn=f"{server.dsn} user=bare")))
    assert (found["capture SQL"].status, found["capture SQL"].command) == (LIMITED, "grant pg_monitor to bare")
    server.sql("grant pg_monitor to bare")
    assert by_name(doctor.doctor(resolve(dsn=f"{server.dsn} user=bare")))["capture SQL"].status == OK


def test_no_memory_but_sql_is_still_fine(
    servers: Callable[[int], Server], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise LeadlineError("unsupported", "PostgreSQL 99 is not known", detail="made up", hint="upgrade leadline")

    monkeypatch.setattr(_core.recorder, "Recorder", refuse)
    assert run(["doctor", servers(16).dsn, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["tiers"] == ["SQL"]
    memory = next(check for check in printed["checks"] if check["area"] == "capture" and check["name"] == "shared memory")
    assert memory["status"] == MISSING and memory["command"] == "upgrade leadline" and "99" in memory["found"]


def test_nothing_possible_is_exit_code_2(
    servers: Callable[[int], Server], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise LeadlineError("rights", "memory may not be read", hint="sudo leadline ...")

    monkeypatch.setattr(_core.recorder, "Recorder", refuse)
    monkeypatch.setattr("leadline.engines.postgres.doctor.socket_dsn", lambda target: "host=/nonexistent")
    assert run(["doctor", str(servers(16).pid)]) == 2
    assert "This target cannot be captured" in capsys.readouterr().out


def test_no_free_slot_leaves_shared_memory(fresh_server: Callable[..., Server]) -> None:
    server = fresh_server(15, max_connections=3, superuser_reserved_connections=1, max_wal_senders=0)
    held = [server.connect() for _ in range(3)]
    try:
        checks = doctor.doctor(resolve(pid=server.pid))
    finally:
        for conn in held:
            conn.close()
    assert doctor.tiers(checks) == ["shared memory"]
    assert "slot" in by_name(checks)["capture SQL"].found


def test_another_user_is_told_whom_to_be(servers: Callable[[int], Server]) -> None:
    server = servers(16)
    done = as_user(NOBODY, "doctor", server.pid)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    uid = proc.uid_of(server.pid)
    assert f"uid {NOBODY}, no special capabilities" in done.stdout and f"sudo -u '#{uid}'" in done.stdout


def test_without_a_target_the_servers_of_the_host_are_listed(servers: Callable[[int], Server], capsys: pytest.CaptureFixture[str]) -> None:
    server = servers(16)
    assert run(["doctor"]) == 0
    assert f"leadline doctor {server.pid}" in capsys.readouterr().out
    found = by_name(doctor.doctor(None))
    assert found["host own rights"].status == INFO and f"uid {os.geteuid()}" in found["host own rights"].found


def test_the_table_fits_80_columns(servers: Callable[[int], Server], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", servers(18).dsn]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    heads = [line for line in lines if line and not line.startswith(" ")]
    assert heads[:-1] in (["host", "server", "sql", "capture"], ["host", "server", "memory", "sql", "capture"])


@pytest.mark.parametrize(
    ("file", "text", "name", "status"),
    [
        ("ptrace_scope", "1", "host ptrace scope", LIMITED),
        ("ptrace_scope", "0", "host ptrace scope", OK),
        ("current_clocksource", "hpet", "host clock source", LIMITED),
        ("current_clocksource", "tsc", "host clock source", OK),
        ("task_delayacct", "0", "host delay accounting", MISSING),
        ("task_delayacct", "1", "host delay accounting", OK),
        ("schedstat", "0 0 0", "host scheduler times", MISSING),
        ("cpu", "", "host pressure", MISSING),  # there, but it cannot be read
        ("cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\n", "host pressure", OK),
    ],
)
def test_states_of_the_host(file: str, text: str, name: str, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = proc.read_text
    monkeypatch.setattr(proc, "read_text", lambda path: text if Path(path).name == file else real(path))
    monkeypatch.setattr(doctor, "has_capability", lambda bit: False)
    check = by_name(doctor.doctor(None))[name]
    assert check.status == status
    assert bool(check.command) == (status != OK)


def test_kinds_of_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = {
        "7f00-7f10 rw-s 0 00:01 12 /dev/zero (deleted)\n": "mmap, 0 MB",
        "10000000-20000000 rw-s 0 00:0f 12 /anon_hugepage (deleted)\n10-20 rw-s 0 0:1 9 /dev/shm/x\n": "mmap with huge pages, 256 MB",
        "10000000-10800000 rw-s 0 00:01 5 /SYSV0052e2c1 (deleted)\n": "System V, 8 MB",
        "10000000-10800000 rw-p 0 00:01 5 [heap]\n": None,
    }
    for text, expected in maps.items():
        monkeypatch.setattr(proc, "read_text", lambda path, text=text: text)
        assert shared_memory_kind(1) == expected
