"""Experiments on a private pair of servers on this host: how replay follows the rate at which WAL is made.

    python bench/replication.py keep-up      made against replayed, below and above what a quota of the startup process allows
    python bench/replication.py images       a load after a checkpoint, with and without page images
    python bench/replication.py delay        lag and the standby's WAL under recovery_min_apply_delay and a pause
    python bench/replication.py apply        commits that wait for remote_apply while a reader of the standby blocks replay
    python bench/replication.py steps        how often the primary hears of a standby that replays what it has
    python bench/replication.py quota        WAL that is replayed in a second of CPU, by the share and the period of its quota
    python bench/replication.py recovery     what crash recovery replays, counted by three programs
    python bench/replication.py draw FILE    plots of what images or delay printed, as FILE.svg

Each prints one object of JSON. Needs PostgreSQL's binaries (--pg-bin), and for keep-up root and the cpu controller of cgroup v1.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import linear_regression, median
from typing import Any

import psycopg
from leadline.capture.reader import open_capture
from leadline.engines.postgres.forecast import Reading
from leadline.engines.postgres.server import PrivateServer
from leadline.findings import evaluate
from leadline.host import proc
from leadline.probes.options import Options
from leadline.probes.take import take, take_with
from leadline.progress import Silent
from leadline.study.curves import Curve, curves
from leadline.study.load_beside import LoadBeside
from leadline.study.pair import Pair, Primary, Quota
from leadline.study.picture import picture
from leadline.study.positions import Positions

MB = 1 << 20
SETTINGS = {
    "max_wal_size": "8GB", "wal_keep_size": "8GB", "checkpoint_timeout": "1h", "autovacuum": "off", "synchronous_commit": "off",
    "fsync": "off",
}  # fmt: skip
ROWS = 500  # inserted at once
LINE = f"insert into line select n, 'the same words' from generate_series(1, {ROWS}) n;"
INSERTED = "select (pg_current_wal_insert_lsn() - '0/0')::bigint"


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
    return proc.cpu_s(pid) or 0.0


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
            seen = [[round((row["ts"] - since) / 1e9, 2), round(row["lag_s"], 3)] for row in rows[:: max(len(rows) // 200, 1)]]
            half = rows[len(rows) // 2 :]
            made = (rows[-1]["made_lsn"] - rows[0]["made_lsn"]) / ((rows[-1]["ts"] - rows[0]["ts"]) / 1e9)
            wanted = [3.0 if name == "3 s" else (row["ts"] - since) / 1e9 for row in half]
            off = [row["lag_s"] - want for row, want in zip(half, wanted, strict=True)]
            ratio = [row["lag_bytes"] / (made * want) for row, want in zip(half, wanted, strict=True)]
            found[name] = {
                "readings": len(half), "made_mb_per_s": round(made / MB, 3), "lag_minus_delay_s": [round(min(off), 3), round(max(off), 3)],
                "lag_minus_delay_median_s": round(median(off), 3), "bytes_by_rate_times_delay": round(median(ratio), 3),
                "load_average": load_average(), "lag_over_time": seen,
            }  # fmt: skip
            of.standby.until_streaming()
    return found


# -- a reader that blocks replay -------------------------------------------------------------------------------------------


class Committer(threading.Thread):
    """One client whose commits wait for the standby. took: the seconds of each."""

    def __init__(self, dsn: str) -> None:
        super().__init__(daemon=True)
        self._db = psycopg.connect(dsn, autocommit=True)
        self._db.execute("set synchronous_commit = remote_apply")
        self.took: list[float] = []
        self.ending = threading.Event()

    def run(self) -> None:
        while not self.ending.is_set():
            began = time.monotonic()
            self._db.execute("update held set v = v + 1 where id = 1")
            self.took.append(time.monotonic() - began)


def longest_stop(readings: list[Reading]) -> float:
    """Seconds of the longest time in which nothing was replayed although there was WAL."""
    longest, since = 0.0, readings[0].at_s
    for before, one in itertools.pairwise(readings):
        if one.replayed > before.replayed or lag(before) == 0:
            since = one.at_s
        longest = max(longest, one.at_s - since)
    return longest


def apply(given: argparse.Namespace) -> dict[str, Any]:
    """A snapshot of the standby is held while the primary removes rows that it sees. Who waits for how long, by four clocks."""
    trials = []
    with (
        pair(given.pg_bin, {"synchronous_standby_names": "*", "synchronous_commit": "local"}) as of,
        tempfile.TemporaryDirectory() as folder,
    ):
        execute(of.standby.dsn, "alter system set max_standby_streaming_delay = '5min'", "select pg_reload_conf()")
        execute(of.primary.dsn, "create table held (id int primary key, v int) with (autovacuum_enabled = off)")
        execute(of.primary.dsn, "insert into held select n, 0 from generate_series(1, 10000) n", "vacuum held")
        for hold_s in (2.0, 4.0, 6.0):
            committer = Committer(of.primary.dsn)
            with (
                closing(Positions(of.primary.dsn, of.standby.dsn)) as positions,
                psycopg.connect(of.standby.dsn) as reader,
                ThreadPoolExecutor(1) as beside,
            ):
                out, begun = Path(folder, f"{hold_s:g}"), threading.Event()
                options = Options(dsn=of.primary.dsn, others=[of.standby.dsn], for_s=hold_s + 4, out=out, probes=["sessions"])
                capturing = beside.submit(take_with, options, Silent(), None, begun.set)
                positions.start()
                committer.start()
                assert begun.wait(60)
                reader.execute("select sum(v) from held")
                reader.execute("declare kept cursor for select * from held")
                blocked, since = time.monotonic(), time.monotonic_ns()
                execute(of.primary.dsn, "delete from held where id > 5000", "vacuum held")
                time.sleep(max(blocked + hold_s - time.monotonic(), 0.0))
                held = time.monotonic() - blocked
                reader.rollback()
                until = time.monotonic_ns()
                path = capturing.result()
                committer.ending.set()
                committer.join()
                stop = longest_stop(positions.readings)
            with closing(open_capture(path)) as capture:
                while_held = f"wait_event = 'SyncRep' and ts between {since} and {until}"
                waited = capture.scalar(f"select sum(weight_s) from db_time where {while_held}")
                found = [one for one in evaluate(capture).findings if one.id in ("REPLAY-CONFLICT", "SYNCREP-BOUND")]
            trials.append({
                "held_s": round(held, 3), "replay_stopped_s": round(stop, 3), "longest_commit_s": round(max(committer.took), 3),
                "syncrep_while_held_s": round(waited, 3), "found": {one.id: round(one.cost_s or 0.0, 3) for one in found},
                "commits": len(committer.took), "load_average": load_average(),
            })  # fmt: skip
            execute(of.primary.dsn, "insert into held select n, 0 from generate_series(5001, 10000) n", "vacuum held")
    return {"trials": trials}


# -- what the primary hears ------------------------------------------------------------------------------------------------


def steps(given: argparse.Namespace) -> dict[str, Any]:
    """A standby replays WAL that it has, at a twentieth of a CPU. When `replay_lsn` moves at the primary, and at the standby."""
    heard: list[tuple[float, int]] = []
    with pair(given.pg_bin) as of:
        execute(of.primary.dsn, "create table line (n int, body text)", "checkpoint")
        execute(of.standby.dsn, "select pg_wal_replay_pause()")
        execute(of.primary.dsn, *[LINE] * (given.rows // ROWS * 10))
        of.set_up("", 0.05)
        with closing(Positions(of.primary.dsn, of.standby.dsn)) as positions, psycopg.connect(of.primary.dsn, autocommit=True) as primary:
            positions.start()
            while not positions.readings or positions.readings[-1].on_disk < positions.readings[-1].made:
                positions.wait(len(positions.readings), 1.0)
            execute(of.standby.dsn, "select pg_wal_replay_resume()")
            while lag(positions.readings[-1]) > 0:
                [at] = primary.execute("select (replay_lsn - '0/0')::bigint from pg_stat_replication").fetchone() or (0,)
                if not heard or at != heard[-1][1]:
                    heard.append((time.monotonic(), at))
                positions.wait(len(positions.readings), 1.0)
    moved = [one.at_s for before, one in itertools.pairwise(positions.readings) if one.replayed > before.replayed]
    return {
        "seconds": round(moved[-1] - moved[0], 1), "mb": round((positions.readings[-1].replayed - positions.readings[0].replayed) / MB, 1),
        "primary_hears_after_s": [round(b[0] - a[0], 2) for a, b in itertools.pairwise(heard)],
        "standby_says_after_most_s": round(max(b - a for a, b in itertools.pairwise(moved)), 2), "load_average": load_average(),
    }  # fmt: skip


# -- quota -----------------------------------------------------------------------------------------------------------------


def quota(given: argparse.Namespace) -> dict[str, Any]:
    """Parts of one backlog are replayed with each share and period in turn, in an order drawn anew for each round."""
    wanted = [(share, period) for share in (0.05, 0.1, 0.2) for period in (20_000, 100_000, 400_000)]
    found: dict[str, list[float]] = {}
    rng = random.Random(1)
    with pair(given.pg_bin) as of:
        execute(of.primary.dsn, "create table line (n int, body text)", "checkpoint")
        execute(of.standby.dsn, "select pg_wal_replay_pause()")
        execute(of.primary.dsn, *[LINE] * (given.rows // ROWS * 10))
        pid = of.standby.startup_pid
        with closing(Positions(of.primary.dsn, of.standby.dsn)) as positions:
            positions.start()
            while not positions.readings or positions.readings[-1].on_disk < positions.readings[-1].made:
                positions.wait(len(positions.readings), 1.0)
            for _ in range(given.rounds):
                for share, period in rng.sample(wanted, len(wanted)):
                    held = Quota(pid, share, period)
                    try:
                        execute(of.standby.dsn, "select pg_wal_replay_resume()")
                        time.sleep(0.5)
                        before, used = positions.readings[-1], cpu_s(pid)
                        time.sleep(given.seconds)
                        after, used = positions.readings[-1], cpu_s(pid) - used
                        execute(of.standby.dsn, "select pg_wal_replay_pause()")
                    finally:
                        held.close()
                    if lag(after) == 0:
                        raise SystemExit("all is replayed: give more --rows")
                    of_each = found.setdefault(f"{share:.0%} of {period // 1000} ms", [])
                    of_each.append(round((after.replayed - before.replayed) / MB / used, 1))
    medians = {name: median(each) for name, each in sorted(found.items())}
    return {"mb_per_cpu_s": found, "medians": medians, "load_average": load_average()}


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


# -- plots -----------------------------------------------------------------------------------------------------------------


def draw(path: Path) -> None:
    """Of what was printed; nothing is measured."""
    found = json.loads(path.read_text(encoding="utf-8"))
    plots, said = DRAWN[found["what"]](found)
    below = f"A loopback pair on {found['cpus']} CPUs, PostgreSQL {found['version']}, {found['on']}. {said}"
    path.with_suffix(".svg").write_text(picture(plots, [below, f"python bench/replication.py {found['what']}"]), encoding="utf-8")


def draw_images(found: dict[str, Any]) -> tuple[list[str], str]:
    plots = []
    for of_y, key in (("transactions a second", "transactions"), ("bytes of WAL for each transaction", "bytes_each")):
        shown = [Curve(name, over_time=[(second + 1.0, step[key]) for second, step in enumerate(found[name]["steps"])])
                 for name in ("with images", "without images")]  # fmt: skip
        plots.append(curves(of_y, "seconds after the checkpoint", shown))
    return plots, "One client updates rows all over a table."


def draw_delay(found: dict[str, Any]) -> tuple[list[str], str]:
    plots = []
    for name, title in (("3 s", "recovery_min_apply_delay = 3s"), ("paused", "replay is paused")):
        seen = [(at, lag_s) for at, lag_s in found[name]["lag_over_time"]]
        expected = [(at, 3.0 if name == "3 s" else at) for at, _ in (seen[0], seen[-1])]
        shown = [Curve("measured", over_time=seen), Curve("expected", model=expected)]
        plots.append(curves(f"{title}: seconds behind", "seconds since it was set", shown))
    return plots, "Measured: lag_s of a capture of both servers."


DRAWN = {"images": draw_images, "delay": draw_delay}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["keep-up", "images", "delay", "apply", "steps", "quota", "recovery", "draw"])
    parser.add_argument("file", nargs="?", type=Path, help="of draw")
    parser.add_argument("--pg-bin", default="")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each load")
    parser.add_argument("--most", type=float, default=400.0, help="transactions a second that are more than replay can follow")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=4, help="of quota")
    parser.add_argument("--scratch", default=None)
    given = parser.parse_args()
    if given.what == "draw":
        draw(given.file)
        return
    experiments = {
        "keep-up": keep_up, "images": images, "delay": delay, "apply": apply, "steps": steps, "quota": quota, "recovery": recovery,
    }  # fmt: skip
    what = experiments[given.what]
    version = _printed([str(Path(given.pg_bin, "postgres")), "--version"]).split()[2]
    on = time.strftime("%Y-%m-%d", time.gmtime())
    print(json.dumps({"what": given.what, "cpus": os.cpu_count(), "version": version, "on": on} | what(given), indent=1))


if __name__ == "__main__":
    main()
