"""Operations that set runs side by side: what differs between two, and a figure over time."""

from __future__ import annotations

from typing import Any

from leadline.server.operation import Call, Input, Operation
from leadline.server.runs import RUN, details, find_run


def _compare(call: Call, inputs: dict[str, Any]) -> Any:
    one, other = (details(call, find_run(call, inputs[name])) for name in ("one", "other"))
    return {"one": one, "other": other, "differences": differences(one, other)}


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[dict[str, Any]]:
    """What is not the same: part, name, both values, and the change where both are numbers."""
    out: list[dict[str, Any]] = []

    def look(part: str, name: str, a: Any, b: Any) -> None:
        if a != b:
            numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (a, b))
            out.append({"part": part, "name": name, "one": a, "other": b, "change": (b - a) / abs(a) if numbers and a else None})

    for name in ("kind", "name", "status", "rc", "signal", "user_name", "host", "cwd", "version", "template", "summary"):
        look("run", name, one[name], other[name])
    for at in range(max(len(one["argv"]), len(other["argv"]))):
        look("argument", str(at), *(run["argv"][at] if at < len(run["argv"]) else None for run in (one, other)))
    files = [run | {"files": {f["path"]: f["hash"] or f"{f['size']} bytes" for f in run["files"]}} for run in (one, other)]
    for part in ("inputs", "labels", "facts", "files", "metrics"):
        a, b = (run[part] for run in files)
        for name in sorted({*a, *b}):
            look(part.rstrip("s"), name, a.get(name), b.get(name))
    return out


def _history(call: Call, inputs: dict[str, Any]) -> Any:
    """A figure of runs of one name or template, oldest first."""
    where, values = call.caller.visible("r")
    parts, given = [where, "m.name = ?"], [*values, inputs["metric"]]
    for column in ("name", "template"):
        if inputs[column]:
            parts.append(f"r.{column} = ?")
            given.append(inputs[column])
    rows = call.rows(
        "select r.uid, r.started, r.status, m.value from metric m join run r on r.id = m.run "
        f"where {' and '.join(parts)} order by r.started desc, r.id desc limit ?",
        *given, inputs["limit"],
    )  # fmt: skip
    return {"points": rows[::-1]}


def _metrics(call: Call, inputs: dict[str, Any]) -> Any:
    """Names of runs and of their figures, of the newest runs: what a history can be asked of."""
    where, values = call.caller.visible()
    rows = call.rows(
        f"select distinct r.name, m.name as metric from (select id, name from run where {where} order by started desc, id desc limit ?) r "
        "join metric m on m.run = r.id order by 1, 2",
        *values, inputs["limit"],
    )  # fmt: skip
    return {"metrics": rows}


OPERATIONS = (
    Operation(
        "run.compare",
        "GET",
        "/compare",
        "anyone",
        "",
        "Show what differs between two runs.",
        _compare,
        (Input("one", "a run", pattern=RUN.pattern), Input("other", "the other run", pattern=RUN.pattern)),
        rows="differences",
        columns=("part", "name", "one", "other", "change"),
        command="book diff",
    ),
    Operation(
        "template.history",
        "GET",
        "/history",
        "anyone",
        "",
        "List a figure of the runs of one name or template over time.",
        _history,
        (
            Input("metric", "name of the figure"),
            Input("name", "of runs of this name", required=False),
            Input("template", "of runs of this template (id)", required=False),
            Input("limit", "most runs", "int", False, 500, least=1, most=5000),
        ),
        rows="points",
        columns=("uid", "started", "status", "value"),
        words=("metric",),
    ),
    Operation(
        "template.metrics",
        "GET",
        "/metric-names",
        "anyone",
        "",
        "List the figures that runs have.",
        _metrics,
        (Input("limit", "of so many of the newest runs", "int", False, 1000, least=1, most=100_000),),
        rows="metrics",
        columns=("name", "metric"),
    ),
)
