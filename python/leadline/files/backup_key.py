"""The passphrase of an encrypted backup: from a file or the environment, never from the command line, which others can see."""

from __future__ import annotations

import os
from pathlib import Path

from leadline.errors import LeadlineError
from leadline.whole import read_text

VARIABLE = "PGBACKREST_REPO1_CIPHER_PASS"
MOST = 1 << 20


def backup_key(file: Path | None) -> str | None:
    """The first line of a file, or else what pgBackRest's own variable has; None where there is neither. Raises LeadlineError."""
    if file is None:
        return os.environ.get(VARIABLE) or None
    key = read_text(file, MOST).partition("\n")[0].rstrip("\r")
    if not key:
        raise LeadlineError("invalid", "the key file is empty", hint="put the passphrase into its first line", where=str(file))
    return key
