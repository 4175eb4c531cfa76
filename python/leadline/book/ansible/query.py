"""What people ask of a run of Ansible: its plays, tasks, results, hosts, and one result whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from leadline.book.ansible.ingest import PARTS, TOTALS, facts_of
from leadline.book.db import Row
from leadline.book.query import LAST, SHORT, Book, as_run
from leadline.errors import LeadlineError

KIND = "ansible"
OUTCOMES = ("ok", "changed", "failed", "ignored", "rescued", "skipped", "unreachable")
DEEPEST = 10  # runs within runs
_OUTCOME = """case when status = 'failed' and ignored = 1 then 'ignored' when status = 'failed' and rescued = 1 then 'rescued'
 when status = 'ok' and changed = 1 then 'changed' else status end"""


def find_run(book: Book, text: str) -> Row:
    """`last`, or the first letters of an id: a run of Ansible, or one that had started one. Raises LeadlineError."""
    if text == LAST:
        rows = book.store.rows("select * from run where kind = ? order by started desc, id desc limit 1", (KIND,))
        if not rows:
            raise LeadlineError("not_found", "the book has no run of Ansible", hint="leadline ansible env")
        return as_run(rows[0])
    run = found = book.find(text)
    for _ in range(DEEPEST):
        if run["kind"] == KIND:
            return run
        sql = "select * from run where parent = ? order by case when kind = ? then 0 else 1 end, started desc, id desc limit 1"
        rows = book.store.rows(sql, (run["uid"], KIND))
        if not rows:
            break
        run = as_run(rows[0])
    what = f"run {found['uid'][:SHORT]} is not an Ansible run, and started none"
    raise LeadlineError("not_found", what, hint="leadline book list --kind ansible")


def playbook(book: Book, run: Row) -> Row:
    """What Ansible was called with, and whether it came to its end."""
    rows = book.store.rows("select * from playbook where run = ?", (run["id"],))
    if not rows:
        return {"path": "", "ansible_version": "", "python_version": "", "arguments": {}, "has_totals": False}
    row = rows[0]
    return {
        "path": row["path"], "ansible_version": row["ansible_version"], "python_version": row["python_version"],
        "arguments": json.loads(row["arguments_json"]), "has_totals": bool(row["has_totals"]),
    }  # fmt: skip


def plays(book: Book, run: Row) -> list[Row]:
    sql = """select n, uuid, name, hosts, strategy, place, started, ended,
 (select count(*) from task where task.run = play.run and task.play = play.n) as tasks from play where run = ? order by n"""
    return [_timed(row) for row in book.store.rows(sql, (run["id"],))]


def tasks(book: Book, run: Row) -> list[Row]:
    """In the order in which they began, each with how often it had which outcome."""
    counts: dict[int, dict[str, int]] = {}
    sql = f"select task, {_OUTCOME} as outcome, count(*) as n from result where run = ? and part = 'result' group by task, {_OUTCOME}"
    for row in book.store.rows(sql, (run["id"],)):
        counts.setdefault(row["task"], {})[row["outcome"]] = row["n"]
    sql = "select task, sum(warnings) as warnings, sum(deprecations) as deprecations, sum(items) as items from result"
    more = {row["task"]: row for row in book.store.rows(f"{sql} where run = ? and part = 'result' group by task", (run["id"],))}
    out = []
    for row in book.store.rows("select * from task where run = ? order by n", (run["id"],)):
        has = more.get(row["n"], {})
        out.append(_timed({
            "n": row["n"], "play": row["play"], "uuid": row["uuid"], "name": row["name"], "action": row["action"],
            "place": place_of(row), "file": row["file"], "line": row["line"], "role": row["role"], "tags": json.loads(row["tags_json"]),
            "args": json.loads(row["args_json"]), "handler": bool(row["handler"]), "no_log": bool(row["no_log"]),
            "started": row["started"], "ended": row["ended"], "results": sum(counts.get(row["n"], {}).values()),
            **{name: int(has.get(name) or 0) for name in ("items", "warnings", "deprecations")},
            **{outcome: counts.get(row["n"], {}).get(outcome, 0) for outcome in OUTCOMES},
        }))  # fmt: skip
    return out


def results(
    book: Book, run: Row, *, task: int | None = None, host: str | None = None, outcome: str | None = None,
    parts: Sequence[str] = PARTS[:1], n: int | None = None, limit: int = 1_000_000,
) -> list[Row]:  # fmt: skip
    """In the order in which they came. parts: also `item` (of loops) and `retry`. Ignored and rescued failures are among them."""
    marks = ", ".join("?" * len(parts))
    where, values = f"r.run = ? and r.part in ({marks})", [run["id"], *parts]
    for condition, value in (("r.task = ?", task), ("r.host = ?", host), (f"({_OUTCOME}) = ?", outcome), ("r.n = ?", n)):
        if value is not None:
            where += f" and {condition}"
            values.append(value)
    sql = f"""select r.*, {_OUTCOME} as outcome, t.name as task_name, t.action, t.file, t.line, t.play
 from result r join task t on t.run = r.run and t.n = r.task where {where} order by r.n limit ?"""
    return [_result(row) for row in book.store.rows(sql.replace("case when status", "case when r.status"), [*values, limit])]


def result(book: Book, run: Row, n: int) -> Row:
    """One result with what the module returned, and the items and retries that belong to it. Raises LeadlineError."""
    rows = results(book, run, parts=PARTS, n=n)
    if not rows:
        raise LeadlineError("not_found", f"run {run['uid'][:SHORT]} has no result {n}", hint=f"leadline book results {run['uid'][:SHORT]}")
    [found] = rows
    body = book.store.rows("select body_json from result_body where run = ? and n = ?", (run["id"], n))
    task = next(row for row in tasks(book, run) if row["n"] == found["task"])
    play = next((row for row in plays(book, run) if row["n"] == task["play"]), {"name": ""})
    parts = results(book, run, task=found["task"], host=found["host"], parts=("item", "retry")) if found["part"] == "result" else []
    return found | {
        "run": run["uid"], "playbook": playbook(book, run)["path"], "play_name": play["name"],
        "tags": task["tags"], "args": task["args"], "handler": task["handler"],
        "content": json.loads(body[0]["body_json"]) if body else None, "parts": parts,
    }  # fmt: skip


def hosts(book: Book, run: Row) -> list[Row]:
    """Totals as Ansible gave them; of a run that gave none, as its results are."""
    rows = book.store.rows("select * from run_host where run = ? order by host", (run["id"],))
    counted = {} if playbook(book, run)["has_totals"] else _counted(book, run)
    out = []
    for row in rows:
        totals = counted.get(row["host"], {name: row[name] for name in TOTALS})
        out.append({"host": row["host"], **{name: totals.get(name, 0) for name in TOTALS}, "has_facts": row["facts"] is not None})
    return out


def facts(book: Book, run: Row, host: str) -> dict[str, Any]:
    """Facts of a host as the run gathered them. Raises LeadlineError."""
    rows = book.store.rows("select facts, facts_now from run_host where run = ? and host = ?", (run["id"], host))
    if not rows or rows[0]["facts"] is None:
        what = f"run {run['uid'][:SHORT]} has no facts of {host}"
        raise LeadlineError("not_found", what, hint=f"leadline book hosts {run['uid'][:SHORT]}")
    both = facts_of(book.store.db, rows[0]["facts"]) | facts_of(book.store.db, rows[0]["facts_now"])
    return dict(sorted(both.items()))


def records(book: Book, run: Row) -> list[Row]:
    """What the playbook kept with set_stats."""
    rows = book.store.rows("select host, key, type, value_json from record where run = ? order by host, key", (run["id"],))
    return [{"host": r["host"], "key": r["key"], "type": r["type"], "value": json.loads(r["value_json"])} for r in rows]


def text_of(value: Any) -> str:
    """The value of a record, for people."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def notes(book: Book, run: Row) -> list[Row]:
    """Handlers that were notified, files that were included, plays that found no hosts."""
    return book.store.rows("select n, ts, what, host, body from ansible_note where run = ? order by n", (run["id"],))


def place_of(row: Row) -> str:
    return f"{row['file']}:{row['line']}" if row["line"] is not None else str(row["file"])


def _counted(book: Book, run: Row) -> dict[str, dict[str, int]]:
    """As Ansible counts: an ignored failure is ok, too; a rescued one is not failed."""
    out: dict[str, dict[str, int]] = {}
    sql = f"select host, {_OUTCOME} as outcome, count(*) as n, sum(changed) as changed from result where run = ? and part = 'result'"
    for row in book.store.rows(f"{sql} group by host, {_OUTCOME}", (run["id"],)):
        totals = out.setdefault(row["host"], dict.fromkeys(TOTALS, 0))
        for name in {"changed": ("ok",), "ignored": ("ok", "ignored")}.get(row["outcome"], (row["outcome"],)):
            totals[name] += row["n"]
        totals["changed"] += int(row["changed"]) if row["outcome"] in ("changed", "ignored") else 0
    return out


def _result(row: Row) -> Row:
    return _timed({
        "n": row["n"], "task": row["task"], "task_name": row["task_name"], "action": row["action"], "place": place_of(row),
        "play": row["play"], "host": row["host"], "part": row["part"], "item_n": row["item_n"], "item": row["item"], "items": row["items"],
        "attempts": row["attempts"], "outcome": row["outcome"], "status": row["status"], "changed": bool(row["changed"]),
        "ignored": bool(row["ignored"]), "rescued": bool(row["rescued"]), "delegated_to": row["delegated_to"] or None,
        "warnings": row["warnings"], "deprecations": row["deprecations"], "message": row["message"],
        "started": row["started"], "ended": row["ended"],
    })  # fmt: skip


def _timed(row: Row) -> Row:
    both = row["started"] is not None and row["ended"] is not None
    return row | {"duration_s": max(0, row["ended"] - row["started"]) / 1e6 if both else None}
