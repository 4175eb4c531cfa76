"""Options of commands that read backups in place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from leadline.files.store_path import path_of


class SourcePath(click.Path):
    """A path of this host, or s3://BUCKET/KEY."""

    def coerce_path_result(self, value: str | os.PathLike[str]) -> Any:
        return path_of(value)


key_file = click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Passphrase of an encrypted backup.  [default: PGBACKREST_REPO1_CIPHER_PASS]",
)
based_on = click.option(
    "--based-on",
    "bases",
    multiple=True,
    type=SourcePath(),
    metavar="BACKUP",
    help="Backup that an incremental one is based on; repeat it, the full backup first.",
)
