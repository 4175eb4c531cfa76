"""leadline storage score: how far off was the forecast?"""

from __future__ import annotations

from pathlib import Path

import click

from leadline.cli.forms import form, printed


@click.command(
    "score",
    short_help="Compare a forecast with what was measured.",
    epilog="""\b
Examples:
  leadline storage score forecast.json last
  leadline storage score forecast.json 6xR1/oltp=run.leadline
  leadline storage score forecast.json measured.jsonl --json""",
)
@click.argument("forecast_", metavar="FORECAST", type=click.Path(path_type=Path))
@click.argument("sources", nargs=-1, required=True, metavar="MEASURED...")
@form()
def command(forecast_: Path, sources: tuple[str, ...], form: str | None) -> int:
    """Compare a forecast with measurements: the error of each layout and load.

    MEASURED is LAYOUT/LOAD=CAPTURE (of `load run`, or of `take --kernel`), a run of the logbook, or a file. Run and file have lines of JSON
    such as {"layout": "6xR1", "load": "oltp", "requests_per_s": 1080}.

    It also says whether the logbook shows that the forecast was there, byte for byte, before the first measurement began.
    """
    from leadline.storage import forecast, score, text

    found, digest = forecast.read(forecast_)
    layouts = list(dict.fromkeys(row["layout"] for row in found["results"]))
    loads = list(dict.fromkeys(row["load"] for row in found["results"]))
    measured = [one for source in sources for one in score.measured(source, layouts, loads)]
    rows = score.score(found, measured)
    is_sealed, why = score.seal(found, digest, rows)
    others = [one for one in measured if (one.layout, one.load) not in {(row["layout"], row["load"]) for row in found["results"]}]
    if not printed(form, rows, {"sealed": is_sealed, "seal": why, "scores": rows, "not_in_forecast": len(others)}):
        click.echo(text.score(rows, why))
        if others:
            click.echo(f"{len(others)} measurements are of no layout and load of the forecast")
    return 0
