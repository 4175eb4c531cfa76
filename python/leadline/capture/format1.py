"""Manifests of format 1, as they were until captures could hold more than one probe: converted to format 2 when read.

Tier, rate and loss stood beside the target then, and what only one kind of capture has stood at the top.
"""

from __future__ import annotations

from typing import Any

_SERVER = ("pid", "dsn", "data_dir")  # kinds of target that named a PostgreSQL server, by how the user named it
_SAMPLED = ("sessions", "locks", "buffers", "deltas")


def converted(old: dict[str, Any]) -> dict[str, Any]:
    """The same capture as a manifest of format 2."""
    target = old.get("target") or {}
    kind = target.get("kind", "pid")
    detail = {name: target[name] for name in ("dsn", "data_dir", "max_connections") if target.get(name) is not None}
    if kind in _SERVER:
        detail["named_by"] = kind
    detail |= (old.get("wal") or {}) | (old.get("pages") or {})
    new = {key: old[key] for key in ("product_version", "status", "error", "clock", "host", "notes", "tables", "options") if key in old}
    return new | {
        "format_version": 2,
        "target": {
            "kind": "postgres" if kind in _SERVER else kind,
            "name": _name(kind, target),
            "pid": target.get("pid"),
            "cpu_count": target.get("cpu_count"),
            "version": target.get("server_version"),
            "version_num": target.get("server_version_num"),
            "detail": detail,
        },
        "probes": {name: _probe(name, state, old) for name, state in (old.get("probes") or {}).items()},
        "cost": old.get("self_cost"),
    }


def _name(kind: str, target: dict[str, Any]) -> str:
    if kind in _SERVER:
        return target.get("dsn") or (f"postmaster {target['pid']}" if target.get("pid") else "")
    return target.get("data_dir") or ""


def _probe(name: str, state: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    made = dict(state)
    if name in _SAMPLED:
        made["tier"] = old.get("tier")
    if name == "sessions":
        made |= {"rate_hz": old.get("rate_hz"), "loss": old.get("loss") or {}, "access": old.get("access") or {}}
        made["detail"] = {"layout_checks": old.get("layout_checks") or []}
    if name == "informix":
        made |= {"tier": "text", "loss": old.get("loss") or {}}
    return made
