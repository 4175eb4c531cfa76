"""Sections of a capture of packets: what round trips took, and which connections made them."""

from __future__ import annotations

from leadline.views.grid import Column, Grid
from leadline.views.sections import Context, Section

MOST = 20


def _latency(of: Context) -> Grid:
    rows = of.capture.rows(
        """
        select purpose, count(*) as trips, sum(request_bytes + response_bytes)::bigint as bytes,
               quantile_disc(first_ns - request_ns, 0.5) / 1e6 as p50_ms, quantile_disc(first_ns - request_ns, 0.99) / 1e6 as p99_ms,
               quantile_disc(first_ns - request_ns, 0.9999) / 1e6 as p9999_ms, max(last_ns) / 1e6 as longest_ms,
               median(client_gap_ns) / 1e6 as gap_ms, sum(retransmits)::bigint as again
        from wire_roundtrip where last_ns is not null group by purpose order by trips desc, purpose
        """
    )
    columns = (
        Column("purpose", "purpose", "text"),
        Column("trips", "round trips", "rate"),
        Column("bytes", "data", "bytes", minor=True),
        Column("p50_ms", "p50, ms", "seconds"),
        Column("p99_ms", "p99, ms", "seconds"),
        Column("p9999_ms", "p99.99, ms", "seconds", minor=True),
        Column("longest_ms", "longest, ms", "seconds"),
        Column("gap_ms", "client, ms", "seconds"),
        Column("again", "again", "rate", minor=True),
    )
    note = "From the last byte of a request to the first of its answer; longest: to the last. Client: between answer and next request."
    return Grid.of(columns, rows, note, empty="no request was answered")


def _connections(of: Context) -> Grid:
    rows = of.capture.rows(
        """
        select client_addr || ':' || client_port as client, server_addr || ':' || server_port as server, protocol,
               round_trips, transactions, round_trips / nullif(transactions, 0) as each, handshake_ns / 1e6 as rtt_ms,
               answer_ns / 1e9 as answer_s, client_ns / 1e9 as client_s,
               client_retransmits + server_retransmits as again, ended
        from wire_connection order by round_trips desc, connection_id
        """
    )
    columns = (
        Column("client", "client", "text"),
        Column("server", "server", "text", minor=True),
        Column("protocol", "protocol", "text", minor=True),
        Column("round_trips", "round trips", "rate"),
        Column("transactions", "transactions", "rate"),
        Column("each", "each", "seconds"),
        Column("rtt_ms", "RTT, ms", "seconds"),
        Column("answer_s", "answers, s", "seconds"),
        Column("client_s", "client, s", "seconds"),
        Column("again", "again", "rate", minor=True),
        Column("ended", "ended", "text", minor=True),
    )
    path = of.capture.path
    more = f"other round-trip times: leadline net budget {path}"
    if len(rows) > MOST:
        more = f'{len(rows) - MOST} more: leadline sql {path} "from wire_connection"'
    note = "Each: round trips for each transaction. RTT: of the handshake. Again: segments sent again."
    return Grid.of(columns, rows[:MOST], note, more, "no connection was seen")


SECTIONS = (
    Section("wire_latency", "Round trips", ("wire_roundtrip",), _latency),
    Section("wire_connections", "Connections", ("wire_connection",), _connections),
)
