"""Replication as a probe: how far a primary and its standbys have come along the WAL, timed by one clock.

Each server is read in a thread of its own (replication_node.py), so that a slow one delays no other. The time of a reading over SQL is the
middle between question and answer on the clock of this host: the clocks of the servers are not needed, and the error is half of the
round trip.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from leadline.capture.manifest import Manifest, ProbeState
from leadline.capture.store import Store, add_written
from leadline.engines.postgres.probes.replay_records import ReplayRecords
from leadline.engines.postgres.probes.replication_node import CAPTURE, Node, Pace
from leadline.errors import LeadlineError

if TYPE_CHECKING:
    from leadline._core.capture import ErrorObject, ProbeFinal, ProbeStatus, Written

MOST_UNWRITTEN = 50_000


def needed(dsn: str | None) -> str:
    """The connection string of the target. Raises LeadlineError."""
    if dsn is None:
        raise LeadlineError("usage", "--with needs a connection to the target", hint="name the target by a connection string, too")
    return dsn


class ReplicationProbe:
    """dsns: the target, then those beside it. from_memory: where that is possible. Raises LeadlineError when one cannot be asked, or is
    of another cluster."""

    name = "replication"
    required = False

    def __init__(self, dsns: list[str], from_memory: bool = True, pace: Pace = CAPTURE) -> None:
        self._from_memory, self._pace = from_memory, pace
        self._nodes: list[Node] = []
        try:
            for number, dsn in enumerate(dsns, 1):
                self._nodes.append(Node(number, dsn, pace))
                self._check(self._nodes[-1])
        except LeadlineError:
            self.close()
            raise
        self._store: Store | None = None
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(node,), name="leadline-replication", daemon=True) for node in self._nodes]
        self._writer = threading.Thread(target=self._write_now_and_then, name="leadline-write", daemon=True)
        self._error: ErrorObject | None = None
        self._rows = self._ts_from = 0
        self._replayed = {node.number: ReplayRecords(node.number) for node in self._nodes}

    @property
    def nodes(self) -> list[Node]:
        return self._nodes

    @property
    def replicates(self) -> bool:
        """Whether there is anything to watch."""
        return len(self._nodes) > 1 or any(node.replicates for node in self._nodes)

    def close(self) -> None:
        for node in self._nodes:
            node.close()

    def _check(self, node: Node) -> None:
        first = self._nodes[0]
        if node.system != first.system:
            detail = f"{first.name} has the system identifier {first.system}, {node.name} has {node.system}"
            hint = "name a physical standby of the target with --with"
            raise LeadlineError("usage", "these servers are not of one cluster", detail, hint)

    def describe(self, manifest: Manifest) -> None:
        blind = [node for node in self._nodes if not node.sees_all]
        why = [f"{node.name} does not show user {node.user} what its walsenders and its walreceiver do" for node in blind]
        why += [f"{node.name} could not be read {node.missed} times: {node.lost}" for node in self._nodes if node.missed]
        hint = f"GRANT pg_read_all_stats TO {blind[0].user};" if blind else ""
        access = {f"node {node.number}": f"{node.name}, {node.tier}" for node in self._nodes}
        slowest = min(self._nodes, key=lambda node: node.rate_hz)
        manifest.probes[self.name] = ProbeState(
            "partial" if why else "ok", "; ".join(why), hint, slowest.tier, slowest.rate_hz, access=access,
            detail={
                "sql_because": {node.name: node.why_sql for node in self._nodes if node.why_sql},
                "replayed_records": {node.name: self._replayed[node.number].told() for node in self._nodes if node.in_recovery},
            },
        )  # fmt: skip

    def before(self, store: Store, manifest: Manifest) -> None:
        self._store = store
        for node in self._nodes if self._from_memory else []:
            node.use_memory(store.capture_dir)

    def start(self) -> None:
        self._ts_from = time.monotonic_ns()
        for node in self._nodes:
            node.start()
        for thread in [*self._threads, self._writer]:
            thread.start()

    def status(self) -> ProbeStatus:
        return {
            "running": any(thread.is_alive() for thread in self._threads), "error": self._error, "ts_from": self._ts_from,
            "ticks": sum(node.readings[0] for node in self._nodes), "missed": sum(node.readings[1] for node in self._nodes),
            "rows": self._rows, "bytes_written": 0, "cpu_ns": sum(node.cpu_ns for node in self._nodes),
        }  # fmt: skip

    def stop(self) -> ProbeFinal:
        self._stop.set()
        for thread in [*self._threads, self._writer]:
            if thread.ident is not None:
                thread.join()
        self._write()
        tables: dict[str, Written] = {}  # what the store writes, the store counts
        for node in self._nodes:
            add_written(tables, node.tables)
        status = self.status()
        loss = {"ticks_taken": status["ticks"], "ticks_missed": status["missed"]}
        return {**status, "running": False, "tables": tables, "loss": loss, "ts_to": time.monotonic_ns() if self._ts_from else None}

    def after(self, store: Store, manifest: Manifest) -> None:
        rows = [
            (
                self._ts_from, node.number, node.name, node.system, node.version, node.tier, node.why_sql, node.compared,
                node.wal_free_bytes(), node.round_trip_ns,
            )
            for node in self._nodes
        ]  # fmt: skip
        store.add("replication_node", rows)
        self.close()

    def progress(self) -> str:
        away = [node.name for node in self._nodes if node.is_away]
        return f"{away[0]} is away" if away else ""

    # -- the threads ---------------------------------------------------------------------------------------------------

    def _run(self, node: Node) -> None:
        try:
            node.watch(self._stop)
        except Exception as e:  # a thread must not end silently: the capture would look whole
            message = "the probe of replication ended by a programming error"
            self._error = LeadlineError("invalid", message, repr(e), "please report it").as_dict()

    def _write_now_and_then(self) -> None:
        written = time.monotonic()
        while not self._stop.wait(1.0):
            waiting = sum(len(node.positions) + len(node.senders) for node in self._nodes)
            if time.monotonic() - written >= self._pace.write_s or waiting >= MOST_UNWRITTEN:
                written = time.monotonic()
                self._write()

    def _write(self) -> None:
        if self._store is None:
            return
        for node in self._nodes:
            positions, senders = node.take()
            self._rows += len(positions) + len(senders)
            self._store.add("replication_position", positions)
            self._store.add("walsender", senders)
            applied = node.take_applied()
            replayed = self._replayed[node.number].read(node.pid, applied) if self._pace.records else []
            self._rows += len(replayed)
            self._store.add("replay_record", replayed)
