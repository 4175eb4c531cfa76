"""leadline net: the network between client and server. One file per subcommand."""

from __future__ import annotations

import click

from leadline.cli import SETTINGS
from leadline.cli.net import auth, budget, compare, connect, dbping, delay, echo, fetch, packets, rtt


@click.group(
    "net",
    context_settings=SETTINGS,
    epilog="""\b
Examples:
  leadline net echo --serve 0.0.0.0:4747
  leadline net rtt db01:4747 --size 0,250,8192
  leadline net dbping postgresql://app@db01/shop
  leadline net connect postgresql://app@db01/shop
  leadline net delay --listen :6432 --to db01:5432 --rtt 20ms
  leadline net packets -i eth0 --port 5432 --for 10s
  leadline net budget traffic.leadline""",
)
def command() -> None:
    """Measure round trips, logins and fetches, and simulate latency.

    A round trip (rtt) is the way there and back. It is never halved.
    """


for _module in (echo, rtt, dbping, compare, connect, fetch, delay, packets, budget, auth):
    command.add_command(_module.command)
