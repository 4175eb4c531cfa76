"""Finds a Mini by `mini:FILE`, and samples it over SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from leadline.capture.manifest import Manifest
from leadline.capture.manifest import Target as Evidence
from leadline.capture.store import Store
from leadline.engines.check import OK, Check
from leadline.engines.live import Sampling, Server, Watch
from leadline.errors import LeadlineError
from leadline.probes.polled import Polled, PolledSessions
from leadline.probes.probe import Probe

SQL = "select number, state, wait_class, wait_event, user, database, application, client, statement from activity order by number"


@dataclass(frozen=True)
class Mini:
    path: Path
    engine: str = "mini"
    pid: None = None
    notes: tuple[str, ...] = ()

    def describe(self) -> str:
        return f"mini {self.path.name}"

    def evidence(self) -> Evidence:
        return Evidence("mini", self.describe(), version="1.0")

    def named_by(self) -> dict[str, object]:
        return {"file": str(self.path)}

    def stored_paths(self) -> tuple[()]:
        return ()

    def port(self) -> int:
        raise LeadlineError("usage", "a Mini listens nowhere")


def reading(server: Mini) -> Callable[[], Iterator[Polled]]:
    def read() -> Iterator[Polled]:
        db = sqlite3.connect(f"file:{server.path}?mode=ro", uri=True)
        try:
            for row in db.execute(SQL):
                yield Polled(*row)
        except sqlite3.Error as e:
            raise LeadlineError("connection", "the Mini does not answer", detail=str(e)) from e
        finally:
            db.close()

    return read


class MiniSessions(PolledSessions):
    """Writes a table that only a Mini has, too."""

    def before(self, store: Store, manifest: Manifest) -> None:
        store.add("mini_terminal", [(s.number, s.application, ["hall", s.user] if s.state == "active" else None) for s in self._read()])


class MiniWatch(Watch):
    product = "Mini"
    probe: PolledSessions

    def describe(self, manifest: Manifest) -> None:
        self.probe.describe(manifest)

    def names(self, databases: set[int]) -> dict[str, list[tuple[object, ...]]]:
        return self.probe.names()


class MiniLive:
    def find(self, dsn: str | None, pid: int | None, data_dir: str | Path | None) -> Mini | None:
        if dsn is None or not dsn.startswith("mini:"):
            return None
        path = Path(dsn.removeprefix("mini:"))
        if not path.exists():
            raise LeadlineError("not_found", "no such Mini", where=str(path))
        return Mini(path)

    def sample(self, server: Mini, directory: Path, *, rate_hz: float, tier: str, follows: bool, required: bool) -> Sampling:
        return Sampling(MiniSessions(directory, reading(server), rate_hz, required=required))

    def watch(self, server: Mini, directory: Path, *, rate_hz: float, tier: str, flush_interval_s: float) -> MiniWatch:
        probe = PolledSessions(directory, reading(server), rate_hz, flush_interval_s=flush_interval_s)
        return MiniWatch(probe, probe.tier, probe.rate_hz)

    def servers_here(self) -> list[Check]:
        return []

    def checks(self, server: Mini) -> list[Check]:
        sessions = len(list(reading(server)()))
        return [Check("capture", "SQL", OK, f"{sessions} sessions")]

    def beside(self, server: Server | None, *, pooler: str | None, others: Sequence[str], tier: str) -> list[Probe]:
        return []


LIVE = MiniLive()
