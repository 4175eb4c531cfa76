"""Does the sniffer see every packet? A connection of a known number of segments, at growing rates.

    python bench/wire_loss.py                    5 runs of 5 s at each rate
    python bench/wire_loss.py --runs 1 --seconds 1

`pingpong drip` (pingpong.c) sends single bytes, each in a segment of its own, and tells how many segments its TCP sent and received.
`leadline net packets` catches them on the loopback. What it saw and what it says that it lost are set beside that number. Output: JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from leadline.probes.wire import WireProbe
from net_floor import SOURCE, child
from record import read_environment

RATES = (25_000, 100_000, 200_000, 400_000)


def run(program: str, rate: int, seconds: float) -> dict[str, Any]:
    with child(program, "sink") as (_, port):
        probe = WireProbe(None, "lo", [int(port)])
        probe.start()
        done = subprocess.run([program, "drip", port, str(rate), str(seconds)], capture_output=True, text=True, check=True)
        final = probe.stop()
    count, took, out, back = done.stdout.split()
    sent, seen = int(out) + int(back), probe.summary()["counts"]["packets"]
    return {
        "asked_per_s": rate, "packets_per_s": sent / float(took), "sent": sent, "seen": seen, "lost": final["lost"],
        "neither": sent - seen - final["lost"], "bytes": int(count), "cpu_s": probe.status()["cpu_ns"] / 1e9,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "pingpong")
        subprocess.run(["cc", "-O2", "-o", program, str(SOURCE)], check=True)
        for rate in RATES:
            for _ in range(options.runs):
                rows.append(run(program, rate, options.seconds))
                print(rows[-1], file=sys.stderr)
    json.dump({"environment": read_environment(), "options": vars(options), "result": rows}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
