"""Passwords as Argon2id, and how often they may be tried."""

from __future__ import annotations

import threading
import time
from functools import cache
from typing import TYPE_CHECKING

from leadline.errors import LeadlineError

if TYPE_CHECKING:
    from argon2 import PasswordHasher

SHORTEST, LONGEST = 12, 256
TRIES, WITHIN_S = 10, 15 * 60
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
    """At most TRIES wrong passwords for an account, and from an address, within WITHIN_S. Kept in memory: a restart forgets them."""

    def __init__(self) -> None:
        self._wrong: dict[str, list[float]] = {}
        self._lock = threading.Lock()

    def wait_s(self, account: str, address: str) -> int:
        """0: may try now."""
        now = time.monotonic()
        with self._lock:
            waits = [0.0]
            for key in self._keys(account, address):
                times = [t for t in self._wrong.get(key, ()) if now - t < WITHIN_S]
                if times:
                    self._wrong[key] = times
                else:
                    self._wrong.pop(key, None)
                if len(times) >= TRIES:
                    waits.append(times[-TRIES] + WITHIN_S - now)
            return int(max(waits) + 0.999)

    def was_wrong(self, account: str, address: str) -> None:
        with self._lock:
            if len(self._wrong) > 100_000:
                self._wrong.clear()
            for key in self._keys(account, address):
                self._wrong.setdefault(key, []).append(time.monotonic())

    def was_right(self, account: str) -> None:
        with self._lock:
            self._wrong.pop(f"account {account}", None)

    @staticmethod
    def _keys(account: str, address: str) -> tuple[str, str]:
        return f"account {account}", f"address {address}"
