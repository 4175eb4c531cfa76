"""What the subcommands of `leadline study` share: the options that change a design, and the design that they give."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leadline.errors import LeadlineError

if TYPE_CHECKING:
    from leadline.study.design import Study

F = TypeVar("F", bound=Callable[..., Any])
BLOCKS = click.IntRange(1, 1000)
OF_DESIGN = "[default: of the design]"
WHAT = (
    click.option(
        "--setting", "settings", multiple=True, metavar="NAME=A,B", help="Compare these levels of a setting; the first is the baseline.",
    ),
    click.option(
        "--layout", "layouts", multiple=True, metavar="NAME=PLACES",
        help="Compare this layout, in the study storage: DIR, or '/mnt/a indexes=/mnt/b large_objects=/mnt/b wal=/mnt/c'; with "
        "--server, tablespaces: 'fast indexes=slow'. The first is the baseline.",
    ),
    click.option(
        "--round-trip", "round_trips", metavar="A,B", help="Compare round trips between a private primary and standby: 0,5ms,20ms.",
    ),
    click.option(
        "--levels", "levels", multiple=True, metavar="FACTOR=A,B", help="Compare these levels of a factor of the design; repeatable.",
    ),
    click.option("--repetitions", type=BLOCKS, metavar="N", help=f"Blocks: how often each combination is run.  {OF_DESIGN}"),
    click.option("--for", "duration", metavar="TIME", help=f"How long each load runs.  {OF_DESIGN}"),
    click.option("--clients", type=click.IntRange(1, 10_000), metavar="N", help=f"Clients of the load.  {OF_DESIGN}"),
    click.option("--margin", metavar="PERCENT", help=f"Largest difference that does not matter: 2%, 0.5%.  {OF_DESIGN}"),
    click.option(
        "--include", "includes", multiple=True, metavar="CELL", help="Also run a combination that the design leaves out: A=x,B=y.",
    ),
    click.option("--seed", type=click.IntRange(0, 2**53), metavar="N", help="Seed of the order.  [default: random, and recorded]"),
    click.option("--pg-bin", metavar="DIR", help="Directory with postgres and initdb for the private server."),
    click.option("--server", metavar="DSN", help="Use this server instead of a private one. Says what it will change, and asks."),
    click.option("--restart", metavar="CMD", help="Command that restarts that server, for settings that need it."),
)  # fmt: skip
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def what(function: F) -> F:
    """Adds the options; `study_of` reads them."""
    for option in reversed(WHAT):
        function = option(function)
    return function


def words_of(name: str, given: dict[str, Any]) -> str:
    """The options as words of a command. A connection string may hold a password: it is not among them."""
    words = [name]
    for parameter in click.get_current_context().command.params:
        value = given.get(parameter.name or "")
        if isinstance(parameter, click.Option) and value not in (None, (), False):
            for one in value if isinstance(value, tuple) else (value,):
                words += [parameter.opts[0], "DSN" if parameter.name == "server" else str(one)]
    return shlex.join(words)


def study_of(name: str, given: dict[str, Any]) -> tuple[Study, str]:
    """The design with the options, and the DSN of its server with the password, if one was named. Raises LeadlineError."""
    from dataclasses import replace

    from leadline.book.experiments.design import margin_of
    from leadline.study import design

    study = design.read(name)
    if given["settings"]:
        study = design.with_setting(study, given["settings"])
    if given["layouts"]:
        study = design.with_layouts(study, given["layouts"], on_named=bool(given["server"]))
    if given["round_trips"]:
        study = design.with_round_trips(study, given["round_trips"])
    study = design.with_levels(study, given["levels"])
    for cell in given["includes"]:
        study = design.include(study, cell)
    if given["repetitions"]:
        study = replace(study, repetitions=given["repetitions"])
    if given["margin"]:
        margin = margin_of(given["margin"])
        study = replace(study, margin=margin, metrics=tuple(replace(metric, margin=margin) for metric in study.metrics))
    load = {key: given[option] for key, option in (("for", "duration"), ("clients", "clients")) if given[option] is not None}
    if "command" in study.load and (unknown := load.keys() - study.load.keys()):
        where = ", ".join(f"--{name}" for name in sorted(unknown))
        raise LeadlineError("usage", "the load of this study is a command, which says that itself", where=where)
    if "for" in load:
        from leadline.load.plan import duration_of

        duration_of(load["for"], "--for")
    study = replace(study, load=study.load | load)
    return with_server(study, given)


def with_server(study: Study, given: dict[str, Any]) -> tuple[Study, str]:
    """Raises LeadlineError."""
    from dataclasses import replace

    dsn = given["server"] or ""
    if given["restart"]:
        from leadline.book.experiments.design import words

        words(given["restart"], "restart")
        if not dsn:
            raise LeadlineError("usage", "--restart is for a server that --server names", where="--restart")
    if not dsn:
        return study, ""
    if study.of_kind("version"):
        raise LeadlineError("usage", "a study of versions runs on private servers", where="--server")
    if study.of_kind("layout") and not given["layouts"]:
        hint = "--layout one=fast --layout two='fast indexes=slow'"
        raise LeadlineError("usage", "name the tablespaces of this server that the layouts are of", hint=hint, where="--layout")
    from leadline.study.design import on_named
    from leadline.study.servers import without_password

    return replace(on_named(study), dsn=without_password(dsn)[0]), dsn


def find_study(book: Any, text: str) -> Any:
    """`last`: the newest study."""
    from leadline.book.query import Filter

    if text != "last":
        return book.find(text)
    runs = book.runs(Filter(kind="study"), limit=1)
    if not runs:
        raise LeadlineError("not_found", "there is no study in the book", hint="leadline study list")
    return runs[0]
