"""What finds which damage: leadline from the files of a stopped server, amcheck in the server that was started on them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from conftest import Server

from damages.cluster import INDEXES
from damages.pages import Damage, Made

PATIENCE_S = 10.0  # for one question to amcheck: gin_index_check of 18 follows a circle of right links without end, and takes memory
FULL = "true, true"  # heapallindexed, rootdescend


@dataclass
class Found:
    """Of one kind of damage. by_*: how many of `made` were found; messages: of those that leadline found."""

    damage: Damage
    made: int = 0
    by_pages: int = 0
    by_leadline: int = 0
    by_amcheck: int = 0
    only_amcheck: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.damage.category}: {self.damage.name}"


def problems(data_dir: Path, level: str) -> dict[str, list[str]]:
    """What `page check` prints, by the number of the relation's file."""
    words = [sys.executable, "-m", "leadline", "page", "check", str(data_dir), "--level", level, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, list[str]] = defaultdict(list)
    for problem in json.loads(done.stdout)["problems"]:
        found[number_of(Path(problem["path"]))].append(f"{problem['class']}: {problem['message']}")
    return found


def number_of(path: Path) -> str:
    return path.name.split("_")[0].split(".")[0]


def connected(server: Server) -> psycopg.Connection[None]:
    """Waits for a server that recovers."""
    while True:
        with suppress(psycopg.OperationalError):
            return server.connect()


def ask(server: Server, sql: str) -> bool:
    """Whether amcheck finds something. A server that it takes down with it starts again."""
    with connected(server) as db:
        timer = threading.Timer(PATIENCE_S, os.kill, [db.info.backend_pid, signal.SIGKILL])
        timer.start()
        try:
            return db.execute(sql.encode()).fetchall() not in ([], [("",)], [(None,)])
        except psycopg.OperationalError:
            return not timer.finished.is_set()  # not ended from here: the server fell over the damage
        except psycopg.Error:
            return True
        finally:
            timer.cancel()


def found_by_amcheck(server: Server, one: Made, template: str, major: int) -> bool:
    if template == "sequence":
        return False
    asked = [f"select 1 from verify_heapam('{one.name}', check_toast := true)"] if major >= 14 else []
    for number, how in enumerate(INDEXES.get(template, {}).values()):
        if "using btree" in how:
            asked.append(f"select bt_index_parent_check('{one.name}_{number}', {FULL})")
        if "using gin" in how and major >= 18:
            asked.append(f"select gin_index_check('{one.name}_{number}')")
    return any([ask(server, sql) for sql in asked])


def summed(
    made: Sequence[tuple[Made, Damage]], pages: dict[str, list[str]], values: dict[str, list[str]], amcheck: Iterable[bool]
) -> list[Found]:
    found: dict[str, Found] = {}
    for (one, damage), by_amcheck in zip(made, amcheck, strict=True):
        of = found.setdefault(f"{damage.category}: {damage.name}", Found(damage))
        numbers = {number_of(path) for path in one.files.values()}
        messages = [message for number in sorted(numbers) for message in values.get(number, [])]
        of.made += 1
        of.by_pages += any(pages.get(number) for number in numbers)
        of.by_leadline += bool(messages)
        of.by_amcheck += by_amcheck
        of.messages += messages[:3]
        if by_amcheck and not messages:
            of.only_amcheck.append(f"{one.name} {one.seen}")
    return list(found.values())


def table(found: Sequence[Found]) -> str:
    """For people: what the guide shows."""
    lines = [f"{'damage':<62}{'made':>5}{'pages':>7}{'values':>8}{'amcheck':>9}"]
    for of in found:
        name = of.name + ("" if of.damage.contradicts else " (*)")
        lines.append(f"{name:<62}{of.made:>5}{of.by_pages:>7}{of.by_leadline:>8}{of.by_amcheck:>9}")
    return "\n".join(lines)
