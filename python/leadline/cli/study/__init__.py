"""leadline study: factors with levels, in randomised blocks. One file per subcommand."""

from __future__ import annotations

import click

from leadline.cli import SETTINGS
from leadline.cli.study import calibrate, listing, plan, restore, run, show


@click.group(
    "study",
    context_settings=SETTINGS,
    epilog="""\b
Examples:
  leadline study list
  leadline study plan settings --setting wal_compression=off,lz4
  leadline study run settings --setting wal_compression=off,lz4
  leadline study show last""",
)
def command() -> None:
    """Change one thing, or several, and measure what it does.

    A study runs a load with each combination of the levels of its factors, in blocks: each combination once in each block, in an order
    that is drawn. Each of these runs is a trial, a run of the logbook with its capture. The design is sealed before the first one.
    """


for _module in (listing, plan, run, show, calibrate, restore):
    for _command in _module.COMMANDS:
        command.add_command(_command)
