"""A standby on another host, captured there by a leadline that ssh starts. Its capture comes home at the end, and its positions are put
on the clock of this host, beside those of the servers that are asked from here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.capture import carried
from leadline.capture.manifest import MANIFEST, Manifest, ProbeState, read_manifest, write_manifest
from leadline.capture.reader import Capture, open_capture
from leadline.capture.store import Store
from leadline.engines.postgres.probes.replication_node import Node
from leadline.errors import LeadlineError
from leadline.figures import count
from leadline.probes.other_clock import Exchange, OtherClock, Reading
from leadline.probes.ssh import Far, Place
from leadline.tables import all_tables

if TYPE_CHECKING:
    from leadline._core.capture import ErrorObject, ProbeFinal, ProbeStatus

FOLDER = "standbys"  # of the captures that came home, in the capture
AT_ONCE, BETWEEN = 50, 10  # exchanges before and after the window; in one reading within it
EVERY_S = 2.0
END_S = 120.0  # the other side reads the catalog again
AT_ONCE_ROWS = 50_000
MOVED = ("replication_position", "walsender", "replay_record")


class FarStandby:
    """number: of its node. target: the server that is asked from here. Raises LeadlineError when it cannot be captured, or is of another
    cluster. A connection that breaks within the window ends this probe alone."""

    required = False

    def __init__(self, place: Place, number: int, target: Node, tier: str) -> None:
        self._number, self._tier = number, tier
        self._far = Far(place)
        try:
            found = self._far.ask("find", server=place.server)
            if found["system"] != target.system:
                detail = f"{target.name} has the system identifier {target.system}, that of {place} has {found['system']}"
                raise LeadlineError("usage", "these servers are not of one cluster", detail, f"{place}/DATA_DIR names another server there")
        except BaseException:
            self._far.close()
            raise
        self.node_name = f"{place.host}:{str(found['name']).rpartition(':')[2]}"
        self.name = f"standby {self.node_name}"
        self._stop = threading.Event()
        self._error: ErrorObject | None = None
        self._thread = threading.Thread(target=self._keep_looking, name="leadline-ssh", daemon=True)
        self._readings: list[Reading] = []
        self._first: Reading | None = None
        self._clock: OtherClock | None = None
        self._exchanges = self._ts_from = self._rows = self._bytes = 0
        self._began = False
        self._missing: list[str] = []
        self._theirs: Manifest | None = None

    def close(self) -> None:
        self._far.close()

    def describe(self, manifest: Manifest) -> None:
        clock = self._clock
        detail: dict[str, Any] = {}
        if clock is not None:
            detail["clock"] = {
                "offset_ns": clock.offset_ns(clock.last.theirs), "error_ns": clock.error_ns, "exchanges": self._exchanges,
                "drift_ppm": round(clock.drift_ppm, 3), "drift_error_ppm": round(clock.drift_error_ppm, 3),
            }  # fmt: skip
        if self._theirs is not None:
            detail |= {"capture": f"{FOLDER}/{self._folder.name}", "cpu_s_there": self._theirs.cost.cpu_s}
        known = manifest.probe(self.name)
        access = {"node": f"{self._number}: {self._far.place}"}
        state = ProbeState("ok", loss=known.loss, cost=known.cost, access=access, detail=detail)
        if self._missing:
            state.status, state.why = "partial" if self._rows else "off", "; ".join(self._missing)
        manifest.probes[self.name] = state

    def before(self, store: Store, manifest: Manifest) -> None:
        self._folder = Path(store.capture_dir) / FOLDER / f"{self.node_name.replace(':', '-')}.leadline"
        self._first = self._look(AT_ONCE)
        self._far.ask("begin", tier=self._tier)
        self._began = True

    def start(self) -> None:
        self._ts_from = time.monotonic_ns()
        self._thread.start()

    def status(self) -> ProbeStatus:
        return {
            "running": self._thread.is_alive(), "error": self._error, "ts_from": self._ts_from,
            "ticks": len(self._readings), "missed": 0, "rows": self._rows, "bytes_written": self._bytes, "cpu_ns": 0,
        }  # fmt: skip

    def stop(self) -> ProbeFinal:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        status = self.status()
        loss = {"ticks_taken": status["ticks"], "ticks_missed": 0}
        return {**status, "running": False, "tables": {}, "loss": loss, "ts_to": time.monotonic_ns() if self._ts_from else None}

    def after(self, store: Store, manifest: Manifest) -> None:
        """Brings the capture home. What cannot be had is told in the state of the probe: the rest of the capture is whole."""
        try:
            if self._began and self._error is None:
                self._bring(store, manifest)
        except LeadlineError as e:
            self._missing.append("; ".join(text for text in (e.message, e.detail) if text))
        finally:
            self.close()
        if self._error is None:
            self.describe(manifest)
        if self._missing:
            manifest.note(f"{self.name}: {'; '.join(self._missing)}")

    def progress(self) -> str:
        return ""

    # -- the clock -----------------------------------------------------------------------------------------------------

    def _look(self, exchanges: int) -> Reading:
        return Reading.of([self._exchange() for _ in range(exchanges)])

    def _exchange(self) -> Exchange:
        self._exchanges += 1
        sent = time.monotonic_ns()
        told = self._far.ask("clock")
        return Exchange(sent, int(told["received"]), int(told["answered"]), time.monotonic_ns())

    def _keep_looking(self) -> None:
        """Also tells the other side that this one is there."""
        try:
            while not self._stop.wait(EVERY_S):
                self._readings.append(self._look(BETWEEN))
        except LeadlineError as e:
            self._error = e.as_dict()
        except Exception as e:  # a thread must not end silently: the capture would look whole
            self._error = LeadlineError("fault", f"the probe of {self.name} ended by a programming error", repr(e)).as_dict()

    # -- the capture ---------------------------------------------------------------------------------------------------

    def _bring(self, store: Store, manifest: Manifest) -> None:
        ended = self._far.ask("end", END_S)["ended"]
        assert self._first is not None
        self._clock = OtherClock(self._first, self._look(AT_ONCE), self._readings)
        if ended is not None:
            self._missing.append(f"the capture there ended early: {ended['message']}")
        expected = self._far.ask("send")["files"]
        self._folder.mkdir(parents=True)
        came, why = carried.receive(self._far, self._folder)
        if came < expected:
            self._missing.append(f"{came} of {count(expected, 'file')} of the capture there came home{f': {why}' if why else ''}")
        if not (self._folder / MANIFEST).exists():
            return
        self._theirs = read_manifest(self._folder)
        if came < expected:
            self._theirs.status, self._theirs.error = "failed", LeadlineError("gone", self._missing[-1]).as_dict()
            write_manifest(self._folder, self._theirs)
        with closing(open_capture(self._folder)) as capture:
            self._join(capture, store, manifest)

    def _join(self, capture: Capture, store: Store, manifest: Manifest) -> None:
        """Puts what their probe of replication saw in our window into our tables."""
        assert self._clock is not None
        ts_from, ts_to = manifest.clock.ts_from or 0, manifest.clock.ts_to or time.monotonic_ns()
        error = self._clock.error_ns
        for table in MOVED:
            for rows in self._rows_of(capture, table):
                kept = [row for row in rows if "ts" not in row or ts_from <= row["ts"] <= ts_to]
                for row in kept:
                    if row.get("answer_ns") is not None:  # ts is off by at most half of it
                        row["answer_ns"] += 2 * error
                store.add(table, [tuple(row.values()) for row in kept])
                self._rows += len(kept)
        for rows in self._rows_of(capture, "replication_node"):
            for row in rows:
                row |= {"name": self.node_name, "round_trip_ns": max(row["round_trip_ns"], 2 * error)}
                store.add("replication_node", [tuple(row.values())])
        if not (Path(store.capture_dir) / "wait_event").exists():  # of the same major
            names = [column.name for column in all_tables()["wait_event"].columns]
            store.add("wait_event", [tuple(row[name] for name in names) for row in capture.rows("select * from wait_event")])
        theirs = capture.manifest.probe("replication")
        if theirs.why:
            self._missing.append(f"replication there: {theirs.why}")
        ours = manifest.probes["replication"].detail
        for name in ("sql_because", "replayed_records"):
            for told in theirs.detail.get(name, {}).values():  # there it is the only one, by another name
                ours.setdefault(name, {})[self.node_name] = told

    def _rows_of(self, capture: Capture, table: str) -> Iterator[list[dict[str, Any]]]:
        """Rows of the server itself by name, in the order of the columns, as those of this node on our clock."""
        assert self._clock is not None
        names = [column.name for column in all_tables()[table].columns]
        capture.prepare(table)
        found = capture.db.execute(f"select {', '.join(names)} from {table} where node = 1")
        while some := found.fetchmany(AT_ONCE_ROWS):
            rows = [dict(zip(names, row, strict=True)) for row in some]
            for row in rows:
                row["node"] = self._number
                if "ts" in row:
                    row["ts"] = self._clock.ours(row["ts"])
            yield rows
