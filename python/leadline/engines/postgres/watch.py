"""A PostgreSQL server that `top` watches."""

from __future__ import annotations

from leadline.capture.manifest import Manifest
from leadline.engines.live import Deed, Session, Vitals, Watch
from leadline.engines.postgres.act import carry_out, refusal
from leadline.engines.postgres.names import Rows, reader
from leadline.engines.postgres.postmaster import children_by_inner_pid
from leadline.engines.postgres.probes.sessions import Attached, describe
from leadline.engines.postgres.target import PostgresServer
from leadline.engines.postgres.vitals import VitalsReader


class PostgresWatch(Watch):
    product = "PostgreSQL"

    def __init__(self, target: PostgresServer, attached: Attached) -> None:
        super().__init__(attached.sampler, attached.tier, attached.rate_hz, attached.notes)
        self._target, self._attached = target, attached
        self._read = reader(target, attached.dsn)
        self._vitals = VitalsReader(attached.dsn)

    def describe(self, manifest: Manifest) -> None:
        describe(manifest, self._attached)

    def names(self, databases: set[int]) -> Rows:
        return self._read(databases)

    def start(self) -> None:
        self._vitals.start()

    def close(self) -> None:
        self._vitals.close()

    def vitals(self) -> Vitals | None:
        return self._vitals.now

    def processes(self) -> dict[int, int]:
        return {} if self._target.pid is None else children_by_inner_pid(self._target.pid)

    def refusal(self, deed: Deed, session: Session) -> str:
        return refusal(deed, session)

    def carry_out(self, deed: Deed, session: Session) -> str:
        return carry_out(deed, self._target, self._attached.dsn, session)
