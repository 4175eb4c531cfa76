"""python -m tests.matrix: runs any part of the matrix, and prints what was found beside what is true."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from conftest import MAJORS, background

from matrix import scenarios  # noqa: F401  registers them all
from matrix.run import Judged, Result, run
from matrix.scenario import SCENARIOS, Scenario

Part = tuple[str, int]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--majors", default=",".join(map(str, MAJORS)), help="of the server, such as 13,18 (default: %(default)s)")
    parser.add_argument("--only", default="", help="scenarios whose name contains one of these texts, with commas between")
    parser.add_argument("--light", action="store_true", help="only scenarios that need little CPU time")
    parser.add_argument("--heavy", action="store_true", help="only the others")
    parser.add_argument("--loops", action="store_true", help="beside one busy loop on each CPU")
    parser.add_argument("--jobs", type=int, default=1, help="so many scenarios at once, of those that need little CPU time")
    parser.add_argument("--for", dest="window_s", type=float, help="seconds of each capture, instead of the scenario's own")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the results there, too")
    parser.add_argument("--list", action="store_true", help="only list the scenarios")
    parser.add_argument("--page", type=Path, nargs="+", metavar="FILE",
        help="only print results of earlier runs, of such pages too, as the page of the docs; of two for one run, the later file's")
    asked = parser.parse_args()
    if asked.page:
        from matrix.page import page

        print(page(list({(r.scenario, r.major, r.loops): r for path in asked.page for r in read(path)}.values())), end="")
        return 0
    texts = [text for text in asked.only.split(",") if text]
    chosen = [s for s in SCENARIOS.values() if not texts or any(text in s.name for text in texts)]
    if asked.light or asked.heavy:
        chosen = [s for s in chosen if s.busy == asked.heavy]
    if asked.list:
        for chosen_one in chosen:
            print(f"{chosen_one.name}: {chosen_one.about}")
        print(f"{len(chosen)} scenarios, {sum(s.clean for s in chosen)} of them clean loads")
        return 0
    majors = [int(major) for major in asked.majors.split(",")]
    results = []
    with ExitStack() as stack:
        if asked.loops:
            stack.enter_context(busy_loops())
        for result in run_all(parts(chosen, majors), asked.jobs, asked.loops, asked.window_s):
            print(told(result), flush=True)
            results.append(result)
            if asked.json:
                asked.json.write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n")
    faults = [r for r in results if r.faults]
    left_out = [r for r in results if r.left_out]
    print(f"{len(results) - len(left_out)} runs, {sum(len(r.judged) for r in results)} things planted, {len(faults)} runs with faults")
    for result in left_out:
        print(f"{result.scenario} on {result.major} was left out: {result.left_out}")
    for result in faults:
        print("\n".join(f"{result.scenario} on {result.major}: {fault}" for fault in result.faults))
    return 1 if faults else 0


def parts(chosen: list[Scenario], majors: list[int]) -> list[Part]:
    return [(s.name, major) for s in chosen for major in majors if major in s.majors]


def sample(number: int, clean: int) -> list[Part]:
    """So many scenarios and clean loads on one major each, always the same, spread by their names. None needs a CPU for itself."""
    spread = sorted((s for s in SCENARIOS.values() if not s.busy), key=lambda s: zlib.crc32(s.name.encode()))
    taken = [s for s in spread if not s.clean][:number] + [s for s in spread if s.clean][:clean]
    return [(s.name, s.majors[place % len(s.majors)]) for place, s in enumerate(taken)]


def run_all(todo: list[Part], jobs: int, loops: bool, window_s: float | None) -> Iterator[Result]:
    """First, some at once, those that need little CPU time; then the others one after another."""
    light = [part for part in todo if not SCENARIOS[part[0]].busy]
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(run_part, light, [loops] * len(light), [window_s] * len(light))
    for part in todo:
        if part not in light:
            yield run_part(part, loops, window_s)


def run_part(part: Part, loops: bool, window_s: float | None) -> Result:
    return run(SCENARIOS[part[0]], part[1], loops, window_s)


@contextmanager
def busy_loops() -> Iterator[None]:
    with ExitStack() as stack:
        for cpu in sorted(os.sched_getaffinity(0)):
            loop = f"import os\nos.sched_setaffinity(0, [{cpu}])\nwhile os.getppid() == {os.getpid()}: [0 for _ in range(100000)]"
            stack.enter_context(background([sys.executable, "-c", loop], stdout=subprocess.DEVNULL))
        yield


def read(path: Path) -> list[Result]:
    """What --json or --page has written."""
    if path.suffix == ".md":
        from matrix.page import results_of

        return results_of(path.read_text())
    results: list[dict[str, Any]] = json.loads(path.read_text())
    return [Result(**row | {"judged": [Judged(**j) for j in row["judged"]]}) for row in results]


def told(result: Result) -> str:
    """The rows of one run: found or not, cost, truth, ratio; then what else was found above low."""
    head = f"{result.scenario[:34]:34} {result.major}{'L' if result.loops else ' '}"
    rows = []
    for j in result.judged:
        cost, truth, ratio = (f"{x:7.2f}" if x is not None else "      -" for x in (j.cost_s, j.truth_s, j.ratio))
        rows.append(f"{head} {'OFF ' if j.found and j.wrong else 'ok  ' if j.found else 'MISS'} {j.rule[:22]:22}{cost}{truth}{ratio}")
    if result.left_out:
        rows.append(f"{head} --   left out: {result.left_out[:60]}")
    elif result.clean or not rows:
        rows.append(f"{head} {'OFF ' if result.faults else 'ok  '} {'clean' if result.clean else result.error.splitlines()[0][:40]}")
    rows += [f"{'':37} also {other.split(':')[0][:90]}" for other in result.others]
    return "\n".join(rows)
