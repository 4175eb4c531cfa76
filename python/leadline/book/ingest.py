"""Takes spools into the store: again and again, each event once, whatever ended the run that wrote them."""

from __future__ import annotations

import json
import os
from pathlib import Path

from leadline.book.db import Db
from leadline.book.events import Event, taker_of
from leadline.book.place import Place
from leadline.book.spool import LONGEST_EVENT, UID_LENGTH, UID_LETTERS
from leadline.book.store import Store
from leadline.book.tree import forget_cgroup
from leadline.host import proc

PIECE = 4 << 20
BAD = (KeyError, TypeError, ValueError, AttributeError, OverflowError)


def ingest(place: Place, store: Store) -> int:
    """Takes in what is new; the number of events. A run whose process is gone without an end becomes `lost`."""
    taken = 0
    for uid in _spools(place):
        taken += take(place, store, uid)
    find_lost(place, store)
    return taken


def is_uid(text: str) -> bool:
    return len(text) == UID_LENGTH and set(text) <= set(UID_LETTERS)


def _spools(place: Place) -> list[str]:
    try:
        return sorted(name[:-6] for name in os.listdir(place.spool) if name.endswith(".jsonl") and is_uid(name[:-6]))
    except OSError:
        return []


def take(place: Place, store: Store, uid: str) -> int:
    """What is new in one spool. It is removed when its run has ended and all of it is in the store."""
    try:
        return _take(place, store, uid, each_alone=False)
    except store.db.errors:
        # A store refused an event that looked well. Once more, so that it alone is passed over.
        return _take(place, store, uid, each_alone=True)


def _take(place: Place, store: Store, uid: str, *, each_alone: bool) -> int:
    spool, taken = place.spool_of(uid), 0
    try:
        fd = os.open(spool, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return 0
    with open(fd, "rb") as file:
        if os.fstat(fd).st_uid != os.getuid():
            return 0
        while os.fstat(fd).st_size > _place(store.db, uid):
            with store.writing() as db:
                at = _place(db, uid)
                file.seek(at)
                piece = file.read(PIECE)
                whole = piece.rfind(b"\n") + 1
                if whole == 0 and len(piece) <= LONGEST_EVENT:
                    break  # nothing is new; or the run is just writing it, or was killed while it did
                for line in piece[: whole or len(piece)].splitlines():
                    taken += _event(db, place, uid, line, each_alone=each_alone)
                values = (uid, at + (whole or len(piece)))
                db.execute("insert into ingest_state values (?, ?) on conflict (uid) do update set place = excluded.place", values)
        if store.rows("select 1 from run where uid = ? and ended is not null", (uid,)):
            _forget(spool)
    return taken


def _forget(spool: Path) -> None:
    try:
        spool.unlink()
    except OSError:
        return


def _place(db: Db, uid: str) -> int:
    row = db.execute("select place from ingest_state where uid = ?", (uid,)).fetchone()
    return 0 if row is None else int(row["place"])


def _event(db: Db, place: Place, uid: str, line: bytes, *, each_alone: bool) -> int:
    """1 if it was an event. What is none is passed over: a spool is input."""
    try:
        body = json.loads(line)
        event = Event(uid, int(body["n"]), int(body["ts"]), str(body["kind"]), body, place)
        taker = taker_of(event.kind)
    except (*BAD, RecursionError):
        return 0
    if taker is None:
        return 0
    if each_alone:
        db.execute("savepoint event")
    try:
        taker(db, event)
    except BAD:
        return 0
    except db.errors:
        if not each_alone:
            raise
        db.execute("rollback to savepoint event")
        return 0
    return 1


def find_lost(place: Place, store: Store) -> int:
    """Marks runs of this boot of this host whose process is gone, and runs of an earlier boot; how many."""
    boot = proc.boot_id()
    sql = "select id, uid, pid, pid_start, boot from run where status = 'running' and host = ?"
    running = store.rows(sql, (os.uname().nodename,))
    gone = [run for run in running if run["boot"] != boot or not proc.lives(run["pid"], run["pid_start"])]
    for run in gone:
        forget_cgroup(run["uid"])
        take(place, store, run["uid"])  # it may have written its end between the two looks
        try:
            size = place.log_of(run["uid"]).stat().st_size
        except OSError:
            size = None
        with store.writing() as db:
            sql = "update run set status = 'lost', log_bytes = ? where id = ? and status = 'running'"
            if db.execute(sql, (size, run["id"])).rowcount:
                _forget(place.spool_of(run["uid"]))
    return len(gone)
