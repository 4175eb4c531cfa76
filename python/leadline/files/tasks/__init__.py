"""Work that is cut into tasks, of which each makes files of its own in one directory: run by an engine, committed once.

A task is a dictionary of JSON that says all its work needs. What it makes is named by a hash of it, so to run a task twice changes nothing.
The engines know nothing of what the tasks do: `threads` runs them in this process, `on_ray` on a cluster of Ray.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from leadline.version import version

if TYPE_CHECKING:
    from threading import Event

Task = dict[str, Any]
ENGINES = ("threads", "ray")
ASIDE = ".tasks"  # below the directory: what a task writes until it is whole


class Part(TypedDict):
    """A file that a task made, below the directory."""

    file: str
    bytes: int
    sha256: str


class Receipt(TypedDict):
    """What a task made. task: its name; parts: in the order of their names; summary: what it saw, in sum."""

    task: str
    parts: list[Part]
    summary: dict[str, Any]


class Engine(Protocol):
    """Runs `work` on each task, in any order, and gives what it returns. The first error ends all; tasks begun then may still end."""

    def __call__(self, tasks: Iterable[Task], work: Callable[[Task], Receipt]) -> Iterator[Receipt]: ...


def task_name(task: Task) -> str:
    """The same for the same task of the same leadline: what another one writes may differ."""
    text = json.dumps([version(), task], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def engine_of(name: str, threads: int, ended_early: Event) -> Engine:
    """One of ENGINES; the rest is for that in threads (`threads.py`). Raises LeadlineError where it is not installed."""
    if name == "ray":
        from leadline.files.tasks.on_ray import Ray

        return Ray()
    from leadline.files.tasks.threads import Threads

    return Threads(threads, ended_early)
