"""Pieces of the terminal view that several sections use: headings, filled text, bars, a finding. 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from rich.text import Text

from leadline.figures import count, fit, one_line, percent, seconds
from leadline.findings import Evaluation, Finding
from leadline.views.grid import Grid
from leadline.views.wait_classes import wait_class
from leadline.views.where import thinned

WIDTH = 80
BAR = 22
SEVERITY_STYLES = {"critical": "bold red", "high": "red", "medium": "yellow", "low": "cyan", "info": "dim"}


def section(title: str, columns: str = "") -> Iterator[Text]:
    yield Text("")
    yield Text.assemble((title, "bold"), (columns.rjust(WIDTH - len(title)) if columns else "", "dim"))


def wrapped(text: str, style: str = "", hanging: int = 2) -> Iterable[Text]:
    indent = " " * (len(text) - len(text.lstrip()))
    for line in textwrap.wrap(one_line(text), WIDTH, initial_indent=indent, subsequent_indent=indent + " " * hanging):
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


def bar(length: float, wait: str, width: int = BAR) -> Text:
    """A bar of `length` 0 to 1 in the colour of the class, in eighths of a character."""
    eighths = round(length * width * 8)
    if length > 0:
        eighths = max(eighths, 1)
    text = "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]
    return Text(text, style=wait_class(wait).dark)


def finding_line(finding: Finding) -> Text:
    """Severity, id, subject, cost: one line of 80 columns."""
    cost = seconds(finding.cost_s) if finding.cost_s is not None else "-"
    numbers = f"{cost:>9}{percent(finding.share_of_db_time) or '-':>8}"
    name = f"{finding.severity:<9}{finding.id}  "
    room = WIDTH - len(numbers) - len(name) - 1
    return Text.assemble(
        (f"{finding.severity:<9}", SEVERITY_STYLES.get(finding.severity, "")),
        (f"{finding.id}  ", "bold"),
        f"{fit(one_line(finding.subject), room):<{room}} ",
        numbers,
    )


def finding_lines(finding: Finding) -> Iterator[Text]:
    """One finding in full: cost, what was seen, what to do."""
    yield finding_line(finding)
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
