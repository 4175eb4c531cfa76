"""What a capture reads of the catalog before and after its window: over SQL when there is a connection, else from files."""

from __future__ import annotations

from pathlib import Path

from leadline.capture.manifest import ProbeState
from leadline.engines.postgres import memory, postmaster, replay_time
from leadline.engines.postgres.catalog import conf, files, large_objects, sql
from leadline.engines.postgres.catalog.connection import connect
from leadline.engines.postgres.target import PostgresServer
from leadline.errors import LeadlineError


class CatalogReader:
    """Reads the catalog twice for one capture. Nothing here is required: what fails becomes a note."""

    def __init__(self, target: PostgresServer, dsn: str | None) -> None:
        self.target, self.dsn = target, dsn
        self._sql_error: LeadlineError | None = None
        self._files_error = ""
        self._over_sql = self._from_files = False
        self._before: list[sql.Row] = []
        self._begun: float | None = None

    def read(self, phase: str) -> sql.Collected:
        """phase: before or after."""
        found = sql.Collected()
        if self.dsn is not None:
            try:
                self._read_sql(self.dsn, phase, found)
                self._over_sql = True
                return found
            except LeadlineError as e:
                self._sql_error = e
                found.notes.append(f"no SQL connection {phase} the window: {e.message} ({e.detail})")
        if not self._over_sql:
            self._read_files(phase, found)
        return found

    def follow(self, target: PostgresServer) -> None:
        """The server has started again: what is read after the window is read there."""
        if target.dsn != self.target.dsn:
            self.dsn = target.dsn
        self.target = target

    def probe(self) -> ProbeState:
        """The state of probe catalog for the manifest."""
        if self._over_sql and self._sql_error is None:
            return ProbeState()
        sql_why = "no connection string was given" if self._sql_error is None else self._sql_error.message
        hint = "give a connection string beside --pid" if self.dsn is None else self._sql_error.hint if self._sql_error else ""
        if self._over_sql:
            return ProbeState("partial", f"read before the window only: {sql_why}", hint)
        if self._from_files:
            why = f"names and settings come from files, without server counters: {sql_why}"
            return ProbeState("partial", why, hint)
        return ProbeState("off", "; ".join(part for part in (sql_why, self._files_error) if part), hint)

    def _read_sql(self, dsn: str, phase: str, found: sql.Collected) -> None:
        with connect(dsn) as conn:
            parts = [sql.collect_static(conn, dsn if phase == "before" else None)]
            # The counters are read next to the window, the slower listings on its other side.
            if phase == "before":
                parts += [sql.collect_relations(conn), sql.collect_counters(conn, phase)]
                self._before = parts[-1].rows.get("server_stat", [])
                self._begun = _begun(parts[-1].rows)
            else:
                parts.insert(0, sql.collect_counters(conn, phase))
                parts += [sql.collect_relations(conn), large_objects.collect(conn)]
            connected = conn.info.dbname
        if phase == "after" and _begun(parts[0].rows) != self._begun:
            _leave_out_counters(parts[0])
        if self.target.pid is not None:
            counters = parts[0 if phase == "after" else -1].rows.get("server_stat", [])
            found.add("server_stat", replay_time.in_kernel(self.target.pid, phase, counters))
        if phase == "after":
            if self.target.pid is not None:
                found.add("server_stat", memory.of_sessions(self.target.pid))
            busy = sql.busy_databases(self._before, parts[0].rows.get("server_stat", []))
            parts.append(sql.collect_other_databases(dsn, connected, busy))
            found.notes += sql.not_looked_at(connected, busy)
        for part in parts:
            for table, rows in part.rows.items():
                found.add(table, rows)
            found.notes += part.notes

    def _read_files(self, phase: str, found: sql.Collected) -> None:
        pid = self.target.pid
        if pid is None:
            self._files_error = "the server's files are not on this host"
            return
        directory = postmaster.data_path(pid)
        if not self.target.is_running() and self.target.data_dir is not None:
            directory = Path(self.target.data_dir)
        try:
            part = files.collect(directory)
        except (LeadlineError, OSError) as e:
            detail = e.message if isinstance(e, LeadlineError) else str(e)
            self._files_error = f"catalog files: {detail}"
            found.notes.append(f"could not read names from the catalog files; names stay numbers: {detail}")
        else:
            self._from_files = True
            for table, rows in part.rows.items():
                found.add(table, rows)
            found.notes += part.notes
        if phase == "before":
            settings, notes = conf.settings_of(pid)
            found.add("setting", settings)
            found.notes += notes
            found.notes.append("no SQL connection: server counters, authentication rules and sizes known to SQL only were not read")


_STATES = ("pg_stat_replication", "pg_stat_progress_")  # views of pg_stat_* without counters


def _begun(rows: dict[str, list[sql.Row]]) -> float | None:
    """Since when the server counts. A crash discards all counters, and sets this one."""
    return next((row[5] for row in rows.get("server_stat", []) if row[2:5] == ("pg_stat_bgwriter", "", "stats_reset")), None)


def _leave_out_counters(found: sql.Collected) -> None:
    """Counters that began anew in the window have no difference to those from before."""
    rows = found.rows.get("server_stat", [])
    found.rows["server_stat"] = [row for row in rows if not row[2].startswith("pg_stat_") or row[2].startswith(_STATES)]
    found.notes.append("the server's counters began anew in the window (a crash, or pg_stat_reset_shared): differences are unknown")
