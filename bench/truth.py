"""Simulates studies whose truth is known, and counts what leadline's statistics say of them.

    python bench/truth.py > truth.json       4,000 studies of each kind, and the power curve
    python bench/truth.py --studies 50       does everything work?
    python bench/truth.py --page truth.json  the tables of docs/concepts/statistics.md, of such a record

It needs no server and measures no time: its figures depend on the seed alone. Studies have two to four levels, one or two metrics and 8 to
20 blocks, on hosts that drift, are autocorrelated, have outliers and two modes (python/leadline/lab/simulated.py).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from typing import Any

from leadline.lab.blocks import Family, against_baseline
from leadline.lab.machine import read_environment
from leadline.lab.simulated import BASELINE, DISTURBANCES, Truth, simulate

NOTHING = ("equivalent", "inconclusive")
BLOCKS = (6, 8, 10, 12, 16, 20)
EFFECTS = (1.0, 1.01, 1.02, 1.03, 1.05, 1.08, 1.1, 1.15, 1.2, 1.3)
KINDS: dict[str, dict[str, Any]] = {  # what is different from a Truth with everything
    "everything": {},
    **{name: {"disturbances": (name,)} for name in DISTURBANCES},
    "only noise": {"disturbances": ()},
    "stalls that add": {"disturbances": ("drift",), "stalls": 0.1},
    "variants three times as noisy": {"disturbances": ("drift",), "uneven": 3.0},
}
HOSTS: dict[str, dict[str, Any]] = {
    "quiet": {"noise": 0.01, "disturbances": ("drift",)},
    "disturbed": {"noise": 0.02, "disturbances": tuple(DISTURBANCES)},
}


def studied(kind: dict[str, Any], rng: random.Random, alike: bool) -> tuple[Family, dict[str, float]]:
    """A study with a truth of this kind, and its effects."""
    levels = "bcd"[: rng.randint(1, 3)]
    effects = {level: 1.0 if alike else rng.choice((1.0, rng.uniform(0.9, 1.1), rng.uniform(0.5, 2.0))) for level in levels}
    blocks = rng.choice([n for n in BLOCKS if n >= 8])  # enough for each number of comparisons here
    truth = Truth(effects, **{"noise": rng.uniform(0.005, 0.06)} | kind)
    metrics = [simulate(truth, blocks, rng, name) for name in ("seconds", "cpu_seconds")[: rng.randint(1, 2)]]
    return against_baseline(metrics, BASELINE, all_pairs=False), effects


def of_kind(kind: dict[str, Any], studies: int, rng: random.Random) -> dict[str, Any]:
    """Coverage of the intervals, and how many families say something of levels that are alike. wrong: say what is not so."""
    held, intervals, wrong, false = 0, 0, 0, 0
    for _ in range(studies):
        family, effects = studied(kind, rng, alike=False)
        said_wrong = False
        for found in family.comparisons:
            truth = effects[found.level]
            assert found.ratio is not None
            held += found.ratio.low <= truth <= found.ratio.high
            intervals += 1
            word = found.verdict.word
            said_wrong |= (word == "faster" and truth >= 1) or (word == "slower" and truth <= 1)
            said_wrong |= word == "equivalent" and not 0.98 < truth < 1.02
        wrong += said_wrong
        family, _ = studied(kind, rng, alike=True)
        false += any(found.verdict.word not in NOTHING for found in family.comparisons)
    return {
        "studies": studies, "intervals": intervals, "coverage": held / intervals, "wrong_families": wrong / studies,
        "alike_families_with_a_difference": false / studies,
    }  # fmt: skip


def power(host: dict[str, Any], blocks: int, effect: float, studies: int, rng: random.Random) -> dict[str, float]:
    """Share of studies of two levels with each verdict."""
    truth, words = Truth({"b": effect}, **host), dict.fromkeys(("slower", "faster", *NOTHING), 0)
    for _ in range(studies):
        words[against_baseline([simulate(truth, blocks, rng)], BASELINE).comparisons[0].verdict.word] += 1
    return {word: count / studies for word, count in words.items()}


def measure(studies: int, seed: int) -> dict[str, Any]:
    kinds = {name: of_kind(kind, studies, random.Random(f"{seed} {name}")) for name, kind in KINDS.items()}
    curve = [
        {"host": name, "blocks": blocks, "effect": effect}
        | power(host, blocks, effect, studies, random.Random(f"{seed} {name} {blocks} {effect}"))
        for name, host in HOSTS.items() for blocks in BLOCKS for effect in EFFECTS
    ]  # fmt: skip
    return {"kinds": kinds, "power": curve}


def page(record: dict[str, Any]) -> str:
    """The tables as Markdown."""
    kinds, curve = record["result"]["kinds"], record["result"]["power"]
    lines = [f"### Of {record['options']['studies']:,} studies with each truth", ""]
    lines += ["| what disturbs | intervals with the truth | alike, and a difference shown | something wrong said |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {100 * of['coverage']:.1f} % of {of['intervals']:,} | {100 * of['alike_families_with_a_difference']:.1f} %"
        f" | {100 * of['wrong_families']:.1f} % |"
        for name, of in kinds.items()
    ]
    for host in HOSTS:
        lines += ["", f"### Power on a {host} host", "", "| blocks | " + " | ".join(f"{100 * (e - 1):.0f} %" for e in EFFECTS) + " |"]
        lines.append("|---" * (1 + len(EFFECTS)) + "|")
        for blocks in BLOCKS:
            row = [next(c for c in curve if (c["host"], c["blocks"], c["effect"]) == (host, blocks, effect)) for effect in EFFECTS]
            lines.append(f"| {blocks} | " + " | ".join(f"{100 * each['slower']:.0f}" for each in row) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--page", type=Path, metavar="RECORD", help="print the tables of a record, and simulate nothing")
    options = parser.parse_args()
    if options.page:
        print(page(json.loads(options.page.read_text(encoding="utf-8"))))
        return
    environment = read_environment(Path(__file__).resolve().parent.parent, ("python/leadline/lab", "bench/truth.py"))
    shown = {"studies": options.studies, "seed": options.seed}
    json.dump({"options": shown, "environment": environment, "result": measure(options.studies, options.seed)}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
