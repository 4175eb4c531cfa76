"""Measuring clients on plain sockets. What they find comes as JSON; times are nanoseconds on CLOCK_MONOTONIC.

Raise kinds usage, connection.
"""

from collections.abc import Callable
from typing import final

__all__ = ["Delay", "Echo", "Fetcher", "Login", "clock_cost", "compare", "dbping", "postgres_login", "rtt"]

@final
class Echo:
    """The server of `net rtt`, in threads of its own until `stop`."""

    def __new__(cls, host: str, port: int) -> Echo:
        """port: 0 for a free one."""

    def address(self) -> tuple[str, int]: ...
    def counts(self) -> str: ...
    def stop(self) -> str:
        """Closes its connections; the counts."""

@final
class Delay:
    """A proxy that delays, in a thread of its own until `stop`."""

    def __new__(
        cls,
        host: str,
        port: int,
        to_host: str,
        to_port: int,
        *,
        rtt_s: float,
        jitter_s: float = 0.0,
        rate_bit: float | None = None,
        window: int | None = None,
        buffer: int | None = None,
    ) -> Delay:
        """Half of rtt_s in each direction. jitter_s: each part is so much earlier or later at most. rate_bit: bits a second.
        window, buffer: bytes under way, and kept, in each direction. A to_host that begins with a slash is a unix socket."""

    def address(self) -> tuple[str, int]: ...
    def upstream(self) -> list[tuple[str, int]]:
        """The proxy's addresses of its connections to the server."""

    def stop(self) -> str:
        """Closes its connections; what was done, and the delay that was really added."""

@final
class Login:
    """Who logs in where. The password is never part of what is printed."""

    def __new__(
        cls,
        host: str,
        port: int,
        *,
        user: str,
        database: str,
        password: str | None = None,
        sslmode: str = "prefer",
        sslrootcert: str | None = None,
        timeout_s: float = 5.0,
        receive_buffer: int | None = None,
    ) -> Login:
        """host: a name, an address, or the path of a unix socket. sslmode, sslrootcert: as in libpq; certificates are checked with verify-*
        alone. receive_buffer: SO_RCVBUF."""

@final
class Fetcher:
    """A session with PostgreSQL that reads queries, a number of rows with each round trip."""

    def __new__(cls, login: Login) -> Fetcher: ...
    def addresses(self) -> tuple[tuple[str, int], tuple[str, int]] | None:
        """Ours and that of the other end; None over a unix socket."""

    def run(self, sql: str, rows: int, *, server: tuple[tuple[str, int], tuple[str, int]] | None = None) -> tuple[str, bool]:
        """rows: of each Execute, 0 for all. server: the server's socket, if it is on this host, for its send queue: its address and
        that of its peer. The second value: it was interrupted."""

def clock_cost() -> str: ...
def rtt(
    host: str,
    port: int,
    *,
    request: int,
    response: int,
    connections: int = 1,
    rate_hz: float | None = None,
    flow: bool = False,
    for_s: float = 10.0,
    requests: int | None = None,
    timeout_s: float = 5.0,
    interval_s: float = 1.0,
    show: Callable[[str], object] | None = None,
) -> tuple[str, bool]:
    """Round trips to an Echo. requests: at most so many on each connection. The second value: it was interrupted.

    flow: without waiting for the replies before; a request counts when its reply is there.
    show: gets the row of each connection and interval_s as it comes, in another thread.
    """

def postgres_login(login: Login) -> tuple[str, bool]:
    """Logs in once: the phases, or `fault`."""

def dbping(login: Login, protocol: str, *, connects: int, pings: int) -> tuple[str, bool]:
    """protocol: postgres (without a user: no login), mysql, tcp."""

def compare(host: str, port: int, application: str, *, count: int, pause_s: float, timeout_s: float) -> tuple[str, bool]:
    """application: echo, postgres, none."""
