"""Makes the table of fetch sizes: 60 MB in 10,000 rows over a round trip of 100 ms, and what a capture says of the client that reads so.

    python bench/fetch_size.py > fetch.json                        about an hour: one row at a time alone takes 17 minutes
    python bench/fetch_size.py --rows 500 --rtt 5 --check 1        does everything work?

The sweep reads the table once with each size, from less than a row to everything at once, on a line that is as fast as this host. The
`line` sweep has 160 Mbit a second, as the line of seed 000 seems to have had. The limited sweep has at most 256 kB under way, as a small
socket buffer has it. The check reads over the line with the larger sizes, in random order in each round, to see how far the size that its
sweep recommends is from the best. While a client reads a few rows at a time, and while one has the limit, a capture is taken;
what its findings say is in the result. Output: JSON; --plot writes a picture too.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from leadline._core.net import Delay, Fetcher
from leadline.capture.reader import open_capture
from leadline.engines.postgres.server import PrivateServer, find_binaries
from leadline.findings import evaluate
from leadline.lab.signed_rank import median_interval
from leadline.net import fetch
from leadline.net.login import Server, server_of
from leadline.probes.take import take
from leadline.views.report.charts import SCHEMA
from record import read_environment

ROW_BYTES = 5970  # with the headers of row and column, 6,000
SIZES = "4kB,8kB,12kB,16kB,32kB,64kB,128kB,256kB,512kB,1MB,2MB,4MB,8MB,16MB,32MB,all"
FROM_FIVE_ROWS = "32kB,64kB,128kB,256kB,512kB,1MB,2MB,4MB,8MB,16MB,32MB,all"
LIMITED = "32kB,64kB,128kB,256kB,512kB,1MB,4MB,16MB,all"
CHECKED = "512kB,1MB,2MB,4MB,8MB,16MB,32MB,all"
WINDOW = 256 << 10
RATE_BIT = 160e6
BAD_ROWS = 20
LIVE_S = 15.0
QUERY = "select * from wide"
TITLES = {"sweep": "no limit", "line": "160 Mbit a second", "limited": "256 kB under way"}
SETTINGS = {"fsync": False, "autovacuum": False, "shared_buffers": "256MB"}


def fill(server: PrivateServer, rows: int) -> None:
    """Rows that cannot be compressed, in order of their pages."""
    import psycopg

    with psycopg.connect(server.dsn, autocommit=True) as db:
        db.execute("create table wide (id int, filler text)")
        db.execute("alter table wide alter filler set storage external")
        db.execute("insert into wide select i, repeat(md5(i::text), %s) from generate_series(1, %s) i", (ROW_BYTES // 32, rows))


def tell(part: str) -> Any:
    return lambda done, total, what: print(f"{part}: {done} of {total}, {what}", file=sys.stderr)


def check(server: Server, plan: fetch.Plan, rounds: int, rng: random.Random) -> list[list[dict[str, Any]]]:
    """The points of each round."""
    found = []
    for round_ in range(rounds):
        turned = replace(plan, sizes=rng.sample(list(plan.sizes), len(plan.sizes)))
        found.append(fetch.measure(server, turned, tell(f"check {round_ + 1}"))["curves"][0]["points"])
    return found


def compared(rounds: Sequence[Sequence[dict[str, Any]]], rows: int | None) -> dict[str, Any]:
    """Time of a size by that of the best, the median of the rounds with its interval. The best is chosen by its median."""
    times: dict[int, list[float]] = {}
    for points in rounds:
        for point in points:
            times.setdefault(point["rows_per_fetch"], []).append(point["time_ns"] / 1e9)
    best = min(times, key=lambda size: median(times[size]))
    ratios = [a / b for a, b in zip(times[rows], times[best])] if rows in times else []
    low, high = median_interval(ratios) if ratios else (None, None)
    return {
        "seconds": times, "best_rows": best, "recommended_rows": rows, "ratio": median(ratios) if ratios else None,
        "ratio_low": low, "ratio_high": high,
    }  # fmt: skip


def live(private: PrivateServer, server: Server, proxy: Delay, rows: int, out: Path) -> list[dict[str, Any]]:
    """What the findings say of a server whose only client reads so many rows at a time through this proxy."""
    over = threading.Event()
    client = Fetcher(server.login(30.0, through=proxy.address()))

    def read() -> None:
        while not over.is_set():
            client.run(QUERY, rows)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        take(pid=private.pid, for_s=LIVE_S, out=out)
    finally:
        over.set()
        reader.join()
    with closing(open_capture(out)) as capture:
        return [{"id": f.id, "subject": f.subject, "statement": f.statement, "cost_s": f.cost_s} for f in evaluate(capture).findings]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--rtt", type=float, default=100.0, metavar="MS")
    parser.add_argument("--check", type=int, default=9, metavar="N", help="rounds of the check")
    parser.add_argument("--checked", default=CHECKED, help="sizes of the check")
    parser.add_argument("--parts", default="sweep,line,limited,live,check", help="what to do")
    parser.add_argument("--recommended", type=int, metavar="ROWS", help="for a check without the sweep of the line")
    parser.add_argument("--pg-bin", help="folder with postgres and initdb")
    parser.add_argument("--plot", type=Path, help="PNG of the sweeps")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng, environment, parts = random.Random(options.seed), read_environment(), options.parts.split(",")
    result: dict[str, Any] = {}
    whole = fetch.Plan(QUERY, fetch.parse_sizes(SIZES), [options.rtt / 1000], repeat=1)
    with PrivateServer(find_binaries(options.pg_bin).bin_dir, settings=SETTINGS, loopback=True) as private, TemporaryDirectory() as folder:
        fill(private, options.rows)
        server = server_of(private.loopback_dsn)
        if "sweep" in parts:
            result["sweep"] = fetch.measure(server, whole, tell("sweep"))
        line = replace(whole, sizes=fetch.parse_sizes(FROM_FIVE_ROWS), rate_bit=RATE_BIT)
        if "line" in parts:
            result["line"] = fetch.measure(server, line, tell("line"))
        if "limited" in parts:
            limited = replace(whole, sizes=fetch.parse_sizes(LIMITED), window=WINDOW)
            result["limited"] = fetch.measure(server, limited, tell("limited"))
        if "live" in parts:
            for name, rows, window in (("few rows", BAD_ROWS, None), ("small window", 0, WINDOW)):
                proxy = Delay("127.0.0.1", 0, "127.0.0.1", private.port, rtt_s=options.rtt / 1000, window=window)
                result[name] = live(private, server, proxy, rows, Path(folder) / f"{name}.leadline")
                proxy.stop()
        if "check" in parts:
            rounds = check(server, replace(line, sizes=fetch.parse_sizes(options.checked)), options.check, rng)
            rows = result["line"]["curves"][0]["recommended_rows"] if "line" in result else options.recommended
            result["check"] = compared(rounds, rows)
    json.dump({"environment": environment, "options": vars(options) | {"plot": None}, "result": result}, sys.stdout, indent=1)
    print()
    if options.plot:
        draw({name: result[name] for name in TITLES if name in result}, options.plot)


def draw(sweeps: dict[str, Any], path: Path) -> None:
    """Time and peak send queue over the size, one line for each sweep."""
    from vl_convert import vegalite_to_png

    points = [
        {"kind": TITLES[name], "bytes": p["asked_bytes"] or p["bytes_per_fetch"], "s": p["time_ns"] / 1e9,
         "queue": p["peak_send_queue_bytes"]}
        for name, sweep in sweeps.items()
        for p in sweep["curves"][0]["points"]
    ]  # fmt: skip
    x = {"field": "bytes", "type": "quantitative", "scale": {"type": "log"}, "axis": {"format": "~s"}, "title": "fetch size, bytes"}
    colour = {"field": "kind", "type": "nominal", "title": None}

    def panel(field: str, title: str) -> dict[str, Any]:
        y = {"field": field, "type": "quantitative", "scale": {"type": "log"}, "axis": {"format": "~s"}, "title": title}
        return {"width": 560, "height": 220, "mark": {"type": "line", "point": True}, "encoding": {"x": x, "y": y, "color": colour}}

    panels = [panel("s", "time, s"), panel("queue", "peak send queue, bytes")]
    spec = {"$schema": SCHEMA, "data": {"values": points}, "vconcat": panels}
    path.write_bytes(vegalite_to_png(json.dumps(spec), scale=2))


if __name__ == "__main__":
    main()
