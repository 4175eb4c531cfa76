"""The events of plugin/leadline_book.py: plays, tasks, results, hosts. A spool is input: what is not as it should be is passed over."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from leadline.book.db import Db
from leadline.book.events import Event, number, run_id, taken, text, whole
from leadline.book.runs import index_words, put_labels

NEWEST_FORMAT = 1
STATUSES = ("ok", "failed", "skipped", "unreachable")
PARTS = ("result", "item", "retry")
TOTALS = ("ok", "changed", "failed", "unreachable", "skipped", "rescued", "ignored")
LONGEST_JSON = 1 << 20
LONGEST_MESSAGE = 1000
MOST_HOSTS = 100_000
SETUP = frozenset(prefix + name for prefix in ("", "ansible.builtin.", "ansible.legacy.") for name in ("setup", "gather_facts"))
# Facts that differ between two looks at a host that nobody touched.
CHANGING = frozenset(("date_time", "uptime_seconds", "loadavg", "memfree_mb", "memory_mb", "swapfree_mb", "mounts"))


def as_json(value: Any, longest: int = LONGEST_JSON) -> str:
    """JSON that every store takes. Raises ValueError if it is too long: half of it would be none."""
    out = json.dumps(value, ensure_ascii=False, allow_nan=True).encode("utf-8", "replace").decode().replace("\\u0000", "\\ufffd")
    if len(out) > longest:
        raise ValueError("too long")
    return out


@taken("ansible.playbook")
def playbook(db: Db, event: Event) -> None:
    body = event.body
    if whole(body["format"]) > NEWEST_FORMAT:
        raise ValueError("of a newer plugin")
    versions = (text(body["ansible"], 60), text(body["python"], 60))
    values = (run_id(db, event.uid), text(body["path"]), *versions, as_json(dict(body["arguments"])))
    db.execute("insert into playbook values (?, ?, ?, ?, ?, 0) on conflict (run) do nothing", values)


@taken("ansible.joined")
def joined(db: Db, event: Event) -> None:
    """Of a run that leadline had begun before Ansible was there."""
    _labels(db, run_id(db, event.uid), dict(event.body["labels"]))


@taken("ansible.end")
def ended(db: Db, event: Event) -> None:
    run = run_id(db, event.uid)
    db.execute("update run set summary = ? where id = ?", (text(event.body["summary"]), run))
    index_words(db, run)
    known = "on conflict (run, name) do update set value = excluded.value"
    db.execute(f"insert into metric values (?, 'ansible_record_s', ?) {known}", (run, number(event.body["record_s"])))


@taken("ansible.play")
def play(db: Db, event: Event) -> None:
    body, run = event.body, run_id(db, event.uid)
    values = (run, whole(body["play"]), text(body["uuid"], 36), text(body["name"]), text(body["hosts"]), text(body["strategy"], 200))
    sql = "insert into play values (?, ?, ?, ?, ?, ?, ?, ?, null) on conflict (run, n) do nothing"
    db.execute(sql, (*values, text(body["at"]), event.ts))
    if body.get("run_name") is not None:
        db.execute("update run set name = ? where id = ?", (text(body["run_name"], 200), run))
        index_words(db, run)
    _labels(db, run, dict(body.get("labels") or {}))


@taken("ansible.task")
def task(db: Db, event: Event) -> None:
    body = event.body
    line = body.get("line")
    values = (
        run_id(db, event.uid), whole(body["task"]), whole(body["play"]), text(body["uuid"], 36), text(body["name"]),
        text(body["action"], 200), text(body["file"]), _or_none(line), text(body["role"], 200),
        as_json([text(tag) for tag in body["tags"]]), as_json(dict(body["args"])),
        int(bool(body["handler"])), int(bool(body["no_log"])), event.ts,
    )  # fmt: skip
    db.execute("insert into task values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, null) on conflict (run, n) do nothing", values)


@taken("ansible.result")
def result(db: Db, event: Event) -> None:
    body, run = event.body, run_id(db, event.uid)
    content, host, number = dict(body["content"]), text(body["host"], 1000), whole(body["task"])
    if body["status"] not in STATUSES or body["part"] not in PARTS:
        raise ValueError("unknown status")
    found = db.execute("select action, play from task where run = ? and n = ?", (run, number)).fetchone()
    if found is None:
        raise KeyError(number)
    if body["part"] == "result":
        db.execute("insert into run_host (run, host) values (?, ?) on conflict (run, host) do nothing", (run, host))
        _facts(db, run, host, found["action"], content)
        _records(db, run, host, found["action"], content)
    ended = whole(body.get("ended") or event.ts)
    values = (
        run, event.n, number, host, body["part"], _or_none(body.get("index")), _text_or_none(body.get("item")),
        _or_none(body.get("items")), _or_none(body.get("attempts")), body["status"], int(bool(body["changed"])),
        int(bool(body.get("ignored"))), int(bool(body.get("rescued"))), _or_none(body.get("started")), ended,
        text(body.get("delegated_to") or "", 1000), _length(content.get("warnings")), _length(content.get("deprecations")),
        message_of(content),
    )  # fmt: skip
    places = ", ".join("?" * len(values))
    if db.execute(f"insert into result values ({places}) on conflict (run, n) do nothing", values).rowcount == 0:
        return
    db.execute("insert into result_body values (?, ?, ?) on conflict (run, n) do nothing", (run, event.n, as_json(content)))
    db.execute("update task set ended = ? where run = ? and n = ?", (ended, run, number))
    db.execute("update play set ended = ? where run = ? and n = ?", (ended, run, found["play"]))


@taken("ansible.note")
def note(db: Db, event: Event) -> None:
    body = event.body
    values = (run_id(db, event.uid), event.n, event.ts, text(body["what"], 60), text(body["host"]), text(body["text"]))
    db.execute("insert into ansible_note values (?, ?, ?, ?, ?, ?) on conflict (run, n) do nothing", values)


@taken("ansible.stats")
def stats(db: Db, event: Event) -> None:
    """The totals by which Ansible itself judges the run."""
    run = run_id(db, event.uid)
    for host, counts in list(dict(event.body["hosts"]).items())[:MOST_HOSTS]:
        set_totals(db, run, text(host, 1000), {name: whole(counts.get(name, 0)) for name in TOTALS})
    for host, values in dict(event.body.get("custom") or {}).items():
        for key, value in dict(values).items():
            put_record(db, run, "" if host == "_run" else text(host, 1000), text(str(key), 200), "json", value)
    db.execute("update playbook set has_totals = 1 where run = ?", (run,))


def set_totals(db: Db, run: int, host: str, counts: dict[str, int]) -> None:
    names = ", ".join(TOTALS)
    changes = ", ".join(f"{name} = excluded.{name}" for name in TOTALS)
    places = ", ".join("?" * (2 + len(TOTALS)))
    sql = f"insert into run_host (run, host, {names}) values ({places}) on conflict (run, host) do update set {changes}"
    db.execute(sql, (run, host, *(counts.get(name, 0) for name in TOTALS)))


def put_record(db: Db, run: int, host: str, key: str, type_: str, value: Any) -> None:
    known = "on conflict (run, host, key) do update set value_json = excluded.value_json, type = excluded.type"
    db.execute(f"insert into record values (?, ?, ?, ?, ?) {known}", (run, host, key, type_, as_json(value)))


def put_facts(db: Db, run: int, host: str, facts: dict[str, Any]) -> None:
    """Facts of a host in a run: those that stay the same are stored once, however often they are gathered."""
    plain = {str(name).removeprefix("ansible_"): value for name, value in facts.items()}
    if not plain:
        return
    if isinstance(plain.get("interfaces"), list):  # a set, in any order
        plain["interfaces"] = sorted(map(str, plain["interfaces"]))
    had = db.execute("select facts, facts_now from run_host where run = ? and host = ?", (run, host)).fetchone()
    hashes = []
    for column, changes in (("facts", False), ("facts_now", True)):
        part = facts_of(db, had[column]) if had else {}
        part |= {name: value for name, value in plain.items() if (name in CHANGING) == changes}
        body = json.dumps(json.loads(as_json(part, 16 * LONGEST_JSON)), ensure_ascii=False, sort_keys=True)
        hashes.append(hashlib.sha256(body.encode()).hexdigest())
        db.execute("insert into host_facts values (?, ?) on conflict (hash) do nothing", (hashes[-1], body))
    db.execute("update run_host set facts = ?, facts_now = ? where run = ? and host = ?", (*hashes, run, host))


def facts_of(db: Db, hash: str | None) -> dict[str, Any]:
    row = db.execute("select body_json from host_facts where hash = ?", (hash,)).fetchone() if hash else None
    return dict(json.loads(row["body_json"])) if row else {}


def forget_unused_facts(db: Db) -> None:
    """After runs were removed: facts that no run has any more."""
    used = "select facts from run_host where facts is not null union select facts_now from run_host where facts_now is not null"
    db.execute(f"delete from host_facts where hash not in ({used})")


def message_of(content: dict[str, Any]) -> str:
    """The line that says most of a result."""
    for name in ("censored", "msg", "stderr", "module_stderr", "stdout", "module_stdout", "skip_reason", "reason"):
        value = content.get(name)
        if isinstance(value, str) and value.strip():
            said = value.strip()
            if name == "msg" and said == "non-zero return code" and isinstance(content.get("stderr"), str) and content["stderr"].strip():
                said = f"{said}: {content['stderr'].strip()}"
            return text(" ".join(said.split()), LONGEST_MESSAGE)
    return ""


def _labels(db: Db, run: int, labels: dict[str, Any]) -> None:
    put_labels(db, run, [(text(key, 200), text(str(value), 1000)) for key, value in list(labels.items())[:1000]])


def _facts(db: Db, run: int, host: str, action: str, content: dict[str, Any]) -> None:
    facts = content.get("ansible_facts")
    if action in SETUP and isinstance(facts, dict):
        put_facts(db, run, host, facts)
        content["ansible_facts"] = f"{len(facts)} facts of the host"


def _records(db: Db, run: int, host: str, action: str, content: dict[str, Any]) -> None:
    kept = content.get("ansible_stats")
    if isinstance(kept, dict) and isinstance(kept.get("data"), dict):
        for key, value in kept["data"].items():
            put_record(db, run, host if kept.get("per_host") else "", text(str(key), 200), "json", value)
    if action.rpartition(".")[2] == "ara_record" and "value" in content:
        put_record(db, run, "", text(content["key"], 200), text(content["type"], 60), content["value"])


def _or_none(value: Any) -> int | None:
    return None if value is None else whole(value)


def _text_or_none(value: Any) -> str | None:
    return None if value is None else text(value, LONGEST_MESSAGE)


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list) else 0
