"""Names from the catalog files of a data directory: no connection, no slot, works when the server is saturated.

The files are read by crates/postgres/rows (names.rs). Relations created or rewritten since the last write of their catalog pages are
missing here, and stay numbers in the capture.
"""

from __future__ import annotations

from pathlib import Path

from leadline._core.catalog import CatalogNames
from leadline.engines.postgres.catalog.sql import Collected
from leadline.errors import LeadlineError


def collect(data_dir: Path) -> Collected:
    """Databases, roles and relations. Raises LeadlineError when there is no data directory of a known major.

    What cannot be read of one database becomes a note.
    """
    names = CatalogNames(str(data_dir))
    found = Collected()
    databases = names.databases()
    found.add("database", databases)
    found.add("role", names.roles())
    shared_done = False
    for oid, name, _space, _bytes in databases:
        try:
            rows = names.relations(oid)
        except LeadlineError as e:
            found.notes.append(f"relations of database {name} were not read from its files: {e}")
            continue
        found.add("relation", [row for row in rows if row[0] or not shared_done])
        shared_done = True
    found.notes.append(
        "names were read from the catalog files: objects created or renamed since the last checkpoint may appear as numbers"
    )
    return found
