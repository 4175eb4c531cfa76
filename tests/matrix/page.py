"""Results of the matrix as a page of the docs, and that page as results, so that a part of it can be run again."""

from __future__ import annotations

import re
from itertools import product
from statistics import median

from matrix.run import Judged, Result
from matrix.scenario import COST_WITHIN, SCENARIOS

HEAD = """<!-- Made by `python -m tests.matrix --page RESULTS.json`. Do not edit. -->

# Planted troubles and clean loads

Each scenario of `tests/matrix` makes a trouble on a server of its own and measures by itself what it costs: by the clocks of its clients,
the counters of the server, or those of the kernel. A capture is taken meanwhile, and all rules are evaluated. A number is the cost in the
finding divided by the true one. `yes` means found, at the right object and with the right names and figures, where there is no cost or no
exact truth for it. Bold text is a fault: not found, something missing in what it says, or a cost more than {within:.0f} % off. In a clean
load, `clean` means that no rule found anything above `low`; rules about the host are left out, as what else runs there decides.

Other programs used both CPUs during many of these runs, at times twenty to forty of their processes. The clock of a client also runs
while the client itself waits for a CPU, which is no wait of its session: beside busy loops, short waits therefore look up to a tenth longer
to the client than they were. A server whose control group gets no CPU does not reach its quota either: beside 25 other processes,
server_at_its_cpu_quota was missed on 15, 16 and 18. Runs with a fault were repeated when the host was quiet, and the last one counts.

What a rule takes from counters of the server (PLAN-FLIP, PLANNING-TIME) covers the time between two readings, which is some tenths of a
second longer than the capture. A rule that wants a share of database time misses a trouble whose share is just below it:
BUFFERMAPPING, whose waits are short, and STATEMENT-STORM, which needs a fast loop, depend on what else needs the CPUs.

`python -m tests.matrix --list` says what each scenario plants.
"""


def page(results: list[Result]) -> str:
    parts = [HEAD.format(within=100 * COST_WITHIN)]
    kinds = ((False, "By themselves"), (True, "Beside a busy loop on each CPU"))
    for (loops, beside), (busy, clients) in product(kinds, ((False, "that wait nearly all of the time"), (True, "that need CPUs"))):
        of_kind = [r for r in results if r.loops == loops and r.scenario in SCENARIOS and SCENARIOS[r.scenario].busy == busy]
        if of_kind:
            parts.append(f"## {beside}: clients {clients}\n\n{_summary([r for r in of_kind if not r.left_out])}\n\n{_table(of_kind)}\n")
    return "\n".join(parts)


def results_of(text: str) -> list[Result]:
    """The runs that a page shows. Of a cost only its ratio is known, of a fault only that there was one; truth_s is 1."""
    found: dict[tuple[str, int, bool], Result] = {}
    loops, in_part, majors, times = False, list[Result](), list[int](), list[str]()
    for line in text.splitlines():
        if line.startswith("## "):
            loops, in_part = line.startswith("## Beside"), []
        elif when := re.search(r"Run from (.+?) to (.+?) UTC", line):
            times = [when[1], when[2]]
        elif line.startswith("| scenario"):
            majors = [int(word) for word in line.split("|")[3:-1]]
        elif line.startswith("| "):
            name, rule, *cells = (word.strip() for word in line.split("|")[1:-1])
            for major, cell in zip(majors, cells, strict=True):
                if cell:
                    key = name, major, loops
                    if key not in found:
                        found[key] = Result(*key, clean=name in SCENARIOS and SCENARIOS[name].clean, at=times[bool(in_part)])
                        in_part.append(found[key])
                    _fill(found[key], rule, cell)
    return list(found.values())


def _fill(result: Result, rule: str, cell: str) -> None:
    fault = ["as in the page before"]
    match cell:
        case "clean":
            pass
        case "left out":
            result.left_out = fault[0]
        case "**not run**":
            result.error = fault[0]
        case "**not clean**":
            result.wrong = fault
        case _:
            for text in cell.split(", "):
                word = text.strip("*")
                ratio = float(word) if word[0].isdigit() else None
                judged = Judged(rule, "", word != "missed", ratio, None if ratio is None else 1.0, fault if text.startswith("**") else [])
                result.judged.append(judged)


def _summary(results: list[Result]) -> str:
    judged = [j for r in results for j in r.judged]
    ratios = [round(j.ratio, 2) for j in judged if j.ratio is not None]  # as the table shows them
    right = sum(not j.wrong for j in judged)
    clean = [r for r in results if r.clean]
    off = max((abs(ratio - 1) for ratio in ratios), default=0.0)
    majors = ", ".join(map(str, sorted({r.major for r in results})))
    scenarios = len({r.scenario for r in results})
    quiet, faults = sum(not r.faults for r in clean), sum(bool(r.faults) for r in results)
    return (
        f"{scenarios} scenarios on {majors}, {len(results)} runs. {right} of {len(judged)} things planted were found as they must be; "
        f"{quiet} of {len(clean)} clean runs were clean. {faults} runs have a fault. {len(ratios)} costs have a truth: the median ratio is "
        f"{median(ratios) if ratios else 1:.3f}, the largest error {100 * off:.0f} %.{_when(results)}"
    )


def _when(results: list[Result]) -> str:
    times = sorted(r.at for r in results if r.at)
    return f" Run from {times[0]} to {times[-1]} UTC." if times else ""


def _table(results: list[Result]) -> str:
    majors = sorted({r.major for r in results})
    cells: dict[tuple[str, str], dict[int, str]] = {}
    for result in results:
        found: dict[str, list[Judged]] = {}
        for j in result.judged:
            found.setdefault(j.rule, []).append(j)
        if result.clean or not found:
            text = "left out" if result.left_out else "**not run**" if result.error else "**not clean**" if result.faults else "clean"
            cells.setdefault((result.scenario, ""), {})[result.major] = text
        for rule, of_rule in found.items():
            cells.setdefault((result.scenario, rule), {})[result.major] = ", ".join(_cell(j) for j in of_rule)
    order = {name: number for number, name in enumerate(SCENARIOS)}
    lines = [f"| scenario | rule | {' | '.join(map(str, majors))} |", f"|---|---|{'---|' * len(majors)}"]
    for (name, rule), row in sorted(cells.items(), key=lambda item: order.get(item[0][0], len(order))):
        lines.append(f"| {name} | {rule} | {' | '.join(row.get(major, '') for major in majors)} |")
    return "\n".join(lines)


def _cell(j: Judged) -> str:
    if not j.found:
        return "**missed**"
    text = f"{j.ratio:.2f}" if j.ratio is not None else "yes" if not j.wrong else "off"
    return f"**{text}**" if j.wrong else text
