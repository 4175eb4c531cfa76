"""What the host was short of in two captures: pressure (PSI) and reclaim of memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from leadline.capture.reader import Capture


@dataclass(frozen=True)
class Row:
    """metrics: of host_rate, added up. scale: what a count in a second is multiplied with."""

    name: str
    metrics: tuple[str, ...]
    scale: float = 1.0


PERCENT = 100 / 1e9  # of ns in a second
ROWS = (
    *(
        Row(f"{name} pressure, {kind}, % of the time", (f"pressure.{resource}_{kind}_ns",), PERCENT)
        for resource, name in (("cpu", "CPU"), ("io", "I/O"), ("memory", "memory"))
        for kind in ("some", "full")
    ),
    # Named as `sar -B` names them.
    Row("pgscank/s: pages scanned by kswapd", ("vmstat.pgscan_kswapd",)),
    Row("pgscand/s: pages scanned by who needed memory", ("vmstat.pgscan_direct",)),
    Row("pgsteal/s: pages reclaimed", ("vmstat.pgsteal_kswapd", "vmstat.pgsteal_direct")),
    Row("dirtied pages/s", ("vmstat.nr_dirtied",)),
    Row("written pages/s", ("vmstat.nr_written",)),
)
SECONDS = "seconds"


def grown(capture: Capture) -> dict[str, float]:
    """How much each metric of ROWS grew, and in how many seconds; a kernel without PSI has none of it."""
    wanted = ", ".join(f"'{metric}'" for row in ROWS for metric in row.metrics)
    rows = capture.rows(f"select metric, sum(grown) as n, sum(dt_ns) / 1e9 as s from host_rate where metric in ({wanted}) group by metric")
    return {row["metric"]: float(row["n"]) for row in rows} | {SECONDS: max((float(row["s"]) for row in rows), default=0.0)}


def a_second(of: Mapping[str, float]) -> dict[str, float]:
    """By name of the row; only what was counted."""
    seconds = of.get(SECONDS)
    if not seconds:
        return {}
    return {row.name: row.scale * sum(of[m] for m in row.metrics if m in of) / seconds for row in ROWS if any(m in of for m in row.metrics)}
