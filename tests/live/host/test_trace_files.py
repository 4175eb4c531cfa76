"""What the file descriptors of a traced program stand for: each of its writes is found under the right name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bpf import needs_bpf
from conftest import background
from leadline.capture.reader import Capture, open_capture
from leadline.probes.trace import trace
from leadline.views.threads import report
from traced import Goes

pytestmark = needs_bpf

# Each thing that is written to gets another number of bytes.
PROGRAM = """
import json, os, select, socket, sys, threading

folder, elsewhere = sys.argv[1:]
flags = os.O_RDWR | os.O_CREAT
before, first = os.open(folder + "/before", flags), os.open(folder + "/first", flags)
lost = os.open(folder + "/lost", flags)
os.unlink(folder + "/lost")
sys.stdin.readline()

os.write(lost, b"." * 43)
os.write(before, b"." * 100)
os.close(first)
second = os.open(folder + "/second", flags)
assert second == first
os.write(second, b"." * 7)
os.dup2(before, 77)
os.write(77, b"." * 11)
if os.fork() == 0:
    os.write(before, b"." * 13)
    os._exit(0)
os.wait()
gone = os.open(folder + "/gone", flags)
os.unlink(folder + "/gone")
os.write(gone, b"." * 17)
os.write(os.open(elsewhere, flags), b"." * 19)
for i in range(3):  # the kernel's memory of a file is used again for the next
    one = os.open(f"{folder}/many{i}", flags)
    os.write(one, b"." * (1000 + i))
    os.close(one)
begins, ends = threading.Barrier(2), threading.Barrier(2)
def write_into_what_is_there():
    for i in range(3):
        begins.wait()
        os.write(88, b"." * (2000 + i))
        ends.wait()
writer = threading.Thread(target=write_into_what_is_there)
writer.start()
for i in range(3):  # another thread gives the descriptor another file
    os.dup2(os.open(f"{folder}/shared{i}", flags), 88)
    begins.wait()
    ends.wait()
writer.join()

with socket.create_server(("127.0.0.1", 0)) as server:
    client = socket.create_connection(server.getsockname())
    accepted, _ = server.accept()
    client.sendall(b"." * 23)
    accepted.recv(100)
    accepted.sendall(b"." * 29)
    client.recv(100)
    ends = client.getsockname(), accepted.getsockname()
names = socket.socket(socket.AF_UNIX)
names.bind(folder + "/socket")
names.listen()
unix = socket.socket(socket.AF_UNIX)
unix.connect(folder + "/socket")
accepted, _ = names.accept()
accepted.sendall(b"." * 31)
out, into = os.pipe()
os.write(into, b"." * 37)
poll = select.epoll()
poll.register(out, select.EPOLLIN)
assert poll.poll(0)
deep = folder + "/d" * 60
os.makedirs(deep)
os.write(os.open(deep + "/deep", flags), b"." * 41)
with open(folder + "/ends.json", "w") as file:
    json.dump({"ends": ends, "pipe": os.fstat(out).st_ino}, file)
print("done", flush=True)
sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Capture, Path, Path, int, dict[str, Any]]]:
    """The capture of the program, its folder, a file on another file system, its pid, and what it says of its sockets."""
    folder = tmp_path_factory.mktemp("files")
    elsewhere = Path(f"/dev/shm/leadline-test-{os.getpid()}")
    try:
        command = [sys.executable, "-c", PROGRAM, folder, elsewhere]
        with background(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
            path, _ = trace(pids=[program.pid], for_s=0.3, out=folder / "files.leadline", progress=Goes(program))
            capture = open_capture(path)
            try:
                yield capture, folder, elsewhere, program.pid, json.loads((folder / "ends.json").read_text())
            finally:
                capture.close()
    finally:
        elsewhere.unlink(missing_ok=True)


def written(capture: Capture) -> dict[str, int]:
    rows = capture.rows("select file, sum(ret)::bigint as bytes from call where is_write_call(call) and ret > 0 group by file")
    return {row["file"]: row["bytes"] for row in rows}


def test_files_have_their_paths(seen: tuple[Capture, Path, Path, int, dict[str, Any]]) -> None:
    capture, folder, elsewhere, _, _ = seen
    bytes_of = written(capture)
    assert bytes_of[f"{folder}/before"] == 100 + 11 + 13  # opened before the trace; by a copy of the descriptor; by a child
    assert bytes_of[f"{folder}/second"] == 7 and f"{folder}/first" not in bytes_of  # the same descriptor, used again
    assert bytes_of[f"{folder}/gone"] == 17
    assert bytes_of[str(elsewhere)] == 19
    assert [bytes_of[f"{folder}/many{i}"] for i in range(3)] == [1000, 1001, 1002]
    assert [bytes_of.get(f"{folder}/shared{i}") for i in range(3)] == [2000, 2001, 2002]
    assert bytes_of[f"{folder}/lost"] == 43
    assert capture.rows("select name from file_name where deleted") == [{"name": f"{folder}/lost"}]  # when it was first used
    [deep] = [name for name in bytes_of if name.endswith("/deep")]
    assert deep.startswith(".../d/d/d/") and bytes_of[deep] == 41  # more folders than are followed
    opened = capture.rows(f"select ret, file from call where call = 'openat' and file = '{folder}/second'")
    closed = capture.rows(f"select arg0, file from call where call = 'close' and arg0 = {opened[0]['ret']} order by ts limit 1")
    assert closed == [{"arg0": opened[0]["ret"], "file": f"{folder}/first"}]


def test_sockets_have_their_addresses(seen: tuple[Capture, Path, Path, int, dict[str, Any]]) -> None:
    capture, folder, _, _, said = seen
    bytes_of = written(capture)
    client, server = (f"{host}:{port}" for host, port in said["ends"])
    assert bytes_of[f"tcp {client} to {server}"] == 23
    assert bytes_of[f"tcp {server} to {client}"] == 29
    assert bytes_of[f"unix {folder}/socket"] == 31
    assert bytes_of[f"pipe:[{said['pipe']}]"] == 37
    polled = capture.rows("select file, file_kind from call where call = 'epoll_wait'")
    assert polled == [{"file": "[eventpoll]", "file_kind": "anonymous"}]


def test_the_report_sums_calls_by_file(seen: tuple[Capture, Path, Path, int, dict[str, Any]]) -> None:
    capture, folder, _, pid, _ = seen
    rows = {row["file"]: row for row in report(capture, pid).files}
    second = rows[f"{folder}/second"]
    assert (second["calls"], second["failed"], second["written_bytes"], second["read_bytes"]) == (2, 0, 7, 0)  # opened and written
    assert 0 < second["p50_ns"] <= second["p99_ns"] <= second["max_ns"] <= second["elapsed_ns"]
