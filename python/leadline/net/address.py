"""HOST:PORT as people write it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from leadline.errors import LeadlineError

LOOPBACK = "127.0.0.1"
ECHO_PORT = 4747


@dataclass(frozen=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Only this host can connect to it. A name other than localhost counts as no loopback."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse_address(text: str, *, host: str = LOOPBACK, port: int | None = None) -> Address:
    """The address of HOST:PORT, [IPV6]:PORT, :PORT, and, if `port` says which, HOST alone. Raises LeadlineError('usage')."""
    name, colon, number = text.rpartition(":")
    if name.startswith("[") != name.endswith("]") or (":" in name and not name.startswith("[")):
        if port is None or not _is_ipv6(text.strip("[]")):
            raise _bad(text)
        return Address(text.strip("[]"), port)
    if not colon and port is not None and text:
        return Address(text, port)
    if not colon or not number.isascii() or not number.isdigit() or int(number) > 65535:
        raise _bad(text)
    return Address(name.strip("[]") or host, int(number))


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def _bad(text: str) -> LeadlineError:
    return LeadlineError("usage", f"{text!r} is not an address", hint="use HOST:PORT, :PORT or [IPV6]:PORT, such as db01:5432")
