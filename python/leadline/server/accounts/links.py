"""A link that logs a user in, once and soon: for the first login, or instead of a password that was forgotten."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any

from leadline.book.store import Store
from leadline.errors import LeadlineError
from leadline.server import background
from leadline.server.accounts import login
from leadline.server.accounts.login import new_session
from leadline.server.accounts.passwords import Throttle, digest
from leadline.server.accounts.users import USER, find_account
from leadline.server.operation import Call, Operation, Refused

VALID_US = 10 * 60 * 1_000_000
BY = "link"


def _link(call: Call, inputs: dict[str, Any]) -> Any:
    found = find_account(call, inputs["user"])
    call.object = found["name"]
    if found["disabled"]:
        raise LeadlineError("usage", f"{found['name']} is disabled", hint=f"leadline user disable {found['name']} --no-disabled")
    key, expires = secrets.token_urlsafe(32), call.now + VALID_US
    call.execute("delete from login_link where expires <= ?", call.now)
    call.execute("insert into login_link values (?, ?, ?)", digest(key), found["name"], expires)
    call.detail = {"expires": expires}
    return {"user": found["name"], "link": f"{background.public_url(call.place)}/login/once?key={key}", "expires": expires}


def log_in_once(store: Store, throttle: Throttle, key: str, address: str, second: Callable[[str], bool]) -> str:
    """The id of a new session. second: asked of the account when the link is valid (a one-time code); a wrong code does not use up the
    link, but ten do: they are counted for this link alone, whatever strangers have tried. Raises Refused. Whoever comes second, at the
    same time too, is refused."""
    invalid = Refused(
        403, "rights", "the link is not valid", "It was used before, or is older than 10 minutes.", "leadline user login-link NAME"
    )  # fmt: skip
    sql = "select a.name from login_link l join account a on a.name = l.account where l.hash = ? and l.expires > ? and a.disabled = 0"
    rows = store.rows(sql, (digest(key), time.time_ns() // 1000))
    if not rows:
        raise invalid
    account = str(rows[0]["name"])
    apart = f"link {digest(key)}"
    throttle.check(account, address, apart)
    if not second(account):
        login.note_refused(store, account, address, BY, ["this link"] if throttle.closed(account, address, apart) else [])
        raise Refused(401, "rights", "the code is missing or wrong", hint="enter the six digits that your device shows now")
    with store.writing() as db:
        if db.execute("delete from login_link where hash = ?", (digest(key),)).rowcount != 1:
            raise invalid
    throttle.was_right(account, address, apart)
    return new_session(store, account, address, BY)


OPERATIONS = (
    Operation(
        "user.login-link", "POST", "/users/{user}/link", "site", "",
        "Make a link that logs a user in once, within 10 minutes.", _link, (USER,),
    ),
)  # fmt: skip
