"""Times in which the server was not seen, in words: restarts, crashes, lost connections."""

from __future__ import annotations

from datetime import UTC, datetime

from leadline.capture.reader import Capture

CAUSES = {
    "restart": "the server was restarted",
    "crash": "the server crashed and started again by itself",
    "connection": "the connection to the server was lost",
    "gone": "the server ended and did not come back",
    "replaced": "the server ended, and another one took its place",
    "recorder": "the recorder went from one piece to the next, or did not run",
}
MOST = 3


def gaps(capture: Capture) -> list[str]:
    """A sentence for each of the first gaps, and one for all others."""
    if capture.unavailable("server_gap") is not None:
        return []
    rows = capture.rows(
        "select g.cause, g.reason, (coalesce(g.ts_to, c.ts_to, g.ts_from) - g.ts_from) / 1e9 as unseen_s, "
        "g.ts_from + c.wall_offset_ns as at from server_gap g cross join capture c order by g.ts_from"
    )
    found = [sentence(row["cause"], row["unseen_s"], row["at"], row["reason"]) for row in rows[:MOST]]
    if rest := rows[MOST:]:
        found.append(f"{len(rest)} more such times: {sum(row['unseen_s'] for row in rest):.1f} s were not seen (table server_gap)")
    return found


def sentence(cause: str, unseen_s: float, wall_ns: int | None, reason: str) -> str:
    """One gap; wall_ns: when it began, ns since 1970. reason: says which server is there instead."""
    at = "" if wall_ns is None else f" at {datetime.fromtimestamp(wall_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC"
    instead = f" ({reason})" if cause == "replaced" else ""
    return f"{CAUSES.get(cause, cause)}{instead}{at}: {unseen_s:.1f} s were not seen"
