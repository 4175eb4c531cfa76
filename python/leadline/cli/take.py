"""leadline take: options in, one capture out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leadline.cli import force, kernel_budget, kernel_detail, kernel_retransmits, kernel_tier
from leadline.cli.net.wire import filter_of, filter_option
from leadline.cli.recorded import summarise
from leadline.errors import LeadlineError
from leadline.units import seconds_of

if TYPE_CHECKING:
    from leadline.capture.manifest import Manifest


def parse_rate(text: str) -> float:
    """Passes a second. Raises LeadlineError('usage')."""
    try:
        return float(re.sub(r"\s*hz$", "", text.strip(), flags=re.I))
    except ValueError:
        raise LeadlineError("usage", f"{text!r} is not a rate", hint="give passes per second, 1 to 10000: --rate 100") from None


@click.command(
    "take",
    epilog="\b\nExamples:\n  leadline take --pid 4711 --for 60s\n  leadline take postgresql://app@db1/shop --for 5m -o friday\n"
    "  leadline take host=/run/postgresql --for 10s --rate 1000\n  leadline take --host --for 60s\n"
    "  leadline take --pid 4711 --pooler 'port=6432 dbname=pgbouncer user=stats'\n"
    "  leadline take postgres://db1/shop --with postgres://db2/shop\n"
    "  leadline take postgres://db1/shop --with ssh:db2\n"
    "  leadline take --from-recorder shop --between 03:00 03:10 -o night",
)
@click.argument("dsn", required=False)
@click.option("--pid", type=int, metavar="PID", help="Process of the server (postmaster or any child); needs no connection.")
@click.option("--data-dir", type=click.Path(path_type=Path), metavar="DIR", help="Capture the server that runs on this data directory.")
@click.option("--host", is_flag=True, help="Capture only this host: processes, devices, network, memory. Needs no database.")
@click.option("--for", "duration", default="60s", show_default=True, metavar="TIME", help="Length of the capture: 500ms, 60s, 5m, 1h.")
@click.option(
    "--rate", metavar="HZ", help="Samples per second: 1 to 10000; over SQL up to 10; with --host 0.1 to 10.  [default: 100; with --host 1]"
)
@click.option("--probes", metavar="NAMES", help="Probes to use: sessions,host,sockets,kernel,wire.  [default: the first three]")
@click.option("--kernel", is_flag=True, help="Also trace system calls and scheduling of the server's processes (see leadline trace).")
@click.option("--packets", is_flag=True, help="Also capture the packets of the server's port (see leadline net packets).")
@click.option("--pooler", metavar="DSN", help="Also query the admin console of the PgBouncer in front of the server, twice a second.")
@click.option(
    "--with", "others", multiple=True, metavar="DSN",
    help="Also watch replication with this standby or primary of the server. ssh:[USER@]HOST[:PORT][/DATA_DIR|/DSN]: by a leadline there.",
)
@filter_option
@kernel_tier
@kernel_detail
@kernel_budget
@kernel_retransmits
@click.option("--from-recorder", type=click.Path(path_type=Path), metavar="DIR", help="Take a window of what leadline record wrote to DIR.")
@click.option("--between", nargs=2, metavar="FROM TO", help="The window: 03:00 03:10, 2026-11-28T03:00 now, now-10m now; local time.")
@click.option("--keep-going", is_flag=True, help="If one probe fails, continue with the others.")
@click.option("--stop-with-server", is_flag=True, help="End when the server ends or restarts, instead of waiting for it.")
@click.option(
    "-o", "--output", "out", type=click.Path(path_type=Path), metavar="DIR",
    help="Capture directory to create, or a directory to create it in.",
)
@click.option(
    "--tier", type=click.Choice(["auto", "shm", "sql"]), default="auto", show_default=True, help="Read shared memory or sample over SQL."
)
@force
@click.option("--json", "as_json", is_flag=True, help="Print a summary of the capture as JSON.")
def command(
    dsn: str | None,
    pid: int | None,
    data_dir: Path | None,
    host: bool,
    duration: str,
    rate: str | None,
    probes: str | None,
    kernel: bool,
    packets: bool,
    pooler: str | None,
    others: tuple[str, ...],
    from_recorder: Path | None,
    between: tuple[str, str] | None,
    expression: str | None,
    kernel_tier: str,
    kernel_detail: str,
    kernel_budget: float,
    kernel_retransmits: bool,
    keep_going: bool,
    stop_with_server: bool,
    out: Path | None,
    tier: str,
    force: bool,
    as_json: bool,
) -> None:
    """Capture a PostgreSQL server and its host, or a host alone.

    DSN is a connection string (URI or key=value pairs; PG* variables work as usual). With --pid or --data-dir, no connection
    is made. If you give a DSN as well, its connection supplies names and counters. Ctrl-C ends the capture early and keeps everything.
    If the server restarts, the capture continues when it is back; the table server_gap has the time in between.
    """
    from leadline.capture.manifest import read_manifest

    if from_recorder is not None or between is not None:
        if other := _given() - {"from_recorder", "between", "out", "force", "as_json"}:
            what = min(other).replace("_", "-")
            hint = f"leave out {what}: a window has what was recorded"
            raise LeadlineError("usage", f"{what} and a window of a recorder do not go together", hint=hint)
        _take_window(from_recorder, between, out, overwrite=force, as_json=as_json)
        return
    from leadline.probes.options import UNASKED, Options
    from leadline.probes.take import take_with
    from leadline.progress import Silent, TerminalLine

    for_s, rate_hz = seconds_of(duration), None if rate is None else parse_rate(rate)
    names = None if probes is None else [name.strip() for name in probes.split(",") if name.strip()]
    if kernel or packets:
        names = [*(UNASKED if names is None else names), *(["kernel"] if kernel else []), *(["wire"] if packets else [])]
    options = Options(
        dsn=dsn, pid=pid, data_dir=data_dir, host=host, for_s=for_s, rate_hz=rate_hz, out=out, overwrite=force, tier=tier,
        probes=names, kernel_tier=kernel_tier, kernel_detail=kernel_detail, kernel_budget=kernel_budget / 100,
        kernel_retransmits=kernel_retransmits, keep_going=keep_going, stop_with_server=stop_with_server,
        only=filter_of(expression), pooler=pooler, others=others,
    )  # fmt: skip
    path = take_with(options, Silent() if as_json else TerminalLine())
    manifest = read_manifest(path)
    cost = manifest.cost
    main, word = ("sessions", "passes") if "sessions" in manifest.probes else ("host", "readings")
    loss = manifest.probe(main).loss
    missed = f", {loss['ticks_missed']} missed" if loss.get("ticks_missed") else ""
    seen = f"{cost.window_s or 0:.1f} s, {loss.get('ticks_taken', 0)} {word}{missed}"
    _print_capture(path, manifest, seen, f", own CPU {cost.cpu_percent_of_core or 0:.2f} % of a core", as_json=as_json)


def _print_capture(path: Path, manifest: Manifest, seen: str, cost: str = "", *, as_json: bool) -> None:
    """seen: what it has, for the logbook, too."""
    summarise(f"{manifest.target.name}: {seen}")
    if as_json:
        click.echo(json.dumps({"capture": str(path)} | manifest.as_dict(), ensure_ascii=False, indent=1))
        return
    click.echo(f"{path}: {seen}{cost}", err=True)
    click.echo(f"next: leadline show {path}", err=True)


def _given() -> set[str]:
    """The parameters that the command line has."""
    context = click.get_current_context()
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def _take_window(directory: Path | None, between: tuple[str, str] | None, out: Path | None, *, overwrite: bool, as_json: bool) -> None:
    from datetime import datetime

    from leadline.capture.manifest import read_manifest
    from leadline.recorder.state import check_one
    from leadline.recorder.times import window
    from leadline.recorder.window import take_window

    if directory is None or between is None:
        raise LeadlineError("usage", "a window needs a recorder and two times", hint="--from-recorder DIR --between now-10m now")
    if not directory.is_dir():
        raise LeadlineError("not_found", "no such directory", hint="give the directory of leadline record --to", where=str(directory))
    check_one(directory)
    path = take_window(directory, *window(*between, datetime.now().astimezone()), out, overwrite=overwrite)
    manifest = read_manifest(path)
    seen = f"{manifest.clock.window_s or 0:.1f} s, {len(manifest.options['pieces'])} pieces of {directory}"
    _print_capture(path, manifest, seen, as_json=as_json)
