"""Secrets of projects: AES-256-GCM under a key in a file beside the book. Without that file no secret is taken."""

from __future__ import annotations

import base64
import hashlib
import os
from typing import Any

from leadline.book.place import Place
from leadline.book.store import Store
from leadline.errors import LeadlineError
from leadline.server.accounts.users import PROJECT
from leadline.server.operation import Call, Input, Operation
from leadline.server.rights import NAME

KEY_BYTES, NONCE_BYTES = 32, 12


def _key_file(place: Place) -> str:
    return str(place.root / "secrets.key")


def _key(place: Place) -> bytes:
    path = _key_file(place)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        raise LeadlineError("usage", "there is no key for secrets yet", hint="leadline secret key", where=path) from None
    with open(fd, "rb") as file:
        about = os.fstat(fd)
        if about.st_mode & 0o077 or about.st_uid != os.getuid():
            raise LeadlineError("rights", "others may read the key of secrets", hint=f"chmod 600 {path}", where=path)
        key = file.read()
    if len(key) != KEY_BYTES:
        raise LeadlineError("invalid", f"the key of secrets has {len(key)} bytes, not {KEY_BYTES}", where=path)
    return key


def _cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise LeadlineError("unsupported", "secrets need the package cryptography", hint="pip install 'leadline[web]'") from None
    return AESGCM(key)


def _id_of(key: bytes) -> str:
    return hashlib.sha256(b"leadline key" + key).hexdigest()[:12]


def lock(place: Place, text: str, about: str) -> tuple[str, str, str]:
    """Id of the key, nonce and ciphertext. about: what it belongs to; it opens only with the same."""
    key, nonce = _key(place), os.urandom(NONCE_BYTES)
    return (
        _id_of(key),
        base64.b64encode(nonce).decode(),
        base64.b64encode(_cipher(key).encrypt(nonce, text.encode(), about.encode())).decode(),
    )


def unlock(place: Place, key_id: str, nonce: str, ciphertext: str, about: str) -> str:
    """Raises LeadlineError."""
    key = _key(place)
    if _id_of(key) != key_id:
        raise LeadlineError("invalid", f"a secret was locked with another key ({key_id})", where=_key_file(place))
    try:
        return str(_cipher(key).decrypt(base64.b64decode(nonce), base64.b64decode(ciphertext), about.encode()).decode())
    except Exception:  # InvalidTag, bad base64: it was changed
        raise LeadlineError("invalid", "a secret in the store was changed", detail=about) from None


def find(place: Place, store: Store, project: str, name: str) -> str | None:
    """The value of a secret; None when there is none of that name. Raises LeadlineError when it cannot be opened."""
    rows = store.rows("select key_id, nonce, ciphertext from secret where project = ? and name = ?", (project, name))
    return unlock(place, rows[0]["key_id"], rows[0]["nonce"], rows[0]["ciphertext"], f"{project}/{name}") if rows else None


def _make_key(call: Call, _inputs: dict[str, Any]) -> Any:
    path = _key_file(call.place)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise LeadlineError("usage", "there is a key already", detail="Without it, no secret can be read.", where=path) from None
    key = os.urandom(KEY_BYTES)
    with open(fd, "wb") as file:
        file.write(key)
    return {"key": _id_of(key), "file": path}


def _list(call: Call, inputs: dict[str, Any]) -> Any:
    return {
        "secrets": call.rows("select name as secret, changed, changed_by from secret where project = ? order by name", inputs["project"])
    }


def check_length(value: str, where: str) -> None:
    """What is very short is in many texts, and cannot be hidden in outputs. Raises LeadlineError."""
    from leadline.book.ansible.plugin.leadline_book import SHORTEST_SECRET

    if len(value) < SHORTEST_SECRET:
        raise LeadlineError(
            "usage", f"the secret is shorter than {SHORTEST_SECRET} characters", detail="It could not be hidden in the output of runs.",
            hint="use a longer one", where=where,
        )  # fmt: skip


def _set(call: Call, inputs: dict[str, Any]) -> Any:
    project, name = inputs["project"], inputs["secret"]
    call.object = f"{project}/{name}"
    check_length(inputs["value"], "value")
    key_id, nonce, ciphertext = lock(call.place, inputs["value"], f"{project}/{name}")
    call.execute("delete from secret where project = ? and name = ?", project, name)
    call.execute("insert into secret values (?, ?, ?, ?, ?, ?, ?)", project, name, key_id, nonce, ciphertext, call.now, call.caller.name)
    return {"project": project, "secret": name}


def _delete(call: Call, inputs: dict[str, Any]) -> Any:
    call.object = f"{inputs['project']}/{inputs['secret']}"
    if call.one("select 1 from secret where project = ? and name = ?", inputs["project"], inputs["secret"]) is None:
        raise LeadlineError("not_found", f"there is no secret {inputs['secret']} in {inputs['project']}", hint="leadline secret list")
    call.execute("delete from secret where project = ? and name = ?", inputs["project"], inputs["secret"])
    return {"deleted": inputs["secret"]}


SECRET = Input("secret", "name of the secret", pattern=NAME)
OPERATIONS = (
    Operation(
        "secret.list", "GET", "/projects/{project}/secrets", "editor", "project", "List the names of the secrets of a project.", _list,
        (PROJECT,), rows="secrets", columns=("secret", "changed", "changed_by"),
    ),
    Operation(
        "secret.set", "PUT", "/projects/{project}/secrets/{secret}", "editor", "project", "Store a secret. It cannot be shown again.", _set,
        (PROJECT, SECRET, Input("value", "the secret itself", "secret")),
    ),
    Operation(
        "secret.delete", "DELETE", "/projects/{project}/secrets/{secret}", "editor", "project", "Remove a secret.", _delete,
        (PROJECT, SECRET),
    ),
    Operation("secret.key", "POST", "/secrets/key", "site", "", "Create the key that encrypts secrets. Needed once.", _make_key),
)  # fmt: skip
