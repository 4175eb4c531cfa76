"""Measures how near `leadline net` comes to the least that sockets of this host can do.

    python bench/net_floor.py                            10 pairs of 3 s at each size, then the proxy: about 10 minutes
    python bench/net_floor.py --pairs 2 --seconds 0.5    does everything work?

rtt: `leadline net rtt` in pairs with a ping-pong in C (pingpong.c), and with `sockperf ping-pong --tcp --full-rtt` where there is one: it
prints half of the round trip unless it is told otherwise. All messages have the same size; leadline's have 20 bytes of header in it. The
clients run on one CPU, the servers on another. With --itself, the C loop in pairs with itself too: an interval that does not hold 1 or is
wide there is of the machine.
delay: the round trip through `leadline net delay` less the one without it, in pairs, from 0.1 to 100 ms. Both have as long a pause between
requests: a server that has slept wakes up more slowly, with and without a proxy. `told`: what the proxy says that it added.
In both no CPU sleeps, unless --let-sleep: to wake one up takes longer the longer it slept, which is not what is measured here.
relay: bytes a second through the proxy with a delay of 1 ms, in pairs with a relay in C. Output: JSON; ratios are leadline by peer.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from cpus import awake, ends, on
from leadline._core.net import Delay, rtt
from leadline.lab import interleave
from record import read_environment

HEADER = 20
SIZES = (20, 270, 8212)
DELAYS_MS = (0.1, 0.5, 1.0, 5.0, 20.0, 100.0)
SOURCE = Path(__file__).with_name("pingpong.c")
Times = dict[str, float]  # p50_ns, p99_ns


@contextmanager
def child(*command: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process, and the first line that it prints."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@contextmanager
def echo(cpu: int) -> Iterator[tuple[str, int]]:
    """`leadline net echo` in a process of its own, as the others have theirs."""
    code = "from leadline._core.net import Echo; e = Echo('127.0.0.1', 0); print(e.address()[1], flush=True); input()"
    with on({cpu}):
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        try:
            yield "127.0.0.1", int(process.stdout.readline())
        finally:
            process.kill()


def by_leadline(address: tuple[str, int], size: int, seconds: float, requests: int | None = None, rate: float | None = None) -> Times:
    payload = size - HEADER
    found = json.loads(rtt(*address, request=payload, response=payload, for_s=seconds, requests=requests, rate_hz=rate)[0])["rtt"]
    return {"p50_ns": found["p50_ns"], "p99_ns": found["p99_ns"]}


def by_c(program: str, port: str, size: int, seconds: float) -> Times:
    done = subprocess.run([program, "ping", port, str(size), str(seconds)], capture_output=True, text=True, check=True)
    p50, p99, _ = map(int, done.stdout.split())
    return {"p50_ns": p50, "p99_ns": p99}


def by_sockperf(port: int, size: int, seconds: float) -> Times:
    where = ["-i", "127.0.0.1", "-p", str(port), "-m", str(size), "-t", str(max(1, round(seconds)))]
    command = ["sockperf", "ping-pong", "--tcp", "--full-rtt", *where]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    percentiles = {float(share): float(us) * 1000 for share, us in re.findall(r"percentile ([\d.]+)\s*=\s*([\d.]+)", out)}
    return {"p50_ns": percentiles[50.0], "p99_ns": percentiles[99.0]}


def pairs(peer: Callable[[], Times], own: Callable[[], Times], number: int, rng: random.Random) -> dict[str, Any]:
    run = list(interleave.trials(peer, own, number, rng))
    return {
        name: asdict(interleave.compare(run, lambda times, name=name: times[name])) for name in run[0].result
    }


def round_trips(program: str, options: argparse.Namespace, rng: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    near, far = ends()
    with echo(far) as address, on({near}):
        for size in options.sizes:
            own = lambda size=size: by_leadline(address, size, options.seconds)  # noqa: E731
            with child("taskset", "-c", str(far), program, "serve", str(size)) as (_, port):
                peer = lambda size=size, port=port: by_c(program, port, size, options.seconds)  # noqa: E731
                found[f"c, {size} bytes"] = pairs(peer, own, options.pairs, rng)
                if options.itself:
                    found[f"c with itself, {size} bytes"] = pairs(peer, peer, options.pairs, rng)
            if shutil.which("sockperf"):
                with sockperf_server(far) as port_of:
                    peer = lambda size=size, port=port_of: by_sockperf(port, size, options.seconds)  # noqa: E731
                    found[f"sockperf, {size} bytes"] = pairs(peer, own, options.pairs, rng)
    return found


@contextmanager
def sockperf_server(cpu: int) -> Iterator[int]:
    port = 11_111
    command = ["taskset", "-c", str(cpu), "sockperf", "server", "--tcp", "-i", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "listen on" in line or "Warmup" in line or "[tid" in line:
                break
        try:
            yield port
        finally:
            process.kill()


def delays(options: argparse.Namespace, rng: random.Random) -> list[dict[str, Any]]:
    """Of each delay the median over the pairs of what the proxy really added, by the client's clock and by its own."""
    rows = []
    near, far = ends()
    with echo(far) as address:
        for ms in DELAYS_MS:
            proxy = Delay("127.0.0.1", 0, *address, rtt_s=ms / 1000)  # on any CPU
            requests = max(20, min(2000, round(1000 * options.seconds / ms)))
            through = lambda proxy=proxy, n=requests: by_leadline(proxy.address(), 270, 60.0, n)  # noqa: E731
            bare = lambda n=requests, ms=ms: by_leadline(address, 270, 60.0, n, 1000 / ms)  # noqa: E731
            with on({near}):
                run = list(interleave.trials(bare, through, options.pairs, rng))
            by_pair: dict[int, dict[bool, float]] = {}
            for trial in run:
                by_pair.setdefault(trial.pair, {})[trial.on] = trial.result["p50_ns"]
            added = [pair[True] - pair[False] for pair in by_pair.values()]
            told = json.loads(proxy.stop())
            rows.append(
                {
                    "asked_us": ms * 1000,
                    "added_us": median(added) / 1000,
                    "error_us": median(added) / 1000 - ms * 1000,
                    "errors_us": [round(ns / 1000 - ms * 1000, 1) for ns in added],
                    "told_us": told["added_rtt_p50_ns"] / 1000,
                }
            )
    return rows


def throughput(program: str, options: argparse.Namespace, rng: random.Random) -> dict[str, Any]:
    size = str(int(options.gigabytes * 1e9))

    def sent(through: Callable[[str], Any]) -> Times:
        with child(program, "sink") as (process, port), through(port) as near:
            subprocess.run([program, "source", near, size], check=True)
            assert process.stdout is not None
            return {"bytes_per_s": float(process.stdout.readline())}

    @contextmanager
    def relay(port: str) -> Iterator[str]:
        with child(program, "relay", port) as (_, near):
            yield near

    @contextmanager
    def proxy(port: str) -> Iterator[str]:
        own = Delay("127.0.0.1", 0, "127.0.0.1", int(port), rtt_s=0.001)
        yield str(own.address()[1])
        own.stop()

    return pairs(lambda: sent(relay), lambda: sent(proxy), options.pairs, rng)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each trial")
    parser.add_argument("--gigabytes", type=float, default=4.0, help="of each trial of the relays")
    parser.add_argument("--let-sleep", action="store_true", help="do not keep the CPUs awake")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="of messages, in bytes")
    parser.add_argument("--itself", action="store_true", help="also the C loop by itself")
    parser.add_argument("--only", choices=["rtt", "delay", "relay"])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    result: dict[str, Any] = {"options": vars(options), "environment": read_environment()}
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/pingpong"
        subprocess.run(["cc", "-O2", "-o", program, str(SOURCE)], check=True)
        with nullcontext() if options.let_sleep else awake():
            if options.only in (None, "rtt"):
                result["rtt"] = round_trips(program, options, rng)
            if options.only in (None, "delay"):
                result["delay"] = delays(options, rng)
        if options.only in (None, "relay"):
            result["relay"] = throughput(program, options, rng)
    json.dump(result, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
