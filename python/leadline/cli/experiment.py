"""leadline experiment: two commands in pairs, by a design that is registered first, and a verdict."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadline.errors import LeadlineError

if TYPE_CHECKING:
    from leadline.book.supervisor import Request

WORSE, NOT_KNOWN = 1, 3  # exit codes, where asked for


@click.command(
    "experiment",
    epilog="""\b
Examples:
  leadline experiment --baseline 'sort f' --variant 'sort --parallel=4 f'
  leadline experiment --baseline 'pgbench -T 20 -M simple' \\
    --variant 'pgbench -T 20 -M prepared' --metric 'tps = ([0-9.]+)' \\
    --better more --prepare 'psql -c checkpoint' --pairs 12
  leadline experiment --baseline ./old --variant ./new --exit-code && ./ship
  leadline book show last""",
)
@click.option("--baseline", required=True, metavar="CMD", help="Command to compare with: the present state.")
@click.option("--variant", required=True, metavar="CMD", help="Command to compare: the change.")
@click.option("--hypothesis", metavar="TEXT", help="What you expect. It is registered before the first trial.")
@click.option("--pairs", type=int, metavar="N", help="Pairs of trials, one of each command; a verdict needs 6.  [default: 10]")
@click.option(
    "--metric", metavar="METRIC",
    help="seconds, cpu_seconds, max_rss_bytes, or a regular expression whose group is a number in the output (the last match counts).  "
    "[default: seconds]",
)  # fmt: skip
@click.option(
    "--better", type=click.Choice(["less", "more"]), help="Whether less or more is better; required with an expression.  [default: less]"
)
@click.option("--margin", metavar="PERCENT", help="Largest difference that does not matter: 2%, 0.5%.  [default: 2%]")
@click.option("--warmup", type=int, metavar="N", help="First run both commands N times without counting them.  [default: 0]")
@click.option("--prepare", metavar="CMD", help="Command to run before each trial; it is not measured.")
@click.option("--seed", type=int, metavar="N", help="Seed of the order of the trials.  [default: random, and recorded]")
@click.option("--keep-going", is_flag=True, default=None, help="If a trial fails, leave out its pair and continue.")
@click.option("--name", default="experiment", show_default=True, metavar="NAME", help="Name of the run.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label to find it by; may be given more than once.")
@click.option("--detach", is_flag=True, help="Run in the background, without this terminal. Prints the id of the run.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 if the variant is worse, and with 3 without a clear verdict.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(name: str, labels: tuple[str, ...], detach: bool, exit_code: bool, as_json: bool, **given: Any) -> int:
    """Compare two commands in interleaved pairs of runs.

    Each pair runs both commands once; each of the two runs is a trial, and is recorded in the logbook. A random draw, made from the seed,
    decides which command of a pair runs first, so that a drift of the host favours neither. Commands are split into words as a shell
    does, but no shell runs them. The design (commands, metric, number and order of trials) is written to the logbook before the first trial
    begins, with a seal that `leadline book verify` checks. If the same commands were compared before, the verdict says how often.

    The verdict comes from the ratios of the pairs (Hodges-Lehmann estimate with a 95 % interval by signed ranks). It is faster, slower,
    less or more; equivalent, if the whole interval is within the margin; otherwise inconclusive. A trial that fails ends the experiment
    with exit code 2.

    With --exit-code, the exit code is 0 if the variant is better or equivalent, 1 if it is worse, and 3 without a clear verdict.
    """
    from leadline.book.experiments.design import make
    from leadline.book.experiments.trials import JOIN
    from leadline.book.place import find_place

    if detach and exit_code:
        raise LeadlineError("usage", "a detached experiment has no verdict yet", hint="give one of --detach and --exit-code")
    uid = os.environ.pop(JOIN, "")
    if uid == "" and given["seed"] is None:
        given["seed"] = secrets.randbelow(10**9)
    design = make(given)
    place = find_place()
    if place is None:
        raise LeadlineError("usage", "the book is off (LEADLINE_BOOK=off)", hint="an experiment is registered before it begins")
    if uid:
        return _perform(design, place, uid, name, as_json)
    request = _as_run(design, name, labels, as_json)
    if detach:
        return _detached(request, as_json)
    from leadline.book.command import run_request

    code = run_request(request)
    return _code_of(place, request.uid) if exit_code and code == 0 else code


def _as_run(design: Any, name: str, labels: tuple[str, ...], as_json: bool) -> Request:
    """The experiment as a run of the book: the same command, with the uid of that run."""
    from leadline.book.experiments.design import hide
    from leadline.book.experiments.trials import JOIN
    from leadline.book.spool import new_uid
    from leadline.book.supervisor import Request
    from leadline.cli.book.options import labels_of

    uid = new_uid()
    options = design.as_options()
    line = [*options, f"--name={name}", *(["--json"] if as_json else [])]
    shown = [f"--{word}={hide(getattr(design, word))}" if word in ("baseline", "variant", "prepare") else option
             for option in options for word in [option[2:].partition("=")[0]]]  # fmt: skip
    return Request(
        [sys.executable, "-m", "leadline", "experiment", *line], uid, "experiment", name, env={JOIN: uid},
        labels={key: value or "" for key, value in labels_of(labels)}, shown=["leadline", "experiment", *shown],
    )  # fmt: skip


def _detached(request: Request, as_json: bool) -> int:
    from leadline.book.command import start
    from leadline.output import to_json

    uid = start(request)
    click.echo(to_json({"run": uid}) if as_json else uid)
    click.echo(f"next: leadline book log {uid[:5]} --follow", err=True)
    return 0


def _code_of(place: Any, uid: str) -> int:
    """What the verdict of an experiment that has ended well says of the variant."""
    from leadline.book.experiments.query import experiment
    from leadline.book.query import Book

    book = Book(place)
    try:
        found = experiment(book.store, book.find(uid))
    finally:
        book.close()
    if found is None or found["good"] is None:
        return 0 if found is not None and found["verdict"] == "equivalent" else NOT_KNOWN
    return 0 if found["good"] else WORSE


def _perform(design: Any, place: Any, uid: str, name: str, as_json: bool) -> int:
    from dataclasses import replace

    from leadline.book.experiments.query import experiment
    from leadline.book.experiments.text import lines
    from leadline.book.query import Book
    from leadline.output import to_json
    from leadline.study.experiment import Experiment

    here = str(Path.cwd())
    made_for_it = os.path.realpath(here) == os.path.realpath(place.work_of(uid))
    running = Experiment(replace(design, folder="" if made_for_it else here), place, uid, name, lambda text: click.echo(text, err=True))
    try:
        running.perform()
    finally:
        book = Book(place)
        try:
            rows = book.store.rows("select * from run where uid = ?", (uid,))
            found = experiment(book.store, rows[0]) if rows else None
        finally:
            book.close()
        if found is not None and found["verdict"] is not None:
            click.echo(to_json({"run": uid, "experiment": found}) if as_json else "\n".join(lines(found)))
            click.echo(f"next: leadline book show {uid[:5]}", err=True)
    return 0
