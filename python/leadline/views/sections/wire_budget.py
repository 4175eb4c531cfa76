"""Where the time on connections went, and what it would be with another round-trip time or another size of fetches."""

from __future__ import annotations

import math
from typing import Any

from leadline.figures import count, seconds
from leadline.views.grid import Column, Curves, Grid, Stack
from leadline.views.sections import Context

STEPS = 120
RTTS_MS = (0.02, 0.1, 0.5, 1, 2, 5, 10, 20, 50, 100)
NOT_WORK = "('start-up', 'authentication', 'encryption request', 'cancel', 'terminate')"
PIECES = ("on the way", "server", "client, in a transaction")

# The way is one round trip of each cycle. Where an answer of a connection came sooner than that, the packets were captured at the
# server, and the way lies between its answers and the next requests.
_TIME = f"""
with trip as (
  select t.connection_id, t.ts, first_ns, last_ns, coalesce(client_gap_ns, 0) as gap_ns,
         coalesce(lag(in_transaction) over (partition by t.connection_id order by t.ts), false) as inside,
         coalesce(rtt_ns, 0) as rtt_ns
  from wire_roundtrip t join wire_connection c using (connection_id) join wire_path using (client_addr, server_addr, server_port)
  where last_ns is not null and first_ns is not null and purpose not in {NOT_WORK}
),
place as (select connection_id, min(first_ns) < 0.5 * any_value(rtt_ns) as at_server from trip group by all),
edge as (
  select *, case when at_server then least(rtt_ns, gap_ns) else 0 end as way_before,
         case when at_server then 0 else least(rtt_ns, first_ns) end as way_after
  from trip join place using (connection_id)
),
piece as (
  select '{PIECES[0]}' as piece, ts - way_before as a, ts + way_after as b from edge
  union all select '{PIECES[1]}', ts + way_after, ts + last_ns from edge
  union all select '{PIECES[2]}', ts - gap_ns, ts - way_before from edge where inside
),
frame as (select min(a) as t0, greatest(max(b) - min(a), 1) as length, greatest(max(b) - min(a), 1) / {STEPS} as step from piece),
cut as (
  select piece, a - t0 as a, b - t0 as b, step, unnest(range(floor((a - t0) / step)::bigint, floor((b - t0) / step)::bigint + 1)) as bin
  from piece cross join frame where b > a
)
select bin, piece, sum(least(b, (bin + 1) * step) - greatest(a, bin * step)) / any_value(step) as connections,
       any_value(step) / 1e9 as step_s, (select length / 1e9 from frame) as length_s
from cut where bin < {STEPS} group by bin, piece order by bin, piece
"""


def wire_time(of: Context) -> Grid:
    rows = of.capture.rows(_TIME)
    values = [(r["bin"] * r["step_s"], (r["bin"] + 1) * r["step_s"], r["piece"], r["connections"]) for r in rows]
    values.sort(key=lambda v: (v[0], PIECES.index(v[2])))
    note = (
        "Connections that waited for the network, for the server, or in a transaction for the client. Idle ones are left out. "
        "Where packets were captured between the two ends, a part of the way counts as the server's or the client's."
    )
    end = rows[0]["length_s"] if rows else 1.0
    return Grid((), [], note, picture=Stack(values, end, "seconds from the first request", "connections", "connections"))


def has_budget(of: Context) -> bool:
    return bool(
        of.capture.scalar(
            """
            select count(*) from wire_connection join wire_path using (client_addr, server_addr, server_port)
            where round_trips > 0 and rtt_ns is not null and not (transactions is null and cut_messages > 0)
              and connection_id in (select connection_id from wire_roundtrip where last_ns is not null)
            """
        )
    )


def wire_budget(of: Context) -> Grid:
    from leadline.net.budget import budgets  # slow to import, and most captures have no packets

    all_budgets = budgets(of.capture, RTTS_MS, with_present=True)
    found, more = all_budgets.budgets[0], len(all_budgets.budgets) - 1 + all_budgets.more
    columns = (
        Column("rtt_ms", "RTT, ms", "seconds"),
        Column("now", "", "text"),
        Column("each_ms", f"{'each' if found.unit != 'transaction' else 'transaction'}, ms", "seconds"),
        Column("per_second", "a second", "rate"),
        Column("low", "from", "rate", minor=True),
        Column("high", "to", "rate", minor=True),
        Column("network", "network", "share"),
    )
    rows: list[dict[str, Any]] = [
        {
            "rtt_ms": at.rtt_ms, "now": "now" if at.rtt_ms == found.rtt_ms else "", "each_ms": at.transaction_ms.value,
            "per_second": at.per_second.value, "low": at.per_second.low, "high": at.per_second.high, "network": at.network_share,
        }
        for at in found.what_if
    ]  # fmt: skip
    trips, rest = found.trips_each.value + found.setup_trips_each, found.rest_ms.value
    others = f"There are {count(more, 'other client or port', 'other clients or ports')}. " if more else ""
    note = (
        f"Client {found.client} of {found.server}. {others}"
        f"A {found.unit} takes a + N * RTT: N = {trips:.3f} round trips, counted in packets, "
        f"RTT = {found.rtt_ms:.4g} ms ({found.rtt_from}), a = {rest:.4g} ms for client and server. "
        f"Rates: if {found.busy_connections:.2f} connections stay busy, with 95 % intervals."
    )
    curve = [(at.rtt_ms, at.per_second.value, "expected") for at in found.what_if if at.rtt_ms > 0 and at.per_second.value > 0]
    picture = Curves(curve, "round-trip time, ms", f"{found.unit}s a second")
    return Grid.of(columns, rows, note, f"other times: leadline net budget {of.capture.path} --rtt ...", picture=picture)


# The application that spent most on the way of parts of results.
_PARTS = """
select application_name, way, count(*) as parts, greatest(count(*) filter (where is_first), 1) as results, sum(p.rows)::bigint as rows,
       median(p.rows) as now_rows, sum(took_ns) / 1e9 as read_s, sum(way_ns) / count(*) / 1e9 as rtt_s, sum(way_ns) / 1e9 as way_s
from wire_part p join wire_connection using (connection_id) group by application_name, way
having sum(p.rows) > 0 and way_s is not null and parts > results
order by way_s desc, application_name, way limit 1
"""


def has_parts(of: Context) -> bool:
    return bool(of.capture.rows(_PARTS))


def wire_fetch(of: Context) -> Grid:
    [found] = of.capture.rows(_PARTS)
    results = found["results"]
    each, rest_s = found["rows"] / results, found["read_s"] - found["way_s"]
    decades = [10.0**n for n in range(1 + math.ceil(math.log10(max(each, 1))))]
    sizes = sorted({*(size for size in decades if size < each), found["now_rows"], each})
    rows = []
    for size in sizes:
        now = size == found["now_rows"]
        trips = found["parts"] if now else results * math.ceil(each / size)
        way_s = trips * found["rtt_s"]
        rows.append({"size": size, "now": "now" if now else "", "trips": trips, "way_s": way_s, "read_s": rest_s + way_s})
    columns = (
        Column("size", "rows in a part", "rate"),
        Column("now", "", "text"),
        Column("trips", "round trips", "rate"),
        Column("way_s", "on the way, s", "seconds"),
        Column("read_s", "reading, s", "seconds"),
    )
    application = found["application_name"] or "without name"
    by_fetch = " by FETCH" if found["way"] == "cursor" else ""
    note = (
        f"Application {application} read {found['rows']:,} rows of results in {found['parts']:,} parts{by_fetch}; a round trip takes "
        f"{1000 * found['rtt_s']:.4g} ms. The other lines are reckoned: the rest of the time, {seconds(rest_s)} s, stays as it is."
    )
    curve = [(row["size"], row["read_s"], "reading") for row in rows]
    return Grid.of(columns, rows, note, picture=Curves(curve, "rows in a part", "seconds"))
