"""Time-based one-time passwords (RFC 6238) as a second factor: SHA-1, six digits, 30 seconds, as authenticator programs have them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import struct
import time
from typing import Any
from urllib.parse import quote

from leadline.book.place import Place
from leadline.book.store import Store
from leadline.errors import LeadlineError
from leadline.server.accounts import vault
from leadline.server.accounts.users import USER, know_password
from leadline.server.operation import Call, Input, Operation

STEP_S, DIGITS, SECRET_BYTES = 30, 6, 20
AROUND = 1  # steps by which clocks may differ
ISSUER = "leadline"


def code_at(secret: bytes, step: int) -> str:
    digest = hmac.new(secret, struct.pack(">Q", step), hashlib.sha1).digest()
    at = digest[-1] & 15
    return f"{(struct.unpack('>I', digest[at : at + 4])[0] & 0x7FFFFFFF) % 10**DIGITS:0{DIGITS}d}"


def step_of(secret: bytes, code: str, now_s: float) -> int | None:
    """The step whose code this is, of those around now."""
    now = int(now_s) // STEP_S
    plain = code.replace(" ", "")
    if not re.fullmatch(rf"[0-9]{{{DIGITS}}}", plain):
        return None
    found = [step for step in range(now - AROUND, now + AROUND + 1) if hmac.compare_digest(code_at(secret, step), plain)]
    return found[-1] if found else None


def fits(place: Place, store: Store, account: str, code: str) -> bool:
    """Whether the user needs no code, or it is right and was not taken before. Raises LeadlineError if the secret cannot be read."""
    rows = store.rows("select totp_json from account where name = ? and totp_active = 1", (account,))
    if not rows:
        return True
    step = step_of(_secret(place, account, rows[0]["totp_json"]), code, time.time())
    if step is None:
        return False
    with store.writing() as db:
        sql = "update account set totp_step = ? where name = ? and totp_step < ?"
        return db.execute(sql, (step, account, step)).rowcount == 1


def _secret(place: Place, account: str, locked: str) -> bytes:
    key_id, nonce, ciphertext = json.loads(locked)
    return base64.b32decode(vault.unlock(place, key_id, nonce, ciphertext, _about(account)))


def _about(account: str) -> str:
    return f"totp {account}"


# --- operations


def _own(call: Call, inputs: dict[str, Any]) -> dict[str, Any]:
    """One's own account, or as administrator that of another; never by a token, which may be anywhere. Raises LeadlineError."""
    name = inputs["user"]
    call.object = name
    if call.caller.token is not None:
        raise LeadlineError("rights", "a token cannot change how its user logs in", hint="log in")
    if call.caller.account != name and not call.caller.is_site_admin:
        raise LeadlineError("rights", "this needs an administrator of the server")
    row = call.one("select * from account where name = ?", name)
    if row is None:
        raise LeadlineError("not_found", f"there is no user {name}", hint="leadline user list")
    return row


def _know_password(call: Call, row: dict[str, Any], password: str | None) -> None:
    if call.caller.account == row["name"]:
        know_password(call, row["password"], password, "password", "the password is wrong")


def _not_yet(row: dict[str, Any]) -> None:
    if row["totp_active"]:
        raise LeadlineError("usage", f"{row['name']} has one already", hint=f"leadline user forget-codes {row['name']}")


def _begin(call: Call, inputs: dict[str, Any]) -> Any:
    row = _own(call, inputs)
    _know_password(call, row, inputs["password"])
    _not_yet(row)
    secret = base64.b32encode(os.urandom(SECRET_BYTES)).decode()
    locked = json.dumps(vault.lock(call.place, secret, _about(row["name"])))
    call.execute("update account set totp_json = ?, totp_step = 0 where name = ?", locked, row["name"])
    about = f"secret={secret}&issuer={ISSUER}&algorithm=SHA1&digits={DIGITS}&period={STEP_S}"
    return {"user": row["name"], "secret": secret, "uri": f"otpauth://totp/{ISSUER}:{quote(row['name'])}?{about}"}


def _confirm(call: Call, inputs: dict[str, Any]) -> Any:
    row = _own(call, inputs)
    _not_yet(row)  # or codes could be tried here without end, and one be taken a second time
    if row["totp_json"] is None:
        raise LeadlineError("usage", "there is nothing to confirm", hint=f"leadline user codes {row['name']}")
    step = step_of(_secret(call.place, row["name"], row["totp_json"]), inputs["code"], call.now / 1e6)
    if step is None:
        raise LeadlineError("rights", "the code is wrong", hint="is the clock of the device right?", where="code")
    call.execute("update account set totp_active = 1, totp_step = ? where name = ?", step, row["name"])
    call.execute("delete from session where account = ? and hash <> ?", row["name"], call.caller.session or "")
    return {"user": row["name"], "codes": True}


def _forget(call: Call, inputs: dict[str, Any]) -> Any:
    row = _own(call, inputs)
    _know_password(call, row, inputs["password"])
    call.execute("update account set totp_json = null, totp_active = 0 where name = ?", row["name"])
    return {"user": row["name"], "codes": False}


OWN_PASSWORD = Input("password", "your password; not needed for another's account, nor at the shell", "secret", False)
CODE = Input("code", "the six digits that the device shows", pattern=r"[0-9]{3} ?[0-9]{3}")
OPERATIONS = (
    Operation(
        "user.codes", "POST", "/users/{user}/codes", "anyone", "",
        "Make the secret of one-time codes for a user; a code confirms it.", _begin, (USER, OWN_PASSWORD),
        follows="leadline user confirm-codes {user} CODE",
    ),
    Operation(
        "user.confirm-codes", "PUT", "/users/{user}/codes", "anyone", "", "From now on, ask this user for a code at login.", _confirm,
        (USER, CODE), words=("code",),
    ),
    Operation(
        "user.forget-codes", "PUT", "/users/{user}/codes/forgotten", "anyone", "", "Stop asking this user for a code at login.", _forget,
        (USER, OWN_PASSWORD),
    ),
)  # fmt: skip
