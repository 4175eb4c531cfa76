"""When the next transaction may begin: behind those who wait for the table, within a rate of WAL, and close to the replicas."""

from __future__ import annotations

import time
from collections.abc import Callable

from leadline.engines.postgres.catalog.connection import Connection
from leadline.errors import LeadlineError

LOOK_S = 0.05
WANTED = "another session is waiting for the table"
_WAITING = """
select count(*) from pg_locks where locktype = 'relation' and relation = %s and not granted and pid <> pg_backend_pid()
   and database = (select oid from pg_database where datname = current_database())
"""
_HOLDERS = """
select string_agg(who, ', ') from (
  select distinct coalesce('pid ' || l.pid || coalesce(' (' || a.state || ')', ''), 'a prepared transaction' || coalesce(' (' || (
      select p.gid from pg_locks x join pg_prepared_xacts p on p.transaction = x.transactionid
       where x.pid is null and x.locktype = 'transactionid' and x.virtualtransaction = l.virtualtransaction) || ')', '')) as who
    from pg_locks l left join pg_stat_activity a on a.pid = l.pid
   where l.locktype = 'relation' and l.relation = %s and l.granted and l.pid is distinct from pg_backend_pid()
     and l.database = (select oid from pg_database where datname = current_database()) order by 1 limit 3) x
"""
_LAG = """
select count(*) - count(state), coalesce(max(pg_current_wal_lsn() - coalesce(replay_lsn, flush_lsn, write_lsn, sent_lsn)), 0)::int8
  from pg_stat_replication where state is distinct from 'backup'
"""
# A replica that is away is as far behind as its slot; one whose log is gone already has no restart_lsn.
_SLOT_LAG = """
select slot_name::text, (pg_current_wal_lsn() - coalesce(confirmed_flush_lsn, restart_lsn))::int8
  from pg_replication_slots where not active and restart_lsn is not null order by 2 desc limit 1
"""


class Pacer:
    """max_wal_rate: bytes a second of all WAL that the server writes while our transactions run. max_lag: bytes a replica may be behind."""

    def __init__(self, connection: Connection, max_wal_rate: int | None, max_lag: int | None, say: Callable[[str], None]) -> None:
        self._connection = connection
        self._rate = max_wal_rate
        self._max_lag = max_lag
        self._say = say
        self._free_at = time.monotonic()

    def wrote(self, size: int) -> None:
        """So many bytes of WAL were written: the time they may take at the rate is used up."""
        if self._rate:
            self._free_at = max(self._free_at, time.monotonic() - 1) + size / self._rate

    def wait(self, relation: int) -> None:
        """Returns when the next transaction may begin."""
        while self._is_wanted(relation):
            self._say(WANTED)
            time.sleep(LOOK_S)
        while self._max_lag is not None and (behind := self._behind(self._max_lag)):
            self._say(behind)
            time.sleep(LOOK_S)
        while (left := self._free_at - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_S))

    def holders(self, relation: int) -> str:
        """Who has a lock on a table: up to three."""
        [who] = self._connection.execute(_HOLDERS, [relation]).fetchone() or (None,)
        return who or "no visible session"

    def _is_wanted(self, relation: int) -> bool:
        [waiting] = self._connection.execute(_WAITING, [relation]).fetchone() or (0,)
        return bool(waiting)

    def _behind(self, most: int) -> str:
        """Which replica is more than so many bytes behind; empty when none is."""
        if (lag := self._lag()) > most:
            return f"a replica is {lag >> 20} MB behind"
        slot, lag = self._connection.execute(_SLOT_LAG).fetchone() or ("", 0)
        return f"inactive replication slot {slot} is {lag >> 20} MB behind" if lag > most else ""

    def _lag(self) -> int:
        hidden, lag = self._connection.execute(_LAG).fetchone() or (0, 0)
        if hidden:
            message = "this role cannot see the lag of replicas"
            raise LeadlineError("rights", message, detail="pg_stat_replication hides it from this role", hint="grant pg_monitor to ROLE")
        return int(lag)
