"""A made-up engine in a package of its own: a "server" is a SQLite file whose table `activity` lists its sessions."""

from __future__ import annotations

from pathlib import Path

from leadline.engines import Engine, Evidence, Subject


def _title(of: Evidence) -> str:
    return f"Where the time of Mini {of.version} went"


def _facts(of: Evidence) -> list[tuple[str, str]]:
    return [("server", f"Mini {of.version}")]


ENGINE = Engine(
    name="mini",
    directory=Path(__file__).parent,
    subjects=(Subject("mini", _title, _facts, watched=True),),
    domains={"mini": ("sessions",)},
    sections="leadline_mini.sections:SECTIONS",
    live="leadline_mini.live:LIVE",
    product="Mini",
)
