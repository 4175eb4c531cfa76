"""Packets a second from a pcap file, on one core: leadline against tshark, in interleaved pairs.

    python bench/wire_speed.py [--packets 1000000] [--pairs 6] [--tshark /usr/bin/tshark]

The file is a load of small queries on 20 connections, made by code. Both tools read it once before the first pair, so that it is in
the page cache. Rates are by CPU time, so that other work on the machine changes them little. tshark counts what `leadline net packets`
counts: conversations and retransmits of TCP, and messages of PostgreSQL.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

from leadline import _core
from leadline.lab.paired import pair_up, trial_order
from leadline.lab.signed_rank import signed_rank_ratio
from packets_made import Packets


def made(path: Path, packets: int) -> int:
    """Writes the file; packets in it."""
    file = Packets(path)
    lines = [file.line(at_ms=number).login() for number in range(20)]
    while len(file._rows) < packets:
        for line in lines:
            line.ask(after_ms=0.1, server_ms=0.3, rows=3)
    file.write()
    return len(file._rows)


def of_children() -> float:
    """CPU time of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packets", type=int, default=1_000_000)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--tshark", default="/usr/bin/tshark")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.pcap"
        number = made(path, arguments.packets)

        def ours() -> float:
            began = time.process_time()
            seen = _core.wire.read_file(str(path), ports=[5432])
            took = time.process_time() - began
            assert seen["counts"]["tcp_packets"] == number
            return number / took

        def theirs() -> float:
            command = [arguments.tshark, "-r", str(path), "-q", "-z", "conv,tcp", "-z", "io,stat,0,tcp.analysis.retransmission,pgsql"]
            began = of_children()
            subprocess.run(command, check=True, capture_output=True)
            return number / (of_children() - began)

        ours(), theirs()
        trials = [(on, (ours if on else theirs)()) for on in trial_order(arguments.pairs, rng)]
    pairs = pair_up(trials)
    ratio = signed_rank_ratio(pairs)
    best = sorted(rate for on, rate in trials if on)
    result = {
        "packets": number, "pairs": arguments.pairs, "leadline_packets_per_s": round(best[len(best) // 2]),
        "tshark_packets_per_s": round(sorted(rate for on, rate in trials if not on)[arguments.pairs // 2]),
        "ratio": round(ratio.estimate, 2), "low": round(ratio.low, 2), "high": round(ratio.high, 2),
    }  # fmt: skip
    print(json.dumps(result))


if __name__ == "__main__":
    main()
