"""Passwords as Argon2id, and how often they may be tried."""

from __future__ import annotations

import hashlib
import ipaddress
import threading
import time
from functools import cache
from typing import TYPE_CHECKING

from leadline.errors import LeadlineError
from leadline.server.operation import Refused

if TYPE_CHECKING:
    from argon2 import PasswordHasher

SHORTEST, LONGEST = 12, 256
TRIES, WITHIN_S = 10, 15 * 60
OF_ACCOUNT = 100  # from all addresses together: ten addresses must be closed before strangers have closed an account
MOST_KEYS = 100_000
_two_at_once = threading.Semaphore(2)  # each takes 19 MiB and a CPU


@cache
def _hasher() -> PasswordHasher:
    try:
        from argon2 import PasswordHasher
    except ImportError:
        raise LeadlineError("unsupported", "passwords need the package argon2-cffi", hint="pip install 'leadline[web]'") from None
    return PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


@cache
def _nobody() -> str:
    """What is compared for accounts that do not exist, so that they take as long as others."""
    return _hasher().hash("nobody has this password")


def digest(text: str) -> str:
    """For ids that are random enough to need no salt."""
    return hashlib.sha256(text.encode()).hexdigest()


def hashed(password: str) -> str:
    """Raises LeadlineError for one that is too short."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise LeadlineError(
            "usage",
            f"the password has not {SHORTEST} to {LONGEST} characters",
            hint="a few words in a row make a good one",
            where="password",
        )
    with _two_at_once:
        return _hasher().hash(password)


def matches(stored: str | None, password: str) -> bool:
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        with _two_at_once:
            return _hasher().verify(stored or _nobody(), password[: LONGEST + 1]) and stored is not None
    except (VerificationError, InvalidHashError):
        return False


class Throttle:
    """At most TRIES wrong passwords from an address, and OF_ACCOUNT for an account, within WITHIN_S. Who has a link, or a browser in which
    the user has logged in, is counted `apart`, under a key of their own. Kept in memory: a restart forgets them."""

    def __init__(self) -> None:
        self._tries: dict[str, list[float]] = {}
        self._lock = threading.Lock()

    def begin(self, account: str, address: str, apart: str = "") -> int:
        """0: may try now. It counts as wrong until it `was_right`, so that tries at the same time are no more than others."""
        now = time.monotonic()
        with self._lock:
            waits = [0.0]
            keys = self._keys(account, address, apart)
            for key, most in keys.items():
                times = [t for t in self._tries.get(key, ()) if now - t < WITHIN_S]
                if times:
                    self._tries[key] = times
                else:
                    self._tries.pop(key, None)
                if len(times) >= most:
                    waits.append(times[-most] + WITHIN_S - now)
            if wait := int(max(waits) + 0.999):
                return wait
            while len(self._tries) > MOST_KEYS:  # the oldest go, one by one: many names must not clear that of one account
                del self._tries[next(iter(self._tries))]
            for key in keys:
                self._tries.setdefault(key, []).append(now)
            return 0

    def check(self, account: str, address: str, apart: str = "") -> None:
        """As `begin`. Raises Refused for who has to wait."""
        if wait := self.begin(account, address, apart):
            hint = "" if apart else "a login link works all the same, and so does a browser in which you have logged in before"
            raise Refused(429, "rights", "too many wrong passwords", detail=f"wait {wait} s", hint=hint)

    def closed(self, account: str, address: str, apart: str = "") -> list[str]:
        """What may not be tried any more for a while: for the audit."""
        with self._lock:
            return [key for key, most in self._keys(account, address, apart).items() if len(self._tries.get(key, ())) >= most]

    def was_right(self, account: str, address: str, apart: str = "") -> None:
        with self._lock:
            for key in self._keys(account, address, apart):
                if key.startswith("address ") and (times := self._tries.get(key)) and len(times) > 1:
                    times.pop()
                else:
                    self._tries.pop(key, None)

    @staticmethod
    def _keys(account: str, address: str, apart: str) -> dict[str, int]:
        """Each with the most tries of it."""
        if apart:
            return {apart: TRIES}
        return {f"account {account}": OF_ACCOUNT, f"address {_network(address)}": TRIES}


def _network(address: str) -> str:
    """The address, or of IPv6 the network: whoever has one such address has all of its network."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address):
        return str(ip.ipv4_mapped or ipaddress.ip_network((ip, 64), strict=False))
    return str(ip)
