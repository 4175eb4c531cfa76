"""Operations on runs: lists with filters, search, one run, labels. What it printed and made is in output.py."""

from __future__ import annotations

import json
import time
from typing import Any

from leadline.book.packed import open_log
from leadline.book.place import Place
from leadline.book.query import STATUSES, Filter, Within, by_day, each_newest, newest, not_kept
from leadline.book.runs import put_labels
from leadline.book.spool import UID_LENGTH
from leadline.book.store import Store
from leadline.errors import LeadlineError
from leadline.server.operation import Call, Input, Operation, finder

ENDED = ("ok", "failed", "cancelled", "lost", "refused")
KEY = r"[\w.-]{1,64}"
OUTPUT_SEARCH_S = 1.0
RUN = Input("run", "id of the run, its first letters, or `last`", pattern=r"last|[0-9a-z]{1,12}")
MAIN = "main"
SETTLED_US = 60 * 1_000_000
BRIEF = (
    "uid",
    "kind",
    "name",
    "status",
    "user_name",
    "host",
    "started",
    "ended",
    "rc",
    "signal",
    "summary",
    "project",
    "template",
    "parent",
)


FROM_LAUNCH = """
    update run set project = (select l.project from launch l where l.uid = run.uid),
                   template = (select l.template from launch l where l.uid = run.uid)
    where project is null and exists (select 1 from launch l where l.uid = run.uid)"""
FROM_PARENT = """
    update run set project = (select p.project from run p where p.uid = run.parent),
                   template = (select p.template from run p where p.uid = run.parent)
    where project is null and exists (select 1 from run p where p.uid = run.parent and p.project is not null)"""
WITHOUT_PARENT = "update run set project = ? where project is null and parent is null"
PARENT_NEVER_CAME = """
    update run set project = ? where project is null and started < ? and not exists (select 1 from run p where p.uid = run.parent)"""


def assign(store: Store) -> None:
    """Gives runs that were just taken in their project: that of their launch, of the run they are part of, or `main`.

    Until then they are shown to administrators alone. A run whose parent is not there is given a minute for the parent to come.
    """
    if not store.rows("select 1 from run where project is null limit 1"):
        return
    with store.writing() as db:
        db.execute(FROM_LAUNCH)
        changed = 1
        while changed > 0:
            changed = db.execute(FROM_PARENT).rowcount + db.execute(WITHOUT_PARENT, (MAIN,)).rowcount
        db.execute(PARENT_NEVER_CAME, (MAIN, time.time_ns() // 1000 - SETTLED_US))


def brief(row: dict[str, Any]) -> dict[str, Any]:
    """A run as lists show it."""
    out = {name: row[name] for name in BRIEF}
    out["duration_s"] = None if row["ended"] is None else max(0, row["ended"] - row["started"]) / 1e6
    return out | {"argv": json.loads(row["argv_json"]), "pinned": bool(row["pinned"]), "log_bytes": row["log_bytes"]}


def within(call: Call) -> Within:
    """What the caller may see."""
    return Within(call.caller.each_visible(), call.caller.visible("run"))


@finder("run")
def find_run(call: Call, text: str) -> dict[str, Any]:
    """The run, or what was asked for and has not begun, that the caller may see. Raises LeadlineError."""
    where, values = call.caller.visible()
    if text == "last":
        rows = newest(call.store, Filter(trials=False), 1, None, within(call))
    else:
        # By a range, which an index on uid serves.
        rows = call.rows(f"select * from run where uid >= ? and uid < ? and {where} order by uid limit 2", text, text + "{", *values)
    if len(rows) > 1:
        raise LeadlineError("usage", f"more than one run begins with {text}", hint="give more letters of the id")
    if rows:
        call.object = rows[0]["uid"]
        return rows[0]
    if len(text) == UID_LENGTH and (asked := call.rows(f"select * from launch where uid = ? and {where}", text, *values)):
        call.object = text
        return _as_run(call, asked[0])
    raise LeadlineError("not_found", f"there is no run {text}", hint="leadline book list")


def _as_run(call: Call, launch: dict[str, Any]) -> dict[str, Any]:
    """A launch that has not begun, in the form of a run."""
    template = call.one("select name from template where uid = ?", launch["template"])
    status = "queued" if launch["status"] in ("started", "cancelling") else launch["status"]
    name = template["name"] if template else launch["template"]
    none = dict.fromkeys(("id", "parent", "ended", "rc", "signal", "facts", "pid", "log_bytes"))
    empty = dict.fromkeys(("host", "cwd", "version"), "")
    return {
        **none, **empty, "uid": launch["uid"], "kind": "template", "name": name, "status": status,
        "user_name": launch["by_account"], "argv_json": "[]", "inputs_json": launch["inputs_json"], "started": launch["asked"],
        "summary": launch["note"], "pinned": 0, "events_lost": 0, "log_lost_bytes": 0, "project": launch["project"],
        "template": launch["template"],
    }  # fmt: skip


# --- lists


def _list(call: Call, inputs: dict[str, Any]) -> Any:
    key, equals, value = (inputs["label"] or "").partition("=")
    wanted = Filter(
        **{column: inputs[column] or None for column in ("kind", "name", "status", "project", "template", "host", "parent")},
        since=None if inputs["since_hours"] is None else call.now - inputs["since_hours"] * 3600 * 1_000_000,
        labels=((key, value if equals else None),) if key or equals else (), words=inputs["text"] or "",
        trials=any(inputs[name] for name in ("kind", "name", "text", "label", "parent")),
    )  # fmt: skip
    behind = None
    if inputs["before"]:
        started, _, row = inputs["before"].partition("-")
        behind = int(started), int(row)
    rows = newest(call.store, wanted, inputs["limit"] + 1, behind, within(call))
    after = rows[inputs["limit"] - 1] if len(rows) > inputs["limit"] else None
    only = (
        not any(inputs[name] for name in ("kind", "name", "status", "text", "label", "before", "parent", "host"))
        and inputs["since_hours"] is None
    )
    return {
        "runs": [brief(row) for row in rows[: inputs["limit"]]],
        "next": f"{after['started']}-{after['id']}" if after else None,
        "waiting": _waiting(call, inputs) if only else [],
    }


def _days(call: Call, inputs: dict[str, Any]) -> Any:
    return {"days": by_day(call.store, inputs["days"], call.now, within(call))}


def _waiting(call: Call, inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """What was asked for and has not begun."""
    where, values = call.caller.visible("l")
    parts = [where, "l.status in ('waiting', 'approval', 'queued')"]
    for column in ("project", "template"):
        if inputs[column]:
            parts.append(f"l.{column} = ?")
            values = (*values, inputs[column])
    return call.rows(
        "select l.uid, l.status, l.project, l.template, t.name, l.by_account, l.cause, l.after, l.asked, l.note from launch l "
        f"left join template t on t.uid = l.template where {' and '.join(parts)} order by l.asked desc limit 100", *values,
    )  # fmt: skip


def _search(call: Call, inputs: dict[str, Any]) -> Any:
    """Lines of output with a text, in the newest runs first, within a second."""
    until, found, whole = time.monotonic() + OUTPUT_SEARCH_S, list[dict[str, Any]](), True
    for row in each_newest(call.store, Filter(), within(call)):
        if time.monotonic() > until:
            whole = False
            break
        if not row["log_bytes"] and row["status"] != "running":
            continue
        line, seen_all = _line_with(call.place, row["uid"], inputs["text"].encode(), until)
        whole = whole and seen_all
        if line is not None:
            found.append(brief(row) | {"line": line[0][:500], "at": line[1]})
        if len(found) >= inputs["limit"] or not seen_all:
            break
    return {"runs": found, "all_output_searched": whole}


def _line_with(place: Place, uid: str, text: bytes, until: float) -> tuple[tuple[str, int] | None, bool]:
    """The first line with the text and the byte where it begins; and whether all of the file was looked at."""
    try:
        with open_log(place, uid) as log:
            kept, at = b"", 0
            while piece := log.read(1 << 20):
                kept += piece
                if (hit := kept.find(text)) >= 0:
                    start, end = kept.rfind(b"\n", 0, hit) + 1, kept.find(b"\n", hit)
                    return (kept[start : end if end >= 0 else None].decode("utf-8", "replace"), at + start), True
                if time.monotonic() > until:
                    return None, False
                rest = kept[kept.rfind(b"\n") + 1 :][-(1 << 20) :]
                at, kept = at + len(kept) - len(rest), rest
    except OSError:
        pass
    return None, True


# --- one run

# Files that it was given, in the order by which they are numbered; kept: whether their text is there.
GIVEN = """
    select f.path, f.size, f.modified, f.hash, case when c.hash is null then 0 else 1 end as kept
    from run_file f left join content c on c.hash = f.hash where f.run = ? order by f.path"""


def numbers_of(files: list[dict[str, Any]]) -> dict[str, int]:
    """Of GIVEN: the number of each file whose text is there, by its path."""
    return {file["path"]: n for n, file in enumerate(files) if file["kept"]}


def _show(call: Call, _inputs: dict[str, Any]) -> Any:
    return {"run": details(call, call.found)}


def details(call: Call, row: dict[str, Any]) -> dict[str, Any]:
    out = brief(row) | {name: row[name] for name in ("cwd", "version", "pid", "events_lost", "log_lost_bytes")}
    out["inputs"] = json.loads(row["inputs_json"])
    out |= {"labels": {}, "metrics": {}, "artifacts": [], "children": [], "files": [], "facts": {}, "launch": None, "experiment": None}
    launch = call.one(
        "select uid, status, template, version, by_account, cause, after, asked, started, note from launch where uid = ?", row["uid"]
    )
    if launch is not None:
        template = call.one("select version from template where uid = ?", launch["template"])
        launch["newest_version"] = template["version"] if template else None
    out["launch"] = launch
    if template := call.one("select name, baseline from template where uid = ?", row["template"] or ""):
        out |= {"template_name": template["name"], "baseline": template["baseline"]}
    if row["id"] is None:
        return out
    of = (row["id"],)
    labels, metrics, out["artifacts"], out["files"], children, facts, parents = call.store.db.answers([
        ("select key, value from label where run = ? order by key", of),
        ("select name, value from metric where run = ? order by name", of),
        ("select n, kind, path, size, hash from artifact where run = ? order by n", of),
        (GIVEN, of),
        ("select * from run where parent = ? order by started, id limit 1000", (row["uid"],)),
        ("select body from content where hash = ?", (row["facts"],)),
        ("select name, project, template from run where uid = ?", (row["parent"],)),
    ])  # fmt: skip
    if row["kind"] == "experiment":
        from leadline.book.experiments.query import experiment

        out["experiment"] = experiment(call.store, row, lambda other: _seen(call, other))
    out["files"] = [file | {"kept": bool(file["kept"])} for file in out["files"]]
    out["labels"] = {r["key"]: r["value"] for r in labels}
    out["metrics"] = {r["name"]: r["value"] for r in metrics}
    out["children"] = [brief(r) for r in children if _seen(call, r)]
    out["facts"] = json.loads(facts[0]["body"]) if facts else {}
    if parents and _seen(call, parents[0]):
        out["parent_name"] = parents[0]["name"]
    return out


def _given(call: Call, inputs: dict[str, Any]) -> Any:
    files = call.rows(GIVEN, call.found["id"])
    if inputs["n"] >= len(files):
        raise LeadlineError("not_found", f"run {call.found['uid']} was not given a file {inputs['n']}", hint="leadline book show")
    file = files[inputs["n"]]
    text = call.one("select body from content where hash = ?", file["hash"])
    if text is None:
        raise not_kept(file["path"])
    about = {name: file[name] for name in ("path", "size", "modified", "hash")}
    return {"run": call.found["uid"], "n": inputs["n"], **about, "text": text["body"]}


def _seen(call: Call, row: dict[str, Any]) -> bool:
    return call.caller.sees_all or call.caller.role(row["project"], row["template"]) is not None


# --- changes


def _label(call: Call, inputs: dict[str, Any]) -> Any:
    _is_run(call)
    run = call.found["id"]
    call.execute("delete from label where run = ? and key = ?", run, inputs["key"])
    if inputs["value"] is not None:
        put_labels(call.store.db, run, [(inputs["key"], inputs["value"])])
    call.detail = {"key": inputs["key"], "value": inputs["value"]}
    return {
        "run": call.found["uid"],
        "labels": {r["key"]: r["value"] for r in call.rows("select key, value from label where run = ? order by key", run)},
    }


def _pin(call: Call, inputs: dict[str, Any]) -> Any:
    _is_run(call)
    call.execute("update run set pinned = ? where id = ?", int(inputs["pinned"]), call.found["id"])
    call.detail = {"pinned": inputs["pinned"]}
    return {"run": call.found["uid"], "pinned": inputs["pinned"]}


def _is_run(call: Call) -> None:
    if call.found["id"] is None:
        raise LeadlineError("usage", f"run {call.found['uid']} has not begun")


LIMIT = Input("limit", "most rows", "int", False, 50, least=1, most=1000)
LISTED = ("uid", "started", "name", "status", "duration_s", "summary")
OPERATIONS = (
    Operation(
        "run.list",
        "GET",
        "/runs",
        "anyone",
        "",
        "List runs, newest first, with filters.",
        _list,
        (
            Input("text", "words of name, command or summary, or their beginnings", required=False),
            Input("kind", "kind of run", required=False),
            Input("name", "name of the run", required=False),
            Input("status", "how it ended, or that it runs", "enum", False, None, STATUSES),
            Input("project", "of this project", required=False),
            Input("template", "started from this template (id)", required=False),
            Input("host", "on this host", required=False),
            Input("label", "KEY or KEY=VALUE", required=False),
            Input("parent", "part of this run", required=False),
            Input("since_hours", "began within so many hours", "int", False, least=0, most=10**6),
            LIMIT,
            Input("before", "the next page: `next` of this one", required=False, pattern=r"\d{1,18}-\d{1,18}"),
        ),
        rows="runs",
        columns=LISTED,
        command="book list",
    ),
    Operation(
        "run.search",
        "GET",
        "/search",
        "anyone",
        "",
        "Find lines in the output of runs, newest first, within a second.",
        _search,
        (Input("text", "a text as it stands in a line"), LIMIT),
        rows="runs",
        columns=("uid", "started", "name", "status", "line"),
        command="book search",
        slow=True,
    ),
    Operation(
        "run.days",
        "GET",
        "/days",
        "anyone",
        "",
        "Count the runs of each day by how they ended.",
        _days,
        (Input("days", "of so many days, up to today", "int", False, 30, least=1, most=36_500),),
        rows="days",
        columns=("day", "runs", *STATUSES),
        command="book days",
    ),
    Operation("run.show", "GET", "/runs/{run}", "viewer", "run", "Show one run.", _show, (RUN,), command="book show"),
    Operation(
        "run.given", "GET", "/runs/{run}/given/{n}", "viewer", "run", "Show the text of a file as a run was given it.", _given,
        (RUN, Input("n", "number of the file among those that the run was given", "int", least=0)), command="book show",
    ),
    Operation(
        "run.label",
        "PUT",
        "/runs/{run}/labels/{key}",
        "runner",
        "run",
        "Put a label on a run, or remove it.",
        _label,
        (RUN, Input("key", "name of the label", pattern=KEY), Input("value", "its value; none removes it", required=False)),
        command="book label",
    ),
    Operation(
        "run.pin",
        "PUT",
        "/runs/{run}/pin",
        "editor",
        "run",
        "Keep a run whatever is pruned, or no longer.",
        _pin,
        (RUN, Input("pinned", "true: keep it", "bool", False, True)),
        command="book pin",
    ),
)
