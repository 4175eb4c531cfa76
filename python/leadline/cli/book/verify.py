"""leadline book verify: whether evidence is what it was."""

from __future__ import annotations

import click

from leadline.cli.forms import form, printed
from leadline.errors import LeadlineError
from leadline.figures import count

OF_HEADS = ("head", "record", "audit")


@click.command("verify", epilog="\b\nExamples:\n  leadline book verify last\n  leadline book verify 4k7q2 --json\n  leadline book verify\n"
               "  leadline book verify --head\n  leadline book verify --against 5ea1...")  # fmt: skip
@click.argument("run", required=False)
@click.option("--head", is_flag=True, help="Print a head: a hash over the records of all runs that have ended.")
@click.option("--against", "heads", multiple=True, metavar="HEAD", help="Also check all records against this head, printed earlier.")
@form()
def verify(run: str | None, head: bool, heads: tuple[str, ...], form: str | None) -> int:
    """Check that recorded evidence was not changed, of one run or of all.

    Reads the files that runs made (captures, reports, ...) and the output that commands printed, and compares them with the recorded
    SHA-256. In a directory, it names each file that was changed, added or removed. For an experiment, it also checks that the design and
    all trials have the same seal, and that the verdict follows from the trials. Takes about a second per gigabyte. Exit code 1 if something
    differs.

    This proves that the evidence agrees with the logbook. Somebody who may write to the logbook could change both. To detect that, keep
    a head, a hash over all records, where they cannot write: --head prints it, and --against later names each record that has changed
    or is gone.
    """
    from leadline.book.evidence import DIFFERS, Check, verify
    from leadline.book.head import against, print_head
    from leadline.book.query import SHORT, Book, Filter, as_run, each_newest, printable

    book = Book()
    if head:
        if run is not None or heads:
            raise click.UsageError("--head is of the whole book, and checks nothing")
        try:
            made, covered = print_head(book)
        except OSError as e:
            raise LeadlineError("storage", "the list of the head cannot be written", detail=e.strerror or "", where=str(e.filename)) from e
        if not printed(form, [{"head": made, "runs": covered}], {"head": made, "runs": covered}):
            click.echo(made)
        click.echo(f"covers {count(covered, 'run')}; keep it elsewhere, and check later: leadline book verify --against HEAD", err=True)
        return 0
    runs = [book.find(run)] if run is not None else (as_run(row) for row in each_newest(book.store, Filter()))
    looked_at, checks, records = 0, list[Check](), 0
    for one in runs:
        looked_at += 1
        checks += verify(book, book.details(one))
    uid = runs[0]["uid"] if isinstance(runs, list) else ""
    for kept in heads:
        found, covered = against(book, kept)
        records += covered
        checks += [check for check in found if not uid or check.run in (uid, "")]
    differing = [check for check in checks if check.state in DIFFERS]
    rows = [check.as_dict() for check in checks] if form else []
    if printed(form, rows, {"runs": looked_at, "checks": rows, "differing": len(differing), "records": records}):
        return int(bool(differing))
    shown = checks if run is not None else [check for check in checks if check.state != "ok"]
    for check in shown:  # no table: a path is of no use when it is cut
        detail = f": {check.detail}" if check.detail else ""
        name = f" {check.name}" if check.name else ""
        click.echo(printable(f"{check.run[:SHORT]:<{SHORT}}  {check.state:<10}{check.what}{name}{detail}"))
    evidence = [check for check in checks if check.what not in OF_HEADS]
    fine = sum(check.state == "ok" for check in evidence)
    said = f"{fine} of {count(len(evidence), 'piece')} of evidence of {count(looked_at, 'run')} as recorded"
    if heads:
        odd = sum(check.what in OF_HEADS for check in checks)
        said += f"; {count(records, 'record')} " + (f"compared with the head, {odd} not as then" if odd else "as in the head")
    click.echo(f"{said}; {count(len(differing), 'differs', 'differ')}" if differing else said)
    if not heads:
        click.echo("who may write to the book could change records and evidence alike; a head kept elsewhere shows that: --head", err=True)
    return int(bool(differing))
