"""An experiment as lines for a terminal."""

from __future__ import annotations

from typing import Any

from leadline.figures import count, figure
from leadline.output import to_table


def lines(found: dict[str, Any]) -> list[str]:
    """found: of query.experiment. What differs between before and after stands above every ratio."""
    design = found["design"]
    asked = [f"{design['metric']}, {design['better']} is better", f"margin {100 * design['margin']:g} %", count(design["pairs"], "pair")]
    asked += [f"{design['warmup']} warm-up"] * bool(design["warmup"]) + [f"seed {design['seed']}"]
    said = {
        "hypothesis": design["hypothesis"], "baseline": design["baseline"], "variant": design["variant"], "prepare": design["prepare"],
        "measured": ", ".join(asked), "order": in_pairs(design["order"]), "seal": found["seal"],
    }  # fmt: skip
    out = [f"{name:<14}{value}" for name, value in said.items() if value]
    for one in found["differs"]:
        out.append(f"{'CHANGED':<14}{one['fact']}: {one['before'] or 'nothing'} before, {one['after'] or 'nothing'} after")
    if any(pair["baseline"] is not None or pair["variant"] is not None or pair["problem"] for pair in found["pairs"]):
        rows = [[p["pair"], p["order"], *(figure(p[name]) for name in ("baseline", "variant", "ratio")), p["problem"]]
                for p in found["pairs"] if p["baseline_run"] or p["variant_run"]]  # fmt: skip
        named = ["pair", "order", "baseline", "variant", "ratio"]
        has_problem = any(row[-1] for row in rows)
        out += ["", to_table([*named, "problem"] if has_problem else named, rows if has_problem else [row[:-1] for row in rows]), ""]
    if found["text"]:
        out.append(f"{'verdict':<14}{found['text']}")
    if found["tried"]:
        out.append(f"{'tries':<14}{found['tried']}")
        for one in found["earlier"]:
            out.append(f"{'':<14}before: {one['uid'][:5]}, {one['verdict'] or 'no verdict'}")
    return out


def in_pairs(order: str) -> str:
    """BV VB BV: a word for each pair."""
    return " ".join(order[at : at + 2] for at in range(0, len(order), 2))
