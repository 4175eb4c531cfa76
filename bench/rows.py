"""Measures `leadline rows -o` against COPY of the server and `pg_filedump -D`, on the same table in memory.

    python bench/rows.py                               a table of 1 GB on a private server, then 7 pairs of each
    python bench/rows.py --megabytes 100 --pairs 2     does everything work?

The table has bigint, int, numeric(12,2), text, timestamptz, bool, float8, uuid, numeric, jsonb, with nulls; nothing of it is stored
outside. Its rows have hint bits, and its files and the server's buffers are warm. Each comparison runs both sides in pairs, in an order
drawn at random. leadline and pg_filedump are whole processes with their start-up; COPY is a statement on a new connection, whose own
time alone counts, with the CPU that the scheduler has noted for its backend. Before each run the disk gets what is still to be
written. The ratio is the other's figure by leadline's: above 1 leadline takes less. pg_filedump knows no jsonb and is told to leave
that column out; it is left out of the run when it is not there. Peak memory is VmHWM: of leadline the whole process, of COPY the
backend with the shared buffers that it has touched.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg
from leadline.engines.postgres.server import PrivateServer, find_binaries
from leadline.errors import LeadlineError
from leadline.lab import interleave
from processes import cpu_ns
from record import read_environment, start_as_installed

SETTINGS = {"fsync": False, "autovacuum": False, "shared_buffers": "2GB", "max_wal_size": "8GB", "jit": False}
TABLE = """
create table t (id bigint, n int, price numeric(12,2), words text, at timestamptz, flag bool, ratio float8, key uuid,
  share numeric, doc jsonb) with (fillfactor = 100)
"""
# A batch of rows: numbers that repeat and that do not, words of 5 to 60 characters, a tenth of nulls in half of the columns.
BATCH = """
insert into t select i, (i * 7919 % 100000)::int,
  case when i % 10 <> 3 then (i * 31 % 9999999 / 100.0)::numeric(12,2) end,
  case when i % 10 <> 5 then repeat(substr(md5(i::text), 1, (5 + i % 7)::int), (1 + i % 5)::int) end,
  case when i % 10 <> 7 then timestamptz '2024-01-01' + i * interval '1.37 second' end,
  i % 3 = 0, random() * 1000, md5(i::text)::uuid, (i * 1234567.891 / 7)::numeric,
  case when i % 10 <> 9 then jsonb_build_object('id', i, 'tags', array['a' || i % 20, 'b'], 'ok', i % 2 = 0, 'w', i * 0.5) end
from generate_series({first}::bigint, {last}) i
"""
BATCH_ROWS = 200_000
COLUMNS = "bigint,int,numeric,text,timestamptz,bool,float8,uuid,numeric,~"
# Runs leadline and says the peak of its own memory, which the one that waits for it cannot ask for.
LEADLINE = """
import sys
from leadline.cli import run
code = run(sys.argv[1:])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")), file=sys.stderr)
sys.exit(code)
"""


@dataclass(frozen=True)
class Cost:
    """One run. peak_mb: None where it cannot be told."""

    wall_s: float
    cpu_s: float
    peak_mb: float | None
    bytes: int | None


def process(command: list[str], output: Path | None = None) -> Cost:
    """Runs a process whose stdout is thrown away. Raises LeadlineError when it fails."""
    began = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    said = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    wall = time.monotonic() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise LeadlineError("invalid", f"{command[0]} ended with {child.returncode}", detail=said.strip()[-200:])
    last = said.split()[-1:]
    peak = int(last[0]) / 1024 if last and last[0].isdigit() else None
    return Cost(wall, used.ru_utime + used.ru_stime, peak, output.stat().st_size if output else None)


def copy(dsn: str, target: str, options: str = "") -> Cost:
    """COPY to a file of the server's host, on a new connection."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        pid = connection.info.backend_pid
        before, began = cpu_ns(pid), time.monotonic()
        connection.execute(f"copy t to '{target}' {options}")
        wall, used = time.monotonic() - began, cpu_ns(pid) - before
        status = Path(f"/proc/{pid}/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
    return Cost(wall, used / 1e9, peak, None if target == "/dev/null" else Path(target).stat().st_size)


def compare(name: str, theirs: Callable[[], Cost], ours: Callable[[], Cost], pairs: int, rng: random.Random) -> dict[str, Any]:
    def alone(measured: Callable[[], Cost]) -> Cost:
        os.sync()  # what the trial before has written is written out now, not beside this one
        return measured()

    trials = []
    for trial in interleave.trials(lambda: alone(theirs), lambda: alone(ours), pairs, rng):
        trials.append(trial)
        cost = trial.result
        peak = "" if cost.peak_mb is None else f", peak {cost.peak_mb:.0f} MB"
        print(f"{name}: {'leadline' if trial.on else 'other'} {cost.wall_s:.2f} s, CPU {cost.cpu_s:.2f} s{peak}", file=sys.stderr)
    result: dict[str, Any] = {"name": name, "pairs": pairs}
    for what in ("wall_s", "cpu_s"):
        costs = interleave.compare(trials, lambda cost, what=what: getattr(cost, what))
        speeds = interleave.compare(trials, lambda cost, what=what: 1 / getattr(cost, what))
        result[what] = {"other": costs.bare, "leadline": costs.variant, "other_by_leadline": asdict(speeds.ratio)}
    for what in ("peak_mb", "bytes"):
        known = {who: [getattr(one.result, what) for one in trials if one.on == on] for who, on in (("other", False), ("leadline", True))}
        result[what] = {who: max(values) if None not in values else None for who, values in known.items()}
    return result


def fill(connection: psycopg.Connection[Any], megabytes: int) -> str:
    """Makes the table; the path of its file."""
    connection.execute(TABLE)
    size, row = 0, 0
    while size < megabytes << 20:
        connection.execute(BATCH.format(first=row + 1, last=row + BATCH_ROWS))
        row += BATCH_ROWS
        [size] = connection.execute("select pg_relation_size('t')").fetchone() or (0,)
        print(f"\r{size >> 20} MB of table", end="", file=sys.stderr, flush=True)
    print(f", {row} rows", file=sys.stderr)
    connection.execute("select count(*) from t")  # hint bits
    connection.execute("checkpoint")
    [path] = connection.execute("select pg_relation_filepath('t')").fetchone() or ("",)
    return str(path)


def measure(server: PrivateServer, file: str, scratch: Path, pairs: int, rng: random.Random) -> list[dict[str, Any]]:
    data_dir = Path(server.data_dir)
    for segment in (data_dir / file).parent.glob(f"{Path(file).name}*"):
        segment.read_bytes()  # into the page cache
    copied = server.base_dir / "copied"

    def leadline(kind: str) -> Cost:
        out = scratch / f"t.{kind}"
        command = ["rows", str(data_dir), "t", "--database", "postgres", "-o", str(out), "--force"]
        return process([sys.executable, "-c", LEADLINE, *command], out)

    comparisons: list[tuple[str, Callable[[], Cost], str]] = [
        ("parquet, COPY to /dev/null", lambda: copy(server.dsn, "/dev/null"), "parquet"),
        ("parquet, COPY to a file", lambda: copy(server.dsn, str(copied)), "parquet"),
        ("csv, COPY csv to a file", lambda: copy(server.dsn, str(copied), "(format csv)"), "csv"),
    ]
    if filedump := shutil.which("pg_filedump"):
        files = [str(data_dir / file), *(str(s) for s in sorted((data_dir / file).parent.glob(f"{Path(file).name}.*")))]
        script = " && ".join(f"{filedump} -D {COLUMNS} {one}" for one in files)
        comparisons.append(("parquet, pg_filedump -D", lambda: process(["sh", "-c", script]), "parquet"))
        comparisons.append(("csv, pg_filedump -D", lambda: process(["sh", "-c", script]), "csv"))
    else:
        print("pg_filedump is not installed: it is left out", file=sys.stderr)
    results = []
    for name, theirs, kind in comparisons:
        results.append(compare(name, theirs, lambda kind=kind: leadline(kind), pairs, rng))  # type: ignore[misc]
    if not filedump:
        results.append({"name": "pg_filedump -D", "left_out": "it is not installed"})
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1024, help="of the table's file")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pg-bin", help="folder with postgres and initdb")
    options = parser.parse_args()
    start_as_installed()
    environment = read_environment()
    binaries = find_binaries(options.pg_bin)
    with PrivateServer(binaries.bin_dir, settings=SETTINGS) as server, tempfile.TemporaryDirectory(prefix="leadline-bench-") as scratch:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            file = fill(connection, options.megabytes)
        results = measure(server, file, Path(scratch), options.pairs, random.Random(options.seed))
    record = {"environment": environment, "server": str(binaries.version), "options": vars(options), "results": results}
    json.dump(record, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
