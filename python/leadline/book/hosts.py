"""Hosts across runs: which there are, and of one what it ran, what Ansible did to it, what failed there, and which facts changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from leadline.book.ansible.ingest import TOTALS, facts_of
from leadline.book.db import Row
from leadline.book.store import Store
from leadline.errors import LeadlineError

MOST_CHANGES = 100
LONGEST_VALUE = 200
# Of a result: a failure that nobody ignored or rescued.
_FAILED = "x.part = 'result' and x.status in ('failed', 'unreachable') and x.ignored = 0 and x.rescued = 0"


def hosts(store: Store, of: int, where: str = "true", values: Sequence[Any] = ()) -> list[Row]:
    """Hosts of the newest runs, the one that was busy last first. of: how many runs; where, values: which of them, by columns of `run`.

    runs: how many were started there; played: in how many Ansible worked on it; failed: how many of both failed there.
    """
    newest = f"(select id, host, status, started from run where {where} order by started desc, id desc limit ?)"
    own = store.rows(
        f"""select r.host, count(*) as n, sum(case when r.status in ('failed', 'lost') then 1 else 0 end) as failed, max(r.started) as last
            from {newest} r group by r.host""",
        (*values, of),
    )
    bad = f"exists (select 1 from result x where x.host = h.host and x.run = h.run and {_FAILED})"
    played = store.rows(
        f"""select h.host, count(*) as n, sum(case when {bad} then 1 else 0 end) as failed, max(r.started) as last
            from {newest} r join run_host h on h.run = r.id group by h.host""",
        (*values, of),
    )
    found: dict[str, Row] = {}
    for name, rows in (("runs", own), ("played", played)):
        for row in rows:
            one = found.setdefault(row["host"], {"host": row["host"], "runs": 0, "played": 0, "failed": 0, "started": 0})
            one |= {name: row["n"], "failed": one["failed"] + row["failed"], "started": max(one["started"], row["last"])}
    for one in found.values():
        there = "host = ? or exists (select 1 from run_host h where h.run = run.id and h.host = ?)"
        sql = f"select uid, status from run where started = ? and ({there}) order by id desc limit 1"
        last = store.rows(sql, (one["started"], one["host"], one["host"]))[0]
        one |= {"last_run": last["uid"], "last_status": last["status"]}
    return sorted(found.values(), key=lambda one: (-one["started"], one["host"]))


def host(store: Store, name: str, limit: int, where: str = "true", values: Sequence[Any] = ()) -> Row:
    """One host in its newest runs. where, values: which runs, by columns of `r`. Raises LeadlineError.

    runs: rows of `run`; played: the same of runs of Ansible, with its totals; failures: results; facts and gathered: what leadline and
    Ansible found there last; changes: facts that were not what an earlier run had found.
    """
    given = (name, *values, limit)
    runs = store.rows(f"select r.* from run r where r.host = ? and {where} order by r.started desc, r.id desc limit ?", given)
    totals = ", ".join(f"h.{total}" for total in TOTALS)
    played = store.rows(
        f"""select r.*, {totals}, h.facts as gathered from run_host h join run r on r.id = h.run
            where h.host = ? and {where} order by r.started desc, r.id desc limit ?""",
        given,
    )
    if not runs and not played:
        raise LeadlineError("not_found", f"no run has a host {name[:80]}", hint="leadline book host")
    # Ansible's plugin tells of its own Python, and of less.
    own = _facts([run for run in runs if run["kind"] != "ansible"] or runs, "facts", lambda hash: _content(store, hash))
    gathered = _facts(played, "gathered", lambda hash: facts_of(store.db, hash))
    return {
        "host": name, "runs": runs, "played": played, "failures": _failures(store, name, played),
        "facts": own[0][1] if own else {}, "gathered": gathered[0][1] if gathered else {},
        "changes": sorted(_changes(own) + _changes(gathered), key=lambda one: -one["started"])[:MOST_CHANGES],
    }  # fmt: skip


def _failures(store: Store, name: str, played: Sequence[Row]) -> list[Row]:
    out = []
    for run in played:
        rows = store.rows(
            f"""select x.n, t.name as task, x.status, x.message, x.ended from result x join task t on t.run = x.run and t.n = x.task
                where x.host = ? and x.run = ? and {_FAILED} order by x.n""",
            (name, run["id"]),
        )
        out += [{"run": run["uid"], "name": run["name"], **row} for row in rows]
    return out


def _content(store: Store, hash: str) -> dict[str, Any]:
    rows = store.rows("select body from content where hash = ?", (hash,))
    return dict(json.loads(rows[0]["body"])) if rows else {}


def _facts(runs: Sequence[Row], column: str, read: Callable[[str], dict[str, Any]]) -> list[tuple[Row, dict[str, Any]]]:
    """The runs that found other facts than the run before them, newest first; the oldest is among them."""
    out: list[tuple[Row, dict[str, Any]]] = []
    hash = None
    for run in reversed([run for run in runs if run[column]]):
        if run[column] != hash:
            hash = run[column]
            out.append((run, read(hash)))
    return out[::-1]


def _changes(found: Sequence[tuple[Row, dict[str, Any]]]) -> list[Row]:
    out = []
    for (run, now), (_, before) in pairwise(found):
        for name in sorted(now.keys() & before.keys()):  # what only one of them has, the other may not have looked at
            if now[name] != before[name]:
                values = {"before": _short(before[name]), "after": _short(now[name])}
                out.append({"run": run["uid"], "started": run["started"], "fact": name, **values})
    return out


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."
