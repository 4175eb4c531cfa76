"""leadline findings: what is wrong in a capture, and the rules themselves."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

from leadline.capture.reader import open_capture
from leadline.cli.forms import form, printed
from leadline.cli.recorded import summarise
from leadline.errors import LeadlineError
from leadline.figures import count
from leadline.findings import Definition, Evaluation, all_findings, evaluate
from leadline.findings.advice import general
from leadline.findings.rules import TEXTS
from leadline.output import to_json


def find_rule(name: str) -> Definition:
    """A rule by id, in any case. Raises LeadlineError('not_found')."""
    for rule in all_findings():
        if rule.id == name.upper():
            return rule
    raise LeadlineError("not_found", f"no finding named {name}", hint=f"known: {', '.join(r.id for r in all_findings())}")


def parse_thresholds(given: tuple[str, ...]) -> dict[str, float]:
    """NAME=NUMBER or ID.NAME=NUMBER. Raises LeadlineError('usage')."""
    values = {}
    for text in given:
        name, _, value = text.partition("=")
        try:
            values[name.strip()] = float(value)
        except ValueError as e:
            hint = "run leadline findings --sql ID to see the names"
            raise LeadlineError("usage", f"invalid threshold {text}: expected NAME=NUMBER", hint=hint) from e
    return values


@click.command(
    "findings",
    epilog="""\b
Examples:
  leadline findings demo.leadline
  leadline findings demo.leadline --json | jq '.[].statement'
  leadline findings demo.leadline --only BLOCK-CHAIN --set min_block_s=5
  leadline findings --explain BLOCK-CHAIN
  leadline findings --sql BLOCK-CHAIN""",
)
@click.argument("capture", type=click.Path(path_type=Path), required=False)
@form("Print a JSON list of findings.")
@click.option("--all", "with_all", is_flag=True, help="Also list rules that found nothing or could not be evaluated, and why.")
@click.option("--only", "only", multiple=True, metavar="ID", help="Evaluate only this rule. Can be repeated.")
@click.option("--set", "thresholds", multiple=True, metavar="NAME=NUMBER", help="Set a threshold; with ID.NAME=NUMBER, for one rule only.")
@click.option("--explain", metavar="ID", help="Print what a rule shows, why it matters and what to do.")
@click.option("--sql", "show_sql", metavar="ID", help="Print the query of a rule.")
def command(
    capture: Path | None,
    form: str | None,
    with_all: bool,
    only: tuple[str, ...],
    thresholds: tuple[str, ...],
    explain: str | None,
    show_sql: str | None,
) -> int:
    """List what is wrong in a capture, most costly first.

    Costs are the seconds that the victims lost; shares are of database time. Exit code 0: no findings; 1: findings; 2: error.
    """
    if explain or show_sql:
        _print_rule(find_rule(explain or show_sql or ""), sql=bool(show_sql), as_json=form == "json")
        return 0
    if capture is None:
        raise LeadlineError("usage", "missing argument: CAPTURE, --explain ID or --sql ID", hint="leadline findings --help")
    opened = open_capture(capture, hold=True, meanwhile=_load)  # not closed: the process ends, and to free its tables takes time
    chosen = [find_rule(name).id for name in only] or None
    evaluation = evaluate(opened, chosen, parse_thresholds(thresholds))
    worst = f"; most costly: {evaluation.findings[0].id} {evaluation.findings[0].subject}" if evaluation.findings else ""
    summarise(count(len(evaluation.findings), "finding") + worst)
    if form == "csv":
        printed(form, [f.as_dict() for f in evaluation.findings])
        _say_not_evaluated(evaluation)
    elif form == "json":
        _print_json(evaluation, with_all)
    else:
        _print_text(evaluation, with_all)
    return 1 if evaluation.findings else 0


def _load() -> None:
    """Imports what prints findings, and reads the rules."""
    for module in ("rich.console", "leadline.views.text"):
        importlib.import_module(module)
    all_findings()


def _print_rule(rule: Definition, *, sql: bool, as_json: bool) -> None:
    if as_json:
        thresholds = [vars(t) for t in rule.thresholds]
        keys = TEXTS
        known = {key: getattr(rule, key) for key in keys}
        sections = {name: general(text) for name, text in rule.sections.items()}
        click.echo(to_json(known | {"wrong_when": rule.wrong_when, "thresholds": thresholds, "sections": sections, "sql": rule.sql()}))
    elif sql:
        click.echo(rule.sql())
    else:
        click.echo(f"# {rule.id}: {rule.title}\n\n{rule.question}")
        for heading, text in rule.sections.items():
            click.echo(f"\n## {heading}\n\n{general(text)}")


def _print_json(evaluation: Evaluation, with_all: bool) -> None:
    """A list of findings; with --all an object that has the other rules beside it. Without, they are talk."""
    findings = [f.as_dict() for f in evaluation.findings]
    not_evaluated = [{"id": name, "reason": reason} for name, reason in evaluation.not_evaluated]
    if with_all:
        other = [{"id": name, "reason": reason} for name, reason in evaluation.not_applicable]
        rest = {"not_evaluated": not_evaluated, "not_applicable": other, "clean": evaluation.clean, "unseen": evaluation.unseen}
        click.echo(to_json({"findings": findings} | rest))
        return
    click.echo(to_json(findings))
    _say_not_evaluated(evaluation)


def _say_not_evaluated(evaluation: Evaluation) -> None:
    for name, reason in evaluation.not_evaluated:
        click.echo(f"not evaluated: {name}: {reason}", err=True)


def _print_text(evaluation: Evaluation, with_all: bool) -> None:
    from rich.console import Console
    from rich.text import Text

    from leadline.output import WIDTH
    from leadline.views.text import finding_lines, rest_lines, wrapped

    lines = [*wrapped(f"Not all was seen: {evaluation.unseen}", "yellow"), Text("")] if evaluation.unseen else []
    lines += [line for finding in evaluation.findings for line in finding_lines(finding)]
    lines += rest_lines(evaluation, reasons=with_all)
    # As one: to print each line by itself takes three times as long.
    Console(file=sys.stdout, width=WIDTH, highlight=False).print(Text("\n").join(lines), soft_wrap=True)
