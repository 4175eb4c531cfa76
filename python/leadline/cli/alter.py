"""leadline alter: rows that ALTER TABLE left in an old form, and rewriting them."""

from __future__ import annotations

import click

from leadline.cli import OUTCOME_FINDINGS, OUTCOME_FINE, OUTCOME_INTERRUPTED, SETTINGS
from leadline.cli.forms import form, printed
from leadline.output import to_json
from leadline.units import bytes_of


@click.group(
    "alter",
    context_settings=SETTINGS,
    epilog="""\b
Examples:
  leadline alter pending postgres:///shop
  leadline alter resolve postgres:///shop --table orders --dry-run
  leadline alter resolve postgres:///shop --table orders""",
)
def command() -> None:
    """Find and rewrite the rows that ALTER TABLE left in an old form.

    ALTER TABLE ADD COLUMN, DROP COLUMN and SET COMPRESSION change only the catalog, not the existing rows.
    """


@command.command(
    "pending",
    epilog="""\b
Examples:
  leadline alter pending postgres:///shop --table public.orders
  leadline alter pending /var/lib/postgresql/18/main
  leadline alter pending base/16384/16402 --json""",
)
@click.argument("target", metavar="TARGET|PATH")
@click.option("--table", metavar="[DB.][SCHEMA.]TABLE", help="Only this table and its indexes, or the partitions of this table.")
@click.option("--checkpoint", is_flag=True, help="Run CHECKPOINT first, so that the files are current.")
@form()
def pending(target: str, table: str | None, checkpoint: bool, form: str | None) -> int:
    """Show which rows and pages are still in an old form, and why.

    TARGET is a server on this host: a connection string (only its database is scanned)
    or a pid. PATH is a data directory, or the file of one table or index. Only files are
    read: leadline asks the server for their paths and takes no locks. Only rows that may
    still be visible to a snapshot are counted. TOAST tables, catalogs and temporary tables are skipped.
    Exit code 0: everything was scanned; 1: something is missing or damaged, or the
    status of rows is not known; 2: error.
    """
    from leadline.files import condition
    from leadline.files.alter import pending as work
    from leadline.progress import TerminalLine

    where = work.place(target)
    if checkpoint:
        from leadline.files.alter.session import checkpoint_of  # with it comes psycopg, which files do not need

        checkpoint_of(target)
    found = work.scan(where, table, progress=TerminalLine())
    rows = work.rows(found.relations)
    if not printed(form, rows, rows):
        click.echo(work.text(found))
    for remark in condition.remarks([where.path]):
        click.echo(condition.text(remark), err=True)
    for warning in work.warnings(found):
        click.echo(f"warning: {warning}", err=True)
    for note in work.notes(where, found):
        click.echo(f"note: {note}", err=True)
    return OUTCOME_FINE if where.is_live or found.is_whole else OUTCOME_FINDINGS


def _size(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Bytes as PostgreSQL writes them: 16MB, 512kB, 1GB."""
    return None if value is None else bytes_of(value, least=1)


@command.command(
    "resolve",
    epilog="""\b
Examples:
  leadline alter resolve postgres:///shop --table orders --dry-run
  leadline alter resolve postgres:///shop --table orders
  leadline alter resolve postgres:///shop --table orders
    --max-wal-rate 20MB --max-lag 64MB --batch 500 --json""",
)
@click.argument("dsn", metavar="DSN")
@click.option("--table", required=True, metavar="[SCHEMA.]TABLE", help="Table to rewrite; for a partitioned table, every partition.")
@click.option("--batch", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="Maximum rows per transaction.")
@click.option("--max-wal-rate", callback=_size, metavar="SIZE", help="Maximum WAL per second of the whole server, such as 20MB.")
@click.option("--max-lag", callback=_size, metavar="SIZE", help="Pause while a replica is further behind than this.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, without changing anything.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def resolve(
    dsn: str, table: str, batch: int, max_wal_rate: int | None, max_lag: int | None, dry_run: bool, as_json: bool
) -> int:
    """Rewrite only the rows that are in an old form, online.

    It finds old rows in the server's files after a CHECKPOINT, and updates them by ctid in small
    transactions that never wait for a row lock. It then scans the files again to prove that no old row is left. You can
    stop or kill it at any time and run it again. Indexes are not rewritten: use REINDEX. Exit code 0: no old
    row is left; 1: some are left, or this could not be proven; 2: error.
    """
    from dataclasses import asdict

    from leadline.files.alter import resolve as work
    from leadline.files.alter import text
    from leadline.progress import TerminalLine

    options = work.Options(batch, max_wal_rate, max_lag)
    if dry_run:
        planned = work.plan(dsn, table, options, TerminalLine())
        click.echo(to_json(planned) if as_json else "\n\n".join(map(text.plan, planned)) or text.NOTHING)
        return OUTCOME_FINE
    done = work.resolve(dsn, table, options, TerminalLine())
    click.echo(to_json([asdict(outcome) for outcome in done]) if as_json else "\n\n".join(map(text.outcome, done)) or text.NOTHING)
    if any(outcome.is_interrupted for outcome in done):
        return OUTCOME_INTERRUPTED
    return OUTCOME_FINE if all(o.is_proven and not o.rows_remaining for o in done) else OUTCOME_FINDINGS
