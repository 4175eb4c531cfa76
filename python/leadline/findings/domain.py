"""What a rule is about, and whether a capture has anything of it.

A rule about something else than the capture is not applicable; one that is applicable but lacks its evidence is not evaluated.
"""

from __future__ import annotations

import functools

from leadline.capture.reader import Capture
from leadline.engines import all_engines, subjects
from leadline.tables import all_tables

# What no engine owns, with the probes that look at each.
BESIDE = {
    "host": ("host",),
    "sockets": ("sockets",),
    "kernel": ("kernel",),
    "wire": ("wire",),
}
FILES = ("pcap",)  # kinds of target that are files and of no engine


@functools.cache
def domains() -> dict[str, tuple[str, ...]]:
    """What rules are about: of the engines, and what stands beside them."""
    return {name: probes for engine in all_engines() for name, probes in engine.domains.items()} | BESIDE


def _is_of_files(kind: str) -> bool:
    """Of these nothing was looked at but what a probe names. Of a running target, a probe that was refused is told as missing evidence."""
    subject = subjects().get(kind)
    return kind in FILES or (subject is not None and not subject.watched)


def _of_another_engine(kind: str, domain: str) -> str | None:
    """The engine of this kind of target, when the domain belongs to another one."""
    of_kind = next((engine for engine in all_engines() if any(subject.name == kind for subject in engine.subjects)), None)
    owned = any(domain in engine.domains for engine in all_engines())
    return of_kind.name if of_kind is not None and owned and domain not in of_kind.domains else None


def not_applicable(capture: Capture, domain: str) -> str | None:
    """Why no rule of this domain is about the capture; None when they are."""
    looking = domains()[domain]
    if (other := _of_another_engine(capture.manifest.target.kind, domain)) is not None:
        return f"about {domain}: the capture is of {other}"
    of_files = _is_of_files(capture.manifest.target.kind)
    for name in looking:
        probe = capture.manifest.probes.get(name)
        if probe is not None and (probe.looked or not of_files):
            return None
    for table in all_tables().values():
        if table.probe in looking and any((capture.path / table.name).glob("*.parquet")):
            return None
    return f"about {domain}: the capture has no probe {' or '.join(looking)}"
