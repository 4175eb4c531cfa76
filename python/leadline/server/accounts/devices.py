"""Browsers in which a user has logged in before. What strangers try must not lock a user out there.

A browser holds a random id in a cookie. It opens nothing: it only says which of the tries of a password are counted together.
"""

from __future__ import annotations

import secrets
import time

from leadline.book.db import Db
from leadline.book.store import Store
from leadline.server.accounts.passwords import digest

KEPT_US = 180 * 86400 * 1_000_000
MOST = 50  # of a user; the one that was used longest ago is forgotten first


def is_known(store: Store, device: str, account: str) -> bool:
    sql = "select 1 from device where hash = ? and account = ? and used > ?"
    return bool(device) and bool(store.rows(sql, (digest(device), account, _now() - KEPT_US)))


def note(db: Db, device: str, account: str) -> str:
    """Within a transaction: the account has logged in, in the browser that holds this id. The new id, for which the old one is given up:
    whoever planted that one has nothing."""
    new, now = secrets.token_urlsafe(32), _now()
    if device:
        db.execute("delete from device where hash = ? and account = ?", (digest(device), account))
        db.execute("update device set hash = ? where hash = ?", (digest(new), digest(device)))
    db.execute("insert into device values (?, ?, ?)", (digest(new), account, now))
    db.execute("delete from device where used < ?", (now - KEPT_US,))
    older = "select used from device where account = ? order by used desc limit 1 offset ?"
    if (row := db.execute(older, (account, MOST)).fetchone()) is not None:
        db.execute("delete from device where account = ? and used <= ?", (account, row["used"]))
    return new


def forget(db: Db, account: str) -> None:
    db.execute("delete from device where account = ?", (account,))


def _now() -> int:
    return time.time_ns() // 1000
