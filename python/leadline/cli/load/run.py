"""leadline load run: a load, and what it took."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadline.cli import OUTCOME_FINDINGS, OUTCOME_INTERRUPTED, force
from leadline.cli.forms import form, printed
from leadline.cli.load.options import plan_of, what

if TYPE_CHECKING:
    from leadline.load.plan import Plan
    from leadline.load.run import Show


@click.command(
    "run",
    short_help="Run scripts of pgbench and measure latency.",
    epilog="""\b
Examples:
  leadline load run postgres:///bench --workload select --clients 8 --for 60s
  leadline load run postgres:///bench --rate 200 --poisson --for 5m
  leadline load run postgres:///shop -f buy.sql@9 -f sell.sql@1 -D n=5
  leadline load run postgres:///bench --ramp 100:1000:100 --for 30s -o ramp
  leadline sql ramp.leadline "from load_statement\"""",
)
@click.argument("dsn", metavar="DSN")
@what
@click.option("--for", "duration", metavar="TIME", help="Length of the load; with --ramp, for each rate.  [default: 60s; with -t no limit]")
@click.option(
    "--warm-up", "warm_up", default="0s", show_default=True, metavar="TIME|auto",
    help="Warm up for this time, without counting; auto: until the rate is steady.",
)
@click.option(
    "--rate", "-R", type=click.FloatRange(min=0, min_open=True, max=1e9), metavar="R",
    help="Open loop: R transactions are due each second.",
)  # fmt: skip
@click.option(
    "--terminals", type=click.IntRange(1, 10_000_000), metavar="N",
    help="tpcc-like: N terminals, with keying and think times, share the clients; 10 per warehouse are usual.",
)
@click.option(
    "--time-factor", type=click.FloatRange(min=0, max=1000), default=1.0, show_default=True, metavar="F",
    help="Multiply keying and think times by F.",
)
@click.option("--transactions", "-t", type=click.IntRange(1), metavar="N", help="End each client after N transactions.")
@click.option("--ramp", metavar="FROM:TO:STEP", help="Run with one rate after the other.")
@click.option(
    "--latency-limit", metavar="TIME", help="Skip a transaction that is already this late before it begins, and count it as skipped."
)
@click.option("--soak", is_flag=True, help="Also look for a trend in rate or latency, over ten parts of the load.  [--for: default 1h]")
@click.option("--progress", "-P", is_flag=True, help="Print a line each second.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="CAPTURE",
    help="Write a capture with histograms by second and statement.",
)  # fmt: skip
@force
@form()
def command(
    dsn: str, output: Path | None, force: bool, form: str | None, progress: bool, soak: bool, scale: int | None, **given: Any
) -> int:  # fmt: skip
    """Run scripts of pgbench on a PostgreSQL server and measure them.

    Without a rate, each client begins a transaction when the one before has ended (closed loop). With --rate, each transaction is due at
    a given moment. Its latency counts from that moment, so it includes the wait for a free client: if the server stops for two seconds,
    all transactions that are due meanwhile are late. `service` counts from when a client begins the transaction.

    The password comes from PGPASSWORD or the password file. \\shell and \\setshell are refused.

    Exit code 0: the load ran; 1: an error ended clients early, or the run is void because the tables of a TPC-C-like load are no
    longer consistent; 2: error.
    """
    from leadline.load import run, text
    from leadline.load.soak import Soak, lines
    from leadline.net.login import server_of

    if soak and given["ramp"] is not None:
        raise click.UsageError("--soak and --ramp exclude each other")
    if soak and given["duration"] is None and given["transactions"] is None:
        given["duration"] = "1h"
    plan = _plan(given)
    server = server_of(dsn)
    show = None if form or not progress else _show()
    parts = Soak()
    if soak:
        show = _both(parts.take, show)
    if output is None:
        found = run.run(server, plan, scale=scale, show=show)
    else:
        found = run.capture(server, plan, output, scale=scale, overwrite=force, show=show)
    if soak:
        found["soak"] = parts.found()
    if not printed(form, found["phases"], found | {"warnings": text.warnings(found)}):
        click.echo(text.text(found))
        if soak:
            click.echo("\n".join(["", *lines(found["soak"])]))
    if found["interrupted"]:
        return OUTCOME_INTERRUPTED
    return OUTCOME_FINDINGS if found["clients_gone"] or found["void"] else 0


def _plan(given: dict[str, Any]) -> Plan:
    from leadline.load import plan as of

    if given["ramp"] is not None and given["rate"] is not None:
        raise click.UsageError("--rate and --ramp exclude each other")
    if given["poisson"] and given["rate"] is None and given["ramp"] is None:
        raise click.UsageError("--poisson needs --rate or --ramp")
    if given["terminals"] is not None and (given["rate"] is not None or given["ramp"] is not None or given["latency_limit"] is not None):
        raise click.UsageError("--terminals excludes --rate, --ramp and --latency-limit: the terminals make the load")
    warm_up_s, steady_s = of.warm_up_of(given["warm_up"])
    if given["transactions"] is not None and (given["ramp"] is not None or warm_up_s > 0):
        raise click.UsageError("--transactions excludes --ramp and --warm-up")
    for_s = of.duration_of(given["duration"] or ("60s" if given["transactions"] is None else "24h"), "--for")
    limit = given["latency_limit"]
    phases = of.phases_of(for_s, warm_up_s, given["rate"], given["ramp"])
    return plan_of(given, phases, None if limit is None else of.duration_of(limit, "--latency-limit"), steady_s)


def _both(one: Show, other: Show | None) -> Show:
    def show(row: dict[str, Any]) -> None:
        one(row)
        if other is not None:
            other(row)

    return show


def _show() -> Show:
    from leadline.load import text

    begins: list[int] = []

    def show(row: dict[str, Any]) -> None:
        if row["after_the_end"]:
            return  # what it says is in the sums
        if not begins:
            begins.append(row["ts"] - row["duration_ns"])
            click.echo(text.SECOND_HEAD)
        click.echo(text.second(row, begins[0]))

    return show
