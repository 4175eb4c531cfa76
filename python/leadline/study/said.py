"""What the ready studies of pairs say besides effects. Each part says nothing of another study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from leadline.study import conflicts, knees, outages, shares


class Says(Protocol):
    """found: of studies.study."""

    def lines(self, found: Mapping[str, Any]) -> list[str]:
        """For a terminal."""
        ...

    def drawn(self, found: Mapping[str, Any]) -> list[str]:
        """For the report."""
        ...

    def as_dicts(self, found: Mapping[str, Any]) -> list[dict[str, Any]]:
        """For JSON."""
        ...


SAID: dict[str, Says] = {"outages": outages, "knees": knees, "conflicts": conflicts, "shares": shares}
