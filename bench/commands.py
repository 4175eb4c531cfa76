"""Measures how long commands of leadline take, beside another build.

    python bench/commands.py CAPTURE                                  show and findings; the demo leaves leadline-demo/capture.leadline
    python bench/commands.py CAPTURE --other OTHER/.venv/bin/python   in pairs with another build
    python bench/commands.py --other ... --run 'page check DIR' --run 'rows DIR t -o {new}/rows.csv'
    python bench/commands.py --other ... --run 'recover {copy:DIR}'
    python bench/commands.py CAPTURE --rounds 2                       does everything work?

Whole commands, from start to end, without a logbook. {new} is a directory that is made before the command and removed after it, and
{copy:DIR} a copy of DIR in it. OTHER is a checkout of another commit after its `make build`. Output: JSON with the seconds and the CPU of
each, their median and its 95 % interval, and the ratio of this build to the other: below 1 this one takes less.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from leadline.lab.signed_rank import median_interval, signed_rank_ratio
from record import read_environment, start_as_installed

OF_CAPTURE = ("show", "findings")
COPY = re.compile(r"\{copy:([^}]+)\}")


class Cost(NamedTuple):
    wall_s: float
    cpu_s: float


def cost(python: str, line: str) -> Cost:
    """Of one command. `findings` and `page check` end with 1 when they have found something."""
    with tempfile.TemporaryDirectory() as new:
        Path(new).chmod(0o755)  # as root, leadline becomes the owner of the cluster
        for source in COPY.findall(line):
            subprocess.run(["cp", "-a", source, f"{new}/copy"], check=True)
            os.sync()  # what is written out now is not written beside the command
        words = shlex.split(COPY.sub(f"{new}/copy", line).replace("{new}", new))
        began = time.perf_counter()
        child = subprocess.Popen([python, "-m", "leadline", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode > 1:
            sys.exit(f"error: {line} ended with {child.returncode}")
        return Cost(time.perf_counter() - began, usage.ru_utime + usage.ru_stime)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture", type=Path, nargs="?")
    parser.add_argument("--run", action="append", default=[], metavar="LINE", help="a command of leadline, without its name")
    parser.add_argument("--other", type=Path, help="Python of another build's virtual environment")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    start_as_installed()
    os.environ["LEADLINE_BOOK"] = "off"
    rng, environment = random.Random(options.seed), read_environment()
    lines = [*(f"{command} {shlex.quote(str(options.capture))}" for command in OF_CAPTURE if options.capture), *options.run]
    if not lines:
        parser.error("neither a capture nor a command is given")
    builds = {"this": sys.executable} | ({"other": str(options.other.absolute())} if options.other else {})
    trials = [(build, line) for build in builds for line in lines]
    found: dict[tuple[str, str], list[Cost]] = {trial: [] for trial in trials}
    for counted in range(-1, options.rounds):  # the first round compiles modules and reads files into memory
        for build, line in rng.sample(trials, len(trials)):
            took = cost(builds[build], line)
            if counted >= 0:
                found[build, line].append(took)
    result = {}
    for build, line in trials:
        took_s = [one.wall_s for one in found[build, line]]
        low, high = median_interval(took_s)
        cpu_s = median(one.cpu_s for one in found[build, line])
        result[f"{line}, {build}"] = {"median_s": median(took_s), "low_s": low, "high_s": high, "cpu_s": cpu_s, "rounds_s": took_s}
    if options.other:
        for line in lines:
            for what in Cost._fields:
                pairs = [(getattr(a, what), getattr(b, what)) for a, b in zip(found["other", line], found["this", line])]
                result[f"{line}, {what}, this / other"] = vars(signed_rank_ratio(pairs))
    shown = {"lines": lines, "rounds": options.rounds, "seed": options.seed}
    json.dump({"options": shown, "environment": environment, "result": result}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
