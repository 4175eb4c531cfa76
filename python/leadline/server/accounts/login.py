"""Who a request comes from: by a session, a token, or by being the owner of the book on loopback."""

from __future__ import annotations

import contextlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

from leadline.book.store import Store
from leadline.server import audit
from leadline.server.accounts import devices, passwords
from leadline.server.operation import Refused
from leadline.server.rights import NAME, Caller

IDLE_US, LONGEST_US = 12 * 3600 * 1_000_000, 7 * 86400 * 1_000_000
TOUCH_US = 60 * 1_000_000
TOKEN_FORM = re.compile(r"ll_([a-z0-9]{10})_([A-Za-z0-9_-]{43})")


def new_token() -> tuple[str, str]:
    """Prefix and whole token."""
    prefix = "".join(secrets.choice("abcdefghijkmnpqrstuvwxyz23456789") for _ in range(10))
    return prefix, f"ll_{prefix}_{secrets.token_urlsafe(32)}"


def has_users(store: Store) -> bool:
    return bool(store.rows("select 1 from account limit 1"))


def log_in(
    store: Store, throttle: passwords.Throttle, account: str, password: str, address: str, second: Callable[[], bool] = lambda: True,
    device: str = "",
) -> str:  # fmt: skip
    """The id of a new session. second: asked when the password is right (a one-time code). device: what the browser holds of an earlier
    login. Raises Refused, in the same words for all."""
    if not re.fullmatch(NAME, account):
        account = "?"  # nobody's name: it takes as long, and what was sent is not kept
    apart = f"device {passwords.digest(device)} of {account}" if devices.is_known(store, device, account) else ""
    throttle.check(account, address, apart)
    rows = store.rows("select password, disabled from account where name = ?", (account,))
    known = bool(rows) and not rows[0]["disabled"]
    if not passwords.matches(rows[0]["password"] if known else None, password) or not second():
        note_refused(store, account, address, closed=["this browser" if apart else key for key in throttle.closed(account, address, apart)])
        raise Refused(401, "rights", "account, password or code is wrong")
    throttle.was_right(account, address, apart)
    return new_session(store, account, address, "password, in a browser that is known" if apart else "")


def note_refused(store: Store, account: str, address: str, by: str = "", closed: Sequence[str] = ()) -> None:
    """closed: what may not be tried any more for a while, now that this was wrong."""
    told = {"closed": list(closed), "for_s": passwords.WITHIN_S} if closed else {}
    with store.writing():
        audit.append(store, Caller(account, False, address=address), "login", account, _by(by) | told, "refused")


def _by(by: str) -> dict[str, Any]:
    return {"by": by} if by else {}


def new_session(store: Store, account: str, address: str, by: str = "") -> str:
    """by: for the audit, what it was logged in by, if not by a password alone."""
    session, now = secrets.token_urlsafe(32), time.time_ns() // 1000
    with store.writing() as db:
        db.execute("delete from session where used < ? or created < ?", (now - IDLE_US, now - LONGEST_US))
        db.execute("insert into session values (?, ?, ?, ?, ?)", (passwords.digest(session), account, now, now, address))
        audit.append(store, Caller(account, False, address=address), "login", account, _by(by), "done")
    return session


def new_device(store: Store, session: str, device: str) -> str:
    """What the browser of a new session is to hold from now on. device: what it held."""
    with store.writing() as db:
        account = store.rows("select account from session where hash = ?", (passwords.digest(session),))
        return devices.note(db, device, account[0]["account"]) if account else device


def log_out(store: Store, session: str) -> None:
    with store.writing() as db:
        db.execute("delete from session where hash = ?", (passwords.digest(session),))


def caller_of_session(store: Store, session: str, address: str) -> Caller | None:
    now = time.time_ns() // 1000
    rows = store.rows("select account, created, used from session where hash = ?", (passwords.digest(session),))
    if not rows or rows[0]["used"] < now - IDLE_US or rows[0]["created"] < now - LONGEST_US:
        return None
    if rows[0]["used"] < now - TOUCH_US:
        _touch(store, "update session set used = ? where hash = ?", (now, passwords.digest(session)))
    return _caller(store, rows[0]["account"], address, session=passwords.digest(session))


def caller_of_token(store: Store, token: str, address: str) -> Caller | None:
    """None: no such token, or it has expired, or its account was disabled or removed."""
    found = TOKEN_FORM.fullmatch(token)
    if found is None:
        return None
    now = time.time_ns() // 1000
    rows = store.rows("select * from token where prefix = ?", (found[1],))
    if not rows or not hmac.compare_digest(rows[0]["hash"], passwords.digest(token)) or rows[0]["expires"] <= now:
        return None
    row = rows[0]
    if (row["used"] or 0) < now - TOUCH_US:
        _touch(store, "update token set used = ? where prefix = ?", (now, row["prefix"]))
    return _caller(store, row["account"], address, scope=row["scope"], only_project=row["project"], token=row["prefix"])


def _touch(store: Store, sql: str, values: tuple[object, ...]) -> None:
    """Who may only read a store that cannot be written now, may still read."""
    with contextlib.suppress(store.db.errors), store.writing() as db:
        db.execute(sql, values)


def _caller(
    store: Store,
    account: str,
    address: str,
    *,
    scope: str = "admin",
    only_project: str | None = None,
    token: str | None = None,
    session: str | None = None,
) -> Caller | None:
    rows = store.rows("select uid, admin, disabled from account where name = ?", (account,))
    if not rows or rows[0]["disabled"]:
        return None
    members = {r["project"]: r["role"] for r in store.rows("select project, role from member where account = ?", (account,))}
    grants = {r["template"]: r["role"] for r in store.rows("select template, role from template_grant where account = ?", (account,))}
    return Caller(account, bool(rows[0]["admin"]), scope, only_project, token, session, address, members, grants, rows[0]["uid"])


def caller_for(store: Store, uid: str, name: str = "") -> Caller | None:
    """Who something is done for later, with the rights of now. name: as it was then, unless it is `hook`. None: the user is disabled, or
    not there any more."""
    if uid == "owner":
        found: Caller | None = Caller()
    else:
        rows = store.rows("select name from account where uid = ?", (uid,)) if uid else []
        found = _caller(store, rows[0]["name"], "") if rows else None
    return found if found is not None and name in (found.name, "hook", "") else None
