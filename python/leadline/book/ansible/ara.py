"""Takes what Ara has recorded into the book: each playbook becomes a run, through the same events that our plugin writes.

Source: Ara's SQLite database (ansible.sqlite), its tables as of 1.5 to 1.8. Objects in it are JSON under zlib; times are UTC.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from leadline.book.ansible.ingest import put_facts, put_record
from leadline.book.ansible.plugin.leadline_book import Hider
from leadline.book.db import Db
from leadline.book.events import Event, run_id, taker_of
from leadline.book.query import Book
from leadline.book.spool import UID_LENGTH, UID_LETTERS
from leadline.errors import LeadlineError

TABLES = ("playbooks", "plays", "tasks", "results", "hosts", "files", "file_contents", "records", "labels", "playbooks_labels")
LONGEST_OBJECT = 64 << 20
WELL = {"completed": True, "failed": False}  # others did not come to their end


@dataclass
class Imported:
    """What came of it. already: playbooks that an earlier import had taken; damaged: objects that could not be read."""

    playbooks: int = 0
    results: int = 0
    already: int = 0
    damaged: int = 0


def import_ara(book: Book, path: Path) -> Imported:
    """Raises LeadlineError. A second import takes only what is new."""
    ara = _open(path)
    done = Imported()
    try:
        for playbook in ara.execute("select * from playbooks order by id").fetchall():
            uid = _uid(playbook)
            if book.store.rows("select 1 as there from run where uid = ?", (uid,)):
                done.already += 1
                continue
            with book.store.writing() as db:
                _Playbook(ara, playbook, uid, book, db, done).take()
            done.playbooks += 1
    except sqlite3.Error as e:
        raise LeadlineError("invalid", "the database of Ara cannot be read", detail=str(e), where=str(path)) from e
    finally:
        ara.close()
    return done


def _open(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise LeadlineError("not_found", "there is no such file", where=str(path), hint="Ara keeps it as ~/.ara/server/ansible.sqlite")
    try:
        ara = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        ara.row_factory = sqlite3.Row
        there = {row["name"] for row in ara.execute("select name from sqlite_master where type = 'table'")}
    except sqlite3.Error as e:
        raise LeadlineError("invalid", "that is no SQLite database", detail=str(e), where=str(path)) from e
    if missing := [name for name in TABLES if name not in there]:
        ara.close()
        detail = f"It has no table {missing[0]}."
        raise LeadlineError("invalid", "that is no database of Ara 1.x", detail=detail, where=str(path))
    return ara


def _uid(playbook: sqlite3.Row) -> str:
    """The same for the same playbook, whichever copy of the database it is read from."""
    named = "\0".join(str(playbook[name]) for name in ("id", "started", "path", "controller"))
    return "".join(UID_LETTERS[byte & 31] for byte in hashlib.sha256(f"ara\0{named}".encode()).digest()[:UID_LENGTH])


class _Playbook:
    """One playbook on its way."""

    def __init__(self, ara: sqlite3.Connection, row: sqlite3.Row, uid: str, book: Book, db: Db, done: Imported) -> None:
        self.ara, self.row, self.uid, self.book, self.db, self.done = ara, row, uid, book, db, done
        self.hide, self.n = Hider(), 0

    def take(self) -> None:
        row, started = self.row, _us(self.row["started"])
        arguments = self._object(row["arguments"]) or {}
        arguments = self.hide.clean(arguments) if isinstance(arguments, dict) else {}
        self._event(
            "begin", started, uid=self.uid, run_kind="ansible", name=row["name"] or row["path"].rpartition("/")[2] or "playbook",
            argv=["ansible-playbook", row["path"]], labels=self._labels(), parent=None, cwd="", user=row["user"] or "",
            host=row["controller"] or "", facts={"ansible.version": row["ansible_version"], "python.version": row["python_version"] or ""},
            pid=0, pid_start=None, boot="", version=f"Ara {row['client_version'] or row['server_version']}",
        )  # fmt: skip
        self._event(
            "ansible.playbook", started, format=1, path=row["path"], ansible=row["ansible_version"], python=row["python_version"] or "",
            arguments=arguments,
        )  # fmt: skip
        self._files()
        numbers = self._plays_and_tasks()
        self._results(numbers)
        self._hosts()
        self._records()
        self._end(started)

    def _labels(self) -> dict[str, str]:
        sql = "select l.name from labels l join playbooks_labels p on p.label_id = l.id where p.playbook_id = ?"
        pairs = (name.partition(":") for (name,) in self.ara.execute(sql, (self.row["id"],)))
        return {self.hide.text(key): self.hide.text(value) for key, _, value in pairs}

    def _files(self) -> None:
        sql = "select f.path, f.updated, c.contents from files f join file_contents c on c.id = f.content_id"
        for path, updated, contents in self._rows(f"{sql} where f.playbook_id = ? order by f.id"):
            raw = self._bytes(contents)
            if raw is None:
                continue
            text = self.hide.file(raw.decode("utf-8", "replace"))
            more = {"text": text, "hash": hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()} if len(text) <= 64 << 10 else {}
            self._event("file", _us(self.row["started"]), path=path, size=len(raw), modified=_us(updated), **more)

    def _plays_and_tasks(self) -> dict[int, int]:
        """Our numbers of the tasks by those of Ara."""
        plays, numbers = dict[int, int](), dict[int, int]()
        for play in self._rows("select * from plays where playbook_id = ? order by id"):
            plays[play["id"]] = len(plays) + 1
            self._event(
                "ansible.play", _us(play["started"]), play=plays[play["id"]], uuid=play["uuid"], name=play["name"] or "", hosts="",
                strategy="", at="", run_name=None, labels={},
            )  # fmt: skip
            if play["ended"]:
                self.db.execute("update play set ended = ? where run = ? and n = ?", (_us(play["ended"]), self._run, plays[play["id"]]))
        sql = "select t.*, f.path from tasks t join files f on f.id = t.file_id where t.playbook_id = ? order by t.id"
        for task in self._rows(sql):
            numbers[task["id"]] = len(numbers) + 1
            tags = self._object(task["tags"])
            self._event(
                "ansible.task", _us(task["started"]), task=numbers[task["id"]], play=plays[task["play_id"]], uuid=task["uuid"] or "",
                name=self.hide.text(task["name"] or ""), action=task["action"], file=task["path"], line=task["lineno"], role="",
                tags=[str(tag) for tag in tags] if isinstance(tags, list) else [], args={}, handler=bool(task["handler"]), no_log=False,
            )  # fmt: skip
            if task["ended"]:
                self.db.execute("update task set ended = ? where run = ? and n = ?", (_us(task["ended"]), self._run, numbers[task["id"]]))
        return numbers

    def _results(self, numbers: dict[int, int]) -> None:
        delegated: dict[int, str] = {}
        if self.ara.execute("select 1 from sqlite_master where name = 'results_delegated_to'").fetchone():
            sql = """select d.result_id, h.name from results_delegated_to d join hosts h on h.id = d.host_id
 join results r on r.id = d.result_id where r.playbook_id = ? order by d.id"""
            for result, host in self._rows(sql):
                delegated[result] = f"{delegated[result]},{host}" if result in delegated else host
        sql = "select r.*, h.name as host from results r join hosts h on h.id = r.host_id where r.playbook_id = ? order by r.id"
        for row in self._rows(sql):
            content = self._object(row["content"])
            content = self.hide.clean(content) if isinstance(content, dict) else {"value": self.hide.clean(content)}
            status = row["status"] if row["status"] in ("ok", "failed", "skipped", "unreachable") else "failed"
            ended = _us(row["ended"] or row["started"])
            taken = self._event(
                "ansible.result", ended, task=numbers[row["task_id"]], host=row["host"], part="result", status=status,
                changed=bool(row["changed"]), started=_us(row["started"]), ended=ended, content=content,
                ignored=bool(row["ignore_errors"]) and status in ("failed", "unreachable"), rescued=False,
                delegated_to=delegated.get(row["id"], ""),
            )  # fmt: skip
            self.done.results += taken

    def _hosts(self) -> None:
        counts: dict[str, dict[str, int]] = {}
        for row in self._rows("select * from hosts where playbook_id = ? order by id"):
            counts[row["name"]] = {name: row[name] for name in ("ok", "changed", "failed", "unreachable", "skipped")}
        if self.row["status"] in WELL:
            self._event("ansible.stats", _us(self.row["ended"] or self.row["started"]), hosts=counts, custom={})
        for row in self._rows("select * from hosts where playbook_id = ? order by id"):
            facts = self._object(row["facts"])
            if isinstance(facts, dict) and facts:
                known = "insert into run_host (run, host) values (?, ?) on conflict (run, host) do nothing"
                self.db.execute(known, (self._run, row["name"]))
                put_facts(self.db, self._run, row["name"], self.hide.clean(facts))

    def _records(self) -> None:
        for row in self._rows("select * from records where playbook_id = ? order by id"):
            put_record(self.db, self._run, "", row["key"], row["type"], self.hide.clean(self._object(row["value"])))

    def _end(self, started: int) -> None:
        ended = _us(self.row["ended"]) if self.row["ended"] else None
        if ended is not None and self.row["status"] in WELL:
            fine = WELL[self.row["status"]]
            summary = f"imported from Ara: {self.row['status']}"
            wall = {"wall_s": max(0, ended - started) / 1e6}
            self._event("end", ended, rc=None, signal=None, summary=summary, metrics=wall, lost=0, fine=fine, cancelled=False)
        else:
            sql = "update run set status = 'lost', ended = ?, summary = ? where id = ?"
            self.db.execute(sql, (ended, f"imported from Ara: {self.row['status']}", self._run))

    @property
    def _run(self) -> int:
        return run_id(self.db, self.uid)

    def _event(self, kind: str, ts: int, **body: Any) -> int:
        """1 if it was taken. What our own reader refuses is counted as damaged."""
        self.n += 1
        taker = taker_of(kind)
        assert taker is not None
        try:
            taker(self.db, Event(self.uid, self.n, ts, kind, body, self.book.place))
        except (KeyError, TypeError, ValueError):
            self.done.damaged += 1
            return 0
        return 1

    def _rows(self, sql: str) -> Iterator[sqlite3.Row]:
        yield from self.ara.execute(sql, (self.row["id"],))

    def _bytes(self, packed: Any) -> bytes | None:
        try:
            unpacker = zlib.decompressobj()
            out = unpacker.decompress(packed, LONGEST_OBJECT)
        except (zlib.error, TypeError):
            self.done.damaged += 1
            return None
        if not unpacker.eof:
            self.done.damaged += 1
            return None
        return out

    def _object(self, packed: Any) -> Any:
        raw = self._bytes(packed)
        try:
            return None if raw is None else json.loads(raw)
        except (ValueError, RecursionError):
            self.done.damaged += 1
            return None


def _us(text: str) -> int:
    """Microseconds since 1970 of a time as Django stores it. Raises ValueError."""
    at = datetime.fromisoformat(text)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - epoch
    return (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds
