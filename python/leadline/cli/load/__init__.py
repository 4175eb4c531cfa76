"""leadline load: loads on a server, measured from where an application would be. One file per subcommand."""

from __future__ import annotations

import click

from leadline.cli import SETTINGS
from leadline.cli.load import find_limit, importing, init, run


@click.group(
    "load",
    context_settings=SETTINGS,
    epilog="""\b
Examples:
  leadline load init postgres:///bench --scale 10
  leadline load run postgres:///bench --workload select --clients 8 --for 60s
  leadline load run postgres:///bench --script app.sql --rate 500 --for 5m
  leadline load find-limit postgres:///bench --workload tpcb --p99 20ms""",
)
def command() -> None:
    """Run a load on PostgreSQL and measure what an application sees.

    Scripts are those of pgbench, unchanged. With a rate, the latency of a transaction counts from the moment it was due.
    """


for _module in (init, run, find_limit, importing):
    command.add_command(_module.command)
