"""leadline study plan: what a study will do; nothing runs."""

from __future__ import annotations

from typing import Any

import click

from leadline.cli.study.options import as_json, study_of, what, words_of

MOST_BLOCKS = 3
PRIVATE = {"private": "a private PostgreSQL, removed at the end", None: "none",
           "pair": "a private pair on this host (a loopback pair), removed at the end"}  # fmt: skip


@click.command(
    "plan",
    short_help="Show cells, order, time and disk; nothing runs.",
    epilog="""\b
Examples:
  leadline study plan settings --setting wal_compression=off,lz4
  leadline study plan my-study.toml --repetitions 20""",
)
@click.argument("name", metavar="NAME|FILE.toml")
@what
@as_json
def command(name: str, as_json: bool, **given: Any) -> int:
    """Show what a study will do: its cells, their order, how long it takes, how much disk it needs, and the smallest effect that it can
    show here, from the last `leadline study calibrate`. Nothing runs, and nothing is written.
    """
    show(name, given, as_json)
    click.echo(f"next: leadline study run {words_of(name, given)}", err=True)
    return 0


def show(name: str, given: dict[str, Any], as_json: bool) -> None:
    """given: the options of a design (`what`)."""
    from dataclasses import replace

    from leadline.book.place import find_place
    from leadline.book.query import Book
    from leadline.output import to_json
    from leadline.study.planning import plan

    study, _ = study_of(name, given)
    if given["seed"] is not None:
        study = replace(study, seed=given["seed"])
    place = find_place()
    book = Book(place) if place is not None else None
    try:
        found = plan(study, book)
    finally:
        if book is not None:
            book.close()
    click.echo(to_json(found) if as_json else "\n".join(_lines(found)))


def _lines(found: dict[str, Any]) -> list[str]:
    from leadline.figures import count
    from leadline.units import duration, sized

    effect = found["smallest_effect"]
    metrics = ", ".join(f"{one['name']} ({one['better']} is better, margin {100 * one['margin']:g} %)" for one in found["metrics"])
    said = {
        "question": found["question"], "hypothesis": found["hypothesis"], "needs": found["needs"],
        "server": PRIVATE.get(found["server"], found["server"]),
        "measured": metrics,
        "trials": f"{count(len(found['cells']), 'cell')} in {count(found['repetitions'], 'block')}: {found['legs']} trials",
        "takes": f"about {duration(found['seconds'])}" if found["seconds"] is not None else "not known: the load is a command",
        "disk": f"about {sized(found['disk_bytes'])}; {sized(found['free_bytes'])} are free",
        "smallest": f"an effect of about {100 * effect['share']:.2g} % (calibrated in run {effect['run'][:5]})" if effect
                    else "not known on this host: leadline study calibrate",
    }  # fmt: skip
    lines = [f"{name:<14}{value}" for name, value in said.items() if value]
    if found["repetitions"] < found["least_repetitions"]:
        least = found["least_repetitions"]
        needed = f"{count(found['comparisons'], 'comparison')} need {least} blocks for a verdict (--repetitions {least})"
        lines.append(f"{'WARNING':<14}{needed}")
    lines += ["", *(f"cell {at + 1}: {cell}" for at, cell in enumerate(found["cells"]))]
    lines += [f"left out: {one['cell']}: {one['reason']}" for one in found["excluded"]]
    if found["seed"]:
        shown = found["order"][:MOST_BLOCKS]
        lines += [f"block {at + 1}: cells {' '.join(str(cell + 1) for cell in block)}" for at, block in enumerate(shown)]
    else:
        lines.append("order: each block in an order of its own, drawn when the study begins (--seed N fixes it)")
    return lines


COMMANDS = (command,)
