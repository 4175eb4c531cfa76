"""Measures what leadline costs, beside its peers, and records the run. See README.md here.

    python bench/overhead.py                          the whole bench, about 20 minutes on a machine that does nothing else
    python bench/overhead.py --quick --force -o /tmp/try       does everything work? (its figures mean nothing)
    python bench/overhead.py --workload tpcb --variants leadline-1000,control --pairs 30
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import signal
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg
from laboratory import SETTINGS, WARM_UP, Laboratory, Results
from leadline.engines.postgres.server import find_binaries
from leadline.errors import LeadlineError
from leadline.lab.record import new_directory
from load import PROTOCOLS, SCRIPTS, Load, Workload
from page import page
from record import ROOT, Run, read_environment, start_as_installed, write
from summary import cost, targets, throughput
from variants import VARIANTS, Variant

DEFAULT_MAJOR = 15  # the one Debian 12 has pg_wait_sampling for
MAX_LOAD = 1.0
QUICK = {"pairs": 2, "trial_seconds": 2, "cost_seconds": 4.0, "scale": 5}
FULL = {"pairs": 10, "trial_seconds": 3, "cost_seconds": 20.0, "scale": 50}
AROUND_S = 7.0  # about: refresh, connect, tool set-up and end, around the trials or the window of one variant


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell started us with SIGINT ignored
        signal.signal(number, _interrupt)
    try:
        return bench(options())
    except LeadlineError as e:
        print(e.as_text(), file=sys.stderr)
        return 2
    except (psycopg.Error, OSError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; everything that was started has been ended", file=sys.stderr)
        return 130


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--workload", default="select,tpcb", help=f"of {','.join(SCRIPTS)} [all]")
    add("--protocol", default="prepared", help=f"of {','.join(PROTOCOLS)} [prepared]")
    add("--variants", default=",".join(VARIANTS), metavar="NAMES", help=f"of {', '.join(VARIANTS)} [all]")
    add("--pairs", type=int, help=f"pairs of trials per comparison [{FULL['pairs']}, quick {QUICK['pairs']}]")
    trials = f"length of a trial, its first second not counted [{FULL['trial_seconds']}, quick {QUICK['trial_seconds']}]"
    add("--trial-seconds", type=int, help=trials)
    add("--cost-seconds", type=float, help=f"length of a CPU window [{FULL['cost_seconds']:g}, quick {QUICK['cost_seconds']:g}]")
    add("--scale", type=int, help=f"pgbench scale [{FULL['scale']}, quick {QUICK['scale']}]")
    add("--clients", type=int, default=64, help="of pgbench, on two threads [64]")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="a server setting, for both servers")
    add("--pg-bin", help="folder of the server's programs [the host's PostgreSQL 15]")
    add("--seed", type=int, help="of every random choice [drawn, and recorded]")
    add("--quick", action="store_true", help="a short run to see that everything works")
    add("--force", action="store_true", help=f"run although the load average is above {MAX_LOAD:g}")
    add("-o", "--output", type=Path, help="where the folder of the run is made [bench/runs; quick: TMPDIR/leadline-bench]")
    o = parser.parse_args(arguments)
    for name, value in (QUICK if o.quick else FULL).items():
        if getattr(o, name) is None:
            setattr(o, name, value)
    o.seed = random.SystemRandom().randrange(2**32) if o.seed is None else o.seed
    o.output = o.output or (Path(tempfile.gettempdir()) / "leadline-bench" if o.quick else ROOT / "bench" / "runs")
    o.workloads = [Workload(script, protocol) for script in _chosen(o.workload, SCRIPTS) for protocol in _chosen(o.protocol, PROTOCOLS)]
    o.settings = {**SETTINGS, **dict(_setting(text) for text in o.set)}
    o.chosen = [VARIANTS[name] for name in _chosen(o.variants, VARIANTS)]
    if o.pairs < 0 or o.trial_seconds < 2 or o.cost_seconds < 1 or o.scale < 1 or o.clients < 1:
        raise LeadlineError("usage", "too small: trials of 2 s, CPU windows of 1 s, scale 1 and one client are the least")
    if o.clients > int(o.settings["max_connections"]) - 10:
        have = o.settings["max_connections"]
        raise LeadlineError("usage", f"too many clients for max_connections = {have}", hint="--set max_connections=500")
    return o


def bench(o: argparse.Namespace) -> int:
    start_as_installed()
    environment = read_environment()
    reservations = ["a quick run"] if o.quick else []
    if environment["load_average_before"][0] > MAX_LOAD:
        detail = f"the load average is {environment['load_average_before'][0]:.2f}, and a measurement needs the machine for itself"
        if not o.force:
            hint = "wait until it is idle, or --force for figures that mean little"
            raise LeadlineError("usage", "the machine is busy", detail=detail, hint=hint)
        reservations.append(detail)
    binaries = find_binaries(o.pg_bin, None if o.pg_bin else DEFAULT_MAJOR)
    say(f"about {duration_s(o) / 60:.0f} minutes; seed {o.seed}; PostgreSQL {binaries.version}; Ctrl-C ends everything")
    started, began_s, results = time.gmtime(), time.monotonic(), Results()
    try:
        with Laboratory(binaries.bin_dir, o.settings, o.scale, o.clients, say) as lab:
            environment["server_version"] = binaries.version
            environment["settings_given"] = o.settings
            environment["server_settings"] = lab.server_settings()
            environment["wait_sampling_version"] = _require_extensions(lab, o.chosen)
            environment["pgbench_command"] = " ".join(Load.options(o.workloads[0], o.clients))
            measure(lab, o, results)
    except (LeadlineError, psycopg.Error, OSError, KeyboardInterrupt) as e:
        if not results.complete and not results.done:
            raise
        reservations.append("incomplete: interrupted" if isinstance(e, KeyboardInterrupt) else f"incomplete: {e}")
        _record(o, Run(_command(), _iso(started), _plain(o), environment, reservations), results, time.monotonic() - began_s)
        raise
    _record(o, Run(_command(), _iso(started), _plain(o), environment, reservations), results, time.monotonic() - began_s)
    return 0


def measure(lab: Laboratory, o: argparse.Namespace, results: Results) -> None:
    """Per workload, the variants in random order: first the trials of each, then its CPU window."""
    rng = random.Random(o.seed)
    for workload in o.workloads:
        for variant in rng.sample(o.chosen, len(o.chosen)):
            if variant.trials and o.pairs > 0:
                say(f"{workload.name}: {variant.title}: {o.pairs} pairs of {o.trial_seconds} s")
                lab.compare(variant, workload, o.pairs, o.trial_seconds, rng, results)
                results.complete.add((workload.name, variant.name))
            if not variant.is_control:
                say(f"{workload.name}: {variant.title}: CPU over {o.cost_seconds:g} s")
                lab.cost(variant, workload, o.cost_seconds, results)


def duration_s(o: argparse.Namespace) -> float:
    """How long it will take: trials, windows, and what is around them."""
    compared = sum(v.trials for v in o.chosen) if o.pairs else 0
    windows = sum(not v.is_control for v in o.chosen)
    per_workload = compared * (2 * o.pairs * o.trial_seconds + AROUND_S) + windows * (o.cost_seconds + WARM_UP + AROUND_S)
    return float(len(o.workloads) * per_workload + 2 * (5 + o.scale / 5))


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _record(o: argparse.Namespace, run: Run, results: Results, took_s: float) -> None:
    rows = throughput(results)
    costs = cost(results)
    steal = sum(trial.steal_share for trial in results.trials) / max(1, len(results.trials))
    summary: dict[str, Any] = {"throughput": rows, "cost": costs, "targets": targets(rows, costs)}
    circumstances = {"steal_share": steal, "duration_s": took_s}
    folder = new_directory(o.output)
    text = page({**asdict(run), **circumstances}, summary)
    write(folder, run, results, {**circumstances, **summary}, text)
    print(text)
    say(f"recorded in {folder}")


def _require_extensions(lab: Laboratory, chosen: list[Variant]) -> str | None:
    """The version of pg_wait_sampling. Raises LeadlineError when a chosen variant needs it and it is not installed."""
    found = lab.extension_version("pg_wait_sampling")
    if found is None and any(v.preload for v in chosen):
        raise LeadlineError(
            "not_found",
            "pg_wait_sampling is not installed for this server",
            hint=f"apt-get install postgresql-{lab.main.version_num // 10000}-pg-wait-sampling, or leave it out: "
            "--variants " + ",".join(v.name for v in chosen if not v.preload),
            where=str(lab.bin_dir),
        )
    return found


def _chosen(text: str, known: Any) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise LeadlineError("usage", f"there is no {', '.join(unknown) or 'choice'}", hint="known: " + ", ".join(known))
    return list(dict.fromkeys(names))


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise LeadlineError("usage", f"--set {text} is no NAME=VALUE", hint="--set synchronous_commit=off")
    return name.strip(), value.strip()


def _plain(o: argparse.Namespace) -> dict[str, Any]:
    """The options as they took effect, for the record."""
    names = ("pairs", "trial_seconds", "cost_seconds", "scale", "clients", "seed", "quick", "force")
    chosen = {"workloads": [w.name for w in o.workloads], "variants": [v.name for v in o.chosen], "set": o.set}
    return {**{name: getattr(o, name) for name in names}, **chosen}


def _command() -> str:
    return shlex.join(["python", os.path.relpath(sys.argv[0], ROOT), *sys.argv[1:]])


def _iso(moment: time.struct_time) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", moment)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
