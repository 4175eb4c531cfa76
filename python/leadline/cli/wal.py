"""leadline wal: PostgreSQL's log of majors 13 to 18, from files."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from datetime import UTC
from typing import TYPE_CHECKING, Any, Literal

import click

from leadline.cli import force
from leadline.cli.backup_options import key_file
from leadline.cli.forms import form, printed
from leadline.output import more_than, print_json_parts, to_json, to_table

if TYPE_CHECKING:
    from pathlib import Path

    from leadline._core.wal import StatsRow
    from leadline.files.server import ServerFiles

SUMMED: tuple[Literal["records", "record_bytes", "fpi_bytes", "superseded_fpi_bytes"], ...]
SUMMED = ("records", "record_bytes", "fpi_bytes", "superseded_fpi_bytes")


def _options(*groups: Callable[..., Any]) -> Callable[..., Any]:
    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(groups):
            command = option(command)
        return command

    return add


def _in_place(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the directory of the WAL in place of a tar archive, a backup or an encrypted archive."""

    @functools.wraps(command)
    def with_source(path: str, key_file: Path | None, **more: Any) -> Any:
        from leadline.files import wal_source
        from leadline.files.backup_key import backup_key

        with wal_source.opened(path, backup_key(key_file), more.get("start"), more.get("end")) as place:
            return command(place, **more)

    return with_source


def _time(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Unix microseconds of a time as ISO 8601 has it; UTC, which is what is printed, unless it says otherwise."""
    from datetime import datetime, timedelta

    if value is None:
        return None
    try:
        time = datetime.fromisoformat(re.sub("(Z| UTC)$", "+00:00", value.strip()))
    except ValueError:
        raise click.BadParameter(f"{value} is not a valid time; use a form such as 2026-08-01T12:00 or 2026-08-01T14:00:30+02:00") from None
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _tell_damage(path: str) -> None:
    """What is wrong with the data directory that the WAL is in. That its data files are behind the WAL does not matter here."""
    from leadline.files import condition

    for remark in condition.remarks([path]):
        if remark["is_error"]:
            click.echo(condition.text(remark), err=True)


PATH = click.argument("path", metavar="PATH|SERVER", type=click.Path())
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
FORM = form()
RANGE = _options(
    click.option("--from", "start", metavar="LSN", help="Skip records that start before this LSN."),
    click.option("--to", "end", metavar="LSN", help="Skip records that start at or after this LSN."),
    click.option("--from-time", "since", callback=_time, metavar="TIME", help="Start at the first record with this time or later."),
    click.option("--to-time", "until", callback=_time, metavar="TIME", help="Stop before the first record with this time or later."),
    click.option("--timeline", type=click.IntRange(1, 2**32 - 1), help="Follow this timeline instead of the newest."),
)
FILTER = _options(
    click.option(
        "--relation", metavar="REL", help="Only records of this relation: FILENODE, DB/FILENODE or SPC/DB/FILENODE; with SERVER also NAME."
    ),
    click.option("--block", type=click.IntRange(0, 2**32 - 1), help="Only records of this block."),
    click.option("--fork", type=click.Choice(["main", "fsm", "vm", "init"]), help="Only records of this fork."),
    click.option("--xid", type=click.IntRange(0, 2**32 - 1), help="Only records of this transaction."),
    click.option("--rmgr", metavar="NAME", help="Only records of this resource manager, such as Heap."),
)
THREADS = click.option("--threads", type=click.IntRange(1, 64), metavar="N", help="Threads to use.  [default: one per CPU]")


@click.group(
    "wal",
    epilog="""\b
Examples:
  leadline wal stats /var/lib/postgresql/17/main
  leadline wal show pg_wal/000000010000000000000001 --limit 20
  leadline wal export archive/ -o wal.leadline
  leadline wal history DATA_DIR 16384 0
  leadline wal inval DATA_DIR
  leadline wal page-at DATA_DIR base/5/16384 0 0/1C06F638 -o page
  leadline wal apply OLD/base/5/16384 --wal archive/ --to 0/1C06F638 -o table""",
)
def command() -> None:
    """Read PostgreSQL WAL: what is in it and what it costs.

    PATH is a data directory, its pg_wal, a WAL archive (also compressed: gzip, lz4, zstd, bzip2; of pgBackRest also encrypted), one
    segment, or tar archives of pg_basebackup, of PostgreSQL 13 to 18. No server is needed. WAL identifies relations by file number:
    select pg_relation_filepath('name').

    SERVER is a running server on this host: a connection string or a pid. leadline reads its WAL files up to the last record on
    disk. With a connection string, you can give relations by name, and `stats --by relation` prints names.
    """


@command.command(
    "show",
    epilog="""\b
Examples:
  leadline wal show DATA_DIR --from 0/1500028 --limit 10
  leadline wal show archive/ --relation 5/16384 --block 0
  leadline wal show segment --rmgr Transaction --json""",
)
@PATH
@RANGE
@FILTER
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Print at most N records.")
@key_file
@FORM
@_in_place
def show(path: str, limit: int | None, form: str | None, **wish: Any) -> None:
    """Print records in readable form, in WAL order."""
    from leadline.files.wal import ending_text, parts, wish_of

    wanted = wish_of(path, **wish)[0]
    log = wanted.open()
    _print(parts(lambda left: log.records(form is not None, left), limit, tell), form)
    if text := ending_text(log.ending()):
        click.echo(text, err=True)
    _tell_damage(wanted.path)


def tell(text: str) -> None:
    click.echo(text, err=True)


def _print(rows: Iterable[bytes], form: str | None) -> bool:
    """Prints rows that come as text, or as JSON objects with commas between them; whether there were any."""
    if form == "csv":
        import json

        return printed(form, (row for part in rows for row in json.loads(b"[%s]" % part)))
    if form == "json":
        return print_json_parts(rows)
    is_any = False
    for part in rows:
        click.echo(part, nl=False)
        is_any = True
    return is_any


@command.command(
    "stats",
    epilog="""\b
Examples:
  leadline wal stats DATA_DIR
  leadline wal stats archive/ --by relation --limit 10
  leadline wal stats postgres:///shop --by relation
  leadline wal stats DATA_DIR --by hour --json""",
)
@PATH
@RANGE
@FILTER
@click.option(
    "--by",
    type=click.Choice(["type", "rmgr", "relation", "database", "hour"]),
    default="type",
    help="Group by record type (the default), resource manager, relation, database or hour.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Print only the N largest.")
@THREADS
@key_file
@FORM
@_in_place
def stats(path: str, by: str, limit: int | None, threads: int | None, form: str | None, **wish: Any) -> None:
    """Sum records, bytes and page images, largest first.

    record_bytes excludes page images; fpi_bytes is the stored size of page images. superseded_fpi_bytes is the part of
    fpi_bytes in superseded images: images with a later image of the same page in the WAL that was read.
    """
    from leadline.files.wal import ending_text, threads_here, whole, wish_of

    wanted, live = wish_of(path, **wish)
    names = _names(wanted.path, live) if by == "relation" else {}
    found = whole(wanted, "read", lambda log, bar: log.stats(by, threads or threads_here(), bar))
    rows = sorted(found["rows"], key=lambda r: -(r["record_bytes"] + r["fpi_bytes"]))
    if by == "hour":
        rows = found["rows"]
    every, rows = len(rows), rows[:limit]
    for row in rows if names else ():
        if name := names.get((row["spcnode"] or 0, row["dbnode"] or 0, row["relfilenode"] or 0)):
            row["relation"] = name
    if not printed(form, rows, rows):
        click.echo(_stats_text(by, rows, found["rows"]))
        if every > len(rows):
            click.echo(more_than(len(rows), every, "without --limit all are printed; the total is of all"), err=True)
    if text := ending_text(found["ending"]):
        click.echo(text, err=True)
    _tell_damage(wanted.path)
    if forgotten := found["pages_forgotten"]:
        click.echo(f"note: {forgotten:,} pages with images could not be tracked: superseded_fpi_bytes is a lower bound", err=True)


def _names(path: str, live: ServerFiles | None) -> dict[tuple[int, int, int], str]:
    """Names of relations by their files, of a server or a data directory; of an archive or a segment alone nobody knows them."""
    from pathlib import Path

    from leadline.errors import LeadlineError
    from leadline.files.wal import names_of

    if live and (names := live.names()):
        return names
    if not (Path(path) / "global/pg_control").exists():
        return {}
    try:
        names, lost = names_of(path)
    except LeadlineError as e:
        click.echo(f"note: relation names are not available: {e.message}{f': {e.detail}' if e.detail else ''}", err=True)
        return {}
    for database, why in lost:
        click.echo(f"note: relation names of database {database} are not available: {why}", err=True)
    return names


def _stats_text(by: str, rows: list[StatsRow], every: list[StatsRow]) -> str:
    table = []
    sums = [sum(r[name] for r in every) for name in SUMMED]
    whole = (sums[1] + sums[2]) or 1
    for r in rows:
        share = f"{100 * (r['record_bytes'] + r['fpi_bytes']) / whole:.1f}%"
        table.append([_key_text(by, r), *(r[name] for name in SUMMED), share])
    table.append(["total", *sums, "100%"])
    return to_table([by, "records", "record_bytes", "fpi_bytes", "superseded", "share"], table)


def _key_text(by: str, row: StatsRow) -> str:
    if by == "type":
        return f"{row['rmgr']}/{row['record_type']}"
    if by == "rmgr":
        return row["rmgr"]
    if by == "hour":
        return "before the first time" if row["hour"] is None else row["hour"][:13].replace("T", " ") + " UTC"
    if "relation" in row:
        return row["relation"]
    parts = [row["dbnode"]] if by == "database" else [row["spcnode"], row["dbnode"], row["relfilenode"]]
    return "no block" if parts[0] is None else "/".join(map(str, parts))


@command.command(
    "export",
    epilog="""\b
Examples:
  leadline wal export DATA_DIR -o wal.leadline
  leadline wal export archive/ --from 1/0 --to 2/0 -o wal.leadline --force
  leadline sql wal.leadline "select relfilenode, sum(fpi_length) as bytes
    from wal_block group by 1 order by 2 desc limit 10\"""",
)
@PATH
@RANGE
@FILTER
@click.option(
    "-o",
    "--output",
    "out",
    type=click.Path(),
    required=True,
    metavar="DIR",
    help="Capture directory to create, or a directory to create it in.",
)
@force
@THREADS
@key_file
@JSON
def export(path: str, out: str, force: bool, threads: int | None, key_file: Path | None, as_json: bool, **wish: Any) -> None:
    """Write records and block references as tables of a capture.

    The tables are wal_record and wal_block, for `leadline sql` and any Parquet reader.
    """
    from leadline.files import wal_source
    from leadline.files.backup_key import backup_key
    from leadline.files.wal import export as write
    from leadline.files.wal import threads_here, wish_of

    with wal_source.opened(path, backup_key(key_file), wish["start"], wish["end"]) as place:
        wanted = wish_of(place, **wish)[0]
        made = write(wanted, out, named=path if place != path else wanted.path, overwrite=force, threads=threads or threads_here())
        _tell_damage(wanted.path)
    if as_json:
        click.echo(to_json(made))
        return
    for note in made["notes"]:
        click.echo(note, err=True)
    click.echo(to_table(["table", "rows", "bytes"], [[n, f["rows"], f["bytes"]] for n, f in made["tables"].items()]))
    click.echo(f'next: leadline sql {made["capture"]} "..." to query the tables')


@command.command(
    "history",
    epilog="""\b
Examples:
  leadline wal history DATA_DIR 16384 0
  leadline wal history archive/ 1663/5/16384 17 --from 1/0 --json""",
)
@PATH
@click.argument("relation")
@click.argument("block", type=click.IntRange(0, 2**32 - 1))
@RANGE
@click.option("--fork", type=click.Choice(["main", "fsm", "vm", "init"]), default="main", help="Fork of the relation.  [default: main]")
@key_file
@FORM
@_in_place
def history(path: str, relation: str, block: int, form: str | None, **wish: Any) -> None:
    """List every change to a page: LSN, transaction, time, what changed.

    The time is that of the commit or abort. For a change without a transaction (pruning, vacuum), it is the last time
    recorded in the WAL before it, marked with ~. A truncation that removed the page is listed as a change. WAL does not
    usually name the visibility map bits that a row change clears.
    """
    from leadline.files.wal import ending_text, parts, whole, wish_of

    wanted = wish_of(path, relation, block=block, **wish)[0]
    found = whole(wanted, "read", lambda log, bar: log.history(bar))
    if not _print(parts(lambda left: found.changes(form is not None, left), None, tell), form) and form is None:
        click.echo("no changes to this page found in the WAL", err=True)
    if text := ending_text(found.ending()):
        click.echo(text, err=True)
    _tell_damage(wanted.path)


@command.command(
    "page-at",
    epilog="""\b
Examples:
  leadline wal page-at DATA_DIR base/5/16384 0 0/1C06F638 -o page
  leadline page show page""",
)
@click.argument("data_dir", metavar="DATA_DIR", type=click.Path())
@click.argument("file", metavar="FILE")
@click.argument("block", type=click.IntRange(0, 2**32 - 2))
@click.argument("lsn", metavar="LSN")
@click.option("-o", "output", metavar="PAGE", type=click.Path(), required=True, help="File to write the page to.")
@force
@THREADS
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def page_at(
    data_dir: str, file: str, block: int, lsn: str, output: str, force: bool, threads: int | None, as_json: bool
) -> None:
    """Rebuild one page as it was at an LSN, from the WAL alone.

    FILE is the file of a table or index, as select pg_relation_filepath('name') prints it; add _vm for its visibility map. The WAL
    must have a page image (FPI) before LSN. All records that start before LSN are replayed. The checksum of the page is that of
    its page image.
    """
    from leadline.book.recorder import current
    from leadline.files.recovery import page_at as make

    made = make(data_dir, file, block, lsn, output, threads, force=force)
    current().artifact("page", output)
    if as_json:
        click.echo(to_json({"output": output, "file": file, "block": block, "lsn": lsn} | {k: v for k, v in made.items() if k != "bytes"}))
        return
    click.echo(f"{output}: block {block} of {file} at {lsn}")
    click.echo(f"page image at {made['image_lsn']}, {made['applied']:,} records replayed, last changed at {made['last_lsn']}")


@command.command(
    "apply",
    epilog="""\b
Examples:
  leadline wal apply OLD/base/5/16384 --wal archive/ --to 0/1C06F638 -o table
  leadline wal apply OLD/base/5/16384 --wal archive/ --to 0/1C06F638 \\
      --block 7 -o page
  leadline page scan table -o table.leadline""",
)
@click.argument("file", metavar="REL_FILE", type=click.Path())
@click.option(
    "--wal", metavar="PATH", type=click.Path(), required=True, help="WAL archive, data directory or pg_wal with the WAL since the backup."
)
@click.option("--to", "lsn", metavar="LSN", required=True, help="Replay records that start before this LSN.")
@click.option("--block", type=click.IntRange(0, 2**32 - 2), help="Only this block.")
@click.option("-o", "output", metavar="FILE", type=click.Path(), required=True, help="File to write; after 1 GB it continues in FILE.1.")
@force
@THREADS
@key_file
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def apply(
    file: str,
    wal: str,
    lsn: str,
    block: int | None,
    output: str,
    force: bool,
    threads: int | None,
    key_file: Path | None,
    as_json: bool,
) -> None:
    """Roll one relation file forward to an LSN, from a backup and the WAL.

    REL_FILE is the first file of a table or index in a backup: a data directory that was stopped or crashed, or a base backup.
    With _vm it is a visibility map. The WAL must reach from the backup to LSN. Only this file is rolled forward: its TOAST table
    and pg_xact stay as they are in the backup.
    """
    from leadline.book.recorder import current
    from leadline.files import wal_source
    from leadline.files.backup_key import backup_key
    from leadline.files.recovery import relation_at

    with wal_source.opened(wal, backup_key(key_file), None, lsn) as place:
        made = relation_at(file, place, lsn, output, block, threads, force=force)
    current().artifact("relation file", output)
    if as_json:
        click.echo(to_json({"output": output, "file": file, "block": block, "lsn": lsn} | made))
        return
    what = f"{made['blocks']:,} blocks" if block is None else f"block {block}"
    click.echo(f"{output}: {what} of {file} at {lsn}")
    last = f", the last one at {made['last_lsn']}" if made["last_lsn"] else ""
    click.echo(f"WAL from {made['from_lsn']}: {made['applied']:,} changes replayed{last}; the backup already had {made['older']:,}")


@command.command(
    "inval",
    epilog="""\b
Examples:
  leadline wal inval DATA_DIR
  leadline wal inval archive/ --xid 731 --json""",
)
@PATH
@RANGE
@click.option("--xid", type=click.IntRange(0, 2**32 - 1), help="Only records of this transaction.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Print at most N records.")
@key_file
@FORM
@_in_place
def inval(path: str, limit: int | None, form: str | None, **wish: Any) -> None:
    """List cache invalidation messages per transaction: which DDL invalidated what.

    A relcache message makes every session drop its cached data about a relation and replan the statements that use it.
    A record with very many messages is printed in several lines.
    """
    from leadline.files.wal import ending_text, parts, wish_of

    wanted = wish_of(path, **wish)[0]
    log = wanted.open()
    _print(parts(lambda left: log.invalidations(form is not None, left), limit, tell), form)
    if text := ending_text(log.ending()):
        click.echo(text, err=True)
    _tell_damage(wanted.path)
