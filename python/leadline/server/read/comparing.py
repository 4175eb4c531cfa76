"""Operations that set runs side by side: what differs between two, and a figure over time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from leadline.book.query import Filter, each_newest, newest
from leadline.server.operation import Call, Input, Operation
from leadline.server.read import sandbox
from leadline.server.read.playbooks import book_of
from leadline.server.read.runs import RUN, details, find_run, within
from leadline.server.rights import marks

AT_ONCE = 500


def _compare(call: Call, inputs: dict[str, Any]) -> Any:
    from leadline.book.compare import compare

    one, other = (details(call, find_run(call, inputs[name])) for name in ("one", "other"))
    found = [
        difference.as_dict() | {"change": _change(difference.one, difference.other)}
        for difference in compare(book_of(call), one, other, sandbox.compared)
    ]
    return {"one": one, "other": other, "differences": found}


def _change(one: Any, other: Any) -> float | None:
    """As a share of the first; of figures alone."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other))
    return (other - one) / abs(one) if numbers and one else None


def _history(call: Call, inputs: dict[str, Any]) -> Any:
    """A figure of runs of one name or template, oldest first."""
    wanted = Filter(name=inputs["name"] or None, template=inputs["template"] or None, metric=inputs["metric"],
                    trials=bool(inputs["name"]))  # fmt: skip
    runs = newest(call.store, wanted, inputs["limit"], None, within(call))[::-1]
    values = {row["run"]: row["value"] for row in _of_runs(call, "run, value", runs, "and name = ?", inputs["metric"])}
    verdicts = {row["run"]: row for row in _experiments(call, [run["id"] for run in runs if run["kind"] == "experiment"])}
    points = []
    for run in runs:
        said = verdicts.get(run["id"], {})
        point = {name: run[name] for name in ("uid", "started", "status")} | {"value": values[run["id"]]}
        points.append(point | {name: said.get(name) for name in ("verdict", "low", "high")})
    return {"points": points}


def _experiments(call: Call, runs: list[int]) -> Iterator[dict[str, Any]]:
    for at in range(0, len(runs), AT_ONCE):
        some = runs[at : at + AT_ONCE]
        yield from call.rows(f"select run, verdict, low, high from experiment where run in ({marks(some)})", *some)


def _metrics(call: Call, inputs: dict[str, Any]) -> Any:
    """Names of runs and of their figures, of the newest runs: what a history can be asked of."""
    wanted = Filter(**{column: inputs[column] for column in ("name", "template") if inputs[column]})
    names = {run["id"]: run["name"] for run in islice(each_newest(call.store, wanted, within(call)), inputs["limit"])}
    found = {(names[row["run"]], row["name"]) for row in _of_runs(call, "run, name", [{"id": run} for run in names])}
    return {"metrics": [{"name": name, "metric": metric} for name, metric in sorted(found)]}


def _of_runs(call: Call, columns: str, runs: list[dict[str, Any]], more: str = "", *values: Any) -> Iterator[dict[str, Any]]:
    """Rows of metric of these runs, so many at once as a statement takes."""
    for at in range(0, len(runs), AT_ONCE):
        some = [run["id"] for run in runs[at : at + AT_ONCE]]
        yield from call.rows(f"select {columns} from metric where run in ({marks(some)}) {more}", *some, *values)


OF_NAME = Input("name", "only runs of this name", required=False)
OF_TEMPLATE = Input("template", "only runs of this template (id)", required=False)
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
        slow=True,
    ),
    Operation(
        "template.history",
        "GET",
        "/history",
        "anyone",
        "",
        "List a metric over time, for the runs of one name or template.",
        _history,
        (
            Input("metric", "name of the metric"),
            OF_NAME,
            OF_TEMPLATE,
            Input("limit", "maximum number of runs", "int", False, 500, least=1, most=5000),
        ),
        rows="points",
        columns=("uid", "started", "status", "value", "verdict"),
        words=("metric",),
    ),
    Operation(
        "template.metrics",
        "GET",
        "/metric-names",
        "anyone",
        "",
        "List the metrics that runs have.",
        _metrics,
        (OF_NAME, OF_TEMPLATE, Input("limit", "number of newest runs to look at", "int", False, 1000, least=1, most=100_000)),
        rows="metrics",
        columns=("name", "metric"),
        slow=True,
    ),
)
