"""Studies that are killed at a moment of a seed, and go on: no trial lost, none doubled, the server as it was.

    python tests/support/killed_studies.py 50       all moments that the suite takes a sample of, on a private server of the host's binaries
    python tests/support/killed_studies.py 50 25    those from the 26th on
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

DESIGN = """
question = "Does killing it hurt?"
repetitions = 2
warmup = 1
[[factor]]
setting = "work_mem"
levels = ["4MB", "5MB", "64kB"]
[[factor]]
name = "layout"
schema = true
levels = { plain = "", indexed = "create index on t (n)" }
[[prepare]]
sql = ["create table t (n int)", "insert into t values (1)"]
[load]
command = "echo value=7"
[[metric]]
pattern = 'value=(\\d+)'
better = "less"
"""
TRIALS = 2 * 6
SETTING = "work_mem"
BEFORE = "3MB"  # in postgresql.auto.conf, where the study must find it and put it back


@dataclass(frozen=True)
class Killed:
    """What was done to a study. whole: with all processes of its group, or the one that works alone."""

    after_s: float
    whole: bool
    registered: bool
    trials: int


def design_in(folder: Path) -> Path:
    path = folder / "killed.toml"
    path.write_text(DESIGN)
    return path


def server_state(dsn: str) -> Any:
    """All that a study may change: what is in postgresql.auto.conf, the value of a new session, databases."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        auto = connection.execute(
            "select name, setting from pg_file_settings where sourcefile like '%postgresql.auto.conf' order by name"
        ).fetchall()
        value = connection.execute("select setting, source from pg_settings where name = %s", [SETTING]).fetchone()
        databases = connection.execute("select datname from pg_database order by 1").fetchall()
    return auto, value, databases


def start(book: Path, *words: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name != "LEADLINE_RUN"} | {"LEADLINE_BOOK": str(book)}
    return subprocess.Popen(
        [sys.executable, "-m", "leadline", "study", "run", *words], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=book.parent,
    )  # fmt: skip


def worker_of(process: subprocess.Popen[str]) -> int | None:
    """The process that runs the trials: it has the uid of its run in its environment, and its parent is the supervisor."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError):
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(stat[3]) == process.pid and b"LEADLINE_EXPERIMENT=" in (entry / "environ").read_bytes():
                    return int(entry.name)
    return None


def kill(process: subprocess.Popen[str], after_s: float, whole: bool) -> None:
    time.sleep(after_s)
    if whole:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    elif (worker := worker_of(process)) is not None:
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
    process.communicate(timeout=60)


def studies(book: Path) -> list[dict[str, Any]]:
    """Every study of the book, newest first, as `book show --json` has it."""
    from leadline.book.experiments.studies import study
    from leadline.book.place import Place
    from leadline.book.query import Book, Filter

    opened = Book(Place(book))
    try:
        found = [(run, study(opened.store, run)) for run in opened.runs(Filter(kind="study"), limit=1000)]
        return [one | {"uid": run["uid"]} for run, one in found if one is not None]
    finally:
        opened.close()


def trial_runs(book: Path, parts: list[str]) -> dict[int, list[str]]:
    """Of each trial, the runs that were begun for it."""
    from leadline.book.place import Place
    from leadline.book.query import Book

    opened = Book(Place(book))
    try:
        out: dict[int, list[str]] = {}
        for part in parts:
            for row in opened.store.rows("select uid, inputs_json from run where parent = ? and kind = 'leg'", (part,)):
                if "leg" in (inputs := json.loads(row["inputs_json"])):
                    out.setdefault(inputs["leg"] - 1, []).append(row["uid"])
        return out
    finally:
        opened.close()


def wait_for(condition: Callable[[], bool], what: str, within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come true within {within_s:g} s"
        time.sleep(0.05)


def kill_and_go_on(folder: Path, dsn: str, seed: int, longest_s: float) -> list[Killed]:
    """One study, killed once to three times; everything that must hold is asserted."""
    rng, book, before, told = random.Random(seed), folder / f"book-{seed}", server_state(dsn), list[Killed]()
    words = [str(design_in(folder)), f"--server={dsn}", "--yes", f"--seed={seed}"]
    resume: list[str] = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        after_s, whole = rng.uniform(0.05, longest_s), rng.random() < 0.5
        process = start(book, *(resume or words))
        kill(process, after_s, whole)
        found = studies(book) if book.exists() else []
        told.append(Killed(after_s, whole, bool(found), found[0]["done"] if found else 0))
        if rng.random() < 0.5:
            wait_for(lambda: server_state(dsn) == before, f"what a killed study had changed is put back (seed {seed})")
        if found and found[0]["judged"] is not None:
            break
        resume = [f"--resume={found[0]['parts'][0]}", "--yes"] if found else []
    if not (found and found[0]["judged"] is not None):
        done = start(book, *(resume or words))
        _, said = done.communicate(timeout=120)
        assert done.returncode == 0, f"seed {seed}: {said}"
    found = studies(book)
    assert len({one["seal"] for one in found}) == 1, f"seed {seed}: one study"
    one = found[0]
    assert one["judged"] is not None and one["done"] == one["of"] == TRIALS, f"seed {seed}: {one['done']} of {TRIALS}"
    trials = [trial["n"] for trial in one["legs"] if trial["part"] == "leg"]
    assert sorted(trials) == list(range(TRIALS)), f"seed {seed}: {trials}"
    assert all(value == 7 for row in one["rows"] for name, value in row.items() if name not in ("metric", "block")), f"seed {seed}"
    begun = trial_runs(book, one["parts"])
    recorded = {trial["n"]: trial["run"] for trial in one["legs"] if trial["part"] == "leg"}
    assert set(begun) == set(recorded) and all(recorded[n] in runs for n, runs in begun.items()), f"seed {seed}"
    assert sum(map(len, begun.values())) <= TRIALS + len(told), f"seed {seed}: a trial is begun again only if a kill had hit it: {begun}"
    wait_for(lambda: server_state(dsn) == before, f"the server is as it was (seed {seed})")
    assert not (book / "studies" / one["parts"][0] / "journal.json").exists(), f"seed {seed}"
    return told


def prepare_server(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"alter system set {SETTING} = '{BEFORE}'")
        connection.execute("select pg_reload_conf()")


def undisturbed_s(folder: Path, dsn: str) -> float:
    """How long a study takes that nobody kills."""
    began = time.monotonic()
    done = start(folder / "book-whole", str(design_in(folder)), f"--server={dsn}", "--yes")
    _, said = done.communicate(timeout=120)
    assert done.returncode == 0, said
    return time.monotonic() - began


def main(moments: int, first: int = 0) -> None:
    from leadline.engines.postgres.server import PrivateServer, find_binaries

    with PrivateServer(find_binaries().bin_dir) as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare_server(server.dsn)
        longest_s = undisturbed_s(folder, server.dsn)
        print(f"a study takes {longest_s:.1f} s", flush=True)
        killed = 0
        for seed in range(first, moments):
            told = kill_and_go_on(folder, server.dsn, seed, longest_s)
            killed += len(told)
            moment = "; ".join(f"{one.after_s:.2f} s, {'all' if one.whole else 'worker'}, {one.trials} trials" for one in told)
            print(f"seed {seed}: killed after {moment}", flush=True)
        print(f"{moments - first} studies, {killed} kills: no trial lost, none doubled, the server as it was", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
