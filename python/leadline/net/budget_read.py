"""What the packets of a capture say of each path, from a client to a port of a server: sums for the whole, and for parts of the time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from leadline.capture.reader import Capture
from leadline.net.reconnects import between

BLOCKS = 40
PATH = "client_addr, server_addr, server_port"
SETUP = "('start-up', 'authentication', 'encryption request')"

# Connections that did work. Where transactions can be told on some connections of a path, those on which they cannot are left out
# (`unread`); those that lost too many messages, because packets were not captured whole, are left out in any case (`cut`). Before the first
# request of a connection lie its handshake and, with MySQL, the greeting.
_LINE = f"""
used as (
  select connection_id, min(ts) as first_ns, max(ts + last_ns) as end_ns, max(ts) filter (where purpose = 'terminate') as left_ns
  from wire_roundtrip where last_ns is not null or purpose = 'terminate' group by all
),
line as materialized (
  select connection_id, {PATH}, ts as began, ts_to, from_start, ended, first_ns, end_ns, left_ns,
         case when protocol = 'mysql' then 2 else 1 end as handshake_trips, case when from_start then ts else first_ns end as from_ns,
         transactions is null and cut_messages > 0 as cut,
         transactions is null and (cut_messages > 0 or coalesce(bool_or(transactions > 0) over (partition by {PATH}), false)) as unread
  from wire_connection join used using (connection_id)
  where round_trips > 0 and end_ns is not null and (? = '' or server_addr = ?) and (? = '' or client_addr = ?) {{ports}}
)
"""
# The time of a round trip begins where the answer before it ended. After a pause of 0.2 s TCP begins with its first window again: 14,600
# bytes, then twice as many with each round trip.
_TRIP = f"""
trip as (
  select {PATH}, t.ts, t.purpose, t.purpose in {SETUP} as setup, t.transactions, coalesce(t.client_gap_ns, 0) + t.last_ns as took_ns,
         t.request_bytes, t.request_bytes + t.response_bytes as bytes, t.first_ns,
         case when coalesce(t.client_gap_ns > 200000000, true)
              then greatest(0, ceil(log2(1 + greatest(t.request_bytes, t.response_bytes) / 14600.0)) - 1) else 0 end as bulk_trips
  from wire_roundtrip t join line using (connection_id)
  where t.last_ns is not null and not unread and t.purpose not in ('cancel', 'terminate')
)
"""
_PATHS = f"""
with {_LINE}, {_TRIP},
ends as (
  select {PATH}, count(*) filter (where not unread) as connections, count(*) filter (where unread and not cut) as unread_connections,
         count(*) filter (where cut) as cut_connections,
         min(from_ns) filter (where not unread) as from_ns, max(end_ns) filter (where not unread) as to_ns
  from line group by all
),
kind as (  -- round trips that are alike: most take as long as the fastest tenth when nothing has to wait
  select {PATH}, count(*) * quantile_cont(took_ns, 0.1) as floor_ns, min(first_ns) as least_answer_ns
  from trip group by {PATH}, purpose, request_bytes // 16, transactions > 0
),
floor as (select {PATH}, sum(floor_ns)::double as floor_ns, min(least_answer_ns) as least_answer_ns from kind group by all)
select ends.*, floor_ns, least_answer_ns, rtt_ns, rtt_from, handshakes
from ends left join floor using ({PATH}) join wire_path using ({PATH})
"""
_BLOCKS = f"""
with {_LINE}, {_TRIP},
span as (
  select {PATH}, min(from_ns) as from_ns, max(end_ns) - min(from_ns) + 1 as span_ns from line where not unread group by all
),
seen as (
  select {PATH}, ts, (not setup)::int as trips, setup::int as setup_trips, transactions, took_ns, bytes, bulk_trips from trip
  union all
  select {PATH}, began, 0, handshake_trips, 0, first_ns - began, 0, 0 from line where from_start and not unread
)
select {PATH}, ((ts - from_ns) * {BLOCKS}) // span_ns as block, sum(trips)::bigint as trips, sum(setup_trips)::bigint as setup_trips,
       sum(transactions)::bigint as transactions, sum(took_ns)::bigint as time_ns, sum(bytes)::bigint as bytes,
       sum(bulk_trips)::double as bulk_trips
from seen join span using ({PATH}) group by all
"""
_ENDS = f"with {_LINE} select {PATH}, began, from_start, ended, ts_to, end_ns, left_ns from line where not unread"


class Sums(NamedTuple):
    """Of a part of the time. trips: without those that make connections."""

    trips: int = 0
    setup_trips: int = 0
    transactions: int = 0
    time_ns: int = 0
    bytes: int = 0
    bulk_trips: float = 0.0

    @staticmethod
    def of(parts: Iterable[Sums]) -> Sums:
        return Sums(*map(sum, zip(*parts)))


@dataclass
class Path:
    """A client and a port of a server. floor_ns: the time of all of it if nothing had to wait. least_answer_ns: the fastest
    answer, if one was seen."""

    client: str
    server: str
    port: int
    connections: int
    unread_connections: int
    cut_connections: int
    from_ns: int
    to_ns: int
    floor_ns: float
    least_answer_ns: int | None
    rtt_ns: float | None
    rtt_from: str
    handshakes: int
    blocks: dict[int, Sums] = field(default_factory=dict)

    @property
    def whole(self) -> Sums:
        return Sums.of(self.blocks.values())


def paths_of(capture: Capture, ports: Sequence[int] = (), *, server: str = "", client: str = "") -> list[Path]:
    """Those that took most time first. Empty ports, server, client: any."""
    chosen = f"and server_port in ({', '.join(str(int(port)) for port in ports)})" if ports else ""
    given = (server, server, client, client)

    def rows(sql: str) -> list[dict[str, Any]]:
        return capture.rows(sql.format(ports=chosen), given)

    found = {
        key(row): Path(
            *key(row), row["connections"], row["unread_connections"], row["cut_connections"], row["from_ns"], row["to_ns"], row["floor_ns"],
            row["least_answer_ns"], row["rtt_ns"], row["rtt_from"], row["handshakes"],
        )
        for row in rows(_PATHS)
    }  # fmt: skip
    for row in rows(_BLOCKS):
        found[key(row)].blocks[row["block"]] = Sums(**{name: row[name] for name in Sums._fields})
    ends: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for row in rows(_ENDS):
        ends.setdefault(key(row), []).append(row)
    for path_key, lines in ends.items():
        path = found[path_key]
        for at_ns, gap_ns in between(lines):
            block = (at_ns - path.from_ns) * BLOCKS // (path.to_ns - path.from_ns + 1)
            sums = path.blocks.get(block, Sums())
            path.blocks[block] = sums._replace(time_ns=sums.time_ns + gap_ns)
    return sorted(found.values(), key=lambda path: -path.whole.time_ns)


def key(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["client_addr"], row["server_addr"], row["server_port"]
