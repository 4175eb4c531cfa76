"""leadline replication: what the curves of a primary and its standbys lead to, and studies of such a pair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from leadline.cli import SETTINGS
from leadline.cli.forms import form, printed

if TYPE_CHECKING:
    from leadline.engines.postgres.forecast import Filling, Forecast


@click.group(
    "replication",
    context_settings=SETTINGS,
    epilog="""\b
Examples:
  leadline replication forecast pair.leadline
  leadline replication forecast postgres://db1/shop --with postgres://db2/shop
  leadline replication study commit-modes""",
)
def command() -> None:
    """Forecast when a standby catches up, and study pairs of servers."""


@command.command(
    "forecast",
    short_help="Forecast when standbys catch up, and when a disk is full.",
    epilog="""\b
Examples:
  leadline replication forecast pair.leadline
  leadline replication forecast pair.leadline --json
  leadline replication forecast postgres://db1/shop --with postgres://db2/shop""",
)
@click.argument("source", metavar="CAPTURE|DSN")
@click.option(
    "--with", "others", multiple=True, metavar="DSN", help="With DSN: also watch this standby or primary of that server; repeatable."
)
@click.option("--for", "duration", metavar="TIME", help="With DSN: how long to watch.  [default: 30s]")
@form()
def forecast(source: str, others: tuple[str, ...], duration: str | None, form: str | None) -> None:
    """Forecast when each standby has caught up, or that it never will.

    "can replay" is the rate of replay, measured only while the standby's disk had WAL that was not replayed yet, for a quarter of a second
    or longer. Replay always had work then, so this is the highest rate that the standby can follow. If there was never such WAL, or if more
    than that was replayed over the whole time, "can replay" is the rate of replay divided by the share of the time in which replay was seen
    to work, if that is at least half. A standby catches up if it can replay WAL faster than the primary makes it. The time to catch up
    is the WAL still to be replayed, divided by the difference of the two rates. The forecast assumes that the load does not change.

    With DSN, the servers are watched first. Time and rates have 95 % intervals in --json.
    """
    import tempfile
    from contextlib import closing
    from pathlib import Path

    from leadline.capture.reader import open_capture
    from leadline.engines.live import is_connection_string
    from leadline.engines.postgres.forecast import fillings, forecasts
    from leadline.probes.take import take
    from leadline.progress import Silent, TerminalLine
    from leadline.units import seconds_of

    with tempfile.TemporaryDirectory(prefix="leadline-") as folder:
        directory = Path(source)
        if is_connection_string(source):
            progress = Silent() if form else TerminalLine()
            for_s = seconds_of(duration or "30s")
            directory = take(dsn=source, others=others, for_s=for_s, out=Path(folder) / "watched", probes=["sessions"], progress=progress)
        elif others or duration:
            raise click.UsageError("--with and --for are for the connection string of a server")
        with closing(open_capture(directory)) as capture:
            standbys, disks = forecasts(capture), fillings(capture)
    rows = [standby.as_dict() for standby in standbys]
    if not printed(form, rows, {"standbys": rows, "disks": [vars(disk) for disk in disks]}):
        click.echo("\n".join(_lines(standbys, disks)))


@command.command(
    "study",
    short_help="Run a ready study of a primary and its standby.",
    epilog="""\b
Examples:
  leadline replication study commit-modes --plan
  leadline replication study commit-modes --round-trip 0,5ms --repetitions 10
  leadline replication study keep-up --levels replay_cpu=20%,10% --for 30s
  leadline replication study commit-modes --primary postgres://db1/shop \\
    --standby postgres://db2/shop --yes""",
)
@click.argument("name", metavar="NAME")
@click.option("--private", is_flag=True, help="On a private pair on this host, removed at the end: the default.")
@click.option("--primary", metavar="DSN", help="On this server instead. Says what it will change, and asks.")
@click.option("--standby", metavar="DSN", help="With --primary: its standby, which is compared with it before anything begins.")
@click.option("--round-trip", "round_trips", metavar="A,B", help="Compare round trips between a private primary and standby: 0,5ms,20ms.")
@click.option("--setting", "settings", multiple=True, metavar="NAME=A,B", help="Compare these levels of a setting.")
@click.option("--levels", multiple=True, metavar="FACTOR=A,B", help="Compare these levels of a factor of the design; repeatable.")
@click.option("--repetitions", type=click.IntRange(1, 1000), metavar="N", help="Blocks: how often each combination is run.")
@click.option("--for", "duration", metavar="TIME", help="How long each load runs.")
@click.option("--clients", type=click.IntRange(1, 10_000), metavar="N", help="Clients of the load.")
@click.option("--seed", type=click.IntRange(0, 2**53), metavar="N", help="Seed of the order.  [default: random, and recorded]")
@click.option("--pg-bin", metavar="DIR", help="Directory with postgres and initdb for the private pair.")
@click.option("--plan", is_flag=True, help="Show cells, order, time and disk; nothing runs.")
@click.option("--yes", is_flag=True, help="Change the server that --primary names without asking.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def study(
    name: str, private: bool, primary: str | None, standby: str | None, plan: bool, as_json: bool, yes: bool, **given: Any,
) -> int:  # fmt: skip
    """Run a ready study of a primary and its standby, as `leadline study run NAME` does.

    A private pair is a primary and a standby on this host: they share its CPUs, disk and page cache, and the study says so. What they do
    holds for their settings and the round trip that stands between them, and not for other hardware.

    \b
    commit-modes  what each level of synchronous_commit costs, by the round trip
    conflict      who pays for a long snapshot on a standby: replay, the reader
                  or the primary
    keep-up       which rate of WAL a standby keeps up with
    limit         between which two rates it ceases to keep up
    outage        how long a standby takes to catch up, and its forecast;
                  catch-up is another name for it
    overload      how fast replay is when it cannot keep up, and after the load
    page-images   how replay goes on when a load begins with page images
    parameters    which settings of a standby make it replay faster
    recovery      records a second of crash recovery: the server, and
                  `leadline recover`

    With --primary, the round trip is that of your network: only the settings are compared, on that server. Only commit-modes runs there.
    """
    from leadline.cli.study.plan import show
    from leadline.cli.study.run import start
    from leadline.errors import LeadlineError
    from leadline.study.design import ALIASES, of_replication, ready_pairs

    if ALIASES.get(name, name) not in (ready := of_replication()):
        raise LeadlineError("usage", f"there is no study {name[:60]!r} of replication", hint=f"one of {', '.join(ready)}", where="NAME")
    if private and (primary or standby):
        raise click.UsageError("--private is without --primary and --standby")
    if standby and not primary:
        raise click.UsageError("--standby goes with --primary")
    if primary and ALIASES.get(name, name) not in ready_pairs():
        raise LeadlineError("usage", "this study makes a private server of its own", hint="without --primary", where="--primary")
    if primary:
        from leadline.study.named_pair import check

        check(primary, standby)
    none = {"layouts": (), "includes": (), "margin": None, "restart": None, "server": primary}
    if plan:
        show(name, given | none, as_json)
        return 0
    return start(name, given | none, None, yes, as_json)


def _lines(standbys: list[Forecast], disks: list[Filling]) -> list[str]:
    from textwrap import wrap

    from leadline.output import to_table, width_here
    from leadline.units import age_in_words, sized

    if not standbys:
        return ["no standby was seen"]

    def per_s(rate: float | None) -> str:
        return "" if rate is None else f"{sized(rate)}/s"

    def when(told: Forecast) -> str:
        if told.verdict == "paused" and told.catch_up_s is not None:
            return f"{age_in_words(told.catch_up_s)} after it is resumed"
        if told.verdict == "catches up" and told.catch_up_s is not None:
            return f"in {age_in_words(told.catch_up_s)}"
        return told.verdict

    names = ["standby", "behind", "made", "can replay", "catches up"]
    cells = [
        [s.standby, sized(s.lag_bytes), per_s(s.made_per_s), per_s(s.capacity.rate if s.capacity else None), when(s)]
        for s in standbys
    ]
    lines = [to_table(names, cells).rstrip("\n")]
    if any(s.capacity is not None and s.capacity.of == "receipt" for s in standbys):
        lines.append("can replay: not more than reaches the standby's disk, where that is what holds it up.")
    if any(s.capacity is not None and s.capacity.known_from == "share" for s in standbys):
        lines.append("can replay: by the share of the time in which replay was seen to work, where it always had replayed all.")
    if any(s.capacity is None for s in standbys):
        lines.append("can replay: not known where no WAL waited for replay, unless memory shows it at work for half of the time.")
    for disk in disks:
        line = f"{disk.server}: {disk.what}: {sized(disk.kept_bytes)}, {per_s(disk.growth_per_s)} more"
        if disk.full_s is not None:
            line += f"; the disk of its WAL is full in {age_in_words(disk.full_s)}"
        if disk.lost_s is not None:
            line += f"; it loses its WAL in {age_in_words(disk.lost_s)} (max_slot_wal_keep_size)"
        lines += wrap(line, width_here(), subsequent_indent="  ")
    return lines
