"""A study as lines for a terminal: the answer first, then what it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from leadline.book.experiments.cells import name_of
from leadline.figures import count, figure
from leadline.output import to_table

NAME = 14


def lines(found: Mapping[str, Any]) -> list[str]:
    """found: of studies.study."""
    design, judged = found["design"], found["judged"]
    out = [_line("question", design["question"])]
    out += [_line("answer" if at == 0 else "", text) for at, text in enumerate(answers(found))]
    empty = [one for one in (judged or {}).get("empty", ()) if not one["dropped"]]
    out += [_line("EMPTY", empty_text(one, design)) for one in empty]
    for one in found["differs"]:
        out.insert(1, _line("CHANGED", f"{one['fact']}: {one['before'] or 'nothing'} before, {one['after'] or 'nothing'} after"))
    out += [_line("note", text) for text in design.get("notes", ())]
    if judged is not None:
        out += _table("Effect of each factor, as a ratio to its baseline", judged["effects"])
        out += _table("Cell by cell, as a ratio to the baseline cell", judged["cells"])
        out += _table("Interactions: both together, to what each does alone", judged["interactions"])
        if (pairs := found.get("pairs")) is not None and pairs["rows"]:
            out += [*_table("All pairs of levels: a ratio each", pairs["rows"]), "", pairs["error"]]
        out += ["", judged["error"]] if judged["error"] else []
    out += ["", *medians(found), "", *asked(found)]
    if found["tried"]:
        out.append(_line("tries", found["tried"]))
    return out


def answers(found: Mapping[str, Any]) -> list[str]:
    judged = found["judged"]
    if judged is None:
        return [found["text"] or f"it runs: {found['done']} of {found['of']} trials are there"]
    said = [f"{row['level']}: {row['text']}" for row in judged["effects"]]
    said += [f"{level}: {why}" for level, why in found["design"]["dropped"]]
    said += no_effect(judged)
    said += [f"enough: {level} is the first that is as good as the baseline" for level in judged["enough"]]
    return list(dict.fromkeys(said)) or ["no verdict: nothing could be compared"]


def no_effect(judged: Mapping[str, Any]) -> list[str]:
    return [f"{one['level']}: no effect: {one['metric']} is {figure(one['value'])} in each trial, as with the baseline"
            for one in judged["no_effect"]]  # fmt: skip


def empty_text(one: Mapping[str, Any], design: Mapping[str, Any]) -> str:
    cell = one["cell"].replace(", ", ",")
    fill = f"leadline study run {design['path']}" + (f" --include '{cell}'" if one["excluded"] else "")
    return f"{one['cell']}: {one['reason']}. Not to be said: {'; '.join(one['forbids'])}. To fill it: {fill}"


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not rows:
        return []
    names = ["level", "metric", "ratio", "low", "high", "n", "verdict"]
    ends = ("ratio", "low", "high")
    body = [[row["level"], row["metric"], *(figure(row[name]) for name in ends), row["blocks"], _word(row)] for row in rows]
    return ["", f"{title} (95 % interval)", to_table(names, body)]


def _word(row: Mapping[str, Any]) -> str:
    return str(row["verdict"]) + {True: ", better", False: ", worse", None: ""}[row["good"]]


def medians(found: Mapping[str, Any]) -> list[str]:
    """Of each cell and metric. Only with a verdict: nobody stops at a fine moment."""
    design = found["design"]
    names = [name_of([one["name"] for one in design["factors"]], tuple(cell)) for cell in design["cells"]]
    failed = {name: sum(bool(one["problem"]) and one["part"] == "leg" for one in found["legs"] if one["side"] == name) for name in names}
    rows = []
    for name in names:
        row: list[Any] = [name]
        for metric in design["metrics"]:
            values = [one[name] for one in found["rows"] if one["metric"] == metric["name"] and one[name] is not None]
            row.append(figure(median(values)) if values and found["verdict"] is not None else "")
        done = sum(one["part"] == "leg" and one["side"] == name for one in found["legs"])
        rows.append([*row, done, failed[name]])
    return ["Cells, with the median of each metric", to_table(["cell", *(m["name"] for m in design["metrics"]), "trials", "failed"], rows)]


def asked(found: Mapping[str, Any]) -> list[str]:
    design = found["design"]
    load = design["load"]
    what = load.get("command") or load.get("workload") or load.get("file") or "script"
    what += f", {count(load['clients'], 'client')}, {load['for']}" if "clients" in load else ""
    more = [f"margin {100 * design['margin']:g} %", count(design["repetitions"], "block"), f"seed {design['seed']}"]
    private = "a private pair on this host (a loopback pair)" if design["server"].get("standby") else "a private one"
    said = {
        "hypothesis": design["hypothesis"], "load": what, "design": ", ".join(more), "server": design["dsn"] or private,
        "parts": ", ".join(uid[:5] for uid in found["parts"]), "seal": found["seal"],
    }  # fmt: skip
    if not design["dsn"] and "command" in load and not design["server"]:
        del said["server"]
    return [_line(name, value) for name, value in said.items() if value]


def _line(name: str, value: str) -> str:
    return f"{name:<{NAME}}{value}"
