"""`leadline record DSN DSN...` beside real servers: each has its pieces, and what happens to one is nothing to the other."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from conftest import Server, background, is_running, wait_until
from leadline.cli.record import _named
from leadline.recorder.pieces import Pieces
from leadline.recorder.state import servers_below
from leadline.recorder.status import status, status_of_all


def finished(directory: Path) -> int:
    return sum(piece.status == "complete" for piece in Pieces(directory).read())


def test_a_server_that_ends_or_a_process_that_is_killed_does_not_stop_the_others(
    fresh_server: Callable[..., Server], tmp_path: Path
) -> None:
    first, second, to = fresh_server(16), fresh_server(16), tmp_path / "all"
    dsns = [first.dsn, second.dsn, f"host={tmp_path} port=1"]
    one, two, away = (to / name for name in _named(dsns))
    line = [sys.executable, "-m", "leadline", "record", *dsns, "--to", to, "--piece", "2s", "--keep-free", "1MB"]
    with background(line) as process:
        wait_until(lambda: servers_below(to) == sorted([one, two, away]), what="all three")
        wait_until(lambda: status(away)["doing"] == "waiting", what="it waits for the third")
        wait_until(lambda: finished(one) >= 1 and finished(two) >= 1, what="a piece of each")
        assert status(one)["server"] != status(two)["server"]
        first.private.stop()
        wait_until(lambda: status(one)["doing"] == "waiting", what="it waits for the first")
        had = finished(two)
        wait_until(lambda: finished(two) >= had + 2, what="two more pieces of the second")
        killed = status(two)["process"]["pid"]
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: status(two)["runs"] and status(two)["process"]["pid"] != killed, what="its process is begun again")
        had = finished(two)
        wait_until(lambda: finished(two) >= had + 1, what="one more piece")
        pids = [status(path)["process"]["pid"] for path in (one, two, away)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert not any(map(is_running, pids))
    assert {of["doing"] for of in status_of_all(to)["servers"]} == {"ended"}
    numbers = [piece.number for piece in Pieces(two).read()]
    assert numbers == sorted(set(numbers)) and len(numbers) >= 4, "its pieces go on where they were"
