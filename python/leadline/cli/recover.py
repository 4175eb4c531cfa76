"""leadline recover: crash recovery by page."""

from __future__ import annotations

import re

import click

from leadline.cli import OUTCOME_FINE, SETTINGS
from leadline.output import to_json


def _size(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Bytes as PostgreSQL writes them: 256MB, 4GB."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d+)\s*(kB|MB|GB)", value.strip())
    if not found or int(found[1]) == 0:
        raise click.BadParameter(f"{value} is not a size: give a number with kB, MB or GB, such as 4GB")
    return int(found[1]) << {"kB": 10, "MB": 20, "GB": 30}[found[2]]


@click.command(
    "recover",
    context_settings=SETTINGS,
    epilog="""\b
Examples:
  leadline recover /var/lib/postgresql/18/main --plan
  leadline recover /var/lib/postgresql/18/main
  leadline recover /var/lib/postgresql/18/main --memory 8GB --threads 4""",
)
@click.argument("data_dir", metavar="DATA_DIR", type=click.Path())
@click.option("--plan", "--dry-run", "dry_run", is_flag=True, help="Read the WAL and show what would be done, without writing anything.")
@click.option("--memory", callback=_size, metavar="SIZE", help="Memory for WAL records, such as 4GB.  [default: a quarter]")
@click.option("--threads", type=click.IntRange(1, 64), metavar="N", help="Threads to use.  [default: one per CPU]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(data_dir: str, dry_run: bool, memory: int | None, threads: int | None, as_json: bool) -> int:
    """Recover the data directory of a crashed PostgreSQL by page, or plan it.

    PostgreSQL 13 to 18. The WAL is read once, by all CPUs. Each page is brought to the end of the WAL and written once. Then the
    server has nothing to replay. Run it as the owner of the files or as root. Until it has ended, the server's own recovery works
    as before: it can be stopped or killed at any time. What it cannot recover it refuses before it writes anything: base backups,
    standbys, WAL of extensions.
    """
    from leadline.files import recovery
    from leadline.progress import TerminalLine

    report = recovery.recover(data_dir, memory, threads, dry_run=dry_run, line=TerminalLine())
    click.echo(to_json(report) if as_json else recovery.text(report, dry_run=dry_run))
    return OUTCOME_FINE
