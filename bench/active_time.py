"""Compares database time with what the server counts in pg_stat_database (14 and later): `active_time`, `idle_in_transaction_time`.

    python bench/active_time.py --pg-bin BIN --pg-bin BIN > record.json    some 9 s for each load and server
    python bench/active_time.py --pg-bin BIN --seconds 2                    does everything work?

The server counts a state when the session leaves it, and hands the sum over when the session ends at the latest. So each load begins after
the capture does, and all its sessions end before it: then both have seen the same. The load has a database of its own, which no other
session uses. Parallel workers are left out: the server does not count them. The load uses simple queries: of a prepared statement, the
server counts the time from its Execute on, and not that of its Bind, where it is planned (a second report of the state active begins the
time anew), so that it counts less than was spent. `sampled_s` are the samples of active sessions; `database_s`
is what findings are parts of: with the time in which a session had been woken and had no CPU yet, while its state still was another.

Output: JSON, and a table on stderr.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

import psycopg
from leadline.capture.reader import open_capture
from leadline.engines.postgres.server import PrivateServer, find_binaries
from leadline.probes.take import take

AROUND_S = 1.0  # the capture is so much longer than the load, before and after it
LOADS = {  # clients and script of pgbench
    "short reads": (4, "\\set i random(1, 10000)\nselect n from t where id = :i;\n"),
    "writes": (4, "\\set i random(1, 10000)\nbegin;\nupdate t set n = n + 1 where id = :i;\nselect n from t where id = :i;\ncommit;\n"),
    "one hot row": (8, "update t set n = n + 1 where id = 1;\n"),
    "idle in transaction": (4, "begin;\nselect n from t where id = 1;\n\\sleep 20 ms\nselect 1;\ncommit;\n"),
    "sleeping": (4, "select pg_sleep(0.037);\n"),
    "analytic": (2, "select count(*), sum(a.n + b.n) from t a join t b using (id) where a.id % 7 <> b.id % 11;\n"),
    "mostly idle": (10, "select 1;\n\\sleep 5 ms\n"),
    "large results": (2, "select id, repeat('x', 200) from t where id < 3000;\n"),
}
SUM = "select active_time / 1e3, idle_in_transaction_time / 1e3 from pg_stat_database where datname = 'load'"


@dataclass(frozen=True)
class Compared:
    """Seconds. server: pg_stat_database. missed: passes of the sampler that did not run."""

    version: str
    load: str
    active_s: float
    sampled_s: float
    database_s: float
    idle_in_transaction_s: float
    sampled_idle_s: float
    passes: int
    missed: int

    @property
    def off(self) -> float:
        return self.sampled_s / self.active_s - 1


def prepare(server: PrivateServer) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as db:
        db.execute("create database load")
    with psycopg.connect(server.dsn, dbname="load", autocommit=True) as db:
        db.execute("create table t as select id, 0 as n from generate_series(1, 10000) id")
        db.execute("create unique index on t (id)")


def compare(server: PrivateServer, load: str, seconds: float, hz: float, pgbench: str, folder: Path) -> Compared:
    """One load under one capture of shared memory. Raises CalledProcessError."""
    clients, script = LOADS[load]
    (folder / "script.sql").write_text(script)
    dsn = psycopg.conninfo.make_conninfo(server.dsn, dbname="load")
    command = [pgbench, "-n", "-c", clients, "-j", 2, "-T", seconds, "-f", folder / "script.sql", dsn]
    done: list[subprocess.CompletedProcess[bytes]] = []

    def run() -> None:
        begun.wait(60)
        done.append(subprocess.run([str(part) for part in command], capture_output=True, timeout=seconds + 60))

    begun = threading.Event()
    thread = threading.Thread(target=run)
    timer = threading.Timer(AROUND_S, begun.set)
    with psycopg.connect(server.dsn, autocommit=True) as db:
        before = db.execute(SUM).fetchone()
        thread.start()
        timer.start()
        out = folder / f"{load.replace(' ', '-')}.leadline"
        path = take(pid=server.pid, for_s=seconds + 3 * AROUND_S, rate_hz=hz, out=out, probes=["sessions"])
        thread.join()
        after = db.execute(SUM).fetchone()
    done[0].check_returncode()
    assert before is not None and after is not None
    capture = open_capture(path)
    try:
        of_load = "backend_type = 'client backend' and application_name = 'pgbench'"
        [row] = capture.rows(f"""select coalesce(sum(weight_s) filter (in_db_time), 0) as sampled,
            coalesce(sum(weight_s) filter (state like 'idle in transaction%'), 0) as idle from session_sample where {of_load}""")
        database = capture.scalar(f"select coalesce(sum(weight_s), 0) from db_time where {of_load}")
        loss = capture.manifest.probe("sessions").loss
        version = capture.manifest.target.version or ""
    finally:
        capture.close()
    active_s, idle_s = (float(b) - float(a) for a, b in zip(before, after))
    figures = (active_s, row["sampled"], database, idle_s, row["idle"])
    return Compared(version, load, *(round(value, 3) for value in figures), loss["ticks_taken"], loss["ticks_missed"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pg-bin", action="append", help="folder with postgres and initdb; any number of them")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--hz", type=float, default=100, help="passes a second: by chance, n samples are off by some 1/sqrt(n)")
    parser.add_argument("--loads", default=",".join(LOADS), help="which of them, by name")
    options = parser.parse_args()
    rows: list[Compared] = []
    for folder in options.pg_bin or [None]:
        binaries = find_binaries(folder)
        pgbench = shutil.which("pgbench", path=str(binaries.bin_dir)) or shutil.which("pgbench") or "pgbench"
        settings = {"fsync": False, "autovacuum": False}
        with PrivateServer(binaries.bin_dir, settings=settings) as server, tempfile.TemporaryDirectory() as work:
            prepare(server)
            for load in options.loads.split(","):
                Path(work, load).mkdir()
                rows.append(compare(server, load, options.seconds, options.hz, pgbench, Path(work, load)))
                r = rows[-1]
                print(
                    f"{r.version:6} {r.load:20} server {r.active_s:8.3f} s, sampled {r.sampled_s:8.3f} s ({100 * r.off:+.2f} %), "
                    f"database time {r.database_s:8.3f} s; idle in transaction {r.idle_in_transaction_s:7.3f} s, "
                    f"sampled {r.sampled_idle_s:7.3f} s; "
                    f"{r.missed} of {r.passes + r.missed} passes missed",
                    file=sys.stderr,
                )
    json.dump({"options": vars(options), "result": [asdict(row) for row in rows]}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
