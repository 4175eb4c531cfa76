"""The passphrase of an encrypted backup: from a file or the environment, never from the command line, which others can see."""

from __future__ import annotations

import os
from pathlib import Path

from leadline.errors import LeadlineError

VARIABLE = "PGBACKREST_REPO1_CIPHER_PASS"
LONGEST = 4096


def backup_key(file: Path | None) -> str | None:
    """The first line of a file, or else what pgBackRest's own variable has; None where there is neither. Raises LeadlineError."""
    if file is None:
        return os.environ.get(VARIABLE) or None
    try:
        with file.open(encoding="utf-8") as text:
            key = text.readline(LONGEST).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as e:
        raise LeadlineError("not_found", "cannot read the key file", detail=str(e), where=str(file)) from e
    if not key:
        raise LeadlineError("invalid", "the key file is empty", hint="put the passphrase into its first line", where=str(file))
    return key
