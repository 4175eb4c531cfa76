"""leadline storage: forecasts of disk arrays that one does not own. One file per subcommand."""

from __future__ import annotations

import click

from leadline.cli import SETTINGS
from leadline.cli.storage import example, score, simulate


@click.group(
    "storage",
    context_settings=SETTINGS,
    epilog="""\b
Examples:
  leadline storage example 2x6R10 > mine.toml
  leadline storage example loads > loads.toml
  leadline storage simulate mine.toml --load loads.toml -o forecast.json
  leadline storage score forecast.json last""",
)
def command() -> None:
    """Simulate disk arrays: drives, RAID, caches, and a load on them.

    A forecast is written down before a measurement, and scored after it.
    """


for _module in (simulate, score, example):
    command.add_command(_module.command)
