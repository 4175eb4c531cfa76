"""Layouts and loads that come with leadline: the six of a well-known question about RAID, and the two loads of it."""

from __future__ import annotations

from pathlib import Path

from leadline.errors import LeadlineError

DIRECTORY = Path(__file__).parent


def names() -> list[str]:
    return sorted(file.stem for file in DIRECTORY.glob("*.toml"))


def about(name: str) -> str:
    """The first line of a file, which says what it is."""
    return text(name).partition("\n")[0].removeprefix("# ")


def text(name: str) -> str:
    """Raises LeadlineError('not_found')."""
    if name not in names():
        raise LeadlineError("not_found", f"there is no example {name}", hint=f"there are {', '.join(names())}")
    return (DIRECTORY / f"{name}.toml").read_text(encoding="utf-8")
