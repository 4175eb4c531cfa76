"""What the subcommands of `leadline book` share."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import click

from leadline.errors import LeadlineError
from leadline.units import seconds_of

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
limit = click.option(
    "--limit", type=click.IntRange(1, 100_000), default=20, show_default=True, metavar="N", help="Maximum number of runs to print."
)


def stored_kind(_context: click.Context, _option: click.Parameter, kind: str | None) -> str | None:
    """Of --kind: a trial of an experiment is stored as a leg, which it was called at first."""
    return "leg" if kind == "trial" else kind


def labels_of(texts: Iterable[str]) -> list[tuple[str, str | None]]:
    """KEY=VALUE, or KEY alone, whose value is None. Raises LeadlineError."""
    out = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not re.fullmatch(r"[\w.-]{1,64}", key):
            raise LeadlineError("usage", f"{text!r} is not a label", hint="labels are KEY=VALUE; a key has letters, digits, _ . and -")
        out.append((key, value if equals else None))
    return out


def ago_us(text: str) -> int:
    """Microseconds since 1970 of a moment so long ago: 90d, 12h, 30m. Raises LeadlineError."""
    return time.time_ns() // 1000 - int(seconds_of(text, bare=False) * 1e6)


def when(us: int | None) -> str:
    """Local time; nothing also for what was always there, as the project main."""
    return "" if not us else datetime.fromtimestamp(us / 1e6).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def ended(run: dict[str, Any]) -> str:
    """The status, with what it ended with when that was not well."""
    if run["signal"] is not None:
        return f"{run['status']} (signal {run['signal']})"
    return f"{run['status']} ({run['rc']})" if run["status"] in ("failed", "cancelled") and run["rc"] else str(run["status"])
