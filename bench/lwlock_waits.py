"""Compares sampled seconds of LWLock waits with an exact count: each change of wait_event_info, by watchpoints of the CPU.

    python bench/lwlock_waits.py --pg-bin BIN > record.json      14 and later; needs root, clang, cc, nm and libbpf; some 12 s for each load
    python bench/lwlock_waits.py --seconds 2                     does everything work?

A backend writes the code of its wait before it sleeps, and 0 after it has woken up. A watchpoint on that word (wait_changes.c) stops the
backend at each write, and a BPF program adds up how long each code stood there: every wait, however short. Meanwhile a capture samples the
same sessions. They are connected before both begin and idle before both end, so that both have seen the same. Watchpoints make waits for
locks longer, as they stop whoever holds one, too: that is no error, as it is what is sampled. Output: JSON, and a table on stderr.
"""

from __future__ import annotations

import argparse
import json
import struct
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from platform import machine

import psycopg
from leadline.capture.reader import open_capture
from leadline.engines.postgres.server import PrivateServer, find_binaries
from leadline.probes.options import Options
from leadline.probes.take import take_with
from leadline.progress import Silent

HERE = Path(__file__).resolve().parent
SETTINGS = {"fsync": False, "autovacuum": False, "shared_buffers": "16MB", "wal_buffers": "64kB", "max_wal_size": "2GB"}
AROUND_S = 0.3  # the capture is so much longer than the load, before and after it
LOADS = {  # what each of the sessions, with its own number, does again and again
    "rows of one page": "update row set n = n + 1 where id = {n}; commit",
    "large WAL records": "perform pg_logical_emit_message(false, 'x', repeat('x', 8000))",
    "numbers of a sequence": "perform nextval('number')",
    "reads beyond the cache": "perform length(words) from page where id = 1 + floor(random() * 20000)",
    "short transactions": "insert into grown values ({n}); commit",
}


@dataclass(frozen=True)
class Compared:
    """Seconds of one kind of LWLock, of all sessions. median_us: half of the waits took at most so long (a power of two)."""

    version: str
    load: str
    event: str
    waits: int
    median_us: float
    exact_s: float
    sampled_s: float
    samples: int
    passes: int
    missed: int

    @property
    def off(self) -> float:
        return self.sampled_s / self.exact_s - 1


def build(folder: Path) -> list[str]:
    """The command, without what it watches."""
    program, compiled = folder / "wait_changes", folder / "wait_changes.o"
    clang = ["clang", "-O2", "-g", "-target", "bpf", "-mcpu=v3", f"-I/usr/include/{machine()}-linux-gnu"]
    subprocess.run([*clang, "-c", HERE / "wait_changes.bpf.c", "-o", compiled], check=True)
    subprocess.run(["cc", "-O2", "-o", program, HERE / "wait_changes.c", "-lbpf"], check=True)
    return [str(program), str(compiled)]


def address_of_wait(pid: int) -> int:
    """Of the word with the wait: my_wait_event_info points to it. Raises StopIteration where the server does not export that name."""
    binary = str(Path(f"/proc/{pid}/exe").resolve())
    names = subprocess.run(["nm", "-D", binary], capture_output=True, text=True, check=True).stdout.splitlines()
    at = next(int(line.split()[0], 16) for line in names if line.endswith(" my_wait_event_info"))
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    base = next(int(line.split("-")[0], 16) for line in maps if line.endswith(binary))
    with open(f"/proc/{pid}/mem", "rb") as memory:
        memory.seek(base + at)
        return int(struct.unpack("<Q", memory.read(8))[0])


def exact(lines: list[str]) -> tuple[Counter[int], dict[int, Counter[int]]]:
    """Nanoseconds, and waits by power of two, of each code."""
    ns, buckets = Counter[int](), dict[int, Counter[int]]()
    for line in lines:
        _, code, total, *counts = map(int, line.split())
        ns[code] += total
        buckets.setdefault(code, Counter()).update(dict(enumerate(counts)))
    return ns, buckets


def median_us(buckets: Counter[int]) -> float:
    left = buckets.total() / 2
    for power, waits in sorted(buckets.items()):
        left -= waits
        if left <= 0:
            return 2 ** (power + 1) / 1000
    return 0.0


def compare(server: PrivateServer, load: str, sessions: int, seconds: float, hz: float, watch: list[str], folder: Path) -> list[Compared]:
    """One load under one capture. Raises CalledProcessError, RuntimeError."""
    with ExitStack() as stack:
        clients = [stack.enter_context(psycopg.connect(server.dsn, autocommit=True)) for _ in range(sessions)]
        for client in clients:
            client.execute("select 1")
        pids = [client.info.backend_pid for client in clients]
        words = [f"{pid}:{address_of_wait(pid):x}" for pid in pids]
        watcher = stack.enter_context(subprocess.Popen([*watch, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert watcher.stdout is not None and watcher.stdin is not None
        if watcher.stdout.readline() != "begun\n":
            raise RuntimeError("no watchpoint could be set")

        def run(n: int) -> None:
            begun.wait(60)
            until = f"clock_timestamp() < timestamptz '{deadline[0]}'"
            clients[n].execute(f"do $$ begin while {until} loop {LOADS[load].format(n=n)}; end loop; end $$")

        begun, deadline = threading.Event(), [""]
        threads = [threading.Thread(target=run, args=[n]) for n in range(sessions)]

        def begin() -> None:
            with psycopg.connect(server.dsn, autocommit=True) as db:
                [[deadline[0]]] = db.execute(f"select clock_timestamp() + interval '{seconds + AROUND_S} seconds'").fetchall()
            threading.Timer(AROUND_S, begun.set).start()

        for thread in threads:
            thread.start()
        options = Options(pid=server.pid, for_s=seconds + 3 * AROUND_S + 1, rate_hz=hz, out=folder / "waits", probes=["sessions"])
        path = take_with(options, Silent(), begun=begin)
        for thread in threads:
            thread.join()
        watcher.stdin.close()
        said = watcher.stdout.read().splitlines()
        if watcher.wait():
            raise RuntimeError("changes of waits were lost")
    ns, buckets = exact(said)
    with closing(open_capture(path)) as capture:
        codes = capture.rows("select wait_event_info, wait_event from wait_event where wait_event_type = 'LWLock'")
        names = {row["wait_event_info"]: row["wait_event"] for row in codes}
        sampled = {
            row["wait_event"]: (row["s"], row["n"])
            for row in capture.rows(f"""select wait_event, sum(weight_s) as s, count(*) as n from session_sample
                where wait_event_type = 'LWLock' and pid in ({", ".join(map(str, pids))}) group by wait_event""")
        }
        loss, version = capture.manifest.probe("sessions").loss, capture.manifest.target.version or ""
    found = []
    for code, total in ns.most_common():
        if code >> 24 == 1:  # LWLock
            s, n = sampled.get(names.get(code, ""), (0.0, 0))
            figures = (buckets[code].total(), median_us(buckets[code]), round(total / 1e9, 4), round(s, 4), n)
            found.append(Compared(version, load, names.get(code, hex(code)), *figures, loss["ticks_taken"], loss["ticks_missed"]))
    return found


def told(r: Compared) -> str:
    return (
        f"{r.version:6} {r.load:24} {r.event:16} {r.waits:9,} waits, median {r.median_us:8.1f} us, exact {r.exact_s:7.3f} s, "
        f"sampled {r.sampled_s:7.3f} s ({100 * r.off:+.1f} %, {r.samples} samples); {r.missed} of {r.passes + r.missed} passes missed"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pg-bin", action="append", help="folder with postgres and initdb; any number of them")
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--hz", type=float, default=1000)
    parser.add_argument("--shown", type=float, default=0.05, help="seconds of an event, below which the table on stderr leaves it out")
    options = parser.parse_args()
    rows: list[Compared] = []
    with tempfile.TemporaryDirectory() as built:
        watch = build(Path(built))
        for folder in options.pg_bin or [None]:
            with PrivateServer(find_binaries(folder).bin_dir, settings=SETTINGS) as server:
                with psycopg.connect(server.dsn, autocommit=True) as db:
                    db.execute("create table row as select id, 0 as n from generate_series(0, 99) id")
                    db.execute("create table page as select id, repeat('x', 3000) as words from generate_series(1, 20000) id")
                    db.execute("alter table page alter words set storage plain")
                    db.execute("create index on page (id)")
                    db.execute("create sequence number")
                    db.execute("create table grown (n int)")
                for load in LOADS:
                    with tempfile.TemporaryDirectory() as work:
                        found = compare(server, load, options.sessions, options.seconds, options.hz, watch, Path(work))
                    rows += found
                    for r in found:
                        if r.exact_s > options.shown:
                            print(told(r), file=sys.stderr)
    json.dump({"options": vars(options), "result": [asdict(row) for row in rows]}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
