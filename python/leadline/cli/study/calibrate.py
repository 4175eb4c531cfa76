"""leadline study calibrate: the same against itself."""

from __future__ import annotations

import os
import secrets
from typing import Any

import click

from leadline.cli.study.options import as_json, study_of, what
from leadline.errors import LeadlineError


@click.command(
    "calibrate",
    short_help="Find the smallest effect that this host can show.",
    epilog="\b\nExamples:\n  leadline study calibrate\n  leadline study calibrate my-study.toml --repetitions 20",
)
@click.argument("name", metavar="[NAME|FILE.toml]", default="settings")
@what
@as_json
def command(name: str, as_json: bool, **given: Any) -> int:
    """Run the load of a study against itself: two cells that are alike.

    Half of the width of the interval is the smallest effect that this host can show with so many blocks. It is kept in the logbook, and
    `leadline study plan` uses it. A calibration that shows a difference says that something is wrong with the method or the host.
    """
    from dataclasses import replace

    from leadline.book.experiments.trials import JOIN
    from leadline.book.place import find_place
    from leadline.cli.study.run import SERVER, as_run, perform
    from leadline.study.design import alike

    place = find_place()
    if place is None:
        raise LeadlineError("usage", "the book is off (LEADLINE_BOOK=off)", hint="a study is registered before it begins")
    uid = os.environ.pop(JOIN, "")
    given["server"] = os.environ.pop(SERVER, "") or given["server"]
    study, dsn = study_of(name, given)
    study = alike(study)
    if uid:
        return perform(study, place, uid, dsn, given, None, as_json)
    study = replace(study, seed=secrets.randbelow(10**9) if given["seed"] is None else given["seed"])
    return as_run(study, given, dsn, name=name, resume=None, as_json=as_json, verb="calibrate")


COMMANDS = (command,)
