"""Wait classes: the order they are shown in, what each means, and the one colour each has in every view.

The colours differ in lightness as well as in hue, so that neighbours in a stack can be told apart with any colour
vision. Each has a tone for light paper and one for a dark screen.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WaitClass:
    name: str
    meaning: str
    light: str  # on white
    dark: str  # on near black; the terminal uses it too


ORDER = (
    WaitClass("CPU", "running, ready to run, or waiting where the server has no instrumentation", "#2f8f4e", "#35a565"),
    WaitClass("IO", "reading and writing files", "#2166c0", "#4a90ea"),
    WaitClass("Lock", "heavyweight locks: rows, tables, transactions", "#c22b38", "#e5525f"),
    WaitClass("LWLock", "short locks of the server on its own memory", "#e07b13", "#e8942f"),
    WaitClass("BufferPin", "waiting for others to let go of a buffer", "#8a4a1c", "#b9754a"),
    WaitClass("Client", "sending to or reading from the client in the middle of a statement", "#8470ad", "#a592d2"),
    WaitClass("IPC", "waiting for another server process", "#0f8f9c", "#35b3c2"),
    WaitClass("Timeout", "waiting for a time to pass", "#b59400", "#d3b93c"),
    WaitClass("Extension", "waiting inside an extension", "#b3468f", "#d873b4"),
    WaitClass("idle in transaction", "no database time: the client keeps a transaction open but sends no query", "#6d6459", "#a39788"),
    WaitClass("Activity", "a server process waiting for work", "#7a828c", "#98a1ad"),
)
_BY_NAME = {c.name: c for c in ORDER}
_RANK = {c.name: i for i, c in enumerate(ORDER)}


def wait_class(name: str) -> WaitClass:
    """The class of this name; one it does not know is shown in grey under its own name."""
    return _BY_NAME.get(name) or WaitClass(name, "", "#7a828c", "#98a1ad")


def rank(name: str) -> tuple[int, str]:
    """Sort key: the known classes in their order, then the others by name."""
    return _RANK.get(name, len(ORDER)), name
