"""Measures the logbook with many runs: how long its questions take on SQLite and PostgreSQL, alone and through a server, and what
recording costs a command.

    python bench/book.py > book.json                     1 million runs in each store, 21 rounds: about 10 minutes
    python bench/book.py --keep DIR --fill               only fills the stores, and keeps them in DIR
    python bench/book.py --keep DIR > book.json          asks stores that were filled so
    python bench/book.py --runs 20000 --rounds 3         does everything work?

The runs are made by a generator and put into the store in batches, with the same tables, indices, counters and words as recorded ones:
200 names, command lines of six words, one in 50 failed, two labels and four metrics each, in three projects (60 %, 39 %, 1 %). Indices are
made at the end, as a restored database has them. Every question is asked in turn, each round with other values; the connection is open,
as in the server and unlike in a command. The same is then asked of a `leadline serve` by HTTP, as administrator, as a member of the second
project who has one template of the first, and as a guest who sees the third alone. Median and 95th percentile, in ms; `cpu_ms` is CPU time
of the process that was asked, without that of PostgreSQL.

Output: JSON.
"""

from __future__ import annotations

import argparse
import http.client
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
from urllib.parse import urlencode, urlsplit

from leadline.book.place import VARIABLE, Place
from leadline.book.query import Book, Filter, by_day
from leadline.book.runs import put_content, words_of
from leadline.book.spool import new_uid
from leadline.book.store import steps
from leadline.engines.postgres.server import PrivateServer, find_binaries
from leadline.lab.paired import quantile
from leadline.server.operation import perform
from leadline.server.rights import OWNER
from leadline.server.table import BY_NAME
from record import read_environment

BATCH = 50_000
NAMES = [f"{what}-{where}" for what in ("load", "vacuum", "report", "backup", "check") for where in (f"shop{n}" for n in range(40))]
WORDS = ["psql", "pgbench", "orders", "customer", "index", "analyze", "fast", "retry", "batch", "daily", "weekly", "eu", "us", "t1"]
KINDS = ("command", "leadline", "template")
PROJECTS = ("main", "lab", "small")
SHARES = (60, 39, 1)
SECOND_US = 1_000_000
COLUMNS = ("id", "uid", "kind", "name", "status", "user_name", "host", "cwd", "argv_json", "started", "ended", "rc", "summary", "version")
COLUMNS += ("facts", "pid", "boot", "log_bytes", "project", "template")


def put(db: Any, table: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    """Rows into a table; into PostgreSQL by COPY. No value holds what COPY would have to escape."""
    if db.dialect == "sqlite":
        db.executemany(f"insert into {table} ({', '.join(columns)}) values ({', '.join('?' * len(columns))})", rows)
        return
    with db._db.cursor().copy(f"copy {table} ({', '.join(columns)}) from stdin") as copy:
        copy.write("".join("\t".join("\\N" if value is None else str(value) for value in row) + "\n" for row in rows))


@contextmanager
def loading(book: Book) -> Iterator[None]:
    """Indices, counters and triggers are made at the end, by the statements that the schema has for them."""
    db = book.store.db
    if db.dialect == "sqlite":
        db.execute("pragma synchronous = off")
        db.execute("pragma cache_size = -400000")
        made = book.store.rows("select type, name, sql from sqlite_master where type in ('index', 'trigger') and sql is not null")
        later = [row["sql"] for row in made]
        for row in made:
            db.execute(f"drop {row['type']} {row['name']}")
        db.execute("insert into run_words (run_words, rank) values ('hashsize', 33554432)")
    else:
        db.execute("set session_replication_role = replica")
        own = "indexname not in (select conname from pg_constraint)"
        made = book.store.rows(f"select indexname, indexdef from pg_indexes where schemaname = 'leadline_book' and {own}")
        later = [row["indexdef"] for row in made]
        for row in made:
            db.execute(f"drop index {row['indexname']}")
        db.execute("set maintenance_work_mem = '512MB'")
    yield
    for statement in later:
        began = time.monotonic()
        db.execute(statement)
        print(f"{time.monotonic() - began:.1f} s: {' '.join(statement.split())[:90]}", file=sys.stderr)
    with book.store.writing() as writing:
        writing.execute("delete from run_count")
        writing.execute(next(sql for _, all_of in steps(db.dialect) for sql in all_of if sql.startswith("insert into run_count")))
    if db.dialect == "sqlite":
        db.execute("insert into run_words (run_words, rank) values ('hashsize', 1048576)")
        db.shrink()
    else:
        db.execute("set session_replication_role = origin")
        db.execute("select setval(pg_get_serial_sequence('run', 'id'), (select max(id) from run))")
        db.execute("vacuum analyze")


def people(book: Book) -> list[str]:
    """Users, projects and templates; the ids of the templates."""
    def do(operation: str, **given: Any) -> Any:
        return perform(BY_NAME[operation], OWNER, book.store, book.place, given)

    for project in PROJECTS[1:]:
        do("user.project", project=project)
    templates = [do("template.save", project="main", name=f"t{n}", command="true")["template"] for n in range(5)]
    for user, admin in (("admin", True), ("member", False), ("guest", False)):
        do("user.create", user=user, password="".join(random.choices("abcdefghij", k=20)), admin=admin)
    do("user.role", project="lab", user="member", role="viewer")
    do("user.role", project="small", user="guest", role="viewer")
    do("template.grant", template=templates[0], user="member", role="viewer")
    return templates


def fill(book: Book, number: int, rng: random.Random) -> float:
    """Puts so many runs into the store; seconds."""
    began = time.monotonic()
    templates = people(book)
    with book.store.writing() as db:
        facts = put_content(db, '{"kernel.release": "6.1"}')
    start = time.time_ns() // 1000 - number * 30 * SECOND_US
    with loading(book):
        for at in range(1, number + 1, BATCH):
            runs, words, labels, metrics = [], [], [], []
            for run in range(at, min(at + BATCH, number + 1)):
                name, failed, kind = rng.choice(NAMES), rng.random() < 0.02, rng.choice(KINDS)
                argv = [name.partition("-")[0], *rng.sample(WORDS, 4), f"part{run % 50_000}"]
                summary = "error: could not extend file" if failed else f"{rng.randrange(10_000)} rows"
                started = start + run * 30 * SECOND_US
                [project] = rng.choices(PROJECTS, SHARES)
                template = rng.choice(templates) if kind == "template" and project == "main" else None
                runs.append((
                    run, new_uid(), kind, name, "failed" if failed else "ok", "me", "db1", "/srv", json.dumps(argv), started,
                    started + rng.randrange(60 * SECOND_US), int(failed), summary, "0.1.0", facts, 1, "", 1000, project, template,
                ))  # fmt: skip
                words.append((run, " ".join(words_of(name, *argv, summary))))
                labels += [(run, "release", f"7.{run // 10_000}", started), (run, "ticket", f"T{run % 200_000}", started)]
                metrics += [(run, metric, rng.random()) for metric in ("wall_s", "cpu_s", "max_rss_bytes", "record_s")]
            with book.store.writing() as db:
                put(db, "run", COLUMNS, runs)
                put(db, "run_words", ("run" if db.dialect == "postgresql" else "rowid", "words"), words)
                put(db, "label", ("run", "key", "value", "started"), labels)
                put(db, "metric", ("run", "name", "value"), metrics)
            print(f"{time.monotonic() - began:.0f} s: {at + len(runs) - 1:,} runs", file=sys.stderr)
    return time.monotonic() - began


def questions(book: Book, number: int, rng: random.Random) -> dict[str, Callable[[], int]]:
    """What is asked; each gives the number of rows of its answer."""
    newest = book.runs(limit=1)[0]["started"]

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
        "dashboard: 30 days by status": lambda: len(by_day(book.store, 30, newest)),
        "figures over time": lambda: len(perform(BY_NAME["template.history"], OWNER, book.store, book.place,
                                                 {"metric": "wall_s", "name": rng.choice(NAMES)})["points"]),
        "one run whole": lambda: len(book.details(book.find(rng.choice(sample)))),
    } if (sample := [r["uid"] for r in book.runs(limit=1000)]) else {}  # fmt: skip


def timed(asked: dict[str, Callable[[], int]], rounds: int, rng: random.Random, cpu_s: Callable[[], float]) -> dict[str, Any]:
    """Each question once a round, in random order. The first round only warms up."""
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in asked}
    for number in range(rounds + 1):
        for name in rng.sample(list(asked), len(asked)):
            cpu, began = cpu_s(), time.perf_counter()
            rows = asked[name]()
            took = (time.perf_counter() - began) * 1000
            if number:
                found[name].append((took, (cpu_s() - cpu) * 1000, rows))
    return {
        name: {"median_ms": median(t for t, _, _ in of), "p95_ms": quantile(sorted(t for t, _, _ in of), 0.95),
               "cpu_ms": median(c for _, c, _ in of), "rows": median(n for _, _, n in of)}
        for name, of in found.items()
    }  # fmt: skip


def ask(book: Book, number: int, rounds: int, rng: random.Random) -> dict[str, Any]:
    return timed(questions(book, number, rng), rounds, rng, time.process_time)


class Asking:
    """One user of the server, with one connection."""

    def __init__(self, host: str, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=120)
        self._headers = {"Authorization": f"Bearer {token}"}

    def body(self, address: str) -> bytes:
        self._connection.request("GET", address, headers=self._headers)
        answer = self._connection.getresponse()
        body = answer.read()
        assert answer.status == 200, (address, answer.status, body[:300])
        return body

    def get(self, path: str, **query: Any) -> int:
        return len(self.body(f"{path}?{urlencode(query)}" if query else path))


def as_served(book: Book, number: int, rounds: int, rng: random.Random) -> dict[str, Any]:
    """The same by HTTP, as three users. The answer is read whole."""
    environment = os.environ | {VARIABLE: book.place.variable}
    command = [sys.executable, "-m", "leadline", "serve", "--listen", "127.0.0.1:0"]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    url = urlsplit(server.stdout.readline().strip())

    def cpu_s() -> float:
        return sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{server.pid}/task").glob("*/schedstat")) / 1e9

    out = {}
    try:
        for user in ("admin", "member", "guest"):
            token = perform(BY_NAME["token.create"], OWNER, book.store, book.place, {"name": "bench", "user": user})["token"]
            asking = Asking(url.hostname or "", url.port or 0, token)
            sample = [run["uid"] for run in json.loads(asking.body("/api/v1/runs?limit=1000"))["runs"]]
            out[user] = timed(served_questions(asking.get, sample, number, rng), rounds, rng, cpu_s)
    finally:
        server.terminate()
        server.wait()
    return out


def served_questions(get: Callable[..., int], sample: list[str], number: int, rng: random.Random) -> dict[str, Callable[[], int]]:
    def runs(**query: Any) -> int:
        return get("/api/v1/runs", **query)

    return {
        "page of newest runs": lambda: get("/runs"),
        "newest": lambda: runs(),
        "by status": lambda: runs(status="failed"),
        "by kind": lambda: runs(kind=rng.choice(KINDS)),
        "by name": lambda: runs(name=rng.choice(NAMES)),
        "by name and status": lambda: runs(name=rng.choice(NAMES), status="failed"),
        "by label that many have": lambda: runs(label="release"),
        "by label of 1 % of runs": lambda: runs(label=f"release=7.{rng.randrange(max(1, number // 10_000))}"),
        "by label of 5 runs": lambda: runs(label=f"ticket=T{rng.randrange(min(200_000, number))}"),
        "words that many have": lambda: runs(text=rng.choice(("load", "orders", "dail"))),
        "words that few have": lambda: runs(text=f"part{rng.randrange(min(50_000, number))}"),
        "two words, one rare": lambda: runs(text=f"psql part{rng.randrange(min(50_000, number))}"),
        "page of days": lambda: get("/days"),
        "metrics": lambda: get("/metrics"),
        "page of one run": lambda: get(f"/runs/{rng.choice(sample)}"),
        "figures over time": lambda: get("/api/v1/history", metric="wall_s", name=rng.choice(NAMES)),
    }


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


class Kept(PrivateServer):
    """A server whose data stay, and are found again."""

    def _initdb(self) -> None:
        if not (self.data_dir / "PG_VERSION").exists():
            super()._initdb()


@contextmanager
def places(options: argparse.Namespace, folder: Path) -> Iterator[dict[str, Place]]:
    found = {} if options.only == "postgresql" else {"sqlite": Place(folder / "book")}
    if options.only == "sqlite":
        yield found
        return
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    settings = {"shared_buffers": "512MB", "fsync": False, "max_wal_size": "8GB"}
    with Kept(find_binaries(options.pg_bin).bin_dir, folder / "pg", settings=settings) as server:
        dsn = f"postgresql://postgres@/postgres?host={server.socket_dir}&port={server.port}"
        yield found | {"postgresql": Place(folder / "state" / "here", dsn)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--only", choices=["sqlite", "postgresql"])
    parser.add_argument("--pg-bin", help="folder with postgres and initdb")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where stores are kept, and found when they are there; not removed")
    parser.add_argument("--fill", action="store_true", help="only fill the stores")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    out: dict[str, Any] = {"environment": read_environment()}
    if options.only is None and not options.fill:
        out["recording"] = recording(options.rounds)
    with tempfile.TemporaryDirectory() as made:
        folder = (options.keep or Path(made)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)  # the server of PostgreSQL may run as another user
        with places(options, folder) as found:
            for name, place in found.items():
                out[name] = measured(place, options)
    print(json.dumps(out, indent=1))


def measured(place: Place, options: argparse.Namespace) -> dict[str, Any]:
    book = Book(place)
    out: dict[str, Any] = {}
    if not book.runs(limit=1):
        out["fill_s"] = fill(book, options.runs, random.Random(options.seed))
    number = int(book.store.rows("select sum(n) as n from run_count")[0]["n"])
    out |= {"runs": number, "bytes": book.store.db.bytes_used()}
    if not options.fill:
        out["questions"] = ask(book, number, options.rounds, random.Random(options.seed))
        out["served"] = as_served(book, number, options.rounds, random.Random(options.seed))
    book.close()
    return out


if __name__ == "__main__":
    main()
