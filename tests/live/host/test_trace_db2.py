"""The fault of a genuine Db2 client, found by a trace: its trace facility asks for a semaphore that nobody made, once in each process.

A segment of shared memory with the facility's key and no semaphore beside it is what a trace leaves that was not ended cleanly. The cure
is the client's own `db2trc alloc`.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from bpf import needs_bpf
from conftest import no_oracle
from db2_client import Client, client
from leadline.capture.reader import Capture, open_capture
from leadline.findings import Finding, evaluate
from leadline.probes.trace import trace
from servers import Unavailable

CHILDREN = 1_000
# Each child begins to use the client, as a worker that is started for one request does.
WORKERS = """
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1])
for _ in range(int(sys.argv[2])):
    if os.fork() == 0:
        handle = ctypes.c_void_p()
        os._exit(0 if library.SQLAllocHandle(1, None, ctypes.byref(handle)) == 0 else 1)
    if os.wait()[1]:
        sys.exit("a child could not use the client")
"""
ENVIRONMENT = "CLI_allocProcessInitialization"
IPC_CREAT, IPC_RMID = 0o1000, 0


@pytest.fixture(scope="module")
def db2() -> Client:
    try:
        found = client()
    except Unavailable as e:
        no_oracle(str(e))
    found.db2trc("free")  # what a run that was killed may have left
    return found


@contextmanager
def workers(db2: Client, times: int, out: Path) -> Iterator[Capture]:
    path, status = trace(command=[sys.executable, "-c", WORKERS, str(db2.library), str(times)], out=out)
    assert status == 0
    with closing(open_capture(path)) as capture:
        yield capture


def key_of(db2: Client, folder: Path) -> int:
    """Of its shared memory; it depends on where the client lies."""
    with workers(db2, 1, folder / "key.leadline") as capture:
        [row] = capture.rows("select distinct arg0 as key from call where call = 'shmget' and error = 'ENOENT'")
    return int(row["key"])


def semgets(capture: Capture) -> tuple[int, int]:
    """Calls of semget, and those of them that failed for want of the semaphore."""
    [row] = capture.rows("select count(*) as calls, count(*) filter (error = 'ENOENT') as failed from call where call = 'semget'")
    return row["calls"], row["failed"]


def storms(capture: Capture) -> list[Finding]:
    found = evaluate(capture, only=["FAILING-CALL-STORM"])
    assert not found.not_evaluated
    return [finding for finding in found.findings if finding.subject.startswith("semget")]


@needs_bpf
def test_the_client_that_finds_no_semaphore(db2: Client, tmp_path: Path) -> None:
    key, libc = key_of(db2, tmp_path), ctypes.CDLL(None)
    segment = libc.shmget(key, 1 << 20, IPC_CREAT | 0o666)
    assert segment >= 0
    try:
        with workers(db2, CHILDREN, tmp_path / "fault.leadline") as capture:
            assert semgets(capture) == (CHILDREN, CHILDREN)
            [storm] = storms(capture)
    finally:
        libc.shmctl(segment, IPC_RMID, None)
    [evidence] = storm.evidence
    assert (evidence["error"], evidence["arg0"], evidence["processes"]) == ("ENOENT", f"{key:#x}", CHILDREN)
    assert f"failed {CHILDREN} times with ENOENT" in storm.statement and storm.cost_s is not None and storm.cost_s > 0
    names = [frame.split("(")[0] for frame in evidence["stack"]]
    assert names[:5] == ["semget", "sharedMutexAttach", "sharedAttach", "attachShared", "trcAttachShared"]
    assert names.index(ENVIRONMENT) < names.index("SQLAllocHandle")


@needs_bpf
def test_the_cure_ends_it(db2: Client, tmp_path: Path) -> None:
    try:
        assert "have been allocated" in db2.db2trc("alloc")
        with workers(db2, CHILDREN, tmp_path / "cured.leadline") as capture:
            assert semgets(capture) == (CHILDREN, 0)
            assert storms(capture) == []
    finally:
        db2.db2trc("free")
