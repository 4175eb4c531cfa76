"""Runs a load and keeps what it found: as a value, and as a capture where one is asked for."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from leadline._core import load as core
from leadline.capture.directory import new_capture
from leadline.capture.making import Making
from leadline.capture.manifest import Clock, ProbeState, Target
from leadline.capture.store import Store
from leadline.errors import LeadlineError
from leadline.load import purge, tpcc
from leadline.load.plan import PURGE, Plan
from leadline.load.scale import scale_of
from leadline.load.tpcc.conditions import check
from leadline.load.tpcc.tables import warehouses_of
from leadline.net.login import Server

Show = Callable[[dict[str, Any]], None]
TIMEOUT_S = 10.0  # of a login
COUNTS = ("due", "begun", "done", "ended", "failed", "skipped", "retries", "rows", "sent_bytes", "received_bytes")
OF_LATENCY = ("p50_ns", "p90_ns", "p99_ns", "p99_9_ns", "max_ns")
KINDS = ("latency", "service", "lag", "schedule_error")


def run(server: Server, plan: Plan, *, scale: int | None, show: Show | None = None) -> dict[str, Any]:
    """The results. scale: None: as the tables say, if a script needs it."""
    return _run(server, plan, scale, show, histograms=False)


def capture(server: Server, plan: Plan, directory: Path, *, scale: int | None, overwrite: bool, show: Show | None = None) -> dict[str, Any]:
    """The same, also written as a capture, whose directory it names."""
    with new_capture(directory, overwrite=overwrite) as directory:
        options = {**asdict(plan), "scripts": [{"name": name, "weight": weight, "text": text} for name, weight, text in plan.scripts]}
        making = Making(directory, Target("load", f"load on {server}"), options)
        with making.from_files() as manifest:
            now = time.monotonic_ns()
            manifest.clock = Clock(now, None, time.time_ns() - now)
            store = Store(str(directory))

            def keep(row: dict[str, Any]) -> None:
                store.add("load_second", [_second(row)])
                store.add("load_bucket", _buckets(row))
                if show is not None:
                    show(row)

            found = _run(server, plan, scale, keep, histograms=True)
            manifest.clock.ts_to = ended = time.monotonic_ns()
            store.add("load_statement", _statements(found, ended))
            store.add("load_bucket", _statement_buckets(found, ended))
            store.add("load_error", _errors(found, ended))
            manifest.tables = store.close()
            loss = {name: found[name] for name in ("not_begun", "unfinished", "clients_gone")}
            names = ("mode", "seed", "workload", "consistency", "void", "purge")
            detail: dict[str, Any] = {name: found[name] for name in names if name in found}
            manifest.notes += [f"VOID: {found['void']}"] if found["void"] else []
            manifest.probes["load"] = ProbeState(tier="socket", loss=loss, detail=detail)
    return found | {"capture": str(directory)}


def _run(server: Server, plan: Plan, scale: int | None, show: Show | None, *, histograms: bool) -> dict[str, Any]:
    if plan.workload != PURGE:
        core.check(plan.scripts)  # before anything is asked of the server
    rows = None
    if plan.workload == PURGE:
        plan, rows = purge.prepare(server, plan)
        scale = 1
    elif plan.workload == tpcc.NAME:
        scale = warehouses_of(server)
    elif scale is None:
        scale = scale_of(server) if plan.needs_tables else 1
    failed: list[BaseException] = []

    def told(row: str) -> None:
        try:
            if show is not None:
                show(json.loads(row))
        except BaseException as e:
            failed.append(e)  # ends the load, and is told below
            raise

    text, interrupted = core.run(
        server.login(TIMEOUT_S),
        plan.scripts,
        [phase.row() for phase in plan.phases],
        mode=plan.mode,
        clients=plan.clients,
        threads=plan.threads,
        poisson=plan.poisson,
        scale=scale,
        variables=plan.variables,
        seed=plan.seed,
        max_tries=plan.max_tries,
        continue_on_error=plan.continue_on_error,
        latency_limit_s=plan.latency_limit_s,
        drain_s=plan.drain_s,
        histograms=histograms,
        terminals=None if plan.terminals is None else (plan.terminals.count, plan.terminals.seconds),
        transactions=plan.transactions,
        auto_warm_up=plan.auto_warm_up,
        show=None if show is None else told,
    )
    if failed:
        raise failed[0]
    found: dict[str, Any] = {"server": str(server), **json.loads(text), "interrupted": interrupted, "void": None}
    if plan.workload == tpcc.NAME:
        found |= _tpcc(server, plan)
    if rows is not None:
        found |= _purge(server, rows, found)
    return found


def _purge(server: Server, rows: int, found: dict[str, Any]) -> dict[str, Any]:
    left, seconds = purge.left(server), found["phases"][-1]["seconds"]
    of = {"rows": rows - left, "left": left, "seconds": seconds, "rows_per_second": (rows - left) / seconds if seconds else None}
    return {"workload": PURGE, "purge": of}


def _tpcc(server: Server, plan: Plan) -> dict[str, Any]:
    """What a TPC-C-like load says beside its times. A load that left the tables inconsistent measured something else."""
    conditions, void = [], None
    try:
        conditions = check(server)
    except LeadlineError as e:
        void = f"the consistency conditions could not be checked: {e.message}"
    for of in conditions:
        if not of["holds"]:
            void = f"consistency condition {of['condition']} does not hold: {of['says']}"
            break
    factor = None if plan.terminals is None else plan.terminals.factor
    return {"workload": tpcc.TITLE, "time_factor": factor, "consistency": conditions, "void": void}


def _second(row: dict[str, Any]) -> tuple[Any, ...]:
    times = [row["latency"][name] for name in OF_LATENCY] + [row["service"][name] for name in ("p50_ns", "p99_ns", "max_ns")]
    for kind in KINDS[2:]:
        times += [row[kind][name] if kind in row else None for name in ("p99_ns", "max_ns")]
    head = (row["ts"], row["duration_ns"], row["phase"], row["warm_up"], row["after_the_end"], row["rate"])
    own = (row["cpu_ns"], row["waited_ns"], row["rtt_us"], row["min_rtt_us"], row["retransmits"])
    return (*head, *(row[name] for name in COUNTS), *times, base64.b64decode(row["histogram"]), *own)


def _buckets(row: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (row["ts"], row["phase"], kind, None, None, low, high, count)
        for kind in KINDS
        for low, high, count in row.get(kind, {}).get("buckets", ())
    ]


def _statements(found: dict[str, Any], ended: int) -> list[tuple[Any, ...]]:
    rows = []
    for phase, script, of in _all_statements(found):
        times = of["times"] or {"count": 0}
        names = ("mean_ns", *OF_LATENCY)
        head = (ended, phase["phase"], script["name"], of["command"], of["line"], of["text"], times["count"])
        rows.append((*head, of["rows"], of["failed"], of["retried"], *(times.get(name) for name in names)))
    return rows


def _statement_buckets(found: dict[str, Any], ended: int) -> list[tuple[Any, ...]]:
    return [
        (ended, phase["phase"], "statement", script["name"], of["command"], low, high, count)
        for phase, script, of in _all_statements(found)
        for low, high, count in (of["times"] or {}).pop("buckets", ())
    ]


def _all_statements(found: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    return [(phase, script, of) for phase in found["phases"] for script in phase["scripts"] for of in script["statements"]]


def _errors(found: dict[str, Any], ended: int) -> list[tuple[Any, ...]]:
    names = ("sqlstate", "count", "retried", "message")
    return [(ended, phase["phase"], *(error[name] for name in names)) for phase in found["phases"] for error in phase["errors"]]
