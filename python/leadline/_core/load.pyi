"""The load client. What it finds comes as JSON; times are nanoseconds on CLOCK_MONOTONIC.

Raise kinds usage, invalid (a script), connection, unsupported.
"""

from collections.abc import Callable, Sequence

from leadline._core.net import Login

__all__ = ["builtin", "check", "run", "tpcc_numbers", "tpcc_rows"]

def builtin(name: str) -> str | None:
    """The text of a script that is built in: tpcb-like, simple-update, select-only, insert."""

def check(scripts: Sequence[tuple[str, int, str]]) -> None:
    """Name, weight and text of scripts, which are not run."""

def run(
    login: Login,
    scripts: Sequence[tuple[str, int, str]],
    phases: Sequence[tuple[float | None, float, bool]],
    *,
    mode: str,
    clients: int,
    threads: int,
    poisson: bool,
    scale: int,
    variables: Sequence[tuple[str, str]],
    seed: int,
    max_tries: int,
    continue_on_error: bool,
    latency_limit_s: float | None = None,
    drain_s: float = 10.0,
    histograms: bool = False,
    terminals: tuple[int, Sequence[tuple[float, float]]] | None = None,
    transactions: int | None = None,
    auto_warm_up: int | None = None,
    show: Callable[[str], object] | None = None,
) -> tuple[str, bool]:
    """scripts: name, weight, text. phases: transactions a second (None: a closed loop), seconds, and whether it is a warm-up.

    terminals: how many, and for each script the seconds of keying in before it and of thinking after it; then there is no rate.
    transactions: of each client, which then ends.
    auto_warm_up: the first phase ends before its time when the rate is steady, over means of so many seconds.
    show: gets each second as it comes, in another thread. The second value: it was interrupted.
    """

def tpcc_numbers(table: str, items: int, customers: int) -> int:
    """How many numbers a table of TPC-C has for its rows, of each warehouse: order_line has several rows for a number."""

def tpcc_rows(table: str, warehouse: int, items: int, customers: int, from_: int, to: int, entered: str) -> str:
    """The rows of these numbers, from 0, in the text format of COPY. entered: a timestamp for what has one."""
