"""Operations on runs of Ansible: hosts, tasks, results, one result whole, facts of a host; and runs as one HTML file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leadline.book.query import OpenBook
from leadline.errors import LeadlineError
from leadline.server.operation import Call, Input, Operation
from leadline.server.read.reports import report_page
from leadline.server.read.runs import ENDED, GIVEN, RUN, numbers_of

OUTCOMES = ("ok", "changed", "failed", "ignored", "rescued", "skipped", "unreachable")


def book_of(call: Call) -> OpenBook:
    return OpenBook(call.place, call.store)


def _run(call: Call) -> dict[str, Any]:
    if call.found["kind"] != "ansible" or call.found["id"] is None:
        raise LeadlineError("not_found", f"run {call.found['uid']} is not an Ansible run", hint="leadline book list --kind ansible")
    return call.found


def _playbook(call: Call, _inputs: dict[str, Any]) -> Any:
    from leadline.book.ansible import query

    run, book = _run(call), book_of(call)
    parts = (query.playbook, query.hosts, query.plays, query.tasks, query.notes, query.records)
    return {part.__name__: part(book, run) for part in parts}


def _results(call: Call, inputs: dict[str, Any]) -> Any:
    from leadline.book.ansible import query

    parts = ("result", "item", "retry") if inputs["parts"] else ("result",)
    found = query.results(
        book_of(call), _run(call), task=inputs["task"], host=inputs["host"], outcome=inputs["outcome"], parts=parts,
        limit=inputs["limit"] + 1,
    )  # fmt: skip
    return {"run": call.found["uid"], "results": found[: inputs["limit"]], "more": len(found) > inputs["limit"]}


def _result(call: Call, inputs: dict[str, Any]) -> Any:
    from leadline.book.ansible import query

    found = query.result(book_of(call), _run(call), inputs["n"])
    file, _, line = found["place"].rpartition(":")
    given = numbers_of(call.rows(GIVEN, call.found["id"])).get(file) if line.isdecimal() else None
    return {"result": found | {"given": given}}


def _facts(call: Call, inputs: dict[str, Any]) -> Any:
    from leadline.book.ansible import query

    return {"host": inputs["host"], "facts": query.facts(book_of(call), _run(call), inputs["host"])}


@dataclass(frozen=True)
class Document:
    """An HTML file to keep: it needs nothing from anywhere."""

    html: bytes
    name: str


def _export(call: Call, _inputs: dict[str, Any]) -> Document:
    from leadline.book.export import export

    run = call.found
    if run["id"] is None or run["status"] not in ENDED:
        raise LeadlineError("usage", f"run {run['uid']} has not ended")
    book = book_of(call)
    details = book.details(book.find(run["uid"]))
    details["children"] = [uid for uid in details["children"] if _sees(call, uid)]
    made = {artifact["path"]: artifact for artifact in call.rows("select * from artifact where run = ?", run["id"])}
    page = export(book, details, lambda path: report_page(call.place, run["uid"], made[path]).read_text(encoding="utf-8"))
    return Document(page.encode("utf-8", "replace"), f"{run['uid']}.html")


def _sees(call: Call, uid: str) -> bool:
    where, values = call.caller.visible()
    return call.one(f"select 1 from run where uid = ? and {where}", uid, *values) is not None


OPERATIONS = (
    Operation(
        "run.playbook", "GET", "/runs/{run}/playbook", "viewer", "run", "Show hosts, plays and tasks of a run of Ansible.", _playbook,
        (RUN,), command="book tasks",
    ),
    Operation(
        "run.results", "GET", "/runs/{run}/results", "viewer", "run", "List results of a run of Ansible.", _results,
        (
            RUN, Input("task", "of the task of this number", "int", False), Input("host", "of this host", required=False),
            Input("outcome", "that came out so", "enum", False, None, OUTCOMES),
            Input("parts", "also items of loops and retries", "bool", False, False),
            Input("limit", "most results", "int", False, 1000, least=1, most=100_000),
        ), rows="results", columns=("n", "task_name", "host", "outcome", "duration_s", "message"), command="book results", slow=True,
    ),
    Operation(
        "run.result", "GET", "/runs/{run}/results/{n}", "viewer", "run", "Show one result with all that the module returned.", _result,
        (RUN, Input("n", "number of the result", "int", least=0)), command="book results",
    ),
    Operation(
        "run.facts", "GET", "/runs/{run}/hosts/{host}/facts", "viewer", "run", "Show facts of a host that a run gathered.", _facts,
        (RUN, Input("host", "name of the host")), command="book hosts",
    ),
    Operation(
        "run.export", "GET", "/runs/{run}/export", "viewer", "run", "Get a run as one HTML file that opens offline.", _export, (RUN,),
        command="book export", slow=True,
    ),
)  # fmt: skip
