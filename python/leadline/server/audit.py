"""The audit: a row for every change and every refused attempt, each with a hash over the row before."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from typing import Any

from leadline.book.store import Store
from leadline.server.rights import Caller

LONGEST = 4000
COVERED = ("n", "ts", "account", "token", "address", "operation", "object", "detail_json", "outcome", "prev")


def append(store: Store, caller: Caller, operation: str, subject: str, detail: Mapping[str, Any], outcome: str) -> None:
    """Within a transaction that writes. detail: without secrets."""
    head = store.rows("select n, hash from audit_head where one = 1")[0]
    row = {
        "n": head["n"] + 1, "ts": time.time_ns() // 1000, "account": caller.name, "token": caller.token, "address": caller.address,
        "operation": operation, "object": subject[:200], "detail_json": json.dumps(detail, ensure_ascii=False, default=str)[:LONGEST],
        "outcome": outcome, "prev": head["hash"],
    }  # fmt: skip
    row["hash"] = _hash(row)
    store.db.execute(f"insert into audit ({', '.join(row)}) values ({', '.join('?' * len(row))})", tuple(row.values()))
    store.db.execute("update audit_head set n = ?, hash = ? where one = 1", (row["n"], row["hash"]))


def _hash(row: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps([row[name] for name in COVERED], ensure_ascii=False).encode()).hexdigest()


def verify(store: Store) -> str:
    """Empty when the chain is whole, else what is wrong."""
    n, prev = 0, ""
    for row in store.rows("select * from audit order by n"):
        if row["n"] != n + 1:
            return f"row {n + 1} is missing"
        if row["prev"] != prev or row["hash"] != _hash(row):
            return f"row {row['n']} was changed"
        n, prev = row["n"], row["hash"]
    head = store.rows("select n, hash from audit_head where one = 1")[0]
    return "" if (head["n"], head["hash"]) == (n, prev) else f"rows after {n} are missing"
