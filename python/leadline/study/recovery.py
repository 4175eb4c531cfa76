"""A trial of the study `recovery`: a private server is killed, and its data directory is recovered, by the server or by leadline.

    leadline.study.recovery DSN --with server|leadline --rows 100000

The server that DSN names only says which PostgreSQL it is; another one is made of it and killed. Afterwards the rows are compared with
those that were committed, and the log with who did the work. Prints one object of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from leadline.book.place import VARIABLE
from leadline.engines.postgres.server import PrivateServer
from leadline.engines.postgres.server.standby import ask
from leadline.errors import LeadlineError
from leadline.host import proc
from leadline.study import trial
from leadline.study.positions import connected
from leadline.units import MB

PROGRAMS = ("server", "leadline")
SETTINGS = {"max_wal_size": "16GB", "checkpoint_timeout": "1h", "autovacuum": "off"}
BINARIES = "select setting from pg_config where name = 'BINDIR'"
ROWS = "select count(*), sum(length(body)), sum(hashtext(body)::bigint) from line"
REDO = "redo starts at"  # in the log of a server that replays WAL itself
ENDS_WITHIN_S = 30.0


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="leadline.study.recovery")
    parser.add_argument("dsn")
    parser.add_argument("--with", dest="program", choices=PROGRAMS, required=True)
    parser.add_argument("--rows", type=int, required=True)
    return trial.run(parser, lambda given: recovery(given.dsn, given.program, given.rows), argv)


def recovery(dsn: str, program: str, rows: int) -> dict[str, Any]:
    """Raises LeadlineError."""
    with closing(connected(dsn)) as db:
        row = db.execute(BINARIES.encode()).fetchone()
    with PrivateServer(str(row[0] if row is not None else ""), settings=SETTINGS) as server:
        for statement in (
            "create table line (n int primary key, body text)", "checkpoint",
            f"insert into line select n, md5(n::text) from generate_series(1, {rows}) n",
            "update line set body = body || 'x' where n % 3 = 0",
        ):  # fmt: skip
            ask(server, statement)
        committed = ask(server, ROWS)
        kill(server)
        planned = leadline(server.data_dir, "--plan")
        records = sum(kind["records"] for kind in planned["kinds"])
        logged, begun = server.log.count(REDO), time.monotonic()
        if program == "leadline":
            leadline(server.data_dir)
        else:
            server.start()
        took = time.monotonic() - begun
        if program == "leadline":
            server.start()
        if (server.log.count(REDO) > logged) != (program == "server"):
            raise LeadlineError("fault", f"it was not {program} that recovered the files")
        if (found := ask(server, ROWS)) != committed:
            raise LeadlineError("fault", "rows are not those that were committed", detail=f"{committed} before, {found} after")
    wal_mb = planned["wal_bytes"] / MB
    return {"seconds": round(took, 4), "records": records, "wal_mb": round(wal_mb, 3), "records_per_s": round(records / took, 1)}


def kill(server: PrivateServer) -> None:
    """All of its processes at once. Raises LeadlineError if one does not end."""
    pids = sorted(proc.descendants([server.pid]), key=lambda pid: pid != server.pid)  # the postmaster first: it would start others anew
    starts = {pid: proc.start_ticks(pid) for pid in pids}
    for pid in starts:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    server.stop()
    deadline = time.monotonic() + ENDS_WITHIN_S
    while any(start is not None and proc.lives(pid, start) for pid, start in starts.items()):
        if time.monotonic() > deadline:
            raise LeadlineError("gone", "a process of the server that was killed does not end")
        time.sleep(0.01)
    (server.data_dir / "postmaster.pid").unlink(missing_ok=True)


def leadline(data_dir: Path, *options: str) -> dict[str, Any]:
    """`leadline recover`. Raises LeadlineError."""
    words = [sys.executable, "-m", "leadline", "recover", str(data_dir), *options, "--json"]
    done = subprocess.run(words, env=os.environ | {VARIABLE: "off"}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LeadlineError("gone", f"leadline recover ended with {done.returncode}", detail=(done.stderr or done.stdout).strip()[-300:])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
