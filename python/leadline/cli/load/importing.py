"""leadline load import: loads that other tools have run, as captures."""

from __future__ import annotations

from pathlib import Path

import click

from leadline.cli import SETTINGS, force


@click.group(
    "import", short_help="Turn results of other load tools into captures.", context_settings=SETTINGS,
    epilog="\b\nExamples:\n  leadline load import pgbench pgbench_log.* -o night.leadline\n"
    "  leadline load import fio disk.json -o disk.leadline",
)  # fmt: skip
def command() -> None:
    """Turn results of other load tools into captures, which show, report, sql and compare read."""


@command.command(
    "pgbench",
    epilog="""\b
Examples:
  pgbench -l -c 8 -j 2 -T 60 bench
  leadline load import pgbench pgbench_log.* -o night.leadline
  leadline load import pgbench pgbench_log.* --seventh lag -o night.leadline
  leadline compare night.leadline day.leadline""",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", default="pgbench.leadline", show_default=True, type=click.Path(path_type=Path), metavar="CAPTURE",
    help="Capture directory to create.",
)  # fmt: skip
@click.option("--seventh", type=click.Choice(["lag", "retries"]), help="What a seventh column is: of --rate or --max-tries.")
@force
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def pgbench(files: tuple[Path, ...], output: Path, seventh: str | None, force: bool, as_json: bool) -> None:
    """Import the logs of one run of pgbench -l: a file for each of its threads.

    Each transaction is kept (load_transaction). Sums of each second, latencies and errors are those of leadline load run. Logs of
    --aggregate-interval have no transactions and are refused. Lines that are none are counted.
    """
    from leadline.figures import count
    from leadline.load.imported import import_pgbench
    from leadline.output import to_json

    found = import_pgbench(files, output, seventh=seventh, overwrite=force)
    if as_json:
        click.echo(to_json(found))
        return
    said = ", ".join(f"{n:,} {word}" for word, n in sorted(found["outcomes"].items()))
    click.echo(f"{count(found['transactions'], 'transaction')} in {found['seconds']:.1f} s ({said}): {found['capture']}")
    if found["lines_not_read"]:
        click.echo(f"{count(found['lines_not_read'], 'line')} of the logs are no transactions", err=True)


def _of_report(name: str, short: str, epilog: str, help_text: str) -> None:
    """A subcommand for a tool whose output is one file."""

    @command.command(name, short_help=short, epilog=epilog, help=help_text)
    @click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
    @click.option(
        "-o", "--output", default=f"{name}.leadline", show_default=True, type=click.Path(path_type=Path), metavar="CAPTURE",
        help="Capture directory to create.",
    )  # fmt: skip
    @force
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    def imported(file: Path, output: Path, force: bool, as_json: bool) -> None:
        from importlib import import_module

        from leadline.figures import count
        from leadline.load.reports.report import write
        from leadline.output import to_json

        found = write(import_module(f"leadline.load.reports.{name}").read(file), [file], output, overwrite=force)
        if as_json:
            click.echo(to_json(found))
            return
        counted = f"{count(found['transactions'], 'transaction')} in {found['seconds']:.1f} s, {count(found['figures'], 'figure')}"
        click.echo(f"{found['tool']}: {counted}: {found['capture']}")
        for note in found["notes"]:
            click.echo(f"note: {note}", err=True)


_of_report(
    "fio", "Import a JSON result of fio.",
    "\b\nExamples:\n  fio --output-format=json+ --output=disk.json disk.fio\n  leadline load import fio disk.json -o disk.leadline\n"
    "  leadline compare disk.leadline other.leadline",
    """Import the result of a run of fio (--output-format=json or json+).

    Each job and direction is a statement (load_statement) whose executions are its requests. json+ has histograms (load_bucket). Each
    figure is kept under its path (load_reported). Lines that fio writes beside the JSON are counted.
    """,
)  # fmt: skip
_of_report(
    "sysbench", "Import the output of sysbench.",
    "\b\nExamples:\n  sysbench oltp_read_write --report-interval=1 --histogram=on run > s.txt\n"
    "  leadline load import sysbench s.txt -o s.leadline",
    """Import the output of a run of sysbench 1.0 or 1.1.

    The intervals of --report-interval are rows of load_second, the histogram of --histogram is in load_bucket, each figure as it was
    printed in load_reported. A quantile that cannot be one (sysbench counts nothing above 100,000 ms) is named.
    """,
)  # fmt: skip
_of_report(
    "hammerdb", "Import a log of HammerDB.",
    "\b\nExamples:\n  leadline load import hammerdb hammerdb.log\n  leadline load import hammerdb hdbxtprofile.log -o times.leadline",
    """Import the log of one run of HammerDB, or its time profile (hdbxtprofile.log).

    NOPM and TPM are in load_reported; the procedures of the profile's summary are statements (load_statement). What HammerDB runs is like
    TPC-C and no result of it.
    """,
)  # fmt: skip
