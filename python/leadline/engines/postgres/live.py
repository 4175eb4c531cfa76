"""Running PostgreSQL servers, for `take`, `top` and `doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from leadline.engines.live import Sampling, Watch
from leadline.engines.postgres import doctor
from leadline.engines.postgres.probes.following import Following
from leadline.engines.postgres.probes.pooler import PoolerProbe
from leadline.engines.postgres.probes.replication import ReplicationProbe, needed
from leadline.engines.postgres.probes.sessions import SessionsProbe, attach, follow
from leadline.engines.postgres.target import PostgresServer, resolve
from leadline.engines.postgres.watch import PostgresWatch
from leadline.errors import LeadlineError
from leadline.probes.probe import Probe


class PostgresLive:
    """PostgreSQL is asked last: what no other engine knows is a server of PostgreSQL, or an error."""

    find = staticmethod(resolve)
    servers_here = staticmethod(doctor.servers_here)
    checks = staticmethod(doctor.checks_of)

    def sample(self, server: PostgresServer, directory: Path, *, rate_hz: float, tier: str, follows: bool, required: bool) -> Sampling:
        attached = attach(server, directory, rate_hz, tier)
        followed: Following | None = follow(server, attached, directory) if follows else None
        on_return = None if followed is None else followed.on_return
        return Sampling(SessionsProbe(server, attached, required=required), attached.notes, on_return)

    def watch(self, server: PostgresServer, directory: Path, *, rate_hz: float, tier: str, flush_interval_s: float) -> Watch:
        return PostgresWatch(server, attach(server, directory, rate_hz, tier, flush_interval_s), directory)

    def beside(self, server: object, *, pooler: str | None, others: Sequence[str], tier: str) -> list[Probe]:
        found: list[Probe] = [] if pooler is None else [PoolerProbe(pooler)]
        return [*found, *_replication(server, others, tier)]


def _replication(server: object, others: Sequence[str], tier: str) -> list[Probe]:
    """Without others: only where the server is a standby or has some. One that cannot be asked then is no error."""
    dsn = server.dsn if isinstance(server, PostgresServer) else None
    if others:
        from leadline.engines.postgres.probes.far_standby import FarStandby  # not when a command starts
        from leadline.probes.ssh import Place, is_place

        places = [Place.of(other) for other in others if is_place(other)]
        near = ReplicationProbe([needed(dsn), *(other for other in others if not is_place(other))], tier != "sql")
        far: list[FarStandby] = []
        try:
            for number, place in enumerate(places, len(near.nodes) + 1):
                far.append(FarStandby(place, number, near.nodes[0], tier))
        except BaseException:
            near.close()
            for standby in far:
                standby.close()
            raise
        return [near, *far]
    if dsn is None:
        return []
    try:
        probe = ReplicationProbe([dsn], tier != "sql")
    except LeadlineError:
        return []
    if probe.replicates:
        return [probe]
    probe.close()
    return []


LIVE = PostgresLive()
