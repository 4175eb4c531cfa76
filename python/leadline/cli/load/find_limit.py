"""leadline load find-limit: the highest rate within a limit of latency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from leadline.cli import OUTCOME_FINDINGS
from leadline.cli.forms import form, printed
from leadline.cli.load.options import plan_of, what
from leadline.figures import count

if TYPE_CHECKING:
    from leadline.load.limit import Trial


@click.command(
    "find-limit",
    short_help="Find the highest rate within a latency limit.",
    epilog="""\b
Examples:
  leadline load find-limit postgres:///bench --clients 16 --p99 20ms
  leadline load find-limit postgres:///shop -f buy.sql -c 8 --p99 50ms""",
)
@click.argument("dsn", metavar="DSN")
@what
@click.option("--p99", required=True, metavar="TIME", help="99 % of the transactions must end within this time after they were due.")
@click.option("--for", "duration", default="20s", show_default=True, metavar="TIME", help="How long each rate is tried.")
@click.option("--warm-up", "warm_up", default="2s", show_default=True, metavar="TIME", help="Run before each, without counting.")
@click.option(
    "--start", type=click.FloatRange(min=0, min_open=True, max=1e9), metavar="R",
    help="The first rate.  [default: half of a closed loop's]",
)  # fmt: skip
@form()
def command(dsn: str, p99: str, duration: str, warm_up: str, start: float | None, scale: int | None, form: str | None, **given: Any) -> int:
    """Find the highest rate at which 99 % of the transactions end in time.

    Rates are tried in an open loop, higher and lower, until the highest within the limit and the lowest beyond it are within 3 % of each
    other; both are tried twice, and a third time if these two trials differ. A rate is also beyond the limit if more than 1 % of its
    transactions did not begin or did not end.

    Exit code 0: a highest rate was found; 1: no rate is within the limit; 2: error.
    """
    from leadline.load.limit import Promise, find_limit
    from leadline.load.plan import duration_of
    from leadline.net.login import server_of
    from leadline.units import seconds_of

    found = find_limit(
        server_of(dsn),
        plan_of(given, []),
        Promise(duration_of(p99, "--p99")),
        scale=scale,
        for_s=duration_of(duration, "--for"),
        warm_up_s=seconds_of(warm_up),
        start=start,
        tell=None if form else _tell,
    )
    if not printed(form, found["trials"], found):
        click.echo(_text(found))
    return OUTCOME_FINDINGS if found["limit"] is None else 0


def _tell(trial: Trial) -> None:
    from leadline.load.text import ms

    p99 = "-" if trial.p99_ns is None else f"{ms(trial.p99_ns):g} ms"
    left = f", {trial.not_begun:,} not begun or not ended" if trial.not_begun else ""
    click.echo(f"{trial.rate:10,.1f}/s: p99 {p99}{left}: {'within the limit' if trial.kept else 'beyond it'}")


def _text(found: dict[str, Any]) -> str:
    low, high = found["between"]
    limit = f"a p99 of {found['p99_ms']:g} ms"
    if low is None:
        return f"No rate that was tried is within {limit}"
    upper = "no rate beyond it was found" if high is None else f"{high:,.1f}/s is beyond it"
    outliers = found["not_kept_below"]
    below = f"; {count(outliers, 'trial')} at or below this rate went beyond it, too" if outliers else ""
    return f"Highest rate within {limit}: {low:,.1f}/s; {upper}{below}"
