"""What one server holds: where its book is, how it is reached, and how a request becomes a caller and an answer."""

from __future__ import annotations

import ipaddress
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import cookies
from typing import Any

from leadline.book.place import Place
from leadline.book.store import Store
from leadline.errors import LeadlineError
from leadline.server import hooks, login
from leadline.server.operation import Operation, Refused, perform
from leadline.server.passwords import Throttle
from leadline.server.rights import Caller

COOKIE = "leadline_session"
SAFE = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True)
class Asked:
    """Of a request what decides who it is from."""

    method: str
    scheme: str
    host: str
    client: tuple[str, int]
    headers: Mapping[str, str]

    @property
    def session(self) -> str:
        jar: cookies.SimpleCookie = cookies.SimpleCookie()
        try:
            jar.load(self.headers.get("cookie", ""))
        except cookies.CookieError:
            return ""
        return jar[COOKIE].value if COOKIE in jar else ""


@dataclass
class Site:
    place: Place
    loopback: bool
    throttle: Throttle = field(default_factory=Throttle)
    _local: threading.local = field(default_factory=threading.local)

    @property
    def store(self) -> Store:
        """One connection for each thread."""
        if not hasattr(self._local, "store"):
            self._local.store = Store(self.place)
        store: Store = self._local.store
        return store

    def perform(self, operation: Operation, asked: Asked, given: Mapping[str, Any]) -> Any:
        return perform(operation, self.caller(asked), self.store, self.place, given)

    def log_in(self, account: str, password: str, address: str) -> str:
        return login.log_in(self.store, self.throttle, account, password, address)

    def log_out(self, session: str) -> None:
        login.log_out(self.store, session)

    def receive(self, hook: str, headers: Mapping[str, str], body: bytes, address: str) -> dict[str, Any]:
        return hooks.receive(self.place, self.store, hook, headers, body, address)

    def caller(self, asked: Asked) -> Caller:
        """Raises Refused: 401 for who is not logged in, 403 for what another site sent."""
        authorization = asked.headers.get("authorization", "")
        if authorization:
            kind, _, token = authorization.partition(" ")
            found = login.caller_of_token(self.store, token.strip(), asked.client[0]) if kind.lower() == "bearer" else None
            if found is None:
                raise Refused(
                    401,
                    "rights",
                    "the token is not valid",
                    detail="It is unknown, has expired or was revoked.",
                    hint="leadline token create",
                )
            return found
        session = asked.session
        check_origin(asked, bool(session))
        if not login.has_users(self.store):
            return self._owner(asked)
        found = login.caller_of_session(self.store, session, asked.client[0]) if session else None
        if found is None:
            raise Refused(401, "rights", "you are not logged in", hint="log in at /login, or send a token: Authorization: Bearer TOKEN")
        return found

    def _owner(self, asked: Asked) -> Caller:
        """Without users: the user who runs this server, on this host, under a name of this host."""
        name = asked.host.rsplit(":", 1)[0] if not asked.host.endswith("]") else asked.host
        if not self.loopback or not is_loopback(asked.client[0]) or (name != "localhost" and not is_loopback(name.strip("[]"))):
            raise Refused(403, "rights", "without users this server answers only under localhost", hint="leadline user create NAME --admin")
        uid = peer_uid(*asked.client)
        if uid not in (os.getuid(), 0):
            raise Refused(403, "rights", "without users this server answers only its own user", hint="leadline user create NAME --admin")
        return Caller(address=asked.client[0])


def check_origin(asked: Asked, has_session: bool) -> None:
    """Refuses what another site's page sent, by what the browser says of it. Programs send neither header, and have no cookie to misuse."""
    fetch_site, origin = asked.headers.get("sec-fetch-site"), asked.headers.get("origin")
    own = f"{asked.scheme}://{asked.host}"
    foreign = Refused(403, "rights", "the request came from another site")
    if asked.method in SAFE:
        if origin is not None and origin != own:
            raise foreign
        return
    if fetch_site is not None:
        if fetch_site not in ("same-origin", "none"):
            raise foreign
    elif origin is not None:
        if origin != own:
            raise foreign
    elif has_session:
        raise Refused(
            403, "rights", "a request with a session must say where it comes from", hint="programs use a token: Authorization: Bearer TOKEN"
        )


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def peer_uid(address: str, port: int) -> int | None:
    """The user whose socket of this host has this address and port. None: no such socket."""
    ip = ipaddress.ip_address(address)
    packed = ip.packed
    words = b"".join(packed[at : at + 4][::-1] for at in range(0, len(packed), 4)).hex().upper()
    wanted = f"{words}:{port:04X}"
    try:
        with open(f"/proc/net/tcp{'6' if ip.version == 6 else ''}") as table:
            for line in table:
                fields = line.split()
                if fields[1] == wanted and fields[3] == "01":  # established
                    return int(fields[7])
    except (OSError, ValueError, IndexError):
        pass
    return None


def own_path(text: str) -> str:
    """A path of this site to go on to, or the start page."""
    if text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable() and "\\" not in text:
        return text
    return "/"


def error_text(error: LeadlineError) -> dict[str, Any]:
    return {"error": error.as_dict()}
