"""leadline study show and report: what came of a study."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadline.cli import force
from leadline.cli.study.options import as_json, find_study
from leadline.errors import LeadlineError

if TYPE_CHECKING:
    from leadline.study.moved import Limit, OfLevel
    from leadline.study.round_trips import Mode

pairs = click.option("--pairs", is_flag=True, help="Also compare all levels of a factor with each other, corrected together (Holm).")


@click.command(
    "show",
    short_help="Show what came of a study.",
    epilog="\b\nExamples:\n  leadline study show last\n  leadline study show 4k7q2 --json",
)
@click.argument("run", default="last")
@pairs
@as_json
def show(run: str, pairs: bool, as_json: bool) -> int:
    """Show a study: the answer, the effect of each factor with its interval, cell by cell, and of which cells nothing can be said.

    Where trials have a capture of the server, it also shows where the time moved: database time for each transaction by wait and
    statement, and the devices, summed over the trials of each level.
    """
    print_study(run, as_json, pairs)
    return 0


def print_study(run: str, as_json: bool, pairs: bool = False) -> None:
    from leadline.book.experiments.study_text import lines
    from leadline.book.query import printable
    from leadline.output import to_json
    from leadline.study import round_trips
    from leadline.study.moved import lines as moved_lines
    from leadline.study.said import SAID

    row, found, levels, of_cells, modes = found_study(run, pairs)
    if as_json:
        more = {"moved": [level.as_dict() for level in levels], "busiest": [asdict(limit) for limit in of_cells]}
        more |= {"round_trips": [mode.as_dict() for mode in modes]} | {name: of.as_dicts(found) for name, of in SAID.items()}
        click.echo(to_json({"run": row["uid"], "study": found | more}))
    else:
        of_pairs = [line for of in SAID.values() for line in of.lines(found)]
        texts = [*lines(found), *round_trips.lines(modes), *of_pairs, *moved_lines(levels, of_cells)]
        click.echo("\n".join(printable(line) for text in texts for line in text.split("\n")))
    first = found["parts"][0][:5]
    click.echo(f"next: leadline study {'report' if found['verdict'] else 'run --resume'} {first}", err=True)


def found_study(run: str, pairs: bool = False) -> tuple[dict[str, Any], dict[str, Any], list[OfLevel], list[Limit], list[Mode]]:
    """The run, the study, where the time moved, the busiest device of each cell, and latencies against the round trip of a pair.
    pairs: also with all pairs of levels.

    Raises LeadlineError for a run that is none.
    """
    from leadline.book.experiments.effects import all_pairs
    from leadline.book.experiments.studies import figures_in, study
    from leadline.book.query import Book
    from leadline.study.moved import captured, limits, moved
    from leadline.study.round_trips import modes

    book = Book()
    try:
        row = find_study(book, run)
        found = study(book.store, row)
    finally:
        book.close()
    if found is None:
        raise LeadlineError("usage", f"run {row['uid'][:5]} is no study that was registered", hint="leadline book list --kind study")
    if found["judged"] is None:
        return row, found, [], [], []
    if pairs:
        found["pairs"] = all_pairs(found["design"], figures_in(found))
    trials = captured(found, book.place.study_of(found["parts"][0]))
    return row, found, moved(found, trials), limits(found, trials), modes(found)


@click.command(
    "report",
    short_help="Write a study as one HTML file.",
    epilog="""\b
Examples:
  leadline study report last
  leadline study report 4k7q2 -o wal.html
  leadline study report 4k7q2 -o wal.svg""",
)
@click.argument("run", default="last")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE",
    help="File to write; FILE.svg: its plots alone.  [default: study-RUN.html]",
)  # fmt: skip
@pairs
@force
@as_json
def report(run: str, output: Path | None, pairs: bool, force: bool, as_json: bool) -> int:
    """Write a study as one HTML file that opens offline: the answer first, the effects with their intervals, where the time moved.

    -o FILE.svg writes only the plots, as a picture for a page of text, with what they were measured on. Of a study without curves, it has
    the ratios with their intervals.
    """
    from leadline.book.place import find_place
    from leadline.output import to_json
    from leadline.replacing import write_whole
    from leadline.study import over_time
    from leadline.study.picture import of_study
    from leadline.study.report import page
    from leadline.study.round_trips import drawn
    from leadline.study.said import SAID

    row, found, levels, of_cells, modes = found_study(run, pairs)
    path = output or Path(f"study-{found['parts'][0][:5]}.html")
    place = find_place()
    assert place is not None  # found_study has read its book
    directory = place.study_of(found["parts"][0])
    plots = [*drawn(modes), *(part for of in SAID.values() for part in of.drawn(found))]
    later = over_time.drawn(found, directory)
    if path.suffix.lower() == ".svg":
        text = of_study(found, plots, later, row["uid"][:5], directory)
    else:
        text = page(found, row["uid"], levels, of_cells, [*plots, *later])
    write_whole(path, text, "the report of the study", overwrite=force)
    click.echo(to_json({"run": row["uid"], "file": str(path)}) if as_json else str(path))
    return 0


COMMANDS = (show, report)
