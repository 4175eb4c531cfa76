"""Measures `leadline alter pending` beside cat and other readers, and `alter resolve` beside one UPDATE of everything, under load.

    python bench/alter.py speed                       a heap of 2 GB, ten rounds
    python bench/alter.py resolve                     5 million rows, each way with and without a load of updates
    python bench/alter.py speed --megabytes 200 --rounds 2; python bench/alter.py resolve --rows 200000     does everything work?

speed: each round runs every reader once, in an order drawn anew, on files in the page cache; whole commands, Python's start included.
Figures are medians over rounds, and the ratios within a round with a 95 % interval by signed ranks. pg_checksums needs a stopped
server and pgstattuple a running one: they have rounds of their own.

resolve: a table with ADD COLUMN DEFAULT, DROP COLUMN and SET COMPRESSION behind it, two indexes and every row in an old form. A load
of short transactions updates rows at random and writes down which, in a journal. Once the rows are rewritten by `alter resolve`, which
is killed in the middle and begun again, once by one UPDATE of every row. Compared: WAL, seconds, the table's size, the longest
statement of the load and the longest wait for a lock (pg_locks, looked at every 10 ms). Every row is compared with what it was
before; what the load changed must be exactly what its journal says. Exit code 1 when a row is lost, changed or still old.

It changes nothing outside of temporary folders. Output: JSON; --record writes it into bench/runs/DATE-N too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psycopg
from leadline.engines.postgres.server.binaries import Binaries, host_dirs, wheel_dirs
from leadline.engines.postgres.server.private import PrivateServer
from leadline.errors import LeadlineError
from leadline.lab.record import new_directory
from leadline.lab.signed_rank import signed_rank_ratio
from record import ROOT, read_environment, start_as_installed

SETTINGS = {"fsync": False, "shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "30min", "max_connections": 40}
LOADERS = 4
THINK_S = 0.002
LEADLINE = [sys.executable, "-m", "leadline", "alter"]


def find_server(given: str | None) -> Binaries:
    """A server with lz4 and contrib: the host's first, since wheels leave contrib out."""
    found = [d for d in [*host_dirs(), *wheel_dirs()] if given is None or str(d.bin_dir) == given]
    if not found:
        raise LeadlineError("not_found", "there is no such server", where=given or "")
    return found[0]


def execute(connection: Any, statements: str) -> None:
    for statement in statements.split(";\n"):
        connection.execute(statement)


def one(connection: Any, query: str, parameters: Any = None) -> Any:
    return connection.execute(query, parameters).fetchone()[0]


# -- speed


def speed(options: argparse.Namespace) -> dict[str, Any]:
    rows = options.megabytes * 8500
    with PrivateServer(find_server(options.pg_bin).bin_dir, settings={**SETTINGS, "autovacuum": False}) as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            execute(
                connection,
                f"""create table t (id int, n int, gone text, pad text);
insert into t select i, i, 'gone ' || i, repeat('x', 50 + i % 40) from generate_series(1, {rows // 2}) i;
alter table t add column added int default 7, drop column gone;
insert into t select i, i, repeat('x', 50 + i % 40) from generate_series({rows // 2}, {rows}) i;
select count(*) from t;
checkpoint""",
            )
            path = Path(server.data_dir) / one(connection, "select pg_relation_filepath('t')")
            size = one(connection, "select pg_relation_size('t')")
            has_tuple = one(connection, "select count(*) from pg_available_extensions where name = 'pgstattuple'")
            if has_tuple:
                connection.execute("create extension pgstattuple")
            node = path.name
        files = [str(path), *(str(segment) for segment in sorted(path.parent.glob(f"{node}.*")))]
        work: dict[str, list[str]] = {"cat": ["sh", "-c", f"cat {' '.join(files)} > /dev/null"]}
        work["alter pending"] = [*LEADLINE, "pending", str(path), "--json"]
        live = dict(work)
        psql = server.bin_dir / "psql"
        if has_tuple and psql.is_file():
            live["pgstattuple"] = [str(psql), "-X", "-c", "select * from pgstattuple('t')", server.dsn]
        filedump = options.filedump or next(iter(sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin/pg_filedump")))), None)
        if filedump:
            live["pg_filedump -i"] = ["sh", "-c", f"for f in {' '.join(files)}; do {filedump} -i $f; done > /dev/null"]
        results = {"heap_bytes": size, "server running": measure(live, size, options.rounds, options.seed)}
        results["alter pending, max_rss_bytes"] = max_rss(work["alter pending"])
        server.stop()
        checksums = server.bin_dir / "pg_checksums"
        if checksums.is_file():
            stopped = dict(work)
            subprocess.run([str(checksums), "--enable", "-D", str(server.data_dir)], check=True, capture_output=True)
            stopped["pg_checksums"] = [str(checksums), "--check", "-f", node, "-D", str(server.data_dir)]
            results["server stopped"] = measure(stopped, size, options.rounds, options.seed)
    return results


def max_rss(command: list[str]) -> int:
    """The most memory that a command had, in bytes."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    return usage.ru_maxrss * 1024


def measure(work: dict[str, list[str]], size: int, rounds: int, seed: int) -> dict[str, Any]:
    rng = random.Random(seed)
    seconds: dict[str, list[float]] = {name: [] for name in work}
    subprocess.run(work["cat"], check=True)  # into the page cache
    for number in range(rounds):
        for name in rng.sample(list(work), len(work)):
            started = time.perf_counter()
            subprocess.run(work[name], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - started)
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    ours = seconds["alter pending"]
    found: dict[str, Any] = {}
    for name, values in seconds.items():
        found[name] = {"seconds": values, "median_s": statistics.median(values), "gigabytes_per_s": size / 1e9 / statistics.median(values)}
        if name != "alter pending":  # above 1: alter pending is faster
            ratio = signed_rank_ratio(list(zip(ours, values)))
            found[name]["alter_pending_is_faster_by"] = asdict(ratio)
    return found


# -- resolve

TABLE = """
create table account (id int primary key, n int not null default 0, gone text, name text, note text);
insert into account select i, 0, 'gone ' || i, 'name of ' || i, case when i % 50 = 0 then repeat('note ' || i, 400) else 'note ' || i end
  from generate_series(1, {rows}) i;
create index on account (name);
create table journal (id int not null);
alter table account add column added int default 42, drop column gone;
alter table account alter note set compression lz4;
create table was as select id, md5(row(id, name, note, added)::text) as sum from account;
vacuum analyze account;
checkpoint
"""
# Rows of each kind, by the bytes of heap_page_items.
REFERENCE = """
with tuples as (
  select b as block, lp, t_infomask2 & 2047 as natts, t_bits from generate_series(0, pg_relation_size('account') / 8192 - 1) b,
    lateral heap_page_items(get_raw_page('account', b::int)) where lp_flags = 1
)
select count(*) filter (where natts < 6), count(*) filter (where natts >= 3 and coalesce(substr(t_bits, 3, 1), '1') = '1') from tuples
"""
PACKED = "select count(*) from account where pg_column_compression(note) <> 'lz4'"
WRONG = """
select count(*) filter (where a.id is null), count(*) filter (where w.id is null),
       count(*) filter (where md5(row(a.id, a.name, a.note, a.added)::text) <> w.sum), count(*) filter (where a.n <> coalesce(j.times, 0))
  from was w full join account a using (id) left join (select id, count(*) as times from journal group by id) j using (id)
"""
WAITS = "select coalesce(extract(epoch from max(clock_timestamp() - waitstart)) * 1000, 0)::float8 from pg_locks where not granted"


class Load:
    """Short transactions until it is stopped: one row changed, and written down."""

    def __init__(self, dsn: str, rows: int) -> None:
        self.dsn, self.rows = dsn, rows
        self.stopping = threading.Event()
        self.latencies_ms: list[float] = []
        self.longest_lock_wait_ms = 0.0
        self.failed: list[str] = []
        self.threads = [threading.Thread(target=self._guarded, args=(self._work, seed)) for seed in range(LOADERS)]
        self.threads.append(threading.Thread(target=self._guarded, args=(self._watch, 0)))

    def _guarded(self, work: Any, seed: int) -> None:
        try:
            work(seed)
        except Exception as e:  # told at the end: a load that stopped has proven nothing
            self.failed.append(repr(e))

    def _work(self, seed: int) -> None:
        rng = random.Random(seed)
        with psycopg.connect(self.dsn) as connection:
            while not self.stopping.is_set():
                row = rng.randint(1, self.rows)
                started = time.perf_counter()
                connection.execute("update account set n = n + 1 where id = %s", [row])
                self.latencies_ms.append((time.perf_counter() - started) * 1000)
                connection.execute("insert into journal values (%s)", [row])
                connection.commit()
                time.sleep(THINK_S)

    def _watch(self, _seed: int) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            while not self.stopping.is_set():
                self.longest_lock_wait_ms = max(self.longest_lock_wait_ms, one(connection, WAITS))
                time.sleep(0.01)

    @contextmanager
    def running(self) -> Iterator[None]:
        for thread in self.threads:
            thread.start()
        try:
            yield
        finally:
            self.stopping.set()
            for thread in self.threads:
                thread.join()


def trial(options: argparse.Namespace, way: str, loaded: bool) -> dict[str, Any]:
    """One table on a server of its own, rewritten in one way."""
    bin_dir = find_server(options.pg_bin).bin_dir
    with PrivateServer(bin_dir, settings=SETTINGS) as server, psycopg.connect(server.dsn, autocommit=True) as connection:
        execute(connection, TABLE.format(rows=options.rows))
        found: dict[str, Any] = {"way": way, "loaded": loaded, "rows": options.rows}
        connection.execute("create extension pageinspect")
        short, dropped = connection.execute(REFERENCE).fetchone() or (0, 0)
        wanted = {"short": short, "dropped": dropped, "compression": one(connection, PACKED)}
        listed = pending(server.dsn)
        found |= {"pending": listed, "pageinspect": wanted, "pending_is_exact": listed == wanted}
        connection.execute("checkpoint")
        size = "select pg_total_relation_size('account')"
        found["bytes_before"] = one(connection, size)
        lsn = one(connection, "select pg_current_wal_insert_lsn()")
        load = Load(server.dsn, options.rows)
        started = time.monotonic()
        with load.running() if loaded else nullcontext():
            found |= rewrite(options, way, server.dsn, connection)
        found["seconds"] = round(time.monotonic() - started, 2)
        found["wal_bytes"] = int(one(connection, "select pg_current_wal_insert_lsn() - %s::pg_lsn", [lsn]))
        found["bytes_after"] = one(connection, size)
        if loaded:
            latencies = sorted(load.latencies_ms)
            found["load"] = {
                "transactions": len(latencies),
                "longest_statement_ms": latencies[-1],
                "p999_ms": latencies[int(0.999 * len(latencies))],
                "median_ms": statistics.median(latencies),
                "longest_lock_wait_ms": load.longest_lock_wait_ms,
                "failed": load.failed,
            }
        keys = ("lost", "invented", "changed", "updates_lost")
        found["wrong"] = dict(zip(keys, connection.execute(WRONG).fetchone() or ()))
        connection.execute("checkpoint")
        found["left"] = sum(pending(server.dsn).values())
        return found


def pending(dsn: str) -> dict[str, int]:
    """Rows of each reason, as leadline finds them."""
    printed = subprocess.run([*LEADLINE, "pending", dsn, "--table", "account", "--json"], capture_output=True, check=True)
    return {row["reason"]: row["rows"] for row in json.loads(printed.stdout)}


def rewrite(options: argparse.Namespace, way: str, dsn: str, connection: Any) -> dict[str, Any]:
    if way == "one update":
        # The compression as `alter resolve` brings it about; nothing else makes the server pack a value anew.
        note = "case when pg_column_compression(note) <> 'lz4' then (array[note])[1] else note end"
        connection.execute(f"update account set id = id, note = {note}")
        return {}
    command = [*LEADLINE, "resolve", dsn, "--table", "account", "--batch", str(options.batch), "--json"]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + options.seconds
    hot = "select coalesce(n_tup_upd, 0) from pg_stat_all_tables where relname = 'account'"
    while first.poll() is None and one(connection, hot) < options.rows / 3 and time.monotonic() < deadline:
        time.sleep(0.2)
    was_killed = first.poll() is None
    first.send_signal(signal.SIGKILL)
    first.communicate()
    second = subprocess.run(command, capture_output=True, text=True, timeout=options.seconds, check=False)
    if second.returncode not in (0, 1):
        raise LeadlineError("invalid", "alter resolve failed", detail=second.stdout[-300:] + second.stderr[-300:])
    return {"was_killed": was_killed, "second_run": json.loads(second.stdout)[0]}


def resolve(options: argparse.Namespace) -> dict[str, Any]:
    trials = []
    for loaded in (True, False):
        for way in ("alter resolve", "one update"):
            trials.append(trial(options, way, loaded))
            print(json.dumps(trials[-1]), file=sys.stderr)
    is_right = all(not any(one["wrong"].values()) and one["pending_is_exact"] and not one["left"] for one in trials)
    return {"trials": trials, "is_right": is_right}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "resolve"])
    parser.add_argument("--megabytes", type=int, default=2048, help="heap of speed, about")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of resolve")
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=3600, help="the longest that one run of alter resolve may take")
    parser.add_argument("--pg-bin", help="folder with postgres, initdb, psql, pg_checksums")
    parser.add_argument("--filedump", help="a pg_filedump")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true", help="keep the result in bench/runs")
    options = parser.parse_args()
    start_as_installed()
    environment = read_environment()
    results = speed(options) if options.what == "speed" else resolve(options)
    text = json.dumps({"environment": environment, "options": vars(options), "results": results}, indent=1)
    print(text)
    if options.record:
        folder = new_directory(ROOT / "bench" / "runs")
        (folder / f"alter-{options.what}.json").write_text(text + "\n", encoding="utf-8")
        print(f"written to {folder}", file=sys.stderr)
    return 0 if results.get("is_right", True) else 1


if __name__ == "__main__":
    sys.exit(main())
