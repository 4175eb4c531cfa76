"""The TCP connections of a server as the kernel sees them: to which clients data waits, and for what."""

from __future__ import annotations

from leadline.views.grid import Column, Grid
from leadline.views.sections import Context, Section

MOST = 20


def _clients(of: Context) -> Grid:
    rows = of.capture.rows(
        """
        select remote_addr as client, count(distinct cookie) as connections, median(rtt) / 1000 as rtt_ms, sum(bytes_acked)::bigint as sent,
               sum(bytes_received)::bigint as received, sum(busy_time) / 1e6 as busy_s, sum(rwnd_limited) / 1e6 as window_s,
               sum(sndbuf_limited) / 1e6 as buffer_s, max(send_queue) as send_queue, sum(total_retrans)::bigint as again
        from tcp_delta group by all order by busy_s desc, client
        """
    )
    columns = (
        Column("client", "client", "text"),
        Column("connections", "conn.", "rate"),
        Column("rtt_ms", "RTT, ms", "seconds"),
        Column("sent", "sent", "bytes"),
        Column("received", "received", "bytes", minor=True),
        Column("busy_s", "busy, s", "seconds"),
        Column("window_s", "window, s", "seconds"),
        Column("buffer_s", "buffer, s", "seconds"),
        Column("send_queue", "queue", "bytes", minor=True),
        Column("again", "retrans", "rate"),
    )
    note = (
        "Busy: the server had unsent or unacknowledged data. Window: part of it, with the client's receive window full. Buffer: with the "
        "server's send buffer full. Queue: the most data that a client had not acknowledged. Retrans: retransmitted segments."
    )
    return of.grid(columns, rows, MOST, "tcp_delta", note, "no client was connected over TCP")


SECTIONS = (Section("sockets", "Connections over TCP", ("tcp_delta",), _clients),)
