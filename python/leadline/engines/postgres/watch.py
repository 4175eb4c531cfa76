"""A PostgreSQL server that `top` watches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from leadline.capture.manifest import Manifest
from leadline.capture.reader import Capture
from leadline.capture.store import Store, core_writer
from leadline.engines.live import Deed, Session, StandbyNow, Vitals, Watch
from leadline.engines.postgres.act import carry_out, refusal
from leadline.engines.postgres.names import Rows, reader
from leadline.engines.postgres.postmaster import children_by_inner_pid
from leadline.engines.postgres.probes.replication import ReplicationProbe, needed
from leadline.engines.postgres.probes.replication_node import SCREEN
from leadline.engines.postgres.probes.sessions import Attached, describe
from leadline.engines.postgres.standbys import standbys_now
from leadline.engines.postgres.target import PostgresServer
from leadline.engines.postgres.vitals import VitalsReader
from leadline.errors import LeadlineError


class PostgresWatch(Watch):
    product = "PostgreSQL"

    def __init__(self, target: PostgresServer, attached: Attached, directory: Path) -> None:
        super().__init__(attached.sampler, attached.tier, attached.rate_hz, attached.notes)
        self._target, self._attached, self._directory = target, attached, directory
        self._replication: ReplicationProbe | None = None
        self._read = reader(target, attached.dsn)
        self._vitals = VitalsReader(attached.dsn)

    def describe(self, manifest: Manifest) -> None:
        describe(manifest, self._attached)
        if self._replication is not None:
            self._replication.before(Store(str(self._directory), partial(core_writer, growing=False)), manifest)
            self._replication.describe(manifest)

    def follow(self, others: Sequence[str]) -> None:
        from leadline.probes.ssh import Place, is_place  # not when a command starts

        if far := [other for other in others if is_place(other)]:
            hint = f"take a capture: leadline take DSN --with {Place.of(far[0])}"
            raise LeadlineError("unsupported", "top does not watch over ssh", "what is captured there comes home at the end", hint)
        self._replication = ReplicationProbe([needed(self._attached.dsn), *others], self.tier != "sql", SCREEN)

    def standbys(self, capture: Capture) -> list[StandbyNow] | None:
        return None if self._replication is None else standbys_now(capture, self._replication.nodes)

    def names(self, databases: set[int]) -> Rows:
        return self._read(databases)

    def start(self) -> None:
        self._vitals.start()
        if self._replication is not None:
            self._replication.start()

    def close(self) -> None:
        self._vitals.close()
        if self._replication is not None:
            self._replication.stop()
            self._replication.close()

    def vitals(self) -> Vitals | None:
        return self._vitals.now

    def processes(self) -> dict[int, int]:
        return {} if self._target.pid is None else children_by_inner_pid(self._target.pid)

    def refusal(self, deed: Deed, session: Session) -> str:
        return refusal(deed, session)

    def carry_out(self, deed: Deed, session: Session) -> str:
        return carry_out(deed, self._target, self._attached.dsn, session)
