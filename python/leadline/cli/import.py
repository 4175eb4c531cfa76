"""leadline import: evidence that a server's own tools printed, as tables."""

from __future__ import annotations

from pathlib import Path

import click

from leadline.cli import SETTINGS, force


@click.group(
    "import",
    context_settings=SETTINGS,
    epilog="""\b
Examples:
  leadline import onstat x.txt --oncheck pe.txt -o waits.leadline
  leadline sql waits.leadline "from informix_hot_buffer where waiters > 0\"""",
)
def command() -> None:
    """Turn the output of Informix's onstat into a capture."""


@command.command(
    "onstat",
    epilog="""\b
Examples:
  onstat -X > x.txt; oncheck -pe > pe.txt       (on the server)
  leadline import onstat x.txt --oncheck pe.txt -o waits.leadline
  leadline import onstat x.*.txt --oncheck pe.txt -o day.leadline --json""",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--oncheck", type=click.Path(path_type=Path), metavar="FILE", help="Output of oncheck -pe, which supplies the object names.")
@click.option(
    "-o",
    "--output",
    default="onstat.leadline",
    show_default=True,
    type=click.Path(path_type=Path),
    metavar="CAPTURE",
    help="Capture directory to create.",
)
@force
@click.option(
    "--system-page-size",
    type=click.Choice(["2048", "4096"]),
    default="2048",
    show_default=True,
    help="Page size in which onstat numbers buffers: 4096 if the system page size is 4 kB.",
)
@click.option(
    "--page-size",
    type=click.IntRange(2048, 16384),
    metavar="BYTES",
    help="Page size of chunks for which the oncheck output has none (servers before 10).  [default: system page size]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def onstat(
    files: tuple[Path, ...],
    oncheck: Path | None,
    output: Path,
    force: bool,
    system_page_size: str,
    page_size: int | None,
    as_json: bool,
) -> None:
    """Import Informix onstat -X (or -B, -b) output, to show which buffers sessions wait for.

    Each listing is one sample; give several files, or the output of onstat -r, for several samples. A listing has no time
    of day, only the uptime, so samples are numbered in the order of the files.
    """
    from leadline.cli.show import print_view
    from leadline.engines.informix.capture import Sizes, write

    capture = write(list(files), oncheck, output, Sizes(int(system_page_size), page_size), overwrite=force)
    try:
        print_view(capture, as_json=as_json)
    finally:
        capture.close()
