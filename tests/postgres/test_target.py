"""A server is found in each way it can be named; each mistake gives its one error."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import leadline
import psycopg
import pytest
from conftest import Server, background, fetched_or_skip, wait_until
from leadline.capture.reader import open_capture
from leadline.engines.postgres import postmaster
from leadline.engines.postgres.catalog.connection import parse_dsn, safe_dsn
from leadline.engines.postgres.server.private import PrivateServer
from leadline.engines.postgres.target import PostgresServer, resolve, resolve_text, socket_dsn
from leadline.errors import LeadlineError
from leadline.host import proc
from leadline.probes.recording import Recording
from leadline.probes.take import take

PACKAGE = str(Path(leadline.__file__).parent)


def error_of(**named: object) -> LeadlineError:
    with pytest.raises(LeadlineError) as caught:
        resolve(**named)  # type: ignore[arg-type]
    return caught.value


def test_a_dsn_leads_to_the_postmaster(pg: Server) -> None:
    found = resolve(dsn=pg.dsn)
    assert (found.kind, found.pid) == ("dsn", pg.pid)
    assert found.server_version_num == pg.private.version_num
    assert found.data_dir == str(pg.private.data_dir)
    assert found.is_running()


def test_tcp_leads_to_the_postmaster_too() -> None:
    with PrivateServer(fetched_or_skip(16).bin_dir, loopback=True) as server:
        assert resolve(dsn=server.loopback_dsn).pid == server.pid


def test_a_backend_is_corrected_to_its_postmaster(servers) -> None:
    server = servers(16)
    with server.connect() as conn:
        found = resolve(pid=conn.info.backend_pid)
    assert found.pid == server.pid
    assert str(server.pid) in found.notes[0]


def test_a_data_directory_leads_to_the_postmaster(servers) -> None:
    server = servers(16)
    assert resolve(data_dir=server.private.data_dir).pid == server.pid
    assert resolve_text(str(server.private.data_dir)).kind == "data_dir"
    assert resolve_text(str(server.pid)).kind == "pid"


def test_the_socket_of_a_postmaster_can_be_connected_to(servers) -> None:
    server = servers(16)
    dsn = socket_dsn(resolve(pid=server.pid))
    assert dsn is not None
    with psycopg.connect(dsn, user="postgres") as conn:
        assert resolve(dsn=dsn + " user=postgres").pid == server.pid
        assert conn.execute("show data_directory").fetchone() == (str(server.private.data_dir),)


def test_two_names_must_mean_one_server(servers) -> None:
    assert resolve(dsn=servers(16).dsn, pid=servers(16).pid).kind == "pid"
    error = error_of(dsn=servers(16).dsn, pid=servers(18).pid)
    assert error.kind == "usage" and "another server" in error.message


def test_no_free_slot_still_finds_the_process(fresh_server) -> None:
    server = fresh_server(16, max_connections=4, superuser_reserved_connections=1, max_wal_senders=0, reserved_connections=0)
    held = [server.connect() for _ in range(3)]
    held.append(server.connect())
    try:
        found = resolve(dsn=server.dsn)
        assert found.pid == server.pid
        assert "free connection slot" in found.notes[0]
    finally:
        for conn in held:
            conn.close()


@pytest.mark.parametrize(
    ("dsn", "kind", "message"),
    [
        ("not a dsn secretword", "usage", "cannot parse"),
        ("host=127.0.0.1 port=1 connect_timeout=2", "connection", "cannot be reached"),
        ("host=/nonexistent-socket-dir", "connection", "cannot be reached"),
        ("host=no-such-host.invalid connect_timeout=2", "connection", "unknown host name"),
    ],
)
def test_a_wrong_dsn_gives_one_error(dsn: str, kind: str, message: str) -> None:
    error = error_of(dsn=dsn)
    assert error.kind == kind and message in error.message
    assert error.hint and error.detail
    assert "secretword" not in error.as_text()


def test_a_missing_database_or_role_is_told(servers) -> None:
    for change in ("dbname=nosuchdb", "user=nosuchrole"):
        error = error_of(dsn=f"{servers(16).dsn} {change}")
        assert error.kind == "connection" and "no such database or role" in error.message


def test_a_refused_password_is_told_and_never_shown(fresh_server) -> None:
    server = fresh_server(16)
    hba = Path(server.private.data_dir) / "pg_hba.conf"
    server.sql("create role guarded login password 'right'")
    before = hba.read_text()
    hba.write_text("local all guarded scram-sha-256\n" + before)
    server.sql("select pg_reload_conf()")

    def refused() -> LeadlineError | None:
        try:
            psycopg.connect(f"{server.dsn} user=guarded password=wrongsecret").close()
        except psycopg.OperationalError as e:
            return error_of(dsn=f"{server.dsn} user=guarded password=wrongsecret") if "password" in str(e) else None
        return None

    error = wait_until(refused, what="the new pg_hba.conf")
    assert error.kind == "rights" and "password" in error.message
    assert "wrongsecret" not in error.as_text() + repr(error.as_dict())


def test_no_such_process_and_no_server_process() -> None:
    assert error_of(pid=2**22 + 1).kind == "not_found"
    error = error_of(pid=os.getpid())
    assert error.kind == "not_found" and "not a PostgreSQL server" in error.message


def test_directories_that_are_no_data_directory(tmp_path: Path) -> None:
    assert "no such data directory" in error_of(data_dir=tmp_path / "absent").message
    assert "not a data directory" in error_of(data_dir=tmp_path).message
    (tmp_path / "PG_VERSION").write_text("16\n")
    (tmp_path / "postmaster.pid").write_text(f"{os.getpid()}\n{tmp_path}\n")
    error = error_of(data_dir=tmp_path)
    assert "no server runs" in error.message and str(os.getpid()) in error.detail


def test_the_environment_of_libpq_names_a_server(servers, monkeypatch: pytest.MonkeyPatch) -> None:
    server = servers(16)
    monkeypatch.setenv("PGUSER", "postgres")
    monkeypatch.setenv("PGDATABASE", "postgres")
    monkeypatch.setenv("PGHOST", str(server.private.socket_dir))
    found = resolve()
    assert (found.kind, found.pid, found.safe_dsn) == ("dsn", server.pid, "")


def test_nothing_named_lists_the_servers_here(servers, monkeypatch: pytest.MonkeyPatch) -> None:
    servers(16)
    for name in ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGPORT"):
        monkeypatch.delenv(name, raising=False)
    error = error_of()
    assert error.kind == "usage" and "--pid" in error.hint


def test_secrets_leave_the_dsn() -> None:
    shown = safe_dsn("postgresql://me:geheim@db1:6432/shop?sslpassword=auchgeheim&sslmode=require")
    assert "geheim" not in shown
    assert parse_dsn(shown) == {"user": "me", "host": "db1", "port": "6432", "dbname": "shop", "sslmode": "require"}


def test_a_target_does_not_print_its_secrets() -> None:
    assert "geheim" not in repr(PostgresServer("dsn", dsn="host=x password=geheim"))


def test_a_restarted_server_is_another_one(fresh_server) -> None:
    found = resolve(pid=fresh_server(16).pid)
    other = proc.start_ticks(1)
    assert found.is_running()
    assert not type(found)("pid", found.pid, start_ticks=other).is_running()


@pytest.fixture
def contained(fresh_server) -> Iterator[Server]:
    """A server in a pid namespace of its own, where it calls itself process 1 or 2."""
    if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("setpriv"):
        pytest.skip("a pid namespace needs root, unshare and setpriv")
    server: Server = fresh_server(16)
    private = server.private
    private.stop()
    owner = Path(private.data_dir).stat()
    drop = ["setpriv", f"--reuid={owner.st_uid}", f"--regid={owner.st_gid}", "--clear-groups"]
    postgres = [
        private.bin_dir / "postgres",
        "-D",
        private.data_dir,
        "-k",
        private.socket_dir,
        "-p",
        private.port,
        "-c",
        "listen_addresses=",
    ]
    with background(["unshare", "-pf", "--kill-child", "--mount-proc", *drop, *postgres]) as process:
        wait_until(lambda: process.poll() is not None or _answers(server), 20, "the server in its namespace")
        yield server


def _answers(server: Server) -> bool:
    try:
        return bool(server.sql("select true"))
    except psycopg.OperationalError:
        return False


def test_a_server_in_a_container_is_found_in_every_way(contained: Server, tmp_path: Path) -> None:
    found = resolve(dsn=contained.dsn)
    assert found.pid is not None and proc.pid_in_namespace(found.pid) in (1, 2) != found.pid
    assert resolve(data_dir=contained.private.data_dir).pid == found.pid
    with contained.connect() as conn:
        start = conn.execute(
            "select extract(epoch from backend_start)::float8 from pg_stat_activity where pid = pg_backend_pid()"
        ).fetchone()
        assert start is not None and postmaster.find_by_backend(conn.info.backend_pid, start[0]) == found.pid
        assert postmaster.find_by_backend(conn.info.backend_pid, start[0] - 60) is None
        path = take(dsn=contained.dsn, tier="sql", for_s=2.5, rate_hz=10, out=tmp_path / "c")
    rows = open_capture(path).rows("select count(*) as n, count(cpu_run_ns) as with_cpu from session_delta")[0]
    assert rows["n"] == rows["with_cpu"] > 0


MOST_RETURNS = 8


def test_the_way_of_a_dsn_through_take_has_few_returns(servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a reader follows from `take(dsn=...)` to the probes that run: each function that hands the server or its DSN to its caller, by
    itself or in what it has made of it, is one return. A function that only passes on what another one gave is one too many."""
    dsn, ways = servers(16).dsn, []

    class Began(Exception):
        pass

    def run(*_: object, **__: object) -> None:
        raise Began

    def profile(frame: FrameType, event: str, value: object) -> None:
        code = frame.f_code
        if event == "return" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<") and holds(value, dsn):
            ways.append(code.co_qualname)

    monkeypatch.setattr(Recording, "run", run)
    sys.setprofile(profile)
    try:
        with pytest.raises(Began):
            take(dsn=dsn, for_s=1, out=tmp_path / "x.leadline")
    finally:
        sys.setprofile(None)
    assert ways[-1] == "attach" and "resolve" in ways, ways
    assert len(ways) <= MOST_RETURNS, ways


def holds(value: object, dsn: str, deep: int = 5) -> bool:
    """Whether a value is the server or its DSN, or something of leadline's that holds one."""
    if value == dsn or isinstance(value, PostgresServer) or not deep:
        return value == dsn or isinstance(value, PostgresServer)
    if isinstance(value, list | tuple):
        return any(holds(one, dsn, deep - 1) for one in value)
    is_ours = type(value).__module__.startswith("leadline.") and hasattr(value, "__dict__")
    return is_ours and any(holds(one, dsn, deep - 1) for one in vars(value).values())
