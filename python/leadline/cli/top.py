"""leadline top: a running server on a refreshing screen, or one frame of it for scripts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leadline.cli.take import parse_rate
from leadline.errors import LeadlineError
from leadline.units import seconds_of

if TYPE_CHECKING:
    from leadline.engines.live import Server

WINDOW, WINDOW_ONCE = "30s", "5s"
MIN_RATE_HZ, MAX_RATE_HZ = 1.0, 100.0
MIN_HOST_RATE_HZ, MAX_HOST_RATE_HZ = 0.5, 10.0
MIN_REFRESH_S = 0.5


@click.command(
    "top",
    epilog="\b\nExamples:\n  leadline top 4711\n  leadline top postgresql://app@db1/shop --window 60s\n"
    "  leadline top /var/lib/postgresql/16/main --once\n  leadline top 4711 --once --json | jq .load.aas\n"
    "  leadline top postgres://db1/shop --with postgres://db2/shop",
)
@click.argument("target", required=False)
@click.option(
    "--pid", type=int, metavar="PID", help="Watch the server of this process. If you also give a connection string, it supplies names."
)
@click.option("--data-dir", type=click.Path(path_type=Path), metavar="DIR", help="Watch the server that runs on this data directory.")
@click.option("--with", "others", multiple=True, metavar="DSN", help="Also watch replication with this standby or primary of TARGET.")
@click.option("--host", is_flag=True, help="Watch only this host: CPUs, pressure, processes, devices. Needs no database.")
@click.option(
    "--rate", metavar="HZ", help="Samples per second: 1 to 100; over SQL up to 10; with --host 0.5 to 10.  [default: 10; with --host 1]"
)
@click.option("--refresh", default="3s", show_default=True, metavar="TIME", help="Time between screen updates.")
@click.option("--window", default=None, metavar="TIME", help="How far back to look: 1s to 300s.  [default: 30s; with --once 5s]")
@click.option(
    "--tier", type=click.Choice(["auto", "shm", "sql"]), default="auto", show_default=True, help="Read shared memory or sample over SQL."
)
@click.option("--once", is_flag=True, help="Watch for one window, print it and exit.")
@click.option("--read-only", is_flag=True, help="Turn off the keys that cancel statements and terminate sessions.")
@click.option("--json", "as_json", is_flag=True, help="With --once: print the numbers as one JSON object.")
def command(
    target: str | None,
    pid: int | None,
    data_dir: Path | None,
    others: tuple[str, ...],
    host: bool,
    rate: str | None,
    refresh: str,
    window: str | None,
    tier: str,
    once: bool,
    read_only: bool,
    as_json: bool,
) -> int:
    """Watch a running PostgreSQL: waits, sessions, locks, hot blocks.

    TARGET is a pid (the postmaster or any of its processes), a data directory or a connection string. Without TARGET, the
    PG* variables select the server. top writes no capture: for that, use `leadline take`. The screen lags by one to three seconds and
    lists its keys at the bottom. C cancels the statement of a session and K terminates the session; both ask first.
    """
    from leadline.engines.live import find, find_text

    rate_hz, refresh_s = parse_rate(rate or ("1" if host else "10")), seconds_of(refresh)
    window_s = seconds_of(window or (WINDOW_ONCE if once else WINDOW))
    if host:
        if others:
            raise LeadlineError("usage", "--host cannot be combined with --with", hint="remove one of them")
        return _host(target, pid, data_dir, rate_hz, refresh_s, window_s, once, as_json)
    _check(rate_hz, refresh_s, window_s, once, as_json)
    only_text = target is not None and pid is None and data_dir is None
    found = find_text(target or "") if only_text else find(target, pid, data_dir)
    if once:
        _print_once(found, rate_hz, tier, window_s, as_json, others)
        return 0
    from leadline.top.run import watch

    return watch(found, rate_hz, tier, window_s, refresh_s, read_only, others)


def _check(rate_hz: float, refresh_s: float, window_s: float, once: bool, as_json: bool) -> None:
    if not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
        raise LeadlineError(
            "usage",
            f"--rate {rate_hz:g} is out of range",
            hint=f"use {MIN_RATE_HZ:g} to {MAX_RATE_HZ:g} passes per second; leadline take allows more",
        )
    if refresh_s < MIN_REFRESH_S:
        raise LeadlineError("usage", f"--refresh {refresh_s:g}s is too short", hint=f"use {MIN_REFRESH_S:g}s or more")
    if not 1 <= window_s <= 300:
        raise LeadlineError("usage", f"--window {window_s:g}s is out of range", hint="use 1s to 300s; leadline take records longer")
    if as_json and not once:
        raise LeadlineError("usage", "--json requires --once", hint="add --once")
    if not once and not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise LeadlineError("usage", "leadline top needs a terminal", hint="use --once to print one frame")


def _host(
    target: str | None,
    pid: int | None,
    data_dir: Path | None,
    rate_hz: float,
    refresh_s: float,
    window_s: float,
    once: bool,
    as_json: bool,
) -> int:
    from leadline.top import host

    if target is not None or pid is not None or data_dir is not None:
        raise LeadlineError("usage", "--host cannot be combined with a server", hint="remove the server or --host")
    if not MIN_HOST_RATE_HZ <= rate_hz <= MAX_HOST_RATE_HZ:
        hint = f"use {MIN_HOST_RATE_HZ:g} to {MAX_HOST_RATE_HZ:g} readings per second with --host"
        raise LeadlineError("usage", f"--rate {rate_hz:g} is out of range", hint=hint)
    _check(MIN_RATE_HZ, refresh_s, window_s, once, as_json)
    if not once:
        return host.watch(rate_hz, window_s, refresh_s)
    from rich.console import Console

    from leadline.output import to_json

    lines, numbers = host.one_frame(rate_hz, window_s)
    if as_json:
        click.echo(to_json(numbers))
        return 0
    console = Console(file=sys.stdout, width=80, highlight=False)
    for line in lines:
        console.print(line, no_wrap=True, crop=False, overflow="ignore", soft_wrap=True)
    return 0


def _print_once(found: Server, rate_hz: float, tier: str, window_s: float, as_json: bool, others: tuple[str, ...]) -> None:
    from rich.console import Console

    from leadline.output import terminal_width, to_json
    from leadline.top.once import one_frame
    from leadline.top.text import DRAWN, text_frame

    width = terminal_width()
    made = one_frame(found, rate_hz, tier, window_s, (width or DRAWN) - 6, others)
    if as_json:
        click.echo(to_json(made.as_dict()))
        return
    console = Console(file=sys.stdout, width=width or DRAWN, highlight=False)
    for line in text_frame(made, width, colours=console.color_system is not None and not console.no_color):
        console.print(line, no_wrap=True, crop=False, overflow="ignore", soft_wrap=True)
