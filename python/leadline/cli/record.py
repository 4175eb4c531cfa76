"""leadline record: options in, a directory of captures out, until it is stopped."""

from __future__ import annotations

from pathlib import Path

import click

from leadline.errors import LeadlineError
from leadline.units import bytes_of, seconds_of

LEAST_PIECE_S = 2.0


@click.command(
    "record",
    epilog="\b\nExamples:\n  leadline record postgres:///shop --to /var/lib/leadline/shop\n"
    "  leadline record --pid 4711 --to shop --keep 3d --max-size 5GB\n  leadline record --status shop\n"
    "  leadline take --from-recorder shop --between 03:00 03:10 -o night",
)
@click.argument("dsn", required=False)
@click.option("--pid", type=int, metavar="PID", help="Process of the server (postmaster or any child); needs no connection.")
@click.option("--data-dir", type=click.Path(path_type=Path), metavar="DIR", help="Record the server that runs on this data directory.")
@click.option("--host", is_flag=True, help="Record only this host: processes, devices, network, memory. Needs no database.")
@click.option(
    "--to", "to", type=click.Path(path_type=Path), metavar="DIR", help="Directory of the recorder; it is made if it is not there."
)
@click.option("--keep", default="14d", show_default=True, metavar="TIME", help="Remove pieces that ended longer ago.")
@click.option("--max-size", default="20GB", show_default=True, metavar="SIZE", help="What all pieces may take; the oldest are removed.")
@click.option("--keep-free", default="1GB", show_default=True, metavar="SIZE", help="Write nothing while the disk has less free space.")
@click.option("--piece", default="10m", show_default=True, metavar="TIME", help="Length of a piece: 30s, 10m, 1h.")
@click.option("--rate", metavar="HZ", help="Samples per second: 1 to 10000; over SQL up to 10; with --host 0.1 to 10.  [default: as take]")
@click.option(
    "--tier", type=click.Choice(["auto", "shm", "sql"]), default="auto", show_default=True, help="Read shared memory or sample over SQL."
)
@click.option(
    "--status", type=click.Path(path_type=Path), metavar="DIR", help="Show what this directory has, and whether its recorder runs."
)
@click.option("--json", "as_json", is_flag=True, help="With --status: print it as JSON.")
def command(
    dsn: str | None, pid: int | None, data_dir: Path | None, host: bool, to: Path | None, keep: str, max_size: str, keep_free: str,
    piece: str, rate: str | None, tier: str, status: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Record a server all the time, as a row of captures.

    Runs until Ctrl-C or SIGTERM. Each piece is an ordinary capture, made as leadline take makes it: leadline show works on it. If the
    server or room on the disk is missing, it waits and goes on by itself. Any window becomes a capture: see the last example.
    """
    if status is not None:
        _show_status(status, as_json=as_json)
        return
    if to is None:
        raise LeadlineError("usage", "no directory was given to record into", hint="--to DIR; or --status DIR to see what one has")
    from leadline.cli.take import parse_rate
    from leadline.probes.options import Options
    from leadline.recorder.retention import Limits
    from leadline.recorder.run import Recorder, World

    piece_s = seconds_of(piece)
    if piece_s < LEAST_PIECE_S:
        raise LeadlineError("usage", f"a piece of {piece_s:g} s is too short", hint=f"give {LEAST_PIECE_S:g}s or more; the default is 10m")
    if (keep_s := seconds_of(keep)) <= 0:
        raise LeadlineError("usage", "nothing would be kept", hint="--keep 14d")
    options = Options(
        dsn=dsn, pid=pid, data_dir=data_dir, host=host, for_s=piece_s, rate_hz=None if rate is None else parse_rate(rate), tier=tier
    )
    limits = Limits(keep_s, bytes_of(max_size), bytes_of(keep_free))
    Recorder(to, options, limits, World(say=lambda text: click.echo(text, err=True))).run()
    click.echo(f"next: leadline record --status {to}", err=True)


def _show_status(directory: Path, *, as_json: bool) -> None:
    from leadline.output import to_json
    from leadline.recorder.status import as_text, status

    found = status(directory)
    click.echo(to_json(found) if as_json else as_text(found))
