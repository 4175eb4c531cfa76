"""What one server holds: where its book is, how it is reached, and how a request becomes a caller and an answer."""

from __future__ import annotations

import ipaddress
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from leadline.book.place import Place
from leadline.book.store import Store
from leadline.errors import LeadlineError
from leadline.server.accounts import links, login, oidc, totp
from leadline.server.accounts.passwords import Throttle
from leadline.server.launch import hooks
from leadline.server.operation import Call, Operation, Refused, perform
from leadline.server.read.runs import find_run
from leadline.server.rights import Caller
from leadline.server.table import BY_NAME
from leadline.server.web.address import HERE, Public

COOKIE = "leadline_session"
DEVICE = "leadline_device"  # kept when one logs out: see devices.py
SAFE = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True)
class Asked:
    """Of a request what decides who it is from."""

    method: str
    scheme: str
    host: str
    client: tuple[str, int]
    headers: Mapping[str, str]
    public: Public = HERE

    @property
    def own(self) -> str:
        """The origin of its site, as this request was sent to it."""
        return f"{self.scheme}://{self.host}"

    @property
    def url(self) -> str:
        """Where the site is for who asks; without / at the end."""
        return (self.public.origin or self.own) + self.public.root

    @property
    def is_secure(self) -> bool:
        return self.url.startswith("https:")

    @property
    def session(self) -> str:
        return self.cookie(COOKIE)

    def cookie(self, name: str) -> str:
        """As we have set it. Python's own reader of cookies took seconds for one of 64 kB with many backslashes, before 3.11.10."""
        found = ""
        for part in self.headers.get("cookie", "").split(";"):
            key, _, value = part.strip().partition("=")
            if key == name:
                found = value.strip('"')
        return found


@dataclass(frozen=True)
class LoggedIn:
    """What a browser is to hold from now on."""

    session: str
    device: str


@dataclass
class Site:
    place: Place
    loopback: bool
    provider: oidc.Provider | None = None
    public: Public = HERE
    proxies: bool = False  # whether some are named
    throttle: Throttle = field(default_factory=Throttle)
    streams: Counter[str] = field(default_factory=Counter)  # outputs that each caller follows now; of the event loop alone
    _told: bool = False
    _local: threading.local = field(default_factory=threading.local)

    @property
    def store(self) -> Store:
        """One connection for each thread."""
        if not hasattr(self._local, "store"):
            self._local.store = Store(self.place)
        store: Store = self._local.store
        return store

    @contextmanager
    def using(self) -> Iterator[Store]:
        """The store for a while. One that fails (no room, gone, restarted) is one clear error; a lost one is opened again for the next."""
        store = self.store
        try:
            yield store
        except store.db.errors as e:
            if store.db.lost():
                del self._local.store
            detail = str(e).strip().partition("\n")[0][:200]
            raise LeadlineError("storage", "the book cannot be read or written now", detail, "nothing of this request was done") from e

    def perform(self, operation: Operation, asked: Asked, given: Mapping[str, Any]) -> Any:
        with self.using() as store:
            return perform(operation, self.caller(asked), store, self.place, given)

    def status(self, asked: Asked, uid: str) -> str | None:
        """How a run is that is followed; None: the caller may not see it any more."""
        with self.using() as store:
            try:
                return str(find_run(Call(BY_NAME["run.show"], self.caller(asked), store, self.place), uid)["status"])
            except LeadlineError:
                return None

    def log_in(self, asked: Asked, account: str, password: str, code: str) -> LoggedIn:
        with self.using() as store:
            second = partial(totp.fits, self.place, store, account, code)
            return self._logged_in(
                asked, login.log_in(store, self.throttle, account, password, asked.client[0], second, asked.cookie(DEVICE))
            )

    def log_in_once(self, asked: Asked, key: str, code: str) -> LoggedIn:
        with self.using() as store:
            second = partial(totp.fits, self.place, store, code=code)
            return self._logged_in(asked, links.log_in_once(store, self.throttle, key, asked.client[0], second))

    def _logged_in(self, asked: Asked, session: str) -> LoggedIn:
        """Whatever session the browser had ends: nobody is to go on with one that was there before the login."""
        if asked.session:
            login.log_out(self.store, asked.session)
        return LoggedIn(session, login.new_device(self.store, session, asked.cookie(DEVICE)))

    def log_in_by_provider(self, asked: Asked, attempt: oidc.Attempt | None, given: Mapping[str, str], back: str) -> LoggedIn:
        if self.provider is None:
            raise LeadlineError("not_found", "there is no such page")
        with self.using() as store:
            return self._logged_in(asked, oidc.log_in(store, self.provider, attempt, given, back, asked.client[0]))

    def log_out(self, session: str) -> None:
        with self.using() as store:
            login.log_out(store, session)

    def note_proxy(self, asked: Asked) -> None:
        """Warns, once, of a proxy that was not named: its clients have one address, and one of them can close it for all."""
        if not self.proxies and not self._told and "x-forwarded-for" in asked.headers:
            self._told = True
            where = f"a proxy at {asked.client[0]} that is not named"
            sys.stderr.write(f"warning: requests come by {where}, so that all its users count as one address: --proxy ADDRESS\n")
            sys.stderr.flush()

    def has_users(self) -> bool:
        with self.using() as store:
            return login.has_users(store)

    def receive(self, hook: str, headers: Mapping[str, str], body: bytes, address: str) -> dict[str, Any]:
        with self.using() as store:
            return hooks.receive(self.place, store, hook, headers, body, address)

    def caller(self, asked: Asked) -> Caller:
        """Raises Refused: 401 for who is not logged in, 403 for what another site sent."""
        with self.using():
            return self._caller(asked)

    def _caller(self, asked: Asked) -> Caller:
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
    own = (asked.own, asked.public.origin or asked.own)
    foreign = Refused(403, "rights", "the request came from another site")
    if asked.method in SAFE:
        if origin is not None and origin not in own:
            raise foreign
        return
    if fetch_site is not None:
        if fetch_site not in ("same-origin", "none"):
            raise foreign
    elif origin is not None:
        if origin not in own:
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
