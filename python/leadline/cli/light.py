"""click, without a module that it imports and a command seldom needs: it took a tenth of the time in which a command starts.

`inspect` brings a parser of Python and more. What click takes of it for each option is `cleandoc`, for the help.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class Later(ModuleType):
    """`inspect`, imported when something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        self.step_aside()
        return getattr(importlib.import_module(self.__name__), name)

    def cleandoc(self, doc: str) -> str:
        """A line needs no more than this."""
        return str(self.__getattr__("cleandoc")(doc)) if "\n" in doc else doc.expandtabs().lstrip()

    def step_aside(self) -> None:
        """Who imports the module from now on gets it."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


@contextmanager
def later(name: str) -> Iterator[None]:
    """What is imported meanwhile gets this module when it asks for something of it."""
    if name in sys.modules:
        yield
        return
    module = sys.modules[name] = Later(name)
    try:
        yield
    finally:
        module.step_aside()


with later("inspect"):
    import click as click
