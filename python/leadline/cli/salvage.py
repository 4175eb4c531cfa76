"""leadline salvage: the databases of a dead cluster, from its files into a new server."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadline.cli import OUTCOME_FINDINGS, OUTCOME_FINE, SETTINGS, force
from leadline.cli.backup_options import SourcePath, based_on, key_file

if TYPE_CHECKING:
    from leadline.files.backup_rows import Source
    from leadline.files.salvage.salvage import Database

SHOWN = 20  # of what could not be written


def _matches(_context: click.Context, _option: click.Parameter, value: tuple[str, ...]) -> dict[int, str]:
    parts = [text.partition("=") for text in value]
    if wrong := [number for number, _, table in parts if not number.isdigit() or not table]:
        raise click.BadParameter(f"{wrong[0]} is not NUMBER=TABLE")
    return {int(number): table for number, _, table in parts}


@click.command(
    "salvage",
    context_settings=SETTINGS,
    epilog="""\b
Examples:
  leadline salvage /var/lib/postgresql/18/main -o saved
  leadline salvage DATA_DIR -o saved --database shop --format csv
  leadline salvage DATA_DIR -o saved --template OLD_BACKUP""",
)
@click.argument("data_dir", metavar="DATA_DIR", type=SourcePath())
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Directory to write.")
@force
@click.option(
    "--database", "databases", multiple=True, metavar="NAME",
    help="Only this database; may be repeated.  [default: all but templates]",
)  # fmt: skip
@click.option(
    "--format", "form", type=click.Choice(["copy", "csv", "parquet"]), default="copy", show_default=True,
    help="Form of the rows: COPY text, CSV with a header, or Parquet, which psql does not load.",
)  # fmt: skip
@click.option(
    "--template", type=click.Path(path_type=Path), metavar="DATA_DIR2",
    help="Take definitions from this data directory, of the same schema and major: the catalog of DATA_DIR is lost.",
)  # fmt: skip
@click.option("--template-database", metavar="NAME", help="Database of --template.  [default: the one of the same name]")
@click.option(
    "--match", "matches", multiple=True, metavar="NUMBER=TABLE", callback=_matches,
    help="With --template: this file is that of SCHEMA.TABLE; may be repeated.",
)  # fmt: skip
@click.option(
    "--columns-of", type=click.Path(path_type=Path), metavar="FILE",
    help="Columns of tables that no catalog describes: lines [NUMBER] [SCHEMA.]TABLE (COLUMN TYPE, ...).",
)  # fmt: skip
@click.option("--dead", is_flag=True, help="Write dead row versions, too: into DIR/DATABASE/dead, with xmin, xmax and status.")
@click.option("--as-of", "moment", metavar="XID|TIME", help="Write rows as they were after this transaction, or at this time of commit.")
@click.option("--threads", type=click.IntRange(1, 64), metavar="N", help="Threads to use.  [default: one per CPU]")
@based_on
@key_file
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    data_dir: Path,
    output: Path,
    databases: tuple[str, ...],
    form: str,
    template: Path | None,
    template_database: str | None,
    matches: dict[int, str],
    columns_of: Path | None,
    dead: bool,
    moment: str | None,
    threads: int | None,
    bases: tuple[Path, ...],
    key_file: Path | None,
    force: bool,
    as_json: bool,
) -> int:
    """Bring a dead cluster's data home: SQL, and a file per table.

    No server is needed. DATA_DIR is a data directory of PostgreSQL 13 to 18 that no server starts on any more, or a backup (as leadline
    rows reads it; its files take room in TMPDIR meanwhile). leadline writes
    schema.sql, constraints.sql and a file of rows for each table; psql loads them into a new server. What cannot be read or
    written is named, with the reason, in DIR/manifest.json. Rows that are not whole, or of which nothing tells whether they are
    visible, are not loaded: they are in DIR/DATABASE/doubtful. Passwords are not written. If the WAL is there, run leadline
    recover on a copy first: it brings the files to their last state.
    Exit code 0: everything was read and written; 1: something is missing, see the manifest; 2: error.
    """
    from dataclasses import asdict

    from leadline.book.recorder import current
    from leadline.errors import LeadlineError
    from leadline.files import backup_rows, condition
    from leadline.files.backup_key import backup_key
    from leadline.files.salvage import as_of, given
    from leadline.files.salvage.data import Wanted
    from leadline.files.salvage.salvage import GLOBALS, MANIFEST, Help, salvage
    from leadline.files.wal import threads_here
    from leadline.output import to_json
    from leadline.progress import TerminalLine
    from leadline.replacing import make_room

    if (template_database or matches) and template is None:
        raise LeadlineError("usage", "--template-database and --match need --template")
    told = Help(template, template_database, matches, given.read(columns_of) if columns_of else [])
    with backup_rows.opened(data_dir, bases, backup_key(key_file)) as source:
        source.need_databases(list(databases), all_files=template is not None or columns_of is not None)
        around = source.condition()
        stopped = around is not None and around["server"] == "stopped"
        then = as_of.resolve(moment, source.data_dir) if moment else None
        wanted = Wanted(form, threads or threads_here(), stopped, dead, then)
        make_room(output, overwrite=force, marks=(GLOBALS, MANIFEST))
        current().artifact("salvage", output)
        line = TerminalLine()

        def progress(table: str, done: int, blocks: int) -> None:
            line.share(done, blocks, f"{table}: {done} of {blocks} blocks")

        try:
            found = salvage(source, output, databases, wanted, progress, told)
        finally:
            line.done()
        rows = sum(each.rows for each in found)
        current().summary(f"{rows} rows of {len(found)} databases")
        if as_json:
            made: dict[str, Any] = {"folder": str(output), "databases": [asdict(each) for each in found], "unread_files": source.lost}
            click.echo(source.named(to_json(made | {"notes": around["remarks"] if around else []})))
        else:
            for remark in around["remarks"] if around else []:
                click.echo(condition.text(remark), err=True)
            for said in source.lines():
                click.echo(said, err=True)
            _print(found, source, output, GLOBALS, MANIFEST)
        return OUTCOME_FINE if all(each.is_whole for each in found) and not source.lost else OUTCOME_FINDINGS


def _print(found: list[Database], source: Source, output: Path, roles: str, manifest: str) -> None:
    for each in found:
        click.echo(f"{each.database}: {each.objects:,} objects, {each.rows:,} rows of {len(each.tables):,} tables")
        troubles = [f"the catalog is damaged: {text}" for text in each.catalog_losses]
        troubles += [f"not written: {lost.what}: {lost.why}" for lost in each.lost]
        troubles += [f"{table.table}: {text}" for table in each.tables for text in table.losses]
        troubles += [f"{table.table}: {table.doubtful:,} rows are in {table.doubtful_file}" for table in each.tables if table.doubtful]
        for text in troubles[:SHOWN]:
            click.echo(source.named(f"  {text}"))
        if len(troubles) > SHOWN:
            click.echo(f"  and {len(troubles) - SHOWN:,} more in {output / manifest}")
    if found:
        click.echo(f"\nTo restore:\n  psql -d postgres -f {shlex.quote(str(output / roles))}")
    for each in (each for each in found if each.folder):
        if each.database != "postgres":  # which a new cluster has
            click.echo(f"  {each.create}")
        click.echo(f"  (cd {shlex.quote(str(output / each.folder))} && psql -d {shlex.quote(each.database)} -f restore.sql)")
