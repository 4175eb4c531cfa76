"""Recovery of copies: of a server that ran when it was copied, and of one that was killed before."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import Server, running
from recovery import recover, started

COUNT = "select count(*) from kept"


def killed(server: Server) -> Path:
    """Ends all processes of a server by force. Gives its data directory."""
    process = server.private._process
    assert process is not None
    family = [process.pid, *(int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())]
    for pid in family:
        with suppress(ProcessLookupError):  # the backend of the last statement may just end
            os.kill(pid, signal.SIGKILL)
    process.wait(30)
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}/cwd").exists() for pid in family):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert (server.private.data_dir / "postmaster.pid").exists()
    return server.private.data_dir


@contextmanager
def copy(data_dir: Path, *how: str) -> Iterator[Path]:
    """A copy of a directory by cp, beside it and with its owner."""
    about = data_dir.stat()
    with tempfile.TemporaryDirectory(dir=data_dir.parent) as name:
        os.chown(name, about.st_uid, about.st_gid)
        subprocess.run(["cp", *how, str(data_dir), f"{name}/data"], check=True)
        for path in Path(name).rglob("*"):
            if not path.is_symlink():
                os.chown(path, about.st_uid, about.st_gid)
        yield Path(name) / "data"


def refused(data_dir: Path) -> dict[str, Any]:
    before = {path: path.stat().st_mtime_ns for path in data_dir.rglob("*") if path.is_file()}
    done = recover(data_dir, "--json")
    assert done.returncode == 2, done.stdout
    assert {path: path.stat().st_mtime_ns for path in data_dir.rglob("*") if path.is_file()} == before
    error: dict[str, Any] = json.loads(done.stdout)["error"]
    return error


@pytest.mark.live
def test_copies_of_a_server_that_ran_and_of_one_that_was_killed() -> None:
    with running(17, autovacuum=False) as server:
        server.sql("create table kept as select i as n from generate_series(1, 1000) i")
        server.sql("checkpoint")
        server.sql("insert into kept select generate_series(1, 100)")
        with copy(server.private.data_dir, "-a") as early:
            error = refused(early)
            assert error["message"] == "the files were copied while their server was running"
            assert "still runs" in error["detail"] and "pg_basebackup" in error["hint"]
            server.sql("insert into kept select generate_series(1, 10)")
            data_dir = killed(server)
            # Nobody can say any more whether it ran then.
            error = refused(early)
            assert error["message"] == "this is a copy, and it is not known whether its server was running when it was made"
            assert f"postmaster.pid names {data_dir}; " in error["detail"] and "was changed since" in error["detail"]
            assert "remove postmaster.pid from the copy" in error["hint"] and "pg_basebackup" in error["hint"]
            (early / "postmaster.pid").unlink()
            assert recover(early).returncode == 0, "as the hint says"
        for how in (["-a"], ["-r"]):
            with copy(data_dir, *how) as late:
                assert recover(late, "--plan").returncode == 0
                done = recover(late)
                assert done.returncode == 0, done.stderr
                with started(server, late) as again:
                    assert again.sql(COUNT) == [(1110,)]
        # A link is copied as one: both directories would write the same WAL.
        elsewhere = data_dir.parent / "wal-elsewhere"
        shutil.move(data_dir / "pg_wal", elsewhere)
        (data_dir / "pg_wal").symlink_to(elsewhere)
        with copy(data_dir, "-a") as linked:
            error = refused(linked)
            assert error["message"] == "this copy shares a folder with the data directory it was made from"
            assert error["where"].endswith("/pg_wal")
        assert recover(data_dir).returncode == 0, "the original itself"
        with started(server, data_dir) as again, copy(data_dir, "-a") as running_again:
            assert "still runs" in refused(running_again)["detail"]
            assert again.sql(COUNT) == [(1110,)]


@pytest.mark.live
def test_a_number_in_postmaster_pid_that_another_process_has_now(tmp_path: Path) -> None:
    """After a restart of the host or in a new container: another program, or another server, as whoever."""
    program = tmp_path / "postgres"
    shutil.copy("/bin/sleep", program)
    with running(15) as server, running(13) as other:
        server.sql("create table kept as select 1 as n")
        data_dir = killed(server)
        pid_file = data_dir / "postmaster.pid"
        rest = pid_file.read_text().partition("\n")[2]
        assert other.private._process is not None
        processes = [subprocess.Popen(["sleep", "600"]), subprocess.Popen([program, "600"], cwd="/")]
        try:
            for pid in (*(process.pid for process in processes), other.private._process.pid):
                pid_file.write_text(f"{pid}\n{rest}")
                done = recover(data_dir, "--plan")
                assert done.returncode == 0, done.stderr
        finally:
            for process in processes:
                process.kill()
                process.wait()
