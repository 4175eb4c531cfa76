"""What is to be run: scripts, phases and clients, from the words of a command line."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from leadline._core.load import builtin
from leadline.errors import LeadlineError
from leadline.load import tpcc
from leadline.load.tpcc.scripts import TRANSACTIONS
from leadline.units import seconds_of

# Names of the command line, and of pgbench.
WORKLOADS = {"tpcb": "tpcb-like", "simple-update": "simple-update", "select": "select-only", "insert": "insert"}
PURGE = "purge"
ALONE = (tpcc.NAME, PURGE)  # workloads on tables of their own
MODES = ("simple", "extended", "prepared")
MOST_STEPS = 1000
LARGEST_SCRIPT = 16 << 20


@dataclass(frozen=True)
class Phase:
    """rate: transactions a second; None: each client begins one when the one before has ended."""

    rate: float | None
    for_s: float
    warm_up: bool = False

    def row(self) -> tuple[float | None, float, bool]:
        return self.rate, self.for_s, self.warm_up


@dataclass(frozen=True)
class Terminals:
    """seconds: by script: of keying in before it, and of thinking after it on the average. factor: of the specification's times."""

    count: int
    seconds: tuple[tuple[float, float], ...]
    factor: float = 1.0


@dataclass(frozen=True)
class Plan:
    """scripts: name, weight, text. variables: set by the user. scale: None where no script needs it."""

    scripts: list[tuple[str, int, str]]
    phases: list[Phase]
    clients: int = 1
    threads: int = 1
    mode: str = "prepared"
    poisson: bool = False
    variables: list[tuple[str, str]] = field(default_factory=list)
    seed: int = 0
    max_tries: int = 1
    continue_on_error: bool = False
    latency_limit_s: float | None = None
    drain_s: float = 10.0
    needs_tables: bool = False
    workload: str | None = None  # one of ALONE
    terminals: Terminals | None = None
    transactions: int | None = None  # of each client
    auto_warm_up: int | None = None  # means of so many seconds say when the rate is steady


def scripts_of(workloads: Sequence[str], files: Sequence[str]) -> list[tuple[str, int, str]]:
    """Name, weight and text of scripts that are built in, and of files, each with @WEIGHT or not. Raises LeadlineError."""
    found = []
    for given in workloads:
        name, weight = weighted(given)
        if name in ALONE:
            if len(workloads) + len(files) > 1:
                raise LeadlineError("usage", f"{name} runs alone", hint="its tables are not those of other workloads")
            # The script of a purge depends on the table.
            return [(of.name, of.weight, of.text) for of in TRANSACTIONS] if name == tpcc.NAME else [(PURGE, 1, "")]
        text = builtin(WORKLOADS.get(name, name))
        if text is None:
            raise LeadlineError("usage", f"there is no workload {name!r}", hint=f"there are {', '.join((*WORKLOADS, *ALONE))}")
        found.append((WORKLOADS.get(name, name), weight, text))
    for given in files:
        name, weight = weighted(given)
        found.append((name, weight, _text(name)))
    return found or scripts_of(["tpcb"], [])


def weighted(given: str) -> tuple[str, int]:
    """NAME@WEIGHT, as pgbench takes it. Raises LeadlineError('usage')."""
    name, at, weight = given.rpartition("@")
    if not at:
        return given, 1
    if not (weight.isascii() and weight.isdigit()) or int(weight) > 0x7FFF_FFFF:
        raise LeadlineError("usage", f"{weight!r} is not a weight", hint="use FILE@WEIGHT, such as transfer.sql@3; 0 never runs it")
    return name, int(weight)


def name_of(given: str) -> str:
    """Without its weight."""
    return weighted(given)[0]


def _text(name: str) -> str:
    try:
        data = sys.stdin.buffer.read(LARGEST_SCRIPT + 1) if name == "-" else _read(Path(name))
    except OSError as e:
        raise LeadlineError("not_found", "the script cannot be read", detail=e.strerror or str(e), where=name) from e
    if len(data) > LARGEST_SCRIPT:
        raise LeadlineError("invalid", "the script is longer than 16 MB", where=name)
    try:
        return data.decode()
    except UnicodeDecodeError as e:
        raise LeadlineError("invalid", "the script is not in UTF-8", detail=f"at byte {e.start}", where=name) from e


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LARGEST_SCRIPT + 1)


STEADY_S = 5  # the batches of MSER-5
LONGEST_WARM_UP_S = 600.0


def warm_up_of(text: str) -> tuple[float, int | None]:
    """Seconds, and for `auto` those of a mean. Raises LeadlineError('usage')."""
    return (LONGEST_WARM_UP_S, STEADY_S) if text == "auto" else (seconds_of(text), None)


def phases_of(for_s: float, warm_up_s: float, rate: float | None, ramp: str | None) -> list[Phase]:
    """The warm-up, then one phase, or one for each rate of a ramp. Raises LeadlineError('usage')."""
    rates: list[float | None] = [rate] if ramp is None else list(ramp_of(ramp))
    warm_up = [Phase(rates[0], warm_up_s, warm_up=True)] if warm_up_s > 0 else []
    return warm_up + [Phase(rate, for_s) for rate in rates]


def terminals_of(count: int | None, factor: float) -> Terminals | None:
    """Terminals with the keying and think times of the five transactions, so many times as long."""
    if count is None:
        return None
    return Terminals(count, tuple((of.keying_s * factor, of.think_s * factor) for of in TRANSACTIONS), factor)


def with_defaults(given: list[tuple[str, str]], defaults: dict[str, str]) -> list[tuple[str, str]]:
    """Variables of the user, and those of a workload that the user did not set."""
    named = dict(given)
    return given + [(name, value) for name, value in defaults.items() if name not in named]


def ramp_of(text: str) -> list[float]:
    """The rates of FROM:TO:STEP, both ends among them. Raises LeadlineError('usage')."""
    hint = "use FROM:TO:STEP in transactions a second, such as 100:1000:100"
    try:
        first, last, step = (float(part) for part in text.split(":"))
    except ValueError:
        raise LeadlineError("usage", f"{text!r} is not a ramp", hint=hint) from None
    if not (first > 0 and last >= first and step > 0 and last < 1e9) or (last - first) / step > MOST_STEPS:
        raise LeadlineError("usage", f"{text!r} is not a ramp", detail="it goes up from above 0, in at most 1000 steps", hint=hint)
    count = int((last - first) / step + 1e-9) + 1
    return [first + number * step for number in range(count)]


def variable(given: str) -> tuple[str, str]:
    """NAME=VALUE. Raises LeadlineError('usage')."""
    name, equals, value = given.partition("=")
    if not equals or not name:
        raise LeadlineError("usage", f"{given!r} sets no variable", hint="use -D NAME=VALUE")
    return name, value


def seed_of(text: str | None) -> int:
    """A number, or one that the system draws."""
    if text is None:
        return secrets.randbits(63)
    if not (text.isascii() and text.isdigit()) or int(text) >= 1 << 64:
        raise LeadlineError("usage", f"{text!r} is not a seed", hint="use a whole number from 0 on")
    return int(text)


def threads_of(asked: int | None, clients: int) -> int:
    """One for each CPU that this process may use, but no more than clients."""
    return min(clients, asked or len(os.sched_getaffinity(0)))


def duration_of(text: str, what: str) -> float:
    """Seconds, more than none. Raises LeadlineError('usage')."""
    seconds = seconds_of(text)
    if not 0 < seconds <= 86_400:
        raise LeadlineError("usage", f"{what} is longer than nothing, and at most a day", hint=f"{what} 60s")
    return seconds
