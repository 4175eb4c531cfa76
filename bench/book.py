"""Measures the logbook with many runs: how long its questions take on SQLite and PostgreSQL, and what recording costs a command.

    python bench/book.py > book.json                     1 million runs in each store, 21 rounds: about 15 minutes
    python bench/book.py --runs 20000 --rounds 3         does everything work?

The runs are made by a generator and put into the store in batches, with the same tables, indices and words as recorded ones: 200 names,
command lines of six words, one in 50 failed, two labels and four metrics each. Every question is asked in turn, each round with other
values; the connection is open, as in the server and unlike in a command. Median and 95th percentile, in ms.

Output: JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from leadline.book.place import Place
from leadline.book.query import Book, Filter
from leadline.book.runs import put_content, words_of
from leadline.book.spool import new_uid
from leadline.lab.paired import quantile
from leadline.postgres.server import PrivateServer, find_binaries
from record import read_environment

BATCH = 20_000
NAMES = [f"{what}-{where}" for what in ("load", "vacuum", "report", "backup", "check") for where in (f"shop{n}" for n in range(40))]
WORDS = ["psql", "pgbench", "orders", "customer", "index", "analyze", "fast", "retry", "batch", "daily", "weekly", "eu", "us", "t1"]
SECOND_US = 1_000_000
START_US = 1_700_000_000 * SECOND_US
COLUMNS = ("uid", "kind", "name", "status", "user_name", "host", "cwd", "argv_json", "started", "ended", "rc", "summary", "version")
COLUMNS += ("facts", "pid", "boot", "log_bytes")


def put(db: Any, table: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    """Rows into a table; into PostgreSQL by COPY."""
    if db.dialect == "sqlite":
        db.executemany(f"insert into {table} ({', '.join(columns)}) values ({', '.join('?' * len(columns))})", rows)
        return
    with db._db.cursor().copy(f"copy {table} ({', '.join(columns)}) from stdin") as copy:
        for row in rows:
            copy.write_row(row)


def fill(book: Book, number: int, rng: random.Random) -> float:
    """Puts so many runs into the store; seconds."""
    began = time.monotonic()
    if book.store.db.dialect == "postgresql":  # it is made at the end, which is how a restored database has it
        [index] = book.store.rows("select indexdef from pg_indexes where indexname = 'run_words_words'")
        book.store.db.execute("drop index run_words_words")
    first = int(book.store.rows("select coalesce(max(id), 0) as n from run")[0]["n"]) + 1
    with book.store.writing() as db:
        facts = put_content(db, '{"kernel.release": "6.1"}')
    for at in range(0, number, BATCH):
        runs, words, labels, metrics = [], [], [], []
        for run in range(first + at, first + min(at + BATCH, number)):
            name, failed = rng.choice(NAMES), rng.random() < 0.02
            argv = [name.partition("-")[0], *rng.sample(WORDS, 4), f"part{run % 50_000}"]
            summary = "error: could not extend file" if failed else f"{rng.randrange(10_000)} rows"
            started = START_US + run * 30 * SECOND_US
            runs.append((
                new_uid(), rng.choice(("command", "leadline", "template")), name, "failed" if failed else "ok", "me", "db1", "/srv",
                json.dumps(argv), started, started + rng.randrange(60 * SECOND_US), int(failed), summary, "0.1.0", facts, 1, "", 1000,
            ))  # fmt: skip
            words.append((run, " ".join(words_of(name, *argv, summary))))
            labels += [(run, "release", f"7.{run // 10_000}"), (run, "ticket", f"T{run % 200_000}")]
            metrics += [(run, metric, rng.random()) for metric in ("wall_s", "cpu_s", "max_rss_bytes", "record_s")]
        with book.store.writing() as db:
            put(db, "run", COLUMNS, runs)
            put(db, "run_words", ("run" if db.dialect == "postgresql" else "rowid", "words"), words)
            put(db, "label", ("run", "key", "value"), labels)
            put(db, "metric", ("run", "name", "value"), metrics)
        print(f"{at + len(runs):,} runs", file=sys.stderr)
    if book.store.db.dialect == "postgresql":
        book.store.db.execute(index["indexdef"])
    return time.monotonic() - began


def questions(book: Book, number: int, rng: random.Random) -> dict[str, Callable[[], int]]:
    """What is asked; each gives the number of rows of its answer."""
    newest = START_US + number * 30 * SECOND_US

    def listed(after: tuple[int, int] | None = None, **wanted: Any) -> int:
        return len(book.runs(Filter(**wanted), 50, after))

    return {
        "newest page": lambda: listed(),
        "page 900,000 runs deep": lambda: listed((newest - int(number * 0.9) * 30 * SECOND_US, 0)),
        "by status": lambda: listed(status="failed"),
        "by kind": lambda: listed(kind=rng.choice(("command", "leadline"))),
        "by name": lambda: listed(name=rng.choice(NAMES)),
        "by name and status": lambda: listed(name=rng.choice(NAMES), status="failed"),
        "by label that many have": lambda: listed(labels=(("release", None),)),
        "by label of 1 % of runs": lambda: listed(labels=(("release", f"7.{rng.randrange(max(1, number // 10_000))}"),)),
        "by label of 5 runs": lambda: listed(labels=(("ticket", f"T{rng.randrange(min(200_000, number))}"),)),
        "by time": lambda: listed(since=newest - rng.randrange(1, 1000) * 3600 * SECOND_US),
        "words that many have": lambda: listed(words=rng.choice(("load", "orders", "dail"))),
        "words that few have": lambda: listed(words=f"part{rng.randrange(min(50_000, number))}"),
        "words of failed runs": lambda: listed(words="could extend"),
        "two words, one rare": lambda: listed(words=f"psql part{rng.randrange(min(50_000, number))}"),
        "words that none has": lambda: listed(words="zzz"),
        "many words and a status": lambda: listed(words="load", status="failed"),
        "one run whole": lambda: len(book.details(book.find(rng.choice(sample)))),
    } if (sample := [r["uid"] for r in book.runs(limit=1000)]) else {}  # fmt: skip


def ask(book: Book, number: int, rounds: int, rng: random.Random) -> dict[str, dict[str, float]]:
    asked = questions(book, number, rng)
    times: dict[str, list[float]] = {name: [] for name in asked}
    rows: dict[str, list[int]] = {name: [] for name in asked}
    for _ in range(rounds):
        for name in rng.sample(list(asked), len(asked)):
            began = time.perf_counter()
            rows[name].append(asked[name]())
            times[name].append((time.perf_counter() - began) * 1000)
    return {name: {"median_ms": median(t), "p95_ms": quantile(sorted(t), 0.95), "rows": median(rows[name])} for name, t in times.items()}


def recording(rounds: int) -> dict[str, float]:
    """What recording adds to a command of leadline, in ms of CPU time: pairs with the book and without, in random order."""
    words = [sys.executable, "-m", "leadline", "tables", "session"]
    differences, own = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds * 3):
            spent: dict[str, float] = {}
            for place in random.sample(("off", folder), 2):
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run(words, env=os.environ | {"LEADLINE_BOOK": place}, stdout=subprocess.DEVNULL, check=True)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                spent[place] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            if number:
                differences.append((spent[folder] - spent["off"]) * 1000)
        book = Book(Place(folder))
        own = [row["value"] * 1000 for row in book.store.rows("select value from metric where name = 'record_s'")]
        book.close()
    return {"cpu_ms_added_median": median(differences), "own_ms_median": median(own), "own_ms_p95": quantile(sorted(own), 0.95)}


@contextmanager
def places(options: argparse.Namespace) -> Iterator[dict[str, Place]]:
    with tempfile.TemporaryDirectory() as folder:
        found = {"sqlite": Place(Path(folder) / "book")}
        if options.only == "sqlite":
            yield found
            return
        settings = {"shared_buffers": "512MB", "fsync": False, "max_wal_size": "8GB"}
        with PrivateServer(find_binaries(options.pg_bin).bin_dir, settings=settings) as server:
            dsn = f"postgresql://postgres@/postgres?host={server.socket_dir}&port={server.port}"
            yield ({} if options.only else found) | {"postgresql": Place(Path(folder) / "pg", dsn)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--only", choices=["sqlite", "postgresql"])
    parser.add_argument("--pg-bin", help="folder with postgres and initdb")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    out: dict[str, Any] = {"environment": read_environment(), "runs": options.runs}
    if options.only is None:
        out["recording"] = recording(options.rounds)
    with places(options) as found:
        for name, place in found.items():
            book = Book(place)
            seconds = fill(book, options.runs, random.Random(options.seed))
            if place.dsn is not None:
                book.store.db.execute("analyze")
            answers = ask(book, options.runs, options.rounds, random.Random(options.seed))
            out[name] = {"fill_s": seconds, "bytes": book.store.db.bytes_used(), "questions": answers}
            book.close()
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
