"""PostgreSQL: finding a server, its catalog, private servers. Its WAL and data files are read by `leadline.files`."""

from __future__ import annotations

from pathlib import Path

from leadline.engines import Engine, Evidence, Subject
from leadline.units import sized


def _version(target: Evidence) -> str:
    return f" {target.version}" if target.version else ""


def _server_title(target: Evidence) -> str:
    return f"Where the time of PostgreSQL{_version(target) or ' of unknown version'} went"


def _server(target: Evidence) -> list[tuple[str, str]]:
    cpus = f", {target.cpu_count} CPUs" if target.cpu_count else ""
    most = target.detail.get("max_connections")
    return [("server", f"PostgreSQL {target.version or 'of unknown version'}{cpus}{f', max_connections {most}' if most else ''}")]


def _wal(target: Evidence) -> list[tuple[str, str]]:
    d = target.detail
    return [
        ("log", f"PostgreSQL {target.version or '?'}, timeline {d.get('timeline', '?')}, system {d.get('system_id', '?')}"),
        ("range", f"{d.get('first_lsn') or d.get('from_lsn', '?')} to {d.get('last_lsn') or d.get('to_lsn', '?')}"),
    ]


def _recovery(target: Evidence) -> list[tuple[str, str]]:

    d = target.detail
    return [
        ("recovery", f"PostgreSQL {target.version or '?'}, timeline {d.get('timeline', '?')}, {target.name}"),
        ("log", f"{sized(d.get('wal_bytes'))} from {d.get('redo_lsn', '?')} to {d.get('end_lsn', '?')}"),
    ]


ENGINE = Engine(
    name="postgres",
    directory=Path(__file__).parent,
    subjects=(
        Subject("postgres", _server_title, _server, watched=True),
        Subject("wal", lambda target: f"What is in the WAL of PostgreSQL{_version(target)}", _wal),
        Subject("files", lambda _: "What is in the pages of these files", lambda target: [(target.kind, target.name)]),
        Subject("recovery", lambda target: f"What the recovery of PostgreSQL{_version(target)} did", _recovery),
    ),
    domains={
        "postgres": ("sessions", "locks", "buffers", "deltas", "catalog"),
        "pooler": ("pooler",),
        "replication": ("replication",),
        "wal": ("wal",),
        "pages": ("pages",),
    },
    sections="leadline.engines.postgres.sections:SECTIONS",
    live="leadline.engines.postgres.live:LIVE",
    product="PostgreSQL",
)
