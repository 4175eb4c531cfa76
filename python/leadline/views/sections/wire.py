"""Sections of a capture of packets: what round trips took, and which connections made them."""

from __future__ import annotations

import shlex
from dataclasses import replace

from leadline.views.grid import Column, Curves, Grid
from leadline.views.sections import Context, Section
from leadline.views.sections.wire_budget import has_budget, has_parts, wire_budget, wire_fetch, wire_time

MOST = 20
IN_PICTURE = 5  # purposes with a line of their own
PERCENTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999)
# The axis of percentiles is that of 1 / (1 - p): 2 is the median, 100 is p99.
PERCENTILE_TEXT = "'p' + format(100 - 100 / datum.value, '.5~r')"


def _latency(of: Context) -> Grid:
    rows = of.capture.rows(
        """
        select purpose, count(*) as trips, sum(request_bytes + response_bytes)::bigint as bytes,
               quantile_disc(wait_ns, 0.5) / 1e6 as p50_ms, quantile_disc(wait_ns, 0.99) / 1e6 as p99_ms,
               quantile_disc(wait_ns, 0.9999) / 1e6 as p9999_ms, max(last_ns) / 1e6 as longest_ms,
               median(client_gap_ns) / 1e6 as gap_ms, sum(retransmits)::bigint as again
        from (select *, greatest(first_ns - request_ns, 0) as wait_ns from wire_roundtrip where last_ns is not null)
        group by purpose order by trips desc, purpose
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
        Column("again", "retrans", "rate", minor=True),
    )
    note = (
        "From the last byte of a request to the first byte of its answer; 0 if the answer began earlier. Longest: to its last byte. "
        "Client: from an answer to the next request."
    )
    return Grid.of(columns, rows, note, empty="no request was answered", picture=_percentiles(of))


def _percentiles(of: Context) -> Curves:
    """What part of the requests was answered within which time. A percentile is shown if as many requests lie above it."""
    rows = of.capture.rows(
        f"""
        select purpose, count(*) as trips, quantile_disc(greatest(first_ns - request_ns, 0), {list(PERCENTILES)}) as ns
        from wire_roundtrip where first_ns is not null group by purpose order by trips desc, purpose limit {IN_PICTURE}
        """
    )
    found = ((row, p, ns) for row in rows for p, ns in zip(PERCENTILES, row["ns"]))
    values = [(1 / (1 - p), ns / 1e6, row["purpose"]) for row, p, ns in found if ns > 0 and (1 - p) * row["trips"] >= 1]
    return Curves(values, "percentile", "ms to the first of the answer", x_text=PERCENTILE_TEXT)


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
        Column("transactions", "xacts", "rate"),
        Column("each", "per xact", "seconds"),
        Column("rtt_ms", "RTT, ms", "seconds"),
        Column("answer_s", "answers, s", "seconds"),
        Column("client_s", "client, s", "seconds"),
        Column("again", "retrans", "rate", minor=True),
        Column("ended", "ended", "text", minor=True),
    )
    note = "Per xact: round trips per transaction. RTT: of the TCP handshake. Retrans: retransmitted segments."
    grid = of.grid(columns, rows, MOST, "wire_connection", note, "no connection was seen")
    return grid if grid.rest else replace(grid, rest=f"other round-trip times: leadline net budget {shlex.quote(str(of.capture.path))}")


SECTIONS = (
    Section(
        "wire_time", "Connections along the time", ("wire_roundtrip", "wire_connection"), wire_time, html="stack.html.j2", in_text=False,
        in_json=False,
    ),
    Section("wire_latency", "Round trips", ("wire_roundtrip",), _latency),
    Section("wire_budget", "Round-trip budget", ("wire_roundtrip", "wire_connection"), wire_budget, applies=has_budget),
    Section("wire_fetch", "Results read in parts", ("wire_part",), wire_fetch, applies=has_parts),
    Section("wire_connections", "Connections", ("wire_connection",), _connections),
)
