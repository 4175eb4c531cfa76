"""Measures the CPU that `leadline top` takes on a terminal, by thread, beside another screen if one is given.

    python bench/top_cost.py                                  three loads, five stretches of 30 s each, about 10 minutes
    python bench/top_cost.py --stretches 1 --seconds 10       does everything work?
    python bench/top_cost.py --other 'pg_activity {dsn}'      the same stretches for another program

pgbench keeps 30 sessions: `busy` without a pause, `paced` at 200 transactions a second, `idle` with none. Each screen runs on a terminal of
its own, 120 columns by 40 rows, whose output is read and dropped. In each stretch all screens run at the same time. CPU is what the
scheduler has counted for the process, in percent of one core. Output: JSON.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from leadline.engines.postgres.server import PrivateServer, find_binaries
from load import Load, Workload, fill
from processes import Child
from record import read_environment, start_as_installed

DEFAULT_MAJOR = 15  # of Debian 12
COLUMNS, ROWS = 120, 40
WARM_UP_S = 35.0  # then the window of 30 s is full
TABS = {"overview": b"1", "sessions": b"2", "locks": b"3", "blocks": b"4", "statements": b"5"}
SETTINGS: dict[str, object] = {"max_connections": 100, "shared_buffers": "256MB", "max_wal_size": "4GB", "autovacuum": False}


class Screen:
    """A program on a terminal of its own."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._terminal, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environment = os.environ | {"TERM": "xterm-256color", "TMPDIR": str(folder)}
        self.process = subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, env=environment, start_new_session=True)
        os.close(inside)
        self.bytes = 0
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        try:
            while part := os.read(self._terminal, 65536):
                self.bytes += len(part)
        except OSError:  # the program has ended
            return

    def press(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def cpu_ns(self) -> dict[str, int]:
        """Of each thread, by its number and name."""
        found = {}
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            try:
                name = (task / "comm").read_text().strip()
                found[f"{task.name} {name}"] = int((task / "schedstat").read_text().split()[0])
            except FileNotFoundError:  # it has ended
                continue
        return found

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._terminal)


class PacedLoad(Load):
    """pgbench at so many transactions a second."""

    RATE = 200

    @staticmethod
    def options(workload: Workload, clients: int) -> list[str]:
        return [*Load.options(workload, clients), "-R", str(PacedLoad.RATE)]


def measure(screens: dict[str, Screen], seconds: float) -> dict[str, dict[str, float]]:
    """Percent of one core by thread of each screen, and of all of them together, over so many seconds."""
    began, before = time.monotonic(), {name: screen.cpu_ns() for name, screen in screens.items()}
    time.sleep(seconds)
    after, took = {name: screen.cpu_ns() for name, screen in screens.items()}, time.monotonic() - began
    found = {}
    for name, threads in after.items():
        by_thread = {thread: (ns - before[name].get(thread, 0)) / took / 1e7 for thread, ns in threads.items()}
        found[name] = {"total": sum(by_thread.values())} | {t: p for t, p in by_thread.items() if p >= 0.005}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", action="append", default=[], help="another program's command; {dsn} and {pid} are filled in")
    parser.add_argument("--loads", default="busy,paced,idle")
    parser.add_argument("--tabs", default="overview,sessions")
    parser.add_argument("--stretches", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each stretch")
    parser.add_argument("--warm-up", type=float, default=WARM_UP_S)
    parser.add_argument("--clients", type=int, default=30)
    parser.add_argument("--pg-bin", help="folder with postgres, initdb and pgbench")
    options = parser.parse_args()
    start_as_installed()
    environment, result = read_environment(), {}
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(PrivateServer(find_binaries(options.pg_bin, DEFAULT_MAJOR).bin_dir, settings=SETTINGS))
        fill(server, 5)
        commands = {tab: [sys.executable, "-m", "leadline", "top", str(server.pid)] for tab in options.tabs.split(",")}
        commands |= {c.split()[0]: shlex.split(c.format(dsn=server.dsn, pid=server.pid)) for c in options.other}
        for kind in options.loads.split(","):
            with ExitStack() as running:
                workload = Workload("tpcb", "prepared")
                if kind == "idle":
                    running.callback(idle(server, options.clients).end)
                else:
                    running.enter_context((PacedLoad if kind == "paced" else Load)(server, workload, options.clients))
                screens = {name: Screen(command, work) for name, command in commands.items()}
                for screen in screens.values():
                    running.callback(screen.end)
                time.sleep(5)
                for tab in TABS.keys() & screens.keys():
                    screens[tab].press(TABS[tab])
                time.sleep(options.warm_up)
                sent = {name: screen.bytes for name, screen in screens.items()}
                stretches = [measure(screens, options.seconds) for _ in range(options.stretches)]
                took = options.seconds * options.stretches
                ended = [name for name, screen in screens.items() if screen.process.poll() is not None]
                if ended:
                    sys.exit(f"{', '.join(ended)} ended by itself")
                result[kind] = {
                    name: {
                        "cpu_percent_of_core": round(median(s[name]["total"] for s in stretches), 3),
                        "stretches": [round(s[name]["total"], 3) for s in stretches],
                        "threads": {t: round(p, 3) for t, p in stretches[-1][name].items() if t != "total"},
                        "terminal_bytes_per_s": round((screens[name].bytes - sent[name]) / took),
                    }
                    for name in screens
                }
    json.dump({"options": vars(options), "environment": environment, "result": result}, sys.stdout, indent=1)


def idle(server: PrivateServer, clients: int) -> Child:
    """Sessions that do nothing."""
    script = "import sys, time, psycopg\nheld = [psycopg.connect(sys.argv[1]) for _ in range(int(sys.argv[2]))]\ntime.sleep(86400)"
    return Child("idle sessions", [sys.executable, "-c", script, server.dsn, str(clients)], output=server.base_dir / "idle.log")


if __name__ == "__main__":
    main()
