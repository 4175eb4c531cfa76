"""Operations on hosts across runs."""

from __future__ import annotations

from typing import Any

from leadline.book import hosts as known
from leadline.book.ansible.ingest import TOTALS
from leadline.server.operation import Call, Input, Operation
from leadline.server.read.runs import LIMIT, brief


def _list(call: Call, inputs: dict[str, Any]) -> Any:
    where, values = call.caller.visible()
    return {"hosts": known.hosts(call.store, inputs["of"], where, values)}


def _show(call: Call, inputs: dict[str, Any]) -> Any:
    where, values = call.caller.visible("r")
    found = known.host(call.store, inputs["host"], inputs["limit"], where, values)
    played = [brief(row) | {total: row[total] for total in TOTALS} for row in found["played"]]
    return {"host": found | {"runs": [brief(row) for row in found["runs"]], "played": played}}


OPERATIONS = (
    Operation(
        "run.hosts", "GET", "/hosts", "anyone", "", "List the hosts on which runs worked.", _list,
        (Input("of", "of so many of the newest runs", "int", False, 1000, least=1, most=100_000),), rows="hosts",
        columns=("host", "runs", "played", "failed", "started", "last_status", "last_run"), command="book host", slow=True,
    ),
    Operation(
        "run.host", "GET", "/hosts/{host}", "anyone", "", "Show a host across runs: facts, what failed, what changed.", _show,
        (Input("host", "name of the host"), LIMIT), command="book host",
    ),
)  # fmt: skip
