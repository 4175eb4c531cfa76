"""Measures how long `leadline show` and `leadline findings` take on a capture, beside another build.

    python bench/answers.py CAPTURE                                  25 rounds; the demo leaves leadline-demo/capture.leadline
    python bench/answers.py CAPTURE --other OTHER/.venv/bin/python   in pairs with another build
    python bench/answers.py CAPTURE --rounds 2                       does everything work?

Whole commands, from start to end, without a logbook. OTHER is a checkout of another commit after its `make build`. Output: JSON with
seconds, their median and its 95 % interval, and the ratio of this build to the other.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from leadline.lab.signed_rank import median_interval, signed_rank_ratio
from record import read_environment, start_as_installed

COMMANDS = ("show", "findings")


def seconds(python: str, command: str, capture: Path) -> float:
    """Of one command. `findings` ends with 1 when it has found something."""
    began = time.perf_counter()
    done = subprocess.run([python, "-m", "leadline", command, str(capture)], stdout=subprocess.DEVNULL)
    if done.returncode > 1:
        sys.exit(f"error: {command} ended with {done.returncode}")
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture", type=Path)
    parser.add_argument("--other", type=Path, help="Python of another build's virtual environment")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    start_as_installed()
    os.environ["LEADLINE_BOOK"] = "off"
    rng, environment = random.Random(options.seed), read_environment()
    builds = {"this": sys.executable} | ({"other": str(options.other.absolute())} if options.other else {})
    trials = [(build, command) for build in builds for command in COMMANDS]
    found: dict[tuple[str, str], list[float]] = {trial: [] for trial in trials}
    for counted in range(-1, options.rounds):  # the first round compiles modules and reads files into memory
        for build, command in rng.sample(trials, len(trials)):
            took = seconds(builds[build], command, options.capture)
            if counted >= 0:
                found[build, command].append(took)
    result = {}
    for build, command in trials:
        took = found[build, command]
        low, high = median_interval(took)
        result[f"{command}, {build}"] = {"median_s": median(took), "low_s": low, "high_s": high, "rounds_s": took}
    if options.other:
        for command in COMMANDS:
            ratio = signed_rank_ratio(list(zip(found["other", command], found["this", command])))
            result[f"{command}, this / other"] = vars(ratio)
    shown = {"capture": str(options.capture), "rounds": options.rounds, "seed": options.seed}
    json.dump({"options": shown, "environment": environment, "result": result}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
