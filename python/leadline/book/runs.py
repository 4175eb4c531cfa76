"""The events of every run: its beginning, the files it was given, what it made, its end."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from leadline.book.db import Db
from leadline.book.events import Event, number, run_id, taken, text, whole
from leadline.book.spool import LONGEST_EVENT

LONGEST_CONTENT = 64 << 10
MOST = 1000  # labels, inputs, metrics of one event
_WORD = re.compile(r"[^\W_]+")


def words_of(*texts: str) -> list[str]:
    """The words that a text is found by."""
    return list(dict.fromkeys(word[:60] for words in texts for word in _WORD.findall(words.lower())))


@taken("begin")
def begin(db: Db, event: Event) -> None:
    body = event.body
    argv = [text(word) for word in body["argv"]]
    inputs = {text(key, 200): _simple(value) for key, value in _pairs(body.get("inputs", {}))}
    facts = json.dumps({text(k, 200): text(v, 500) for k, v in _pairs(body.get("facts", {}))}, ensure_ascii=False, sort_keys=True)
    values = {
        "uid": event.uid, "kind": text(body["run_kind"], 60), "name": text(body["name"], 200), "status": "running",
        "parent": _or_none(body.get("parent"), text), "user_name": text(body["user"], 200), "host": text(body["host"], 200),
        "cwd": text(body["cwd"]), "argv_json": json.dumps(argv, ensure_ascii=False), "inputs_json": json.dumps(inputs, ensure_ascii=False),
        "started": event.ts, "version": text(body["version"], 60), "facts": put_content(db, facts), "pid": whole(body["pid"]),
        "pid_start": _or_none(body["pid_start"], whole), "boot": text(body["boot"], 60),
    }  # fmt: skip
    places = ", ".join("?" * len(values))
    db.execute(f"insert into run ({', '.join(values)}) values ({places}) on conflict (uid) do nothing", list(values.values()))
    run = run_id(db, event.uid)
    put_labels(db, run, [(text(key, 200), text(value, 1000)) for key, value in _pairs(body.get("labels", {}))])
    index_words(db, run)


@taken("file")
def file(db: Db, event: Event) -> None:
    """A file that the run was given. body has its text where it is small."""
    body = event.body
    content = body.get("text")
    if content is not None:
        put_content(db, text(content, LONGEST_CONTENT), text(body["hash"], 64))
    values = (run_id(db, event.uid), text(body["path"]), whole(body["size"]), whole(body["modified"]), _or_none(body.get("hash"), text))
    sql = "insert into run_file values (?, ?, ?, ?, ?) on conflict (run, path) do nothing"
    db.execute(sql, values)


@taken("artifact")
def artifact(db: Db, event: Event) -> None:
    """Said when it begins to be made, and once more with its size and hash when it is whole, or that it was removed again."""
    body = event.body
    if body.get("gone"):
        db.execute("delete from artifact where run = ? and path = ?", (run_id(db, event.uid), text(body["path"])))
        return
    values = (run_id(db, event.uid), event.n, text(body["artifact_kind"], 60), text(body["path"]))
    more = (_or_none(body.get("size"), whole), _or_none(body.get("hash"), text))
    known = "on conflict (run, path) do update set size = excluded.size, hash = excluded.hash"
    db.execute(f"insert into artifact values (?, ?, ?, ?, ?, ?) {known}", values + more)
    if body.get("listing") is not None:
        put_listing(db, text(body["listing"], LONGEST_EVENT), more[1])


@taken("label")
def label(db: Db, event: Event) -> None:
    put_labels(db, run_id(db, event.uid), [(text(event.body["key"], 200), text(event.body["value"], 1000))])


@taken("end")
def end(db: Db, event: Event) -> None:
    body, run = event.body, run_id(db, event.uid)
    rc, signal = _or_none(body["rc"], whole), _or_none(body["signal"], whole)
    status = "ok" if rc == 0 or body.get("fine") else "cancelled" if body.get("cancelled") or rc == 130 or signal in (2, 15) else "failed"
    lost = (whole(body["lost"]), whole(body.get("log_lost_bytes", 0)))
    # A part of the run, such as Ansible's plugin, may have said before what came of it.
    summary = text(body["summary"]) or db.execute("select summary from run where id = ?", (run,)).fetchone()["summary"]
    columns = ("ended", "rc", "signal", "status", "summary", "log_bytes", "events_lost", "log_lost_bytes", "log_hash", "log_hashed")
    hashed = (_or_none(body.get("log_hash"), lambda value: text(value, 64)), _or_none(body.get("log_hashed"), whole))
    sql = f"update run set {', '.join(f'{column} = ?' for column in columns)} where id = ?"
    db.execute(sql, (event.ts, rc, signal, status, summary, log_bytes(event), *lost, *hashed, run))
    metrics = [(run, text(name, 200), number(value)) for name, value in _pairs(body["metrics"])]
    db.executemany("insert into metric values (?, ?, ?) on conflict (run, name) do update set value = excluded.value", metrics)
    if summary:
        index_words(db, run)


def put_labels(db: Db, run: int, labels: Sequence[tuple[str, str]]) -> None:
    """Each key has one value: the last."""
    sql = """insert into label (run, key, value, started) select id, ?, ?, started from run where id = ?
 on conflict (run, key) do update set value = excluded.value"""
    db.executemany(sql, [(key, value, run) for key, value in labels])


def index_words(db: Db, run: int) -> None:
    """Makes the run be found by what it says now."""
    row = db.execute("select name, argv_json, summary from run where id = ?", (run,)).fetchone()
    db.put_words([(run, " ".join(words_of(row["name"], *json.loads(row["argv_json"]), row["summary"])))])


def put_content(db: Db, body: str, of: str | None = None) -> str:
    """The hash by which the text is found; of: that of the bytes it was made from."""
    import hashlib

    found = of or hashlib.sha256(body.encode()).hexdigest()
    db.execute("insert into content values (?, ?, ?) on conflict (hash) do nothing", (found, len(body), body))
    return found


def put_listing(db: Db, listing: str, of: str | None) -> None:
    """The files of a directory, kept by its hash; what has another hash is none of it."""
    import hashlib

    if hashlib.sha256(listing.encode()).hexdigest() == of:
        put_content(db, listing, of)


def log_bytes(event: Event) -> int | None:
    try:
        return event.place.log_of(event.uid).stat().st_size
    except OSError:
        return None


def _pairs(value: dict[str, Any]) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise TypeError("no names with values")
    return list(value.items())[:MOST]


def _simple(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    return text(value) if isinstance(value, str) else number(value) if isinstance(value, float) else whole(value)


def _or_none(value: Any, reading: Any) -> Any:
    return None if value is None else reading(value)
