"""The page of a run for people (README.md in its folder), from its summary alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from variants import VARIANTS

Row = dict[str, Any]
RIGHT = "-:"


def page(run: Row, summary: Row) -> str:
    """Markdown. run: record.Run as a dictionary; summary: throughput, cost, targets."""
    parts = [f"# Cost of leadline, measured {run['started'][:16].replace('T', ' ')} UTC", ""]
    parts += _reservations(run["reservations"])
    parts += ["Made by `bench/overhead.py`; what is measured and how to read it: [bench/README.md](../../README.md).", ""]
    parts += _targets(summary["targets"]) + _throughput(summary["throughput"]) + _cost(summary["cost"]) + _evidence(summary["cost"])
    parts += _circumstances(run)
    return "\n".join(parts)


def _reservations(reservations: list[str]) -> list[str]:
    if not reservations:
        return []
    return ["**These figures are not to be quoted:** " + "; ".join(reservations) + ".", ""]


def _targets(rows: list[Row]) -> list[str]:
    if not rows:
        return []
    lines = [[r["target"], r["workload"], r["found"], "met" if r["met"] else "**missed**"] for r in rows]
    return ["## Targets", "", *_table(["target", "workload", "found", ""], ["-"] * 4, lines), ""]


def _throughput(rows: list[Row]) -> list[str]:
    if not rows:
        return []
    lines = []
    for r in rows:
        ratio = r["paired_ratio"]
        interval = f"{ratio['estimate']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"
        bare, with_ = f"{r['tps_bare_median']:,.0f}", f"{r['tps_with_median']:,.0f}"
        lines.append([r["workload"], VARIANTS[r["variant"]].title, bare, with_, interval, str(ratio["pairs"]), _working(r), r["reading"]])
    headings = ["workload", "with", "TPS bare", "TPS with", "with / bare [95 % interval]", "pairs"]
    headings += ["tool's CPU on / off, %", "what that allows to say"]
    return [
        "## Throughput",
        "",
        *_table(headings, ["-", "-", RIGHT, RIGHT, RIGHT, RIGHT, RIGHT, "-"], lines),
        "",
        "TPS are medians over the trials; the ratio and its interval are those of Wilcoxon's signed-rank test of the pairs.",
        "An interval with 1 in it does not prove that there is no cost: it excludes a loss above its lower end. The controls",
        "differ in nothing, so their distance from 1 and the width of their intervals are what the method can resolve on this",
        "machine; a control whose interval leaves out 1 casts doubt on every difference of that size. The tool's CPU in its trials and",
        "in the bare ones shows that it worked in the ones and rested in the others.",
        "",
    ]


def _working(row: Row) -> str:
    return "" if VARIANTS[row["variant"]].is_control else f"{row['tool_cpu_percent_on']:.2f} / {row['tool_cpu_percent_off']:.2f}"


def _cost(rows: list[Row]) -> list[str]:
    if not rows:
        return []
    lines = []
    for r in rows:
        low, high = r["cpu_percent_slices"]
        parts = ", ".join(f"{part} {percent:.2f}" for part, percent in r["cpu_percent_parts"].items())
        per_pass = "" if r["cpu_us_per_pass"] is None else f"{r['cpu_us_per_pass']:.0f}"
        missed = "not known" if "missed" not in r else f"{r['missed'] / r['window_s']:.1f}"
        percent = f"{r['cpu_percent_of_core']:.2f}"
        title = VARIANTS[r["variant"]].title
        lines.append([r["workload"], title, percent, f"{low:.2f} to {high:.2f}", parts, f"{r['passes_per_s']:.1f}", missed, per_pass])
    headings = ["workload", "tool", "CPU, % of one core", "its slices", "of it", "passes/s", "missed/s", "CPU per pass, us"]
    return [
        "## Own CPU, in one unbroken window",
        "",
        *_table(headings, ["-", "-", RIGHT, RIGHT, "-", RIGHT, RIGHT, RIGHT], lines),
        "",
        "leadline: the whole process, with everything it writes to disk. pg_wait_sampling: its collector alone; what its hooks use",
        "inside each backend appears only in the throughput, and it writes nothing to disk. The poll: its client and the backend",
        "that answers; it fetches no statement texts and keeps nothing. Both comparisons therefore lean towards the peers. A part of",
        "leadline's CPU does not depend on the rate (counters of every session and of the host, once a second), so a pass at 1 kHz",
        "is cheaper than one at 100 Hz.",
        "",
    ]


def _evidence(rows: list[Row]) -> list[str]:
    ours = [r for r in rows if "rows_per_s" in r]
    if not ours:
        return []
    lines = []
    for r in ours:
        passes = f"{r['pass_p50_us']:.0f} / {r['pass_p99_us']:.0f}"
        late = f"{r['late_p50_us']:.0f} / {r['late_p99_us']:.0f}"
        once = f"{r['setup_cpu_s']:.2f} / {r['finish_cpu_s']:.2f}"
        evidence = [f"{r['rows_per_s']:,.0f}", f"{r['bytes_per_s'] / 1e3:,.1f}", f"{r['bytes_per_row']:.2f}"]
        title = VARIANTS[r["variant"]].title
        lines.append([r["workload"], title, f"{r['sessions']:.0f}", *evidence, passes, late, once])
    headings = ["workload", "tool", "sessions per pass", "rows/s", "kB/s written", "bytes per row"]
    headings += ["pass p50 / p99, us", "late p50 / p99, us", "CPU once: set-up / end, s"]
    access = ", ".join(sorted({r["access"] for r in ours}))
    lacking = sorted({f"{name} {status}" for r in ours for name, status in r["probes"].items() if status != "ok"})
    notes = [f"Memory was read through {access}. Probes that were not fully on: {', '.join(lacking) or 'none'}."]
    notes += ["Rows and bytes are those of the sampled tables over the whole capture: a long one writes larger files, and fewer of them."]
    return ["## What leadline did for it", "", *_table(headings, ["-", "-"] + [RIGHT] * 7, lines), "", *notes, ""]


def _circumstances(run: Row) -> list[str]:
    e = run["environment"]
    load = " ".join(f"{value:.2f}" for value in e["load_average_before"])
    memory = f"{e['memory_bytes'] / 2**30:.0f} GiB" if e["memory_bytes"] else "unknown"
    changed = f", with uncommitted changes in {len(e['uncommitted'])} files (named in summary.json)" if e["uncommitted"] else ""
    settings = ", ".join(f"{name} = {value}" for name, value in e["settings_given"].items())
    o = run["options"]
    lines = [
        ["command", f"`{run['command']}`"],
        ["seed", str(o["seed"])],
        ["load", f"{o['clients']} clients, scale {o['scale']}, `{e['pgbench_command']}`"],
        ["trials", f"{o['trial_seconds']} s each, the first of them not counted; CPU windows {o['cost_seconds']:g} s"],
        ["commit", f"{e['commit'] or 'not known'}{changed}"],
        ["leadline", f"{e['leadline']}, extension sha256 {e['core_sha256'][:16]}"],
        ["server", f"{e['server_version']}; pg_wait_sampling {e['wait_sampling_version'] or 'not installed'}"],
        ["server settings", f"{settings}; the rest as PostgreSQL comes (all of it in summary.json)"],
        ["CPU", f"{e['cpu']}, {e['cpus']} CPUs{', virtual machine' if e['hypervisor'] else ''}"],
        ["memory", memory],
        ["kernel", f"{e['kernel']} {e['machine']}"],
        ["user", "root" if e["user_is_root"] else "not root"],
        ["Python, psycopg, libpq", f"{e['python']}, {e['psycopg']}, {e['libpq']}"],
        ["load average before", load],
        ["stolen CPU time during trials", f"{100 * run['steal_share']:.2f} %"],
        ["duration", f"{run['duration_s'] / 60:.0f} minutes"],
    ]
    return ["## Circumstances", "", *_table(["", ""], ["-", "-"], lines), ""]


def _table(headings: Sequence[str], alignment: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [list(headings), list(alignment), *(list(row) for row in rows)]
    return ["| " + " | ".join(cell.replace("|", "\\|") if i != 1 else cell for cell in line) + " |" for i, line in enumerate(lines)]
