"""What an engine is: a kind of database, and all that the rest of the package must know of it. The registry of engines.

Each engine is a directory that exports one `ENGINE`: those in here, and those of other packages, which name theirs in the group
`leadline.engines` of their entry points. General code asks the registry, and never names an engine. An engine loads what it needs when
it is asked: this module and the `__init__` of an engine import nothing that takes time.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from leadline.errors import LeadlineError

GROUP = "leadline.engines"
BUILT_IN = ("postgres", "informix")
OBJECT = "ENGINE"


class Evidence(Protocol):
    """What a subject is told of a capture: `capture.manifest.Target`."""

    kind: str
    name: str
    cpu_count: int | None
    version: str | None
    detail: dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """How a report speaks of one kind of evidence. name: `target.kind` in the manifest.

    title: heading of the report. facts: (label, text) of its first lines, before those that every capture has. watched: a running
    target; of others the tables are what a reader wants next, and only what a probe names was looked at.
    """

    name: str
    title: Callable[[Evidence], str]
    facts: Callable[[Evidence], list[tuple[str, str]]]
    watched: bool = False


@dataclass(frozen=True)
class Engine:
    """One kind of database.

    subjects: kinds of evidence that it makes. domains: what rules are about, each with the probes that look at it. sections: a name
    (`module:SECTIONS`) of what it adds to the views. directory: where its `tables/` and `findings/` lie. live: a name
    (`module:OBJECT`) of what finds and samples a running server (engines/live.py); empty for an engine of files. product: its name
    for people, where that is another.
    """

    name: str
    directory: Path
    subjects: tuple[Subject, ...]
    domains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sections: str = ""
    live: str = ""
    product: str = ""

    def load_live(self) -> Any:
        """A `Live` (engines/live.py)."""
        return named(self.live)


def named(text: str) -> Any:
    """The object that `module:NAME` stands for."""
    module, _, name = text.partition(":")
    return getattr(import_module(module), name)


@functools.cache
def all_engines() -> tuple[Engine, ...]:
    """Those of other packages first, by name: they are asked first whether a target is theirs."""
    own = [named(f"leadline.engines.{name}:{OBJECT}") for name in BUILT_IN]
    found, _ = _of_other_packages()
    return (*sorted(found, key=lambda engine: engine.name), *own)


def engine(name: str) -> Engine:
    return next(engine for engine in all_engines() if engine.name == name)


@functools.cache
def subjects() -> dict[str, Subject]:
    return {subject.name: subject for engine in all_engines() for subject in engine.subjects}


def directories(name: str) -> list[Path]:
    """The directories of this name of the engines that have one: tables, findings."""
    return [directory for _, directory in directories_by_engine(name)]


def directories_by_engine(name: str) -> list[tuple[Engine, Path]]:
    return [(engine, directory) for engine in all_engines() if (directory := engine.directory / name).is_dir()]


@functools.cache
def _of_other_packages() -> tuple[tuple[Engine, ...], tuple[LeadlineError, ...]]:
    """Those that load, and why the others do not: a package that is broken must not stop what needs no engine of it."""
    if not _is_any_installed():
        return (), ()
    from importlib.metadata import entry_points  # its import takes longer than the start of a short command

    found: list[Engine] = []
    left_out: list[LeadlineError] = []
    for point in entry_points(group=GROUP):
        try:
            made = point.load()
            if not isinstance(made, Engine):
                raise TypeError(f"it is {type(made).__name__}, not Engine")
            if made in found:
                continue  # a package that is installed twice, as an editable one may be
            if made.name in {*BUILT_IN, *(engine.name for engine in found)}:
                raise ValueError(f"there is another engine {made.name}")
            found.append(made)
        except Exception as e:
            left_out.append(LeadlineError(
                "unsupported", f"engine {point.name} cannot be loaded, and its servers, tables and rules are left out",
                detail=f"{type(e).__name__}: {e}", hint=f"update or uninstall the package that has {point.value}",
            ))  # fmt: skip
    return tuple(found), tuple(left_out)


def left_out() -> tuple[LeadlineError, ...]:
    """Why engines of other packages are left out, if this process has looked for any."""
    return _of_other_packages()[1] if _of_other_packages.cache_info().currsize else ()


def _is_any_installed() -> bool:
    """Whether any package here names our group: reads their lists, and parses none."""
    return any(
        f"[{GROUP}]" in points.read_text(encoding="utf-8", errors="replace")
        for place in dict.fromkeys(sys.path)
        if Path(place or ".").is_dir()
        for points in Path(place or ".").glob("*.*-info/entry_points.txt")
    )
