"""Where the record of an experiment is kept: a directory of its own for each run."""

from __future__ import annotations

import datetime
from pathlib import Path


def new_directory(runs: Path) -> Path:
    """runs/DATE-N with the next free N, made. The date is that of UTC."""
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    number = 1
    while True:
        directory = runs / f"{date}-{number}"
        try:
            directory.mkdir(parents=True)
            return directory
        except FileExistsError:
            number += 1
