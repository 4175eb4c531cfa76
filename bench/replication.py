"""Experiments on a private pair of servers on this host: how replay follows the rate at which WAL is made.

    python bench/replication.py keep-up      made against replayed, below and above what a quota of the startup process allows
    python bench/replication.py images       a load after a checkpoint, with and without page images
    python bench/replication.py delay        lag and the standby's WAL under recovery_min_apply_delay and a pause
    python bench/replication.py recovery     what crash recovery replays, counted by three programs

Each prints one object of JSON. Needs PostgreSQL's binaries (--pg-bin), and for keep-up root and the cpu controller of cgroup v1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import linear_regression, median
from typing import Any

import psycopg
from leadline.capture.reader import open_capture
from leadline.engines.postgres.forecast import Reading
from leadline.engines.postgres.server import PrivateServer
from leadline.probes.take import take
from leadline.progress import Silent
from leadline.study.load_beside import LoadBeside
from leadline.study.pair import Pair, Primary
from leadline.study.positions import Positions

MB = 1 << 20
SETTINGS = {
    "max_wal_size": "8GB", "wal_keep_size": "8GB", "checkpoint_timeout": "1h", "autovacuum": "off", "synchronous_commit": "off",
    "fsync": "off",
}  # fmt: skip
ROWS = 500  # inserted at once
LINE = f"insert into line select n, 'the same words' from generate_series(1, {ROWS}) n;"
INSERTED = "select (pg_current_wal_insert_lsn() - '0/0')::bigint"
TICK_S = os.sysconf("SC_CLK_TCK")


@contextmanager
def pair(bin_dir: str, settings: dict[str, str] | None = None) -> Iterator[Pair]:
    with Primary(bin_dir, SETTINGS | (settings or {})) as primary:
        of = Pair(primary, {}, lambda _: None)
        try:
            yield of
        finally:
            of.close()


def execute(dsn: str, *statements: str) -> Any:
    with psycopg.connect(dsn, autocommit=True) as db:
        for statement in statements:
            found = db.execute(statement.encode())
        return found.fetchone() if found.description else None


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK_S


def lag(one: Reading) -> int:
    return one.made - one.replayed


def load_average() -> float:
    return round(os.getloadavg()[0], 1)


# -- keep-up ---------------------------------------------------------------------------------------------------------------


def watched(of: Pair, rate: float, for_s: float) -> tuple[list[Reading], list[Reading], dict[str, float]]:
    """Readings while the load runs, then until all is replayed; CPU of the startup process in each."""
    startup = of.standby.startup_pid
    with closing(Positions(of.primary.dsn, of.standby.dsn)) as positions:
        positions.start()
        with LoadBeside(of.primary.dsn, LINE, rate, for_s + 60) as load:
            while not load.has_begun(positions.readings):
                positions.wait(len(positions.readings), 1.0)
            time.sleep(1.0)
            begun, used = time.monotonic(), cpu_s(startup)
            time.sleep(for_s)
            ended, used_under_load = time.monotonic(), cpu_s(startup) - used
        stopped, used = time.monotonic(), cpu_s(startup)
        while lag(positions.readings[-1]) > 0 and time.monotonic() < stopped + 60:
            positions.wait(len(positions.readings), 1.0)
        used_in_drain = cpu_s(startup) - used
        under_load = [one for one in positions.since(begun) if one.at_s <= ended]
        return under_load, positions.since(stopped), {"load": used_under_load, "drain": used_in_drain}


def point(of: Pair, rate: float, for_s: float) -> dict[str, Any]:
    """One rate: MB a second made and replayed, and how straight the lag grows."""
    under_load, drain, cpu = watched(of, rate, for_s)
    first, last = under_load[0], under_load[-1]
    seconds = last.at_s - first.at_s
    at, lags = [one.at_s for one in under_load], [float(lag(one)) for one in under_load]
    slope = linear_regression(at, lags).slope
    spread = sum((value - median(lags)) ** 2 for value in lags)
    left = sum((value - (linear_regression(at, lags).intercept + slope * x)) ** 2 for x, value in zip(at, lags, strict=True))
    drained = drain[-1].replayed - drain[0].replayed if drain else 0  # nothing where all was replayed when the load ended
    drain_s = drain[-1].at_s - drain[0].at_s if drain else 0.0
    return {
        "transactions_per_s": rate, "seconds": round(seconds, 1), "made": round((last.made - first.made) / seconds / MB, 3),
        "replayed": round((last.replayed - first.replayed) / seconds / MB, 3), "lag_growth": round(slope / MB, 3),
        "lag_at_end": round(lags[-1] / MB, 2), "lag_straightness": round(1 - left / spread, 4) if spread else None,
        "replayed_per_cpu_s": round((last.replayed - first.replayed) / MB / cpu["load"], 1) if cpu["load"] else None,
        "drained": round(drained / drain_s / MB, 3) if drained > 5 * MB else None,
        "drained_per_cpu_s": round(drained / MB / cpu["drain"], 1) if drained > 5 * MB and cpu["drain"] else None,
        "load_average": load_average(),
    }  # fmt: skip


def keep_up(given: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"parts_of_capacity": [0.3, 0.6, 0.85, 1.2, 1.6], "quotas": {}}
    with pair(given.pg_bin) as of:
        execute(of.primary.dsn, "create table line (n int, body text)", "checkpoint")
        [before] = execute(of.primary.dsn, INSERTED)
        [after] = execute(of.primary.dsn, *[LINE] * 50, INSERTED)
        each = (after - before) / 50
        found["bytes_per_transaction"] = round(each)
        for quota in (0.05, 0.10):
            of.set_up("", quota)
            execute(of.primary.dsn, "truncate line")
            overload = point(of, given.most, given.seconds)
            rows = []
            for part in found["parts_of_capacity"]:
                execute(of.primary.dsn, "truncate line")
                rows.append({"of_capacity": part} | point(of, part * overload["replayed"] * MB / each, given.seconds))
            found["quotas"][f"{quota:.0%}"] = {"overload": overload, "sweep": rows}
    return found


# -- page images -----------------------------------------------------------------------------------------------------------


def after_checkpoint(dsn: str, for_s: float) -> list[dict[str, float]]:
    """Updates of rows all over a table, as fast as they come: transactions and bytes of WAL of each second."""
    steps, draw = [], random.Random(33)
    with psycopg.connect(dsn, autocommit=True) as db:
        [pages] = db.execute("select pg_relation_size('big') / 8192").fetchone() or (1,)
        db.execute("checkpoint")
        update = "update big set v = v + 1 where id = %s"
        for _ in range(round(for_s)):
            [before] = db.execute(INSERTED.encode()).fetchone() or (0,)
            end, done = time.monotonic() + 1, 0
            while time.monotonic() < end:
                db.execute(update, [draw.randrange(pages * 20) + 1], prepare=True)
                done += 1
            [after] = db.execute(INSERTED.encode()).fetchone() or (0,)
            steps.append({"transactions": done, "bytes_each": round((after - before) / done)})
    return steps


def images(given: argparse.Namespace) -> dict[str, Any]:
    """One client updates rows all over a table of 20 rows a page after a checkpoint. Replay of the same WAL is timed by its CPU."""
    found = {}
    for name, setting in (("with images", "on"), ("without images", "off")):
        with pair(given.pg_bin, {"full_page_writes": setting, "shared_buffers": "256MB"}) as of:
            execute(
                of.primary.dsn, "create table big (id int primary key, v int, pad text) with (fillfactor = 60)",
                f"insert into big select n, 0, repeat('x', 200) from generate_series(1, {given.rows}) n", "vacuum big",
            )  # fmt: skip
            used = cpu_s(of.standby.startup_pid)
            steps = after_checkpoint(of.primary.dsn, given.seconds)
            found[name] = {
                "steps": steps, "load_average": load_average(), "startup_cpu_s": round(cpu_s(of.standby.startup_pid) - used, 2)
            }  # fmt: skip
    return found


# -- delay -----------------------------------------------------------------------------------------------------------------


def delay(given: argparse.Namespace) -> dict[str, Any]:
    """Lag as `leadline take` measures it under a delay that is set, and what pg_wal of the standby holds meanwhile."""
    found = {}
    with pair(given.pg_bin) as of, tempfile.TemporaryDirectory(prefix="leadline-") as folder:
        execute(of.primary.dsn, "create table line (n int, body text)")
        for name, before, after in (
            ("3 s", ["alter system set recovery_min_apply_delay = '3s'", "select pg_reload_conf()"],
             ["alter system reset recovery_min_apply_delay", "select pg_reload_conf()"]),
            ("paused", ["select pg_wal_replay_pause()"], ["select pg_wal_replay_resume()"]),
        ):  # fmt: skip
            with LoadBeside(of.primary.dsn, LINE, 40, 60) as load, closing(Positions(of.primary.dsn, of.standby.dsn)) as positions:
                positions.start()
                while not load.has_begun(positions.readings):
                    positions.wait(len(positions.readings), 1.0)
                execute(of.standby.dsn, *before)
                since = time.monotonic_ns()
                out = Path(folder, name.replace(" ", ""))
                others, what = [of.standby.dsn], ["sessions"]
                out = take(dsn=of.primary.dsn, others=others, for_s=given.seconds, out=out, probes=what, progress=Silent())
                execute(of.standby.dsn, *after)
            with closing(open_capture(out)) as capture:
                rows = capture.rows("select ts, lag_s, lag_bytes, made_lsn from replication_lag where is_standby order by ts")
            half = rows[len(rows) // 2 :]
            made = (rows[-1]["made_lsn"] - rows[0]["made_lsn"]) / ((rows[-1]["ts"] - rows[0]["ts"]) / 1e9)
            wanted = [3.0 if name == "3 s" else (row["ts"] - since) / 1e9 for row in half]
            off = [row["lag_s"] - want for row, want in zip(half, wanted, strict=True)]
            ratio = [row["lag_bytes"] / (made * want) for row, want in zip(half, wanted, strict=True)]
            found[name] = {
                "readings": len(half), "made_mb_per_s": round(made / MB, 3), "lag_minus_delay_s": [round(min(off), 3), round(max(off), 3)],
                "lag_minus_delay_median_s": round(median(off), 3), "bytes_by_rate_times_delay": round(median(ratio), 3),
                "load_average": load_average(),
            }  # fmt: skip
            of.standby.until_streaming()
    return found


# -- recovery --------------------------------------------------------------------------------------------------------------


def recovery(given: argparse.Namespace) -> dict[str, Any]:
    """A server is killed under load. Its own recovery, and what `leadline recover` and `leadline wal export` make of a copy."""
    with PrivateServer(given.pg_bin, settings=SETTINGS | {"fsync": "on", "full_page_writes": "on"}) as server:
        execute(server.dsn, "create table line (n int primary key, body text)", "checkpoint")
        execute(server.dsn, f"insert into line select n, md5(n::text) from generate_series(1, {given.rows}) n")
        execute(server.dsn, "update line set body = body || 'x' where n % 3 = 0")
        os.kill(server.pid, signal.SIGKILL)
        for child in _children(server.pid):
            os.kill(child, signal.SIGKILL)
        time.sleep(2)
        with tempfile.TemporaryDirectory(prefix="leadline-copy-", dir=given.scratch) as folder:
            copy, export = Path(folder, "data"), Path(folder, "wal.leadline")
            shutil.copytree(server.data_dir, copy, symlinks=True)
            (copy / "postmaster.pid").unlink(missing_ok=True)
            run = [sys.executable, "-m", "leadline"]
            plan = json.loads(_printed([*run, "recover", str(copy), "--plan", "--json"]))
            redo = plan["redo_lsn"]
            began = time.monotonic()
            done = json.loads(_printed([*run, "recover", str(copy), "--json"]))
            took = time.monotonic() - began
            _printed([*run, "wal", "export", str(server.data_dir / "pg_wal"), "--from", redo, "-o", str(export)])
            with closing(open_capture(export)) as capture:
                exported = capture.scalar("select count(*) from wal_record")
            words = [Path(given.pg_bin, "pg_waldump"), "-p", server.data_dir / "pg_wal", "-s", redo]
            dump = subprocess.run(words, capture_output=True, text=True, check=False)  # ends with an error where the WAL ends
            dumped = len(re.findall(r"(?m)^rmgr:", dump.stdout))
    recovered = sum(kind["records"] for kind in done["kinds"])
    return {"wal_bytes": plan["wal_bytes"], "recovered": recovered, "exported": exported, "pg_waldump": dumped, "took_s": round(took, 2)}


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _printed(words: list[str]) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["keep-up", "images", "delay", "recovery"])
    parser.add_argument("--pg-bin", required=True)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each load")
    parser.add_argument("--most", type=float, default=400.0, help="transactions a second that are more than replay can follow")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--scratch", default=None)
    given = parser.parse_args()
    what = {"keep-up": keep_up, "images": images, "delay": delay, "recovery": recovery}[given.what]
    print(json.dumps({"what": given.what, "cpus": os.cpu_count()} | what(given), indent=1))


if __name__ == "__main__":
    main()
