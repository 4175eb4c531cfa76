"""What `findings`, `show` and a query over 5 seconds cost on large captures: seconds, CPU, bytes read, peak memory.

    .venv/bin/python bench/large.py --make DIR                writes DIR/sessions.leadline and DIR/events.leadline
    .venv/bin/python bench/large.py --make DIR --seconds 60   smaller ones
    .venv/bin/python bench/large.py DIR                       measures them, one line for each capture and question

The captures are synthetic, written with the TableWriter as a recorder does: `sessions` has 64 sessions at 1 kHz for 10 minutes,
of which half are busy and change what they do 20 times a second; `events` has a short one of these and 10 million rows of
buffer_waiter. Each question is asked in a process of its own; bytes are those that it asked the system for (rchar).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

SESSIONS, RATE_HZ, CHANGES_PER_S = 64, 1000, 20
SECOND = 1_000_000_000
SEGMENT_S = 30  # what a recorder's segments grow to
WINDOW = (0.5, 5)  # where the window of the query begins, as a part of the capture, and its seconds
SAMPLES = "select count(*), sum(weight_s) from session_sample where ts >= {a} and ts < {b}"
TICKS = "select count(*), max(pass_ns) from tick where ts >= {a} and ts < {b}"
EVENTS = "select count(*), count(distinct session_id) from buffer_waiter where ts >= {a} and ts < {b}"
QUESTIONS = {"sessions": ("findings", "show", TICKS, SAMPLES), "events": ("findings", "show", EVENTS)}
STATES, WAITS = (2, 2, 2, 3, 4), (0, 0, 0x03000000 | 10, 0x06000000, 0x0A000000 | 7)


def make(directory: Path, name: str, seconds: int, events: int) -> None:
    from leadline._core.capture import TableWriter

    chance = random.Random(1)
    path = directory / f"{name}.leadline"
    path.mkdir(parents=True)
    tables = ("session", "statement", "wait_event", "tick", "session_run", "buffer_waiter")
    writers = {table: TableWriter(str(path), table) for table in tables}
    writers["wait_event"].append([(code, "LWLock" if code >> 24 == 3 else "IO", f"Event{code & 255}") for code in set(WAITS) if code])
    writers["session"].append([session_row(number) for number in range(1, SESSIONS + 1)])
    tick, at = 0, 0
    for second in range(seconds):
        start = second * SECOND
        writers["tick"].append(
            [tick_row(tick + n, start + n * (SECOND // RATE_HZ), chance.randrange(20_000, 90_000)) for n in range(RATE_HZ)]
        )
        writers["session_run"].append(runs_of(chance, tick, start))
        tick += RATE_HZ
        due = events * (second + 1) // seconds
        step = SECOND // max(1, due - at)
        waiters = [(start + n * step, chance.randrange(4096), 1 + n % SESSIONS, "exclusive") for n in range(due - at)]
        if waiters:
            writers["buffer_waiter"].append(waiters)
        at = due
        if (second + 1) % SEGMENT_S == 0:
            for writer in writers.values():
                writer.flush()
    for writer in writers.values():
        writer.close()
    write_manifest(path, seconds)


def row_of(table: str, **given: Any) -> tuple[Any, ...]:
    """A row with these values and plain ones for the rest."""
    from leadline.tables import all_tables

    plain = {"string": "", "bool": False}
    spec = all_tables()[table]
    return tuple(given.get(c.name, None if c.nullable else plain.get(c.type, 0)) for c in spec.columns)


def session_row(number: int) -> tuple[Any, ...]:
    return row_of("session", session_id=number, pid=1000 + number, backend_type="client backend", application_name="bench")


def tick_row(tick: int, ts: int, pass_ns: int) -> tuple[Any, ...]:
    return (tick, ts, SECOND // RATE_HZ, 1000, pass_ns, 0, SESSIONS, 0, 0, 1000 + tick)


def runs_of(chance: random.Random, tick: int, start: int) -> list[tuple[Any, ...]]:
    """A second of every session: the even ones busy, the others idle."""
    rows = []
    for session in range(1, SESSIONS + 1):
        cuts = sorted(chance.sample(range(1, RATE_HZ), CHANGES_PER_S - 1)) if session % 2 == 0 else []
        for begin, end in zip([0, *cuts], [*cuts, RATE_HZ]):
            state, wait = (chance.choice(STATES), chance.choice(WAITS)) if cuts else (3, 0)
            began = start // 1000 + begin * 1000
            statement = chance.randrange(1, 13)
            rows.append((tick + begin, end - begin, session, state, wait, statement, 0, statement, began, began, began, 0, 0))
    return sorted(rows)


def write_manifest(path: Path, seconds: int) -> None:
    status = {"status": "ok", "why": "", "hint": ""}
    manifest = {
        "format_version": 1,
        "product_version": "bench",
        "status": "complete",
        "error": None,
        "tier": "shm",
        "rate_hz": RATE_HZ,
        "period_ns": SECOND // RATE_HZ,
        "clock": {"ts_from": 0, "ts_to": seconds * SECOND, "wall_offset_ns": 0},
        "target": {"kind": "pid", "pid": 1, "cpu_count": 8, "server_version_num": 160004, "server_version": "16.4"},
        "host": {"name": "bench", "kernel": "", "machine": "x86_64"},
        "probes": {name: status for name in ("sessions", "locks", "buffers", "deltas", "host", "catalog", "self")},
        "notes": [],
        "tables": {},
        "loss": {},
        "options": {},
    }
    (path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def ask(capture: Path, question: str) -> None:
    """In a process of its own: answers, and prints one JSON object with what it cost."""
    import resource
    import time

    def now() -> tuple[float, float, int]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        io = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        return time.perf_counter(), used.ru_utime + used.ru_stime, int(io["rchar"])

    began = now()
    if question in ("findings", "show"):
        from leadline.cli import run

        stdout = os.dup(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        run([question, str(capture)])
        sys.stdout.flush()
        os.dup2(stdout, 1)
        answer = None
    else:
        from leadline.capture.reader import open_capture

        opened = open_capture(capture, whole=True)
        ts_from, ts_to = opened.db.execute("select ts_from, ts_to from capture").fetchone() or (0, 0)
        start = int(ts_from + (ts_to - ts_from) * WINDOW[0])
        began = now()
        answer = opened.db.execute(question.format(a=start, b=start + WINDOW[1] * SECOND)).fetchone()
    cost = [after - before for before, after in zip(began, now())]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    told = {"wall_s": round(cost[0], 2), "cpu_s": round(cost[1], 2), "read_bytes": cost[2], "peak_mb": peak // 1024}
    print(json.dumps(told | {"answer": answer}))


def measure(directory: Path) -> None:
    for name, questions in QUESTIONS.items():
        path = directory / f"{name}.leadline"
        size = sum(f.stat().st_size for f in path.rglob("*.parquet"))
        for question in questions:
            command = [sys.executable, __file__, "--ask", question, str(path)]
            told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
            print(json.dumps({"capture": name, "bytes": size, "question": question} | json.loads(told)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.make:
        make(given.path, "sessions", given.seconds, 0)
        make(given.path, "events", min(60, given.seconds), given.events)
    elif given.ask:
        ask(given.path, given.ask)
    else:
        measure(given.path)


if __name__ == "__main__":
    main()
