"""Options that subcommands of `leadline load` share: what is run, by how many clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from leadline.load.plan import Phase, Plan

F = TypeVar("F", bound=Callable[..., Any])

WHAT = (
    click.option(
        "--workload", "-b", "workloads", multiple=True, metavar="NAME[@WEIGHT]",
        help="tpcb, simple-update, select, insert, tpcc-like or purge, on the tables of `load init`.  [default: tpcb]",
    ),
    click.option("--script", "-f", "scripts", multiple=True, metavar="FILE[@WEIGHT]", help="A script of pgbench; - reads it from stdin."),
    click.option("--clients", "-c", type=click.IntRange(1, 10_000), default=1, show_default=True, metavar="N", help="Connections."),
    click.option("--threads", "-j", type=click.IntRange(1, 1024), metavar="N", help="Threads of the client.  [default: one for each CPU]"),
    click.option("--poisson", is_flag=True, help="Transactions are due at random moments instead of regular ones, as with pgbench -R."),
    click.option(
        "--mode", "-M", type=click.Choice(["simple", "extended", "prepared"]), default="simple", show_default=True,
        help="Protocol in which statements are sent.",
    ),
    click.option("--define", "-D", "defines", multiple=True, metavar="NAME=VALUE", help="Set a variable of the scripts."),
    click.option(
        "--scale", "-s", type=click.IntRange(1), metavar="N", help="Value of the variable `scale`.  [default: the scale of the tables]",
    ),
    click.option(
        "--max-tries", type=click.IntRange(0), default=1, show_default=True, metavar="N",
        help="Tries of a transaction with a serialization failure or deadlock; 0: no limit.",
    ),
    click.option("--continue-on-error", is_flag=True, help="If a statement fails, end only its transaction, not the client."),
    click.option("--seed", metavar="N", help="Seed of random values: the same seed gives the same values."),
)  # fmt: skip


def what(function: F) -> F:
    """Adds the options; `plan_of` reads them."""
    for option in reversed(WHAT):
        function = option(function)
    return function


def plan_of(given: dict[str, Any], phases: list[Phase], latency_limit_s: float | None = None, auto_warm_up: int | None = None) -> Plan:
    """Raises LeadlineError."""
    from leadline.load import plan as of
    from leadline.load import tpcc
    from leadline.load.tpcc.scripts import VARIABLES

    scripts = of.scripts_of(given["workloads"], given["scripts"])
    variables = [of.variable(define) for define in given["defines"]]
    workload = next((name for name in map(of.name_of, given["workloads"]) if name in of.ALONE), None)
    is_tpcc = workload == tpcc.NAME
    terminals = given.get("terminals")
    if terminals is not None and not is_tpcc:
        raise click.UsageError("--terminals is for --workload tpcc-like: other scripts have no keying and think times")
    return of.Plan(
        scripts=scripts,
        workload=workload,
        terminals=of.terminals_of(terminals, given.get("time_factor", 1.0)),
        transactions=given.get("transactions"),
        auto_warm_up=auto_warm_up,
        phases=phases,
        clients=given["clients"],
        threads=of.threads_of(given["threads"], given["clients"]),
        mode=given["mode"],
        poisson=given["poisson"],
        variables=of.with_defaults(variables, VARIABLES if is_tpcc else {}),
        seed=of.seed_of(given["seed"]),
        max_tries=given["max_tries"],
        continue_on_error=given["continue_on_error"],
        latency_limit_s=latency_limit_s,
        needs_tables=workload is None and bool(given["workloads"] or not given["scripts"]) and "scale" not in dict(variables),
    )
