"""What a rule is about, and whether a capture has anything of it.

A rule about something else than the capture is not applicable; one that is applicable but lacks its evidence is not evaluated.
"""

from __future__ import annotations

from leadline.capture.reader import Capture
from leadline.tables import all_tables

# The probes that look at each.
DOMAINS = {
    "postgres": ("sessions", "locks", "buffers", "deltas", "catalog"),
    "host": ("host",),
    "sockets": ("sockets",),
    "kernel": ("kernel",),
    "wire": ("wire",),
    "pooler": ("pooler",),
    "wal": ("wal",),
    "pages": ("pages",),
    "informix": ("informix",),
}
# Targets that are files: of these, nothing was looked at but what a probe names. Of a running one, a probe that was refused is
# told as missing evidence.
FILES = ("wal", "files", "informix", "pcap", "recovery")


def not_applicable(capture: Capture, domain: str) -> str | None:
    """Why no rule of this domain is about the capture; None when they are."""
    of_files = capture.manifest.target.kind in FILES
    for name in DOMAINS[domain]:
        probe = capture.manifest.probes.get(name)
        if probe is not None and (probe.looked or not of_files):
            return None
    for table in all_tables().values():
        if table.probe in DOMAINS[domain] and any((capture.path / table.name).glob("*.parquet")):
            return None
    return f"about {domain}: the capture has no probe {' or '.join(DOMAINS[domain])}"
