"""Operations that set runs side by side: what differs between two, and a figure over time."""

from __future__ import annotations

from typing import Any

from leadline.server.operation import Call, Input, Operation
from leadline.server.playbooks import book_of
from leadline.server.runs import RUN, details, find_run


def _compare(call: Call, inputs: dict[str, Any]) -> Any:
    from leadline.book.compare import compare

    one, other = (details(call, find_run(call, inputs[name])) for name in ("one", "other"))
    found = [
        difference.as_dict() | {"change": _change(difference.one, difference.other)} for difference in compare(book_of(call), one, other)
    ]
    return {"one": one, "other": other, "differences": found}


def _change(one: Any, other: Any) -> float | None:
    """As a share of the first; of figures alone."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other))
    return (other - one) / abs(one) if numbers and one else None


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
