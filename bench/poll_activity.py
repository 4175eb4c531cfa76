"""The peer that everyone can have: asks pg_stat_activity at a fixed rate. Used by overhead.py as a process of its own.

    python poll_activity.py DSN HZ      until SIGTERM; the first line of stdout names its backend, the last says what was done

It is the cheapest useful poll: a prepared statement over libpq without conversion of any value, no text of the statements, and
nothing is kept. Due times that have passed are left out and counted, never made up for.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from types import FrameType

from psycopg import pq

QUERY = b"""
select pid, datid, usesysid, application_name, client_addr, backend_type, leader_pid, state, wait_event_type, wait_event,
       query_id, backend_xid, backend_xmin, backend_start, xact_start, query_start, state_change
from pg_stat_activity
"""


def main(dsn: str, hz: float) -> int:
    stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    connection = pq.PGconn.connect(dsn.encode())
    if connection.status != pq.ConnStatus.OK or connection.prepare(b"poll", QUERY).status != pq.ExecStatus.COMMAND_OK:
        print(connection.error_message.decode(errors="replace"), file=sys.stderr)
        return 2
    print(json.dumps({"backend_pid": connection.backend_pid}), flush=True)
    period_s = 1 / hz
    passes = missed = rows = 0
    started = due = time.monotonic()
    while not stopped:
        result = connection.exec_prepared(b"poll", [])
        if result.status != pq.ExecStatus.TUPLES_OK:
            print(connection.error_message.decode(errors="replace"), file=sys.stderr)
            return 2
        passes += 1
        rows += result.ntuples
        due += period_s
        late_s = time.monotonic() - due
        if late_s > 0:
            passed = int(late_s / period_s) + 1
            missed += passed
            due += passed * period_s
        time.sleep(max(0.0, due - time.monotonic()))
    print(json.dumps({"passes": passes, "missed": missed, "rows": rows, "elapsed_s": time.monotonic() - started}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2])))
