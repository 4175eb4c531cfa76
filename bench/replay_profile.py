"""Compares the replay profile of a capture with `perf`, and each record that it names with the WAL.

    python bench/replay_profile.py --pg-bin DIR                 3 million rows, about 20 million records: 6 minutes
    python bench/replay_profile.py --pg-bin DIR --rows 20000    does everything work?

A standby on this host replays a mix of records that it was made to wait for: inserts with three indexes, updates, deletes, vacuum.
Meanwhile `leadline take` reads from its memory which record is applied, 100 times a second, and `perf record` samples the stack of the
startup process. Replay time by resource manager is the samples in its redo function (heap_redo, btree_redo, ...) for `perf`, and the
seconds of replay_sample for leadline: each as a share of all that is spent in redo functions. Then all WAL is exported: a record of the
capture is wrong if the WAL has no record that ends there, or one of another kind. Needs root, perf, and a server whose functions have
names (those of Debian do). Output: JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from leadline.capture.reader import open_capture
from leadline.probes.options import Options
from leadline.probes.take import take_with
from leadline.progress import Silent
from record import read_environment
from replication import execute, pair

HEAP, LOOP = "Heap, Heap2", "PerformWalRecovery"
REDO = {
    "heap_redo": HEAP, "heap2_redo": HEAP, "btree_redo": "Btree", "gin_redo": "Gin", "hash_redo": "Hash", "gist_redo": "Gist",
    "spg_redo": "SPGist", "brin_redo": "BRIN", "seq_redo": "Sequence", "xlog_redo": "XLOG", "xact_redo": "Transaction",
    "clog_redo": "CLOG", "multixact_redo": "MultiXact", "standby_redo": "Standby", "smgr_redo": "Storage", "dbase_redo": "Database",
}  # fmt: skip
PERF_HZ = 499
STACK_BYTES = 32_768  # of each sample: heap_xlog_insert has a whole page on its stack, and what is behind it must be found
LONGEST_S = 600.0
LOAD = (
    "insert into mixed select n, n % 1000, md5(n::text), array[n % 50, n % 70] from generate_series({low}, {high}) n",
    "update mixed set kind = kind + 1 where id between {low} and {high} and id % 4 = 0",
    "delete from mixed where id between {low} and {high} and id % 5 = 0",
)
PIECES = 20


@contextmanager
def perf(pid: int, out: Path) -> Iterator[None]:
    """Samples of the stack of a process, until the block ends."""
    words = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(PERF_HZ), "--call-graph", f"dwarf,{STACK_BYTES}"]
    words += ["-p", str(pid), "-o", str(out)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            _, said = process.communicate()
            if not out.exists():
                sys.exit(f"error: perf record failed: {said.strip()}")


def exported(binary: Path) -> tuple[list[int], list[str]]:
    """Where the functions with names begin, and their names."""
    said = subprocess.run(["nm", "-D", "--defined-only", str(binary)], capture_output=True, text=True, check=True).stdout
    found = sorted((int(address, 16), name) for address, kind, name in (line.split()[:3] for line in said.splitlines()) if kind in "TtW")
    return [address for address, _ in found], [name.partition("@")[0] for _, name in found]


def samples_by_rmgr(file: Path, binary: Path) -> tuple[Counter[str], int]:
    """Samples in each redo function, and all.

    heap_redo and heap2_redo end with a jump to a static function, which has no name and whose caller then seems to be PerformWalRecovery:
    in a binary, those of a source file stand before its other functions, so the next name tells that it is of heapam.c.
    """
    addresses, names = exported(binary)
    words = ["perf", "script", "-i", str(file), "-F", "ip,sym", "--no-inline"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    found: Counter[str] = Counter()
    stacks = [re.findall(r"^\s*([0-9a-f]+) ([\w.\[\]]+)", stack, re.M) for stack in said.split("\n\n") if stack.strip()]
    for stack in stacks:
        rmgr = next((REDO[name] for _, name in stack if name in REDO), "")
        above = next((n for n, (_, name) in enumerate(stack) if name == LOOP), 0)
        if not rmgr and above and stack[above - 1][1] == "[unknown]":
            after = bisect_right(addresses, int(stack[above - 1][0], 16))
            rmgr = HEAP if names[after : after + 1] and names[after].startswith("heap") else ""
        found.update([rmgr])
    return found, len(stacks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pg-bin", required=True, help="directory with postgres, initdb and pg_waldump")
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--share", type=float, default=None, help="of a CPU that replay may use: at 0.2, it is read 5 times as often")
    given = parser.parse_args()
    result: dict[str, Any] = {"environment": read_environment(), "options": vars(given)}
    with pair(given.pg_bin, {"shared_buffers": "1GB"}) as of, tempfile.TemporaryDirectory(prefix="leadline-") as folder:
        primary, standby = of.primary.dsn, of.standby.dsn
        execute(
            primary, "create table mixed (id int primary key, kind int, body text, words int[])", "create index on mixed (kind)",
            "create index on mixed (body)", "create index on mixed using gin (words)",
        )  # fmt: skip
        execute(standby, "select pg_wal_replay_pause()")
        [begin] = execute(primary, "select pg_current_wal_insert_lsn()::text")
        for piece in range(PIECES):
            low, high = given.rows * piece // PIECES + 1, given.rows * (piece + 1) // PIECES
            execute(primary, *[statement.format(low=low, high=high) for statement in LOAD], "vacuum mixed")
        [end] = execute(primary, "select pg_current_wal_insert_lsn()::text")
        of.set_up("", given.share)
        samples, out = Path(folder, "perf.data"), Path(folder, "x.leadline")

        def begun() -> None:
            execute(standby, "select pg_wal_replay_resume()")

        def until() -> bool:
            return bool(execute(standby, f"select pg_last_wal_replay_lsn() >= '{end}'")[0])

        options = Options(dsn=primary, others=[standby], for_s=LONGEST_S, out=out, probes=["sessions"])
        with perf(of.standby.startup_pid, samples):
            out = take_with(options, Silent(), until, begun, every_s=0.2)
        export = Path(folder, "wal.leadline")
        words = [sys.executable, "-m", "leadline", "wal", "export", str(of.primary.data_dir / "pg_wal"), "--from", begin, "--to", end]
        subprocess.run([*words, "-o", str(export)], check=True, stdout=subprocess.DEVNULL, env=os.environ | {"LEADLINE_BOOK": "off"})
        with closing(open_capture(out)) as capture:
            seen = capture.rows("select end_lsn, rmgr, record_type from replay_record where node = 2")
            shares = capture.rows(
                f"select case when rmgr in ('Heap', 'Heap2') then '{HEAP}' else rmgr end as rmgr, sum(seconds) as seconds, "
                "count(*) as readings from replay_sample where node = 2 and activity = 'apply' and wait = '' group by 1 order by 2 desc"
            )
            activities = capture.rows(
                "select activity, sum(seconds) as seconds, count(*) as readings from replay_sample where node = 2 group by 1"
            )
            counts = capture.manifest.probe("replication").detail["replayed_records"]
        with closing(open_capture(export)) as capture:
            [about] = capture.rows("select count(*) as records, min(end_lsn) as low, max(end_lsn) as high from wal_record")
            inside = [row for row in seen if about["low"] <= row["end_lsn"] <= about["high"]]
            ends = ", ".join(str(row["end_lsn"]) for row in inside)
            records = capture.rows(f"select end_lsn, rmgr, record_type from wal_record where end_lsn in ({ends})")
        known = {row["end_lsn"]: (row["rmgr"], row["record_type"]) for row in records}
        wrong = [row for row in inside if known.get(row["end_lsn"]) != (row["rmgr"], row["record_type"])]
        by_rmgr, stacks = samples_by_rmgr(samples, Path(given.pg_bin, "postgres"))
        redo = sum(count for name, count in by_rmgr.items() if name)
        applied = sum(row["seconds"] for row in shares)
        result["records_of_the_wal"] = about["records"]
        result["records_seen"] = {"compared": len(inside), "wrong": len(wrong), "counts": counts}
        result["activities"] = activities
        result["perf"] = {"samples": stacks, "in_redo_functions": redo}
        result["by_rmgr"] = [
            {"rmgr": row["rmgr"], "readings": row["readings"], "share": row["seconds"] / applied, "perf_share": by_rmgr[row["rmgr"]] / redo,
             "ratio": (row["seconds"] / applied) / (by_rmgr[row["rmgr"]] / redo) if by_rmgr[row["rmgr"]] else None}
            for row in shares
        ]  # fmt: skip
    json.dump(result, sys.stdout, indent=1, default=str)
    print()


if __name__ == "__main__":
    main()
