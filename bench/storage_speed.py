"""How many events a second the simulator of disk arrays goes through, on the ready layouts; one thread."""

from __future__ import annotations

import argparse
import json
import time

from leadline._core import storage as core
from leadline.storage import ready


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Measures the simulator of disk arrays: events a second of CPU time, each load on each layout."
    )
    parser.add_argument("--seconds", type=float, default=60, help="simulated time")
    args = parser.parse_args()
    loads = (ready.text("loads"), "loads")
    layouts = [name for name in ready.names() if name != "loads"]
    print(f"{'layout':10} {'load':8} {'events':>12} {'CPU s':>8} {'events/s':>12} {'simulated s / CPU s':>20}")
    for number, load in enumerate(core.loads(*loads)):
        for name in layouts:
            # The simulator runs in a thread of its own.
            before = time.process_time()
            text, _ = core.simulate((ready.text(name), name), loads, number, seed=1, for_s=args.seconds, warm_up_s=0.0)
            cpu, events = time.process_time() - before, json.loads(text)["events"]
            print(f"{name:10} {load:8} {events:12,} {cpu:8.3f} {events / cpu:12,.0f} {args.seconds / cpu:20,.0f}")


if __name__ == "__main__":
    main()
