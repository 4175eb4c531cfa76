"""The block trace of a capture (`take --kernel`, table block_io) as requests that a layout can be given again."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leadline.capture.reader import open_capture
from leadline.errors import LeadlineError

SECTOR, MOST_SECTORS = 512, 1 << 53
# A request that failed, or that has no data, is left out and counted.
QUERY = """
select ts - queue_ns - service_ns as issued, ts as ended, device, sector, bytes, operation, tid, status
from block_io order by issued, ts, sector
"""


@dataclass
class Trace:
    capture: str
    rows: list[tuple[int, int, str, int, int, bool, int]] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)

    def about(self) -> dict[str, Any]:
        devices = sorted({row[2] for row in self.rows})
        return {"capture": self.capture, "requests": len(self.rows), "devices": devices, "left_out": self.left_out}


def read(path: Path, devices: tuple[str, ...] = ()) -> Trace:
    """devices: only these. Raises LeadlineError."""
    capture = open_capture(path)
    try:
        if (why := capture.unavailable("block_io")) is not None:
            raise LeadlineError(
                "not_found", "the capture has no block trace", detail=why, hint="leadline take --kernel ... -o CAPTURE", where=str(path)
            )
        trace = Trace(str(path))
        for row in capture.rows(QUERY):
            if devices and row["device"] not in devices:
                why = "other devices"
            elif row["status"]:
                why = "failed"
            elif row["operation"] not in ("read", "write"):
                why = row["operation"]
            elif row["bytes"] <= 0 or not 0 <= row["sector"] < MOST_SECTORS:
                why = "of no data"
            else:
                # A request of which the times are not known whole has begun no later than it ended.
                issued, ended = min(row["issued"], row["ended"]), row["ended"]
                where = (row["device"], row["sector"] * SECTOR, row["bytes"])
                trace.rows.append((max(issued, 0), max(ended, 0), *where, row["operation"] == "write", row["tid"]))
                continue
            trace.left_out[why] = trace.left_out.get(why, 0) + 1
    finally:
        capture.close()
    if not trace.rows:
        left = ", ".join(f"{count:,} {why}" for why, count in sorted(trace.left_out.items()))
        raise LeadlineError(
            "not_found", "the capture has no read and no write of these devices", detail=left and f"left out: {left}", where=str(path)
        )
    return trace
