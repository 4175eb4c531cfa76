"""Pieces of the terminal view that several sections use: headings, filled text, bars, a finding.

As wide as the terminal; in a pipe or a file 80 columns, and more where a value is longer: there none is cut.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from rich.text import Text

from leadline.figures import bar, count, fit, one_line, pad, percent, seconds, width_of
from leadline.findings import Evaluation, Finding
from leadline.output import UNLIMITED, WIDTH, terminal_width, width_here
from leadline.views.grid import Grid
from leadline.views.wait_classes import wait_class
from leadline.views.where import coarse_words, thinned

NARROWEST = 12  # columns for a name, on however narrow a terminal
BAR = 22
FINDING_FIGURES = f"{'seconds':>9}{'share':>8}"
SEVERITY_STYLES = {"critical": "bold red", "high": "red", "medium": "yellow", "low": "cyan", "info": "dim"}


def section(title: str, columns: str = "", width: int = WIDTH) -> Iterator[Text]:
    """A heading. columns: what stands above the figures, which end at `width`."""
    yield Text("")
    yield Text.assemble((title, "bold"), (columns.rjust(width - len(title)) if columns else "", "dim"))


def room_for(names: Iterable[str], figures: int, least: int | None = None) -> int:
    """Columns for names that have `figures` columns to their right: `least` or what makes 80 in all, more where a name is longer,
    and no more than a terminal has."""
    wanted = max([WIDTH - figures if least is None else least, *(width_of(name) + 1 for name in names)])
    return max(min(wanted, (terminal_width() or UNLIMITED) - figures), NARROWEST)


def name_in(room: int, name: str) -> str:
    """A name, and blanks up to the figures to its right."""
    return pad(fit(name, room - 1), room)


def wrapped(text: str, style: str = "", hanging: int = 2) -> Iterable[Text]:
    indent = " " * (len(text) - len(text.lstrip()))
    for line in textwrap.wrap(one_line(text), width_here(), initial_indent=indent, subsequent_indent=indent + " " * hanging):
        yield Text(line, style=style)


def grid_lines(title: str, grid: Grid) -> Iterator[Text]:
    """A section that is a grid."""
    yield from section(title)
    if grid.note:
        yield from wrapped(grid.note, "dim", hanging=0)
    if not grid.rows:
        yield Text(grid.empty)
        return
    head, *rows = grid.lines()
    yield Text(head, style="dim")
    for row in rows:
        yield Text(row)
    if grid.rest:
        yield from wrapped(grid.rest, "dim")


def wait_bar(length: float, wait: str, width: int = BAR) -> Text:
    """A bar of `length` 0 to 1 in the colour of the class."""
    return Text(bar(length, width), style=wait_class(wait).dark)


def findings_room(findings: Iterable[Finding]) -> int:
    """Columns for what findings are about, so that their figures stand below each other."""
    return room_for((f"{f.severity:<9}{f.id}  {one_line(f.subject)}" for f in findings), len(FINDING_FIGURES))


def finding_line(finding: Finding, room: int) -> Text:
    """Severity, id, subject, cost: one line."""
    cost = seconds(finding.cost_s) if finding.cost_s is not None else "-"
    numbers = f"{cost:>9}{percent(finding.share_of_db_time) or '-':>8}"
    name = f"{finding.severity:<9}{finding.id}  "
    return Text.assemble(
        (f"{finding.severity:<9}", SEVERITY_STYLES.get(finding.severity, "")),
        (f"{finding.id}  ", "bold"),
        name_in(max(room - len(name), NARROWEST), one_line(finding.subject)),
        numbers,
    )


def finding_lines(finding: Finding) -> Iterator[Text]:
    """One finding in full: cost, what was seen, what to do."""
    yield finding_line(finding, findings_room([finding]))
    yield from wrapped("  " + finding.statement)
    yield from wrapped(f"  confidence {finding.confidence}, {count(finding.samples, 'sample')}", "dim")
    yield Text("  What to do", style="bold")
    yield from _advice(finding.action)
    yield Text("")


def _advice(markdown: str) -> Iterator[Text]:
    """Paragraphs and items filled again for the terminal, code line by line."""
    block: list[str] = []
    in_code = False
    for line in [*markdown.splitlines(), ""]:
        fence = line.startswith("```")
        if in_code and not fence:
            yield Text("      " + line)
            continue
        if block and (fence or not line.strip() or line.startswith("- ")):
            text = " ".join(block)
            yield from wrapped("    " + text, hanging=2 if text.startswith("- ") else 0)
            block = []
        if fence:
            in_code = not in_code
        elif line.strip():
            block.append(line.strip())


def rest_lines(evaluation: Evaluation, *, reasons: bool) -> Iterator[Text]:
    """The rules that gave no finding: how many, and with `reasons` which and why. Also that not all samples were read."""
    if evaluation.every_pass > 1:
        yield from wrapped(f"note: {thinned(evaluation.every_pass)}", "dim")
    if evaluation.span_s is not None:
        yield from wrapped(f"note: the capture is coarse: {coarse_words(evaluation.span_s)}", "dim")
    unknown, clean = evaluation.not_evaluated, evaluation.clean
    if reasons:
        yield from wrapped(f"found nothing: {', '.join(clean) or 'none'}")
        for reason in dict.fromkeys(reason for _, reason in unknown):
            yield from wrapped(f"not evaluated: {', '.join(name for name, why in unknown if why == reason)}: {reason}")
        if evaluation.not_applicable:
            yield from wrapped(f"not about this capture: {', '.join(name for name, _ in evaluation.not_applicable)}")
        return
    found = len(evaluation.findings)
    tail = f"; {len(unknown)} could not be evaluated (see --all)" if unknown else ""
    yield from wrapped(f"{count(found, 'finding')}; {count(len(clean), 'rule')} found nothing{tail}", "dim")
