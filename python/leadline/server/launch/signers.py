"""How those who send requests to a hook show that they may: by a signature, or by the key itself. And by what a request is known again."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

WINDOW_S = 300
FOR_EVER_S = 100 * 365 * 86400
MONTH_S = 30 * 86400
PREFIX = b"whsec_"
MOST_SIGNATURES = 10


@dataclass(frozen=True)
class Sent:
    """A request whose sender may send it. once: the same for a request that is sent again, and for how long it is to be remembered."""

    once: str
    remember_s: int
    event: str = ""


def of_leadline(key: bytes, headers: Mapping[str, str], body: bytes) -> Sent | None:
    """The signature covers the time: what is older than a few minutes is not taken, and need not be remembered longer."""
    stamp, given = headers.get("x-leadline-timestamp", ""), headers.get("x-leadline-signature", "")
    fits = _same(signature(key, stamp, body), given)
    if not fits or not re.fullmatch(r"\d{1,12}", stamp) or abs(time.time() - int(stamp)) > WINDOW_S:
        return None
    return Sent(given, 2 * WINDOW_S)


def signature(key: bytes, stamp: str, body: bytes) -> str:
    return "sha256=" + hmac.new(key, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def of_github(key: bytes, headers: Mapping[str, str], body: bytes) -> Sent | None:
    """The signature covers the body alone, no time and no number: a body is taken once, whenever it comes again. The old SHA-1 is no
    signature here."""
    given = headers.get("x-hub-signature-256", "")
    if not _same("sha256=" + hmac.new(key, body, hashlib.sha256).hexdigest(), given):
        return None
    return Sent(given, FOR_EVER_S, headers.get("x-github-event", ""))


def of_gitlab(key: bytes, headers: Mapping[str, str], body: bytes) -> Sent | None:
    """With a signing token (whsec_...) it signs as Standard Webhooks say, and nothing less is taken. With a secret token it sends the key
    itself. A delivery that it tries again has the same Idempotency-Key, an event the same number. A script that sends the key has
    neither: then a body is taken once in a few minutes, and may come again later."""
    if key.startswith(PREFIX):
        sent = of_standard(key, headers, body)
        return sent and replace(sent, event=headers.get("x-gitlab-event", ""))
    if not _same(key.decode(), headers.get("x-gitlab-token", "")):
        return None
    named = headers.get("idempotency-key", "")
    number = named or headers.get("x-gitlab-event-uuid", "")
    once = hashlib.sha256(number.encode("utf-8", "surrogateescape") + b"\0" + (b"" if named else body)).hexdigest()
    return Sent(f"gitlab {once}", MONTH_S if number else WINDOW_S, headers.get("x-gitlab-event", ""))


def of_standard(key: bytes, headers: Mapping[str, str], body: bytes) -> Sent | None:
    """Standard Webhooks, as many services sign. Number, time and body are signed; the header may hold several signatures, while a key is
    changed. What is tried again has the same number and a new time: it is taken once, within a month."""
    number, stamp, given = (headers.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    signed = f"{number}.{stamp}.".encode("utf-8", "surrogateescape") + body
    expected = "v1," + base64.b64encode(hmac.new(_decoded(key), signed, hashlib.sha256).digest()).decode()
    fits = any([_same(expected, one) for one in given.split(" ")[:MOST_SIGNATURES]])
    if not fits or not number or not re.fullmatch(r"[0-9]{1,12}", stamp) or abs(time.time() - int(stamp)) > WINDOW_S:
        return None
    return Sent(f"standard {hashlib.sha256(number.encode('utf-8', 'surrogateescape')).hexdigest()}", MONTH_S)


def _decoded(key: bytes) -> bytes:
    """The bytes that whsec_ and base64 stand for; a key of another form stands for itself."""
    try:
        return base64.b64decode(key.removeprefix(PREFIX), validate=True) if key.startswith(PREFIX) else key
    except ValueError:
        return key


def _same(expected: str, given: str) -> bool:
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "surrogateescape"))


SIGNERS: dict[str, Callable[[bytes, Mapping[str, str], bytes], Sent | None]] = {
    "leadline": of_leadline, "github": of_github, "gitlab": of_gitlab, "standard": of_standard,
}  # fmt: skip


def event_named(text: str) -> str:
    """As one writes it for both: `push` of GitHub and `Push Hook` of GitLab are the same."""
    return re.sub(r"[ _-]+", " ", text.strip().lower()).removesuffix(" hook")
