"""The connection service file: parameters by the name of a service, as libpq reads them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from leadline.errors import LeadlineError

SYSTEM = Path("/etc/postgresql-common")  # where Debian's libpq looks, if PGSYSCONFDIR says nothing else


def parameters(name: str, servicefile: str | None = None) -> dict[str, Any]:
    """What the service of this name sets; of a name that comes twice the first, as libpq takes it. Raises LeadlineError('usage')."""
    named = servicefile or os.environ.get("PGSERVICEFILE")
    own = Path(named) if named else Path.home() / ".pg_service.conf"
    if named and not own.is_file():
        raise LeadlineError("usage", "the service file is not there", where=str(own))
    for path in (own, Path(os.environ.get("PGSYSCONFDIR") or SYSTEM) / "pg_service.conf"):
        found = _section(path, name)
        if found is not None:
            return found
    raise LeadlineError("usage", f'definition of service "{name}" not found', hint=f"it is looked for in {own}")


def _section(path: Path, name: str) -> dict[str, Any] | None:
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    found: dict[str, Any] | None = None
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            if found is not None:
                break  # the first section of this name is the one
            if line.partition("]")[0] == f"[{name}":
                found = {}
        elif found is not None:
            key, equals, value = line.partition("=")
            if not equals or key in ("service", "servicefile") or line.startswith("ldap"):
                hint = "a line is NAME=VALUE; LDAP and a service within a service are not read"
                raise LeadlineError("usage", "the service file cannot be read", where=f"{path}:{number}", hint=hint)
            found.setdefault(key, value)
    return found
