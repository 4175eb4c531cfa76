"""Options of commands that read backups in place."""

from __future__ import annotations

from pathlib import Path

import click

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
    type=click.Path(path_type=Path),
    metavar="BACKUP",
    help="Backup that an incremental one is based on; repeat it, the full backup first.",
)
