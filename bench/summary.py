"""From trials and slices to results: ratios with intervals, CPU per tool and per pass, and how they stand to the targets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from statistics import median
from typing import Any

from laboratory import Results, Slice, Trial
from leadline.lab.paired import loss_shown, pair_up, reading
from leadline.lab.signed_rank import signed_rank_ratio
from variants import VARIANTS

Row = dict[str, Any]
CPU_TARGETS_PERCENT = {"leadline-100": 0.5, "leadline-1000": 2.0}
EQUAL_RATE = "leadline-100", ("wait-sampling", "poll-100")


def throughput(results: Results) -> list[Row]:
    """One row per workload and variant whose trials are complete."""
    rows = []
    for workload, variant in _keys(results.trials):
        trials = [trial for trial in results.trials if (trial.workload, trial.variant) == (workload, variant)]
        if (workload, variant) not in results.complete:
            continue
        pairs = pair_up([(trial.on, trial.tps) for trial in trials])
        ratio = signed_rank_ratio(pairs)
        bare, with_ = (median(column) for column in zip(*pairs))
        rows.append(
            {
                "workload": workload,
                "variant": variant,
                "tps_bare_median": bare,
                "tps_with_median": with_,
                "ratio_of_medians": with_ / bare,
                "paired_ratio": asdict(ratio),
                "loss_shown": loss_shown(ratio),
                "reading": reading(ratio),
                "tool_cpu_percent_on": median(trial.tool_cpu_percent for trial in trials if trial.on),
                "tool_cpu_percent_off": median(trial.tool_cpu_percent for trial in trials if not trial.on),
                "steal_share": sum(trial.steal_share for trial in trials) / len(trials),
            }
        )
    return rows


def cost(results: Results) -> list[Row]:
    """One row per workload and tool: percent of one core over the whole window, the range of its slices, passes, CPU per pass."""
    rows = []
    for (workload, variant), done in results.done.items():
        slices = [s for s in results.slices if (s.workload, s.variant) == (workload, variant)]
        total = sum(s.to_ns - s.from_ns for s in slices)
        percent = {part: sum(s.cpu_percent[part] * (s.to_ns - s.from_ns) for s in slices) / total for part in slices[0].cpu_percent}
        of_slices = [s.cpu_percent["total"] for s in slices]
        passes_per_s = done["passes"] / done["window_s"]
        rows.append(
            {
                "workload": workload,
                "variant": variant,
                "rate_hz": VARIANTS[variant].rate_hz,
                "cpu_percent_of_core": percent.pop("total"),
                "cpu_percent_slices": [min(of_slices), max(of_slices)],
                "cpu_percent_parts": percent,
                "passes_per_s": passes_per_s,
                "cpu_us_per_pass": None if passes_per_s == 0 else _total_cpu_us(slices) / done["passes"],
                **done,
            }
        )
    return rows


def targets(throughput_rows: list[Row], cost_rows: list[Row]) -> list[Row]:
    """{target, workload, found, met} of everything that was measured."""
    found: list[Row] = []

    def add(target: str, workload: str, text: str, met: bool) -> None:
        found.append({"target": target, "workload": workload, "found": text, "met": met})

    for row in cost_rows:
        if row["variant"] in CPU_TARGETS_PERCENT:
            limit, title = CPU_TARGETS_PERCENT[row["variant"]], VARIANTS[row["variant"]].title
            percent = row["cpu_percent_of_core"]
            add(f"{title}: at most {limit:g} % of one core", row["workload"], f"{percent:.2f} %", percent <= limit)
            due = row["rate_hz"] * row["window_s"]
            counted = abs(row["passes"] + row["missed"] - due) <= 2 + 0.001 * due
            text = f"{row['passes_per_s']:.1f}/s taken, {row['missed'] / row['window_s']:.1f}/s missed and counted"
            complete = row["passes"] >= 0.999 * due - 2
            add(f"{title}: 99.9 % of the passes taken, or the misses counted", row["workload"], text, complete or counted)
    for row in throughput_rows:
        if row["variant"] in CPU_TARGETS_PERCENT and row["loss_shown"] is not None:
            title = VARIANTS[row["variant"]].title
            add(f"{title}: no loss of throughput outside the interval", row["workload"], row["reading"], not row["loss_shown"])
    own, peers = EQUAL_RATE
    for ours in (row for row in cost_rows if row["variant"] == own):
        for peer in (row for row in cost_rows if row["variant"] in peers and row["workload"] == ours["workload"]):
            title = f"{VARIANTS[own].title}: less CPU per pass than {VARIANTS[peer['variant']].title}"
            a, b = ours["cpu_us_per_pass"], peer["cpu_us_per_pass"]
            if a is not None and b is not None:
                add(title, ours["workload"], f"{a:.0f} us against {b:.0f} us", a < b)
    return found


def _total_cpu_us(slices: list[Slice]) -> float:
    return sum(s.cpu_percent["total"] / 100 * (s.to_ns - s.from_ns) for s in slices) / 1e3


def _keys(trials: Iterable[Trial]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((trial.workload, trial.variant) for trial in trials))
