"""What sessions and packets of one capture say together: database time beside the time on the wire."""

from __future__ import annotations

from leadline.views.grid import Column, Grid
from leadline.views.sections import Context, Section

MOST = 20


def _applications(of: Context) -> Grid:
    rows = of.capture.rows(
        """
        with spent as (select session_id, sum(weight_s) filter (where in_db_time) as db_s from session_sample group by session_id),
        named as (select session_id, arg_max(application_name, ts) as application_name from session group by session_id)
        select named.application_name as application, count(distinct connection_id) as connections, sum(round_trips)::bigint as round_trips,
               sum(round_trips) / nullif(sum(transactions), 0) as each, median(rtt_ns) / 1e6 as rtt_ms,
               sum(coalesce(db_s, 0)) as db_s, sum(answer_ns + transfer_ns) / 1e9 as answer_s, sum(client_ns) / 1e9 as client_s
        from session_connection join named using (session_id) join wire_connection using (connection_id)
        join wire_path using (client_addr, server_addr, server_port) left join spent using (session_id)
        group by all order by answer_s desc, application
        """
    )
    columns = (
        Column("application", "application", "text"),
        Column("connections", "conn.", "rate"),
        Column("round_trips", "round trips", "rate"),
        Column("each", "per xact", "seconds"),
        Column("rtt_ms", "RTT, ms", "seconds", minor=True),
        Column("db_s", "DB time, s", "seconds"),
        Column("answer_s", "answers, s", "seconds"),
        Column("client_s", "client, s", "seconds"),
    )
    note = (
        "Per xact: round trips per transaction. Answers: from the last byte of a request to the last byte of its answer, on the network. "
        "If they take longer than the database time, the session waited for a CPU, or for the client to read the data."
    )
    return of.grid(columns, rows, MOST, "session_connection", note, "no session had a connection that was seen")


SECTIONS = (
    Section("sessions_on_wire", "Applications on the wire", ("session_connection", "session_sample"), _applications),
)  # fmt: skip
