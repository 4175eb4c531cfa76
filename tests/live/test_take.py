"""leadline take on real servers: what it records, and that whatever ends it early leaves one error and a readable capture."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from conftest import Server, background, wait_until
from leadline import _core
from leadline.capture.reader import open_capture
from leadline.cli import run
from leadline.cli.take import parse_rate
from leadline.errors import LeadlineError
from leadline.host import proc
from leadline.probes.take import take
from leadline.progress import TerminalLine

CLI = [sys.executable, "-m", "leadline"]
ROOT = os.geteuid() == 0
NOBODY = 65534
# Over SQL the first segment is written after five seconds; where a test waits for it, after half a second.
HASTY = """
import leadline.engines.postgres.probes.sessions
leadline.engines.postgres.probes.sessions.attach.__defaults__ = (0.5,)
from leadline.__main__ import main
main()
"""
AS_USER = """
import os, pwd, sys
import leadline.probes.take, leadline.doctor, leadline.views.show, leadline.cli.take, leadline.cli.doctor, leadline._core
import difflib, hashlib, encodings.ascii, encodings.idna, psycopg, rich.console
from leadline.tables import all_tables
all_tables()  # all that is read from places which another user may not enter
uid = int(sys.argv[1])
os.setgroups([]); os.setgid(pwd.getpwuid(uid).pw_gid); os.setuid(uid)  # the kernel compares the group too
from leadline.cli import run
sys.exit(run(sys.argv[2:]))
"""


def hasty(tier: str) -> list[str]:
    """The command line, of which the first segment need not be waited for."""
    return [sys.executable, "-c", HASTY] if tier == "sql" else CLI


def ended(arguments: list[Any], timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=timeout)


def is_one_error(done: subprocess.CompletedProcess[str]) -> str:
    """Exit code 2 and one error with its parts, no traceback. Gives the text."""
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr and done.stderr.count("error:") == 1
    assert "hint:" in done.stderr
    return done.stderr


def wait_for_ticks(capture: Path) -> None:
    wait_until(lambda: any(capture.glob("tick/*.parquet")), 20, "the first segment of ticks")


def manifest_of(capture: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((capture / "manifest.json").read_text())
    return content


def test_a_capture_by_pid_needs_no_connection(pg: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pg.sql("drop table if exists named_from_files")
    pg.sql("create table named_from_files(id int primary key)")
    pg.sql("checkpoint")
    with pg.connect(application_name="witness"), monkeypatch.context() as patched:
        patched.setattr(psycopg, "connect", lambda *a, **k: pytest.fail("a connection was made"))
        path = take(pid=pg.pid, for_s=1.5, rate_hz=50, out=tmp_path / "c")
    capture = open_capture(path)
    m = capture.manifest
    assert (m.status, m.probe("sessions").tier, m.target.kind, m.target.pid) == ("complete", "shm", "postgres", pg.pid)
    assert m.target.detail["named_by"] == "pid"
    assert m.target.version_num == pg.private.version_num
    assert m.clock.ts_from < m.clock.ts_to and m.error is None
    loss = m.probe("sessions").loss
    assert 65 <= loss["ticks_taken"] + loss["ticks_missed"] <= 85
    assert {check["result"] for check in m.probe("sessions").detail["layout_checks"]} <= {"passed", "skipped"}
    assert m.probe("catalog").status == "partial" and any("catalog files" in note for note in m.notes)
    assert capture.rows("select datname, usename, state from session_sample where application_name = 'witness' limit 1") == [
        {"datname": "postgres", "usename": "postgres", "state": "idle"}
    ]
    assert capture.scalar("select count(*) from relation where relname = 'named_from_files'") == 1
    assert capture.scalar("select count(*) from (select relid from relation group by datid, relid, relfilenode having count(*) > 1)") == 0
    for table in ("tick", "session_run", "session_delta", "self_cost", "host_fact", "host_stat", "setting", "mount"):
        assert m.tables[table]["rows"] == capture.scalar(f"select count(*) from {table}") > 0
    assert [p.name for p in path.iterdir() if p.name.startswith(".")] == []


def test_a_dsn_adds_names_and_counters(servers: Callable[[int], Server], tmp_path: Path) -> None:
    server = servers(16)
    path = take(dsn=server.dsn, for_s=0.8, out=tmp_path / "c")
    capture = open_capture(path)
    assert capture.manifest.probe("sessions").tier == "shm" and capture.manifest.probe("catalog").status == "ok"
    assert {r["phase"] for r in capture.rows("select distinct phase from server_stat")} == {"before", "after"}
    assert (
        capture.scalar(
            "select delta from server_stat_delta where view = 'pg_stat_database' and object = 'postgres' and metric = 'xact_commit'"
        )
        > 0
    )
    assert capture.scalar("select setting from setting where name = 'max_connections'") == "60"
    assert capture.scalar("select count(*) from setting") == capture.scalar("select count(distinct name) from setting")
    assert capture.scalar("select count(*) from hba_rule") > 0


def test_relations_of_other_databases_in_use_are_named(servers: Callable[[int], Server], tmp_path: Path) -> None:
    server = servers(16)
    server.sql("drop database if exists second")
    server.sql("create database second")
    with server.connect(dbname="second") as conn:
        conn.execute("create table elsewhere(a int)")
        path = take(dsn=server.dsn, for_s=0.5, out=tmp_path / "c")
    found = open_capture(path).rows("select d.datname from relation r join database d using (datid) where relname = 'elsewhere'")
    assert found == [{"datname": "second"}]


def test_without_a_free_slot_it_still_works(fresh_server: Callable[..., Server], tmp_path: Path) -> None:
    server = fresh_server(17, max_connections=5, superuser_reserved_connections=1, max_wal_senders=0)
    held = [server.connect(application_name=f"holder {n}") for n in range(5)]
    try:
        by_pid = open_capture(take(pid=server.pid, for_s=0.6, out=tmp_path / "pid"))
        by_dsn = open_capture(take(dsn=server.dsn, for_s=0.6, out=tmp_path / "dsn"))
    finally:
        for conn in held:
            conn.close()
    for capture in (by_pid, by_dsn):
        assert capture.manifest.probe("sessions").tier == "shm"
        assert (
            capture.scalar("select count(distinct pid) from session_sample where application_name like 'holder%' and datname = 'postgres'")
            == 5
        )
    assert any("free connection slot" in note for note in by_dsn.manifest.notes)


def test_views_sql_opens_in_any_duckdb(servers: Callable[[int], Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = take(pid=servers(16).pid, for_s=0.5, out=tmp_path / "c")
    monkeypatch.chdir(path)
    db = duckdb.connect()
    db.execute(Path("views.sql").read_text())
    capture = open_capture(path, whole=True)
    for query in (
        "select * from capture",
        "select count(*) from session_sample",
        "select count(*) from db_time",
        "select count(*) from lock_chain",
    ):
        assert db.execute(query).fetchall() == capture.db.execute(query).fetchall()


# -- what the user asks for --------------------------------------------------------------------------------------------


def test_rates() -> None:
    assert [parse_rate(t) for t in ("100", "1000Hz", "0.5")] == [100, 1000, 0.5]
    with pytest.raises(LeadlineError):
        parse_rate("fast")


@pytest.mark.parametrize("options", [{"rate_hz": 0.5}, {"rate_hz": 20_000}, {"for_s": 0}, {"tier": "best"}, {"rate_hz": float("nan")}])
def test_impossible_options_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(LeadlineError) as caught:
        take(**{"pid": os.getpid(), "for_s": 1.0, "out": tmp_path / "c", **options})
    assert caught.value.kind == "usage" and caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_only_captures_are_replaced_and_only_when_told(servers: Callable[[int], Server], tmp_path: Path) -> None:
    pid = servers(16).pid
    path = take(pid=pid, for_s=0.2, out=tmp_path / "c")
    assert path == tmp_path / "c.leadline"
    with pytest.raises(LeadlineError) as caught:
        take(pid=pid, for_s=0.2, out=tmp_path / "c")
    assert "--force" in caught.value.hint
    (path / "tick" / "left-over").write_text("x")
    assert take(pid=pid, for_s=0.2, out=tmp_path / "c", overwrite=True) == path
    assert not (path / "tick" / "left-over").exists()
    other = tmp_path / "other.leadline"
    other.mkdir()
    (other / "mine.txt").write_text("keep me")
    with pytest.raises(LeadlineError):
        take(pid=pid, for_s=0.2, out=other, overwrite=True)
    assert (other / "mine.txt").read_text() == "keep me"
    plain = tmp_path / "folder"
    plain.mkdir()
    assert take(pid=pid, for_s=0.2, out=plain).parent == plain


def test_json_prints_one_summary(servers: Callable[[int], Server], tmp_path: Path) -> None:
    done = ended([*CLI, "take", "--pid", servers(16).pid, "--for", "500ms", "-o", tmp_path / "c", "--json"])
    summary = json.loads(done.stdout)
    assert done.returncode == 0 and done.stderr == ""
    assert summary["status"] == "complete" and summary["capture"] == str(tmp_path / "c.leadline")
    assert summary["probes"]["sessions"]["loss"]["ticks_taken"] > 40


def test_the_last_lines_say_what_to_run_next(servers: Callable[[int], Server], tmp_path: Path) -> None:
    done = ended([*CLI, "take", "--pid", servers(16).pid, "--for", "500ms", "-o", tmp_path / "c"])
    assert done.returncode == 0 and done.stdout == ""
    assert f"next: leadline show {tmp_path / 'c.leadline'}" in done.stderr
    assert "\r" not in done.stderr  # no progress line where there is no terminal


def test_the_progress_line_is_written_over() -> None:
    import io

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    line = TerminalLine(stream)
    line.live = True
    line.update(5, 10, "500 passes, 3 missed, 9 sessions")
    line.note("a note")
    text = stream.getvalue()
    assert "5 of 10 s" in text and "500 passes, 3 missed, 9 sessions" in text and "###############  " in text
    assert text.endswith("\ra note\n")
    assert all(len(part) <= 80 for part in text.replace("\n", "\r").split("\r"))


# -- the ways it can end early -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_window_and_keeps_everything(number: int, servers: Callable[[int], Server], tmp_path: Path) -> None:
    capture = tmp_path / "c.leadline"
    with background([*CLI, "take", "--pid", servers(16).pid, "--for", "10m", "-o", capture], stderr=subprocess.PIPE) as process:
        wait_for_ticks(capture)
        process.send_signal(number)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    manifest = manifest_of(capture)
    assert manifest["status"] == "complete" and any("stopped by the user" in note for note in manifest["notes"])
    assert open_capture(capture).scalar("select count(*) from tick") == manifest["probes"]["sessions"]["loss"]["ticks_taken"] > 0


def test_sigkill_at_any_moment_leaves_a_capture_that_opens(servers: Callable[[int], Server], tmp_path: Path) -> None:
    server = servers(16)
    moments = random.Random(4711)
    had_rows = 0
    for number in range(6):
        capture = tmp_path / f"{number}.leadline"
        with background([*CLI, "take", server.dsn, "--for", "10m", "--rate", "1000", "-o", capture], stderr=subprocess.DEVNULL) as process:
            wait_until(lambda capture=capture: (capture / "manifest.json").exists(), 20, "the first manifest")
            time.sleep(moments.uniform(0, 3))  # the moment is the point of the test
            process.kill()
            process.wait()
        opened = open_capture(capture)
        assert opened.interrupted
        had_rows += bool(opened.scalar("select count(*) from session_sample"))
        unnamed = "select count(*) from session_tick left join session using (session_id) where session.pid is null"
        assert opened.scalar(unnamed) == 0
    done = ended([*CLI, "show", capture])
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert had_rows >= 2


@pytest.mark.parametrize("tier", ["shm", "sql"])
@pytest.mark.parametrize("restart", [False, True], ids=["vanished", "restarted"])
def test_a_server_that_goes_away_ends_it_with_one_error_if_asked_to(
    tier: str, restart: bool, fresh_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = fresh_server(16)
    capture = tmp_path / "c.leadline"
    command = [*hasty(tier), "take", server.dsn, "--tier", tier, "--for", "10m", "-o", capture, "--stop-with-server"]
    with background(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        wait_for_ticks(capture)
        server.private.stop()
        if restart:
            server.private.start()
        output, errors = process.communicate(timeout=40)
    text = is_one_error(subprocess.CompletedProcess(command, process.returncode, output, errors))
    assert f"leadline show {capture}" in text
    manifest = manifest_of(capture)
    assert (manifest["status"], manifest["error"]["kind"]) == ("failed", "gone")
    opened = open_capture(capture)
    loss = manifest["probes"]["sessions"]["loss"]  # what was read since the server was last seen alive is counted, not written
    assert opened.scalar("select count(*) from tick") == loss["ticks_taken"] - loss.get("ticks_unverified", 0) > 0
    assert opened.scalar("select count(*) from relation") > 0
    assert opened.rows("select distinct phase from server_stat") == [{"phase": "before"}]
    assert ended([*CLI, "show", capture]).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with little room."""
    if not ROOT:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    done = ended(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder])
    if done.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("tier", ["shm", "sql"])
def test_a_full_disk_ends_it_with_one_error(tier: str, small_disk: Path, servers: Callable[[int], Server]) -> None:
    server = servers(16)
    capture = small_disk / "c.leadline"
    command = [*hasty(tier), "take", server.dsn, "--tier", tier, "--for", "10m", "--rate", "1000", "-o", capture]
    with background(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        wait_for_ticks(capture)
        with suppress(OSError), open(small_disk / "ballast", "wb", buffering=0) as ballast:  # the capture writes meanwhile
            while shutil.disk_usage(small_disk).free > 8192:
                ballast.write(bytes(4096))
        output, errors = process.communicate(timeout=60)
    text = is_one_error(subprocess.CompletedProcess(command, process.returncode, output, errors))
    assert "space" in text.lower()
    manifest = manifest_of(capture)
    assert (manifest["status"], manifest["error"]["kind"]) == ("failed", "storage")
    assert open_capture(capture).scalar("select count(*) from session_sample") > 0


def test_no_room_at_all_is_told_before_anything_is_recorded(small_disk: Path, servers: Callable[[int], Server]) -> None:
    (small_disk / "ballast").write_bytes(b"\0" * (shutil.disk_usage(small_disk).free - 4096))
    text = is_one_error(ended([*CLI, "take", "--pid", servers(16).pid, "--for", "1s", "-o", small_disk / "c"]))
    assert "space" in text.lower()


def as_user(uid: int, *arguments: Any) -> subprocess.CompletedProcess[str]:
    """The command line run by another user."""
    if not ROOT:
        pytest.skip("taking another user's place needs root")
    return ended([sys.executable, "-c", AS_USER, uid, *arguments])


@pytest.fixture
def open_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that another user may write to."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def test_without_rights_it_falls_back_to_sql_and_says_what_to_do(open_folder: Path) -> None:
    from conftest import SETTINGS, fetched_or_skip
    from leadline.engines.postgres.server.private import PrivateServer

    with PrivateServer(fetched_or_skip(16).bin_dir, settings=SETTINGS, loopback=True) as server:
        pid = server.pid
        done = as_user(NOBODY, "take", server.loopback_dsn, "--for", "1s", "-o", open_folder / "c")
    assert done.returncode == 0, done.stderr
    assert "shared memory was not read" in done.stderr and "sudo" in done.stderr
    capture = open_capture(open_folder / "c.leadline")
    assert (capture.manifest.probe("sessions").tier, capture.manifest.status) == ("sql", "complete")
    assert capture.manifest.target.pid == pid
    assert capture.scalar("select count(*) from session_sample") > 0


def test_without_rights_and_without_a_connection_it_is_one_error(servers: Callable[[int], Server], open_folder: Path) -> None:
    text = is_one_error(as_user(NOBODY, "take", "--pid", servers(16).pid, "--for", "1s", "-o", open_folder / "c"))
    assert "cannot read " in text and "sudo" in text and f"uid {NOBODY}" in text
    assert list(open_folder.iterdir()) == []


def test_the_servers_own_user_needs_no_root(servers: Callable[[int], Server], open_folder: Path) -> None:
    server = servers(16)
    uid = proc.uid_of(server.pid)
    assert uid
    done = as_user(uid, "take", "--pid", server.pid, "--for", "1s", "-o", open_folder / "c")
    assert done.returncode == 0, done.stderr
    capture = open_capture(open_folder / "c.leadline")
    sessions = capture.manifest.probe("sessions")
    assert sessions.tier == "shm" and sessions.access["shared_memory"] == "process_vm_readv"
    assert capture.scalar("select count(*) from session_sample where backend_type = 'checkpointer'") > 0
    assert capture.scalar("select count(*) from relation where relname = 'pg_class'") > 0


def refusing(kind: str, message: str) -> Callable[..., Any]:
    def recorder(*_arguments: Any, **_options: Any) -> Any:
        raise LeadlineError(kind, message, detail="made up by a test", hint="what a user can do")

    return recorder


def test_an_unknown_major_falls_back_to_sql(servers: Callable[[int], Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core.recorder, "Recorder", refusing("unsupported", "PostgreSQL 99 is not known"))
    capture = open_capture(take(dsn=servers(16).dsn, for_s=0.5, out=tmp_path / "c"))
    assert capture.manifest.probe("sessions").tier == "sql"
    assert any("PostgreSQL 99 is not known" in note and "what a user can do" in note for note in capture.manifest.notes)


def test_an_unknown_major_without_a_way_out_is_one_error(
    servers: Callable[[int], Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_core.recorder, "Recorder", refusing("unsupported", "PostgreSQL 99 is not known"))
    monkeypatch.setattr("leadline.engines.postgres.probes.sessions.socket_dsn", lambda target: None)
    assert run(["take", "--pid", str(servers(16).pid), "--for", "1s", "-o", str(tmp_path / "c")]) == 2
    assert run(["take", servers(16).dsn, "--tier", "shm", "--for", "1s", "-o", str(tmp_path / "c")]) == 2
    errors = capsys.readouterr().err
    assert errors.count("error: PostgreSQL 99 is not known") == 2 and "hint: what a user can do" in errors
    assert list(tmp_path.iterdir()) == []


def test_a_pid_without_memory_rights_uses_the_servers_own_socket(
    servers: Callable[[int], Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_core.recorder, "Recorder", refusing("rights", "memory may not be read"))
    monkeypatch.setenv("PGUSER", "postgres")
    capture = open_capture(take(pid=servers(16).pid, for_s=0.5, out=tmp_path / "c"))
    assert capture.manifest.probe("sessions").tier == "sql" and capture.scalar("select count(*) from session_sample") > 0


def test_wrong_targets_are_one_error_on_the_command_line(tmp_path: Path) -> None:
    wrong: list[tuple[list[str], str]] = [
        (["host=127.0.0.1 port=1"], "detail: "),
        (["--pid", "1"], "process 1 is not a PostgreSQL server"),
        (["--data-dir", str(tmp_path)], "this is not a data directory"),
        ([], "no server was named"),
        (["not a dsn"], "cannot parse the connection string"),
    ]
    for arguments, told in wrong:
        assert told in is_one_error(ended([*CLI, "take", *arguments, "--for", "1s", "-o", tmp_path / "c"]))
    done = ended([*CLI, "take", "host=127.0.0.1 port=1", "--json"])
    assert done.returncode == 2 and json.loads(done.stdout)["error"]["kind"] == "connection"


def test_the_first_signal_stops_and_the_second_gives_up() -> None:
    from leadline.probes.recording import stop_on_signal

    before = signal.getsignal(signal.SIGINT)
    with stop_on_signal() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is before
