"""Measures how well `leadline net budget` predicts: a load at several round-trip times, each beside what was predicted from the shortest.

    python bench/wire_budget.py                                  5 rounds of 8 s at each round-trip time: about 5 minutes
    python bench/wire_budget.py --rounds 1 --seconds 2           does everything work?
    python bench/wire_budget.py --rtts 0,0.161 --rounds 40 --seconds 2    narrower intervals for some of them

pgbench (TPC-B-like) runs through `leadline net delay`, in each round once at every round-trip time, in an order drawn at random. Packets
between pgbench and the proxy are captured at each, so that all bear the same cost; those of the shortest are what the prediction is made
from: N counted, and a as what is left of the time. The measured rate is that of pgbench. A round trip is what the proxy says that it added,
its own work included, in the mean: with nothing asked for, that is not nothing. A run has 200 transactions or more: pgbench prepares its
statements in the first, which takes twice the round trips. A process of the lowest priority on each CPU keeps it from
sleeping: to wake a CPU takes longer the longer it slept, so that a would grow with the round trip. pgbench, the proxy and the capture
run on one CPU, the server on another: where both ends of a socket run decides how long a byte takes.

Output: JSON; --plot writes a picture too.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing, nullcontext
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

from cpus import awake, ends, on
from leadline._core.net import Delay
from leadline.capture.reader import open_capture
from leadline.engines.postgres.server import PrivateServer, find_binaries
from leadline.lab.signed_rank import signed_rank_ratio
from leadline.net.budget import Known, budgets
from leadline.probes.wire import record
from leadline.views.report.charts import SCHEMA
from record import read_environment

RTTS_MS = (0.0, 0.021, 0.161, 0.685, 5.0, 20.0)  # of seed 002, and two that are farther away
SETTINGS = {"fsync": False, "shared_buffers": "256MB", "autovacuum": False, "max_wal_size": "8GB"}
SCALE = 10
SPARE_S = 0.5  # for pgbench to connect, within the capture
LEAST_TRANSACTIONS, TRIPS_EACH = 200, 7


def trial(server: PrivateServer, bin_dir: Path, rtt_ms: float, options: argparse.Namespace, out: Path) -> tuple[float, float]:
    """Transactions a second by pgbench, and the round trip in ms that the proxy added; the packets are in the capture `out`."""
    proxy = Delay("127.0.0.1", 0, "127.0.0.1", server.port, rtt_s=rtt_ms / 1000)
    _, port = proxy.address()
    through = server.loopback_dsn.replace(f"port={server.port}", f"port={port}")
    seconds = max(options.seconds, ceil(LEAST_TRANSACTIONS * TRIPS_EACH * rtt_ms / 1000))
    words = ["-n", "-M", options.protocol, "-c", str(options.clients), "-j", "1", "-T", str(seconds), through]
    load = subprocess.Popen([bin_dir / "pgbench", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    record("lo", [port], for_s=seconds - SPARE_S, out=out)
    said, _ = load.communicate()
    found = re.search(r"tps = ([\d.]+)", said)
    if not found:
        raise RuntimeError(f"pgbench said: {said}")
    told = json.loads(proxy.stop())
    return float(found[1]), sum(told[way]["added"]["mean_ns"] for way in ("to_server", "to_client")) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=8, help="of each run of pgbench, at least")
    parser.add_argument("--rtts", default=",".join(f"{rtt:g}" for rtt in RTTS_MS), help="round-trip times in ms; the first is 0")
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--protocol", choices=["simple", "extended", "prepared"], default="simple", help="of pgbench")
    parser.add_argument("--let-sleep", action="store_true", help="do not keep the CPUs awake")
    parser.add_argument("--pg-bin", help="folder with postgres, initdb and pgbench")
    parser.add_argument("--plot", type=Path, help="PNG of the rates measured and predicted")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rtts = [float(rtt) for rtt in options.rtts.split(",")]
    if rtts[0] != 0:
        parser.error("the first of --rtts is 0: the others are predicted from it")
    rng, environment, binaries = random.Random(options.seed), read_environment(), find_binaries(options.pg_bin)
    measured: dict[float, list[float]] = {rtt: [] for rtt in rtts}
    predicted: dict[float, list[float]] = {rtt: [] for rtt in rtts}
    added: dict[float, list[float]] = {rtt: [] for rtt in rtts}
    trips = []
    near, far = ends()
    with ExitStack() as stack:
        with on({far}):
            server = stack.enter_context(PrivateServer(binaries.bin_dir, settings=SETTINGS, loopback=True))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        tables = [binaries.bin_dir / "pgbench", "-i", "-q", "-s", str(SCALE), server.dsn]
        subprocess.run(tables, check=True, capture_output=True)
        for round_ in range(options.rounds):
            for rtt in rng.sample(rtts, len(rtts)):
                out = Path(folder) / f"{round_}-{rtt}.leadline"
                with nullcontext() if options.let_sleep else awake(), on({near}):
                    rate, really = trial(server, binaries.bin_dir, rtt, options, out)
                measured[rtt].append(rate)
                added[rtt].append(really)
                print(f"round {round_ + 1}, {rtt:g} ms ({really:.3f} added): {rate:,.1f} transactions a second", file=sys.stderr)
            shortest = Path(folder) / f"{round_}-{rtts[0]}.leadline"
            with closing(open_capture(shortest)) as capture:
                [found] = budgets(capture, [added[rtt][-1] for rtt in rtts], known=Known(added[rtts[0]][-1])).budgets
            trips.append(found.trips_each.value)
            for rtt, at in zip(rtts, found.what_if):
                predicted[rtt].append(at.per_second.value)
    rows = []
    for rtt in rtts:
        ratio = signed_rank_ratio(list(zip(measured[rtt], predicted[rtt])))
        rows.append(
            {"asked_rtt_ms": rtt, "rtt_ms": median(added[rtt]), "measured_per_s": median(measured[rtt]),
             "predicted_per_s": median(predicted[rtt]), "ratio": ratio.estimate,
             "ratio_low": ratio.low, "ratio_high": ratio.high, "ratios": [p / m for p, m in zip(predicted[rtt], measured[rtt])]}
        )  # fmt: skip
        row = rows[-1]
        print(f"{rtt:g} ms: predicted by measured {row['ratio']:.3f} [{row['ratio_low']:.3f}, {row['ratio_high']:.3f}]", file=sys.stderr)
    result = {"round_trips_per_transaction": trips, "rows": rows}
    json.dump({"environment": environment, "options": vars(options) | {"plot": None}, "result": result}, sys.stdout, indent=1)
    print()
    if options.plot:
        draw(rows, options.plot)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Both rates over the round-trip time."""
    from vl_convert import vegalite_to_png

    points = [
        {"rtt_ms": row["rtt_ms"], "rate": row[f"{kind}_per_s"], "kind": kind} for row in rows for kind in ("measured", "predicted")
    ]  # fmt: skip
    x = {"field": "rtt_ms", "type": "quantitative", "scale": {"type": "symlog", "constant": 0.02}, "title": "round-trip time, ms"}
    y = {"field": "rate", "type": "quantitative", "scale": {"type": "log"}, "title": "transactions a second"}
    colour = {"field": "kind", "type": "nominal", "title": None}
    marks = [
        {"mark": {"type": "line"}, "transform": [{"filter": "datum.kind == 'predicted'"}], "encoding": {"x": x, "y": y, "color": colour}},
        {"mark": {"type": "point", "filled": True, "size": 70}, "transform": [{"filter": "datum.kind == 'measured'"}],
         "encoding": {"x": x, "y": y, "color": colour}},
    ]  # fmt: skip
    spec = {"$schema": SCHEMA, "width": 560, "height": 320, "data": {"values": points}, "layer": marks}
    path.write_bytes(vegalite_to_png(json.dumps(spec), scale=2))


if __name__ == "__main__":
    main()
