"""The log of a load, redone record by record without its server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from conftest import Server, running
from leadline._core import redo
from redo_load import SETTINGS
from wal_rows import records


def redone(
    major: int, load: Callable[[Server], None], rmgrs: Sequence[str], note: Callable[[Mapping[str, Any]], None], **settings: Any
) -> redo.Checked:
    """Runs the load on a server of its own, and compares. note: gets each record of these resource managers, one after the other."""
    with running(major, **{**SETTINGS, **settings}) as server:
        load(server)
        server.sql("select pg_switch_wal()")
        folder = str(server.private.data_dir / "pg_wal")
        sums = server.sql("show data_checksums")[0][0] == "on"
        found = redo.check(folder, hint_bits_are_logged=sums)
        for rmgr in rmgrs:
            for record in records(folder, rmgr=rmgr):
                note(record)
        return found
