"""leadline page: pages of files, without a server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadline.cli import OUTCOME_FINDINGS, OUTCOME_FINE, SETTINGS, force
from leadline.cli.backup_options import SourcePath, key_file
from leadline.cli.forms import form, printed
from leadline.cli.recorded import summarise
from leadline.figures import count
from leadline.output import to_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadline._core.pages import Page, Problem
    from leadline.files.pages import Place
    from leadline.files.pages.relations import Level
    from leadline.files.pages.run import Pages

LEVELS = ["pages", "structure", "values"]  # as leadline.files.pages.relations
ENGINES = ["threads", "ray"]  # as leadline.files.tasks, which is not loaded to print help
block_size = click.option("--block-size", type=int, metavar="BYTES", help="Page size.  [default: from pg_control or the file]")
dsn = click.option("--dsn", metavar="DSN", help="Read FILE as the name of a relation on this server (on this host).")
FORKS = ["main", "fsm", "vm", "init"]
fork = click.option("--fork", type=click.Choice(FORKS), default="main", help="With --dsn: fork of the relation to read.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
engine = click.option(
    "--engine", type=click.Choice(["informix"]), help="Read Informix pages (of 2 kB, unless --block-size says otherwise)."
)


def _read(place: Place, block_size: int | None, engine: str | None, **more: Any) -> Page:
    """The page at a place; `more` is what only pages of Informix have."""
    from leadline.errors import LeadlineError
    from leadline.files import pages

    if engine != "informix" and any(more.values()):
        raise LeadlineError("usage", "--row-size and --version-15 require --engine informix", hint="add --engine informix")
    return pages.read_page(place, block_size, engine, **(more if engine else {}))


@click.group(
    "page",
    context_settings=SETTINGS,
    epilog="""\b
Examples:
  leadline page show base/16384/16402:7
  leadline page hex base/16384/16402:7
  leadline page diff backup/base/16384/16402:7 base/16384/16402:7
  leadline page check /var/lib/postgresql/18/main
  leadline page scan base/16384 -o pages.leadline""",
)
def command() -> None:
    """Inspect PostgreSQL pages directly in files.

    No server is needed. If one is running, pages that are only in its memory cannot be seen: run CHECKPOINT to write them.
    Pages of unlogged tables are written only when the server stops.
    """


def _place(text: str, dsn: str | None, fork: str) -> Place:
    """The page a command line names: in a file, or with a DSN in a relation."""
    from leadline.files.pages import parse_place

    if dsn is None:
        return parse_place(text)
    from leadline.files.pages.relation import place_in_server

    return place_in_server(dsn, text, fork)


@command.command(
    "show",
    epilog="""\b
Examples:
  leadline page show base/16384/16402
  leadline page show base/16384/16402:7
  leadline page show base/16384/16402_vm:0 --json
  leadline page show global/pg_control
  leadline page show pg_xact/0000:3
  leadline page show public.orders_pkey:3 --dsn postgres:///shop
  leadline page show block_dump.trc
  leadline page show rootchunk:4 --engine informix
  leadline page show chunk4:202 --engine informix --row-size 140""",
)
@click.argument("place", metavar="FILE[:BLOCK]")
@dsn
@fork
@block_size
@engine
@click.option("--row-size", type=click.IntRange(1, 32767), metavar="BYTES", help="Informix row length; other lengths are reported.")
@click.option("--version-15", is_flag=True, help="Read Informix 15 pages, of which only the start and end are known.")
@as_json
def show(
    place: str,
    dsn: str | None,
    fork: str,
    block_size: int | None,
    engine: str | None,
    row_size: int | None,
    version_15: bool,
    as_json: bool,
) -> None:
    """Explain one page: header, line pointers, tuples or index items, flags in words.

    BLOCK counts from the start of FILE; the default is 0. With --dsn, name a relation instead of a file; BLOCK then counts
    from the start of the relation. The page is still read from the server's files.

    FILE can be a text file with one page as printed by gdb (x/8192bx), od, hexdump -C or xxd, or an Oracle block dump.

    If FILE is in a data directory, values of rows and index items are shown with the types from its catalog.

    FILE can also be global/pg_control, a pg_filenode.map (both read as one block) or a pg_xact file, in a data directory.
    """
    from leadline.files import condition, pages
    from leadline.files.pages.text import show_text
    from leadline.files.pages.values import add_values

    where = _place(place, dsn, fork)
    page = _read(where, block_size, engine, row_size=row_size, version_15=version_15)
    add_values(page)
    page["notes"] = condition.remarks([] if engine else [str(where.path)])
    click.echo(to_json(pages.as_json(page)) if as_json else show_text(page))
    for remark in page["notes"]:
        click.echo(condition.text(remark), err=True)


@command.command("hex", epilog="\b\nExamples:\n  leadline page hex base/16384/16402:7\n  leadline page hex base/16384/16402:7 --json")
@click.argument("place", metavar="FILE:BLOCK")
@dsn
@fork
@block_size
@engine
@as_json
def hex_(place: str, dsn: str | None, fork: str, block_size: int | None, engine: str | None, as_json: bool) -> None:
    """Print a page as hex, with every byte labelled."""
    from leadline.errors import LeadlineError
    from leadline.files.pages.hexdump import hex_json, hex_lines

    page = _read(_place(place, dsn, fork), block_size, engine)
    if page["raw"] is None:
        raise LeadlineError("invalid", "this dump has no bytes", hint="use page show to print its contents", where=place)
    if as_json:
        click.echo(to_json(hex_json(page)))
        return
    for line in hex_lines(page, colour=sys.stdout.isatty()):
        click.echo(line)


@command.command(
    "diff",
    epilog="""\b
Examples:
  leadline page diff old/16402:7 base/16384/16402:7
  leadline page diff a.page:0 b.page:0 --json""",
)
@click.argument("place_a", metavar="FILE_A:BLOCK")
@click.argument("place_b", metavar="FILE_B:BLOCK")
@block_size
@engine
@form()
def diff(place_a: str, place_b: str, block_size: int | None, engine: str | None, form: str | None) -> None:
    """Show the differences between two pages, field by field.

    The exit code is 0 even if the pages differ.
    """
    from leadline.files import pages
    from leadline.files.pages.diff import differences
    from leadline.output import to_table

    a, b = (_read(pages.parse_place(place), block_size, engine) for place in (place_a, place_b))
    found = differences(a, b)
    if printed(form, found, found):
        return
    if found:
        click.echo(to_table(["part", "field", "a", "b"], [list(row.values()) for row in found]))
    else:
        same = a["raw"] == b["raw"]
        click.echo("the pages are identical" if same else "the pages differ only in unused bytes")


@command.command(
    "check",
    epilog="""\b
Examples:
  leadline page check /var/lib/postgresql/18/main
  leadline page check base/16384/16402
  leadline page check /var/lib/postgresql/18/main --level values -o found
  leadline sql found.leadline "select class, count(*) as problems
    from page_problem group by 1"
  leadline page check /backup/base.tar.gz --json
  leadline page check --all-backups /var/lib/pgbackrest --state checked.jsonl""",
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=SourcePath())
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    help="How much to compare: each page by itself, pages with each other and rows with indexes, or values of rows, too.  "
    "[default: structure for a file of a data directory, else pages]",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="DIR", help="Also write the problems as a table: a capture to create."
)
@force
@click.option("--all-backups", is_flag=True, help="Check every backup of the repository PATH and print one line for each.")
@click.option(
    "--state", type=click.Path(path_type=Path), metavar="FILE", help="With --all-backups: note what is done, and do not repeat it."
)
@block_size
@key_file
@form()
def check(
    paths: tuple[Path, ...],
    level: Level | None,
    output: Path | None,
    force: bool,
    all_backups: bool,
    state: Path | None,
    block_size: int | None,
    key_file: Path | None,
    form: str | None,
) -> int:
    """Find damaged pages, and pages, rows and indexes that contradict each other.

    PATH is a file, a directory of relation files, a data directory or a backup: tar archives, also compressed, or the folder of a
    backup of pgBackRest, barman or WAL-G. Backups are read in place, also at s3://BUCKET/KEY (pip install leadline[s3]). Also reports
    torn pages, pages that look encrypted and files that end within a page. Checksums are verified if pg_control says they are
    enabled. If pg_control is missing or damaged, every page that has a checksum is verified. The files of a data directory are also
    compared with its catalogs, to find files that are missing, not regular files, too short, or belong to no relation. This
    comparison skips backups that are read in place, and incremental backups, which contain only changed blocks. Files that are not
    checked are counted by kind. Exit code 0: no problems; 1: problems, or pages that could not be checked; 2: error.

    --level structure compares pages with each other, offline, as amcheck does on a server, and more: links, downlinks and the order
    of keys of all index types, rows against indexes, HOT chains, visibility maps, sequences. --level values also compares the values of
    rows with their types, their TOAST chunks and the transaction logs. Of a server that runs or crashed, only pages that did not
    change after the last checkpoint are compared; the others are counted.

    With --all-backups, PATH is a repository of pgBackRest, barman or WAL-G, or a folder of backups. Exit code 0: no problems; 1: problems;
    2: a backup could not be checked.
    """
    if all_backups:
        if level not in (None, "pages") or output is not None:
            from leadline.errors import LeadlineError

            raise LeadlineError("usage", "--all-backups takes no --level and no --output", hint="check one backup at a time")
        return _check_all(list(paths), state, block_size, key_file, form)
    if state is not None:
        from leadline.errors import LeadlineError

        raise LeadlineError("usage", "--state requires --all-backups", hint="add --all-backups")
    from leadline.files import condition
    from leadline.files.backup_key import backup_key
    from leadline.files.pages.problems import kept
    from leadline.files.pages.run import Pages
    from leadline.files.pages.summary import check_text, is_part, problem_line
    from leadline.progress import TerminalLine

    found = Pages(list(paths), block_size=block_size, key=backup_key(key_file), level=level, progress=TerminalLine())
    problems = found if output is None else kept(found, [str(path) for path in paths], output, overwrite=force)
    if form == "csv":
        printed(form, problems)
    elif form == "json":
        _json_list(found, problems)
    else:
        for problem in problems:
            click.echo(problem_line(problem))
        click.echo(check_text(found.summary))
    summarise(check_text(found.summary))
    for remark in found.remarks:
        click.echo(condition.text(remark), err=True)
    return OUTCOME_FINDINGS if found.summary["classes"] or is_part(found.summary) else OUTCOME_FINE


def _check_all(repositories: list[Path], state: Path | None, block_size: int | None, key_file: Path | None, form: str | None) -> int:
    from leadline.files.backup_key import backup_key
    from leadline.files.pages import all_backups
    from leadline.progress import TerminalLine

    line = TerminalLine()
    outcomes = []
    found = all_backups.check_all(repositories, state, block_size=block_size, key=backup_key(key_file), progress=line)
    for outcome, is_earlier in found:
        outcomes.append(outcome)
        if form is None:
            click.echo(all_backups.line(outcome, is_earlier))
    printed(form, outcomes)
    return all_backups.exit_code(outcomes)


def _json_list(found: Pages, problems: Iterable[Problem]) -> None:
    """{"problems": [...], "summary": {...}}, printed as it comes."""
    before = '{"problems": ['
    for problem in problems:
        click.echo(before + to_json(problem), nl=False)
        before = ",\n"
    click.echo(("" if before == ",\n" else before) + '],\n"summary": ' + to_json(found.summary) + "}")


@command.command(
    "scan",
    epilog="""\b
Examples:
  leadline page scan base/16384 -o pages.leadline
  leadline page scan /backup/monday -o pages.leadline --resume
  leadline page scan /shared/main -o /shared/pages.leadline --engine ray
  leadline sql pages.leadline "select kind, count(*) from page group by 1"
  leadline sql pages.leadline "select t_infomask2 & 2047 as natts, count(*)
    from heap_tuple where lp_flags = 1 group by 1\"""",
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=SourcePath())
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Capture directory to create.")
@force
@click.option("--resume", is_flag=True, help="Continue a scan of the same paths into DIR: what is done is kept.")
@click.option(
    "--engine", type=click.Choice(ENGINES), default="threads", help="Where to read: here, or on a cluster of Ray.  [default: threads]"
)
@block_size
@key_file
@as_json
def scan(
    paths: tuple[Path, ...],
    output: Path,
    force: bool,
    resume: bool,
    engine: str,
    block_size: int | None,
    key_file: Path | None,
    as_json: bool,
) -> None:
    """Write the pages of relations, data directories or backups as tables.

    The tables are page_file, page, heap_tuple and index_item. DIR is a capture that `leadline sql` can query.

    The work is cut into tasks of up to 64 MB, and each writes files of its own. If the scan is interrupted, --resume does the tasks that
    are left, and those whose files have changed. With --engine ray (pip install leadline[ray]), the tasks run on the cluster that
    RAY_ADDRESS names, or else in processes on this host; all nodes need PATH and DIR under the same names.
    """
    from leadline.errors import LeadlineError
    from leadline.files import condition
    from leadline.files.backup_key import backup_key
    from leadline.files.pages.scan import scan as scan_pages
    from leadline.files.pages.summary import scan_text
    from leadline.progress import TerminalLine

    if force and resume:
        raise LeadlineError("usage", "--force and --resume contradict each other", hint="--force begins again, --resume goes on")
    done = scan_pages(
        list(paths),
        output,
        block_size=block_size,
        overwrite=force,
        resume=resume,
        engine=engine,
        key=backup_key(key_file),
        progress=TerminalLine(),
    )
    if resume:
        click.echo(f"{count(done.done_before, 'task')} of {done.tasks} done before", err=True)
    click.echo(to_json(done.summary) if as_json else scan_text(done.summary, output))
    for remark in done.remarks:
        click.echo(condition.text(remark), err=True)
