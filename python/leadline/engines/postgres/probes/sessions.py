"""The sessions of a PostgreSQL server as a probe: from its shared memory where that may be read, else over SQL.

Both tiers sample in threads of their own and fill the same tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from leadline.capture.manifest import Manifest, ProbeState
from leadline.capture.store import Store, core_writer
from leadline.engines.postgres.catalog.collect import CatalogReader
from leadline.engines.postgres.probes.following import Following, Sampler
from leadline.engines.postgres.probes.sql_tier import SqlRecorder
from leadline.engines.postgres.target import PostgresServer, socket_dsn
from leadline.errors import LeadlineError

if TYPE_CHECKING:
    from leadline._core.recorder import Recorder, SamplerFinal, SamplerStatus

FLUSH_INTERVAL_S = 5.0
SAMPLED = ("sessions", "locks", "buffers", "deltas")  # what comes of its passes


@dataclass
class Attached:
    """A probe, its tier, and why a better tier was not possible. sampler: the probe itself, or what Following attaches again."""

    probe: Sampler
    sampler: Recorder | SqlRecorder
    tier: str
    rate_hz: float
    dsn: str | None
    notes: tuple[str, ...] = ()


def attach(target: PostgresServer, directory: Path, rate_hz: float, tier: str, flush_interval_s: float = FLUSH_INTERVAL_S) -> Attached:
    """The best probe that the target and our rights allow. Raises the shared-memory error when SQL is no way out either.

    flush_interval_s: how long rows wait in memory before a segment is written, at least.
    """
    if tier != "sql" and target.pid is not None:
        try:
            from leadline import _core

            probe = _core.recorder.Recorder(
                str(directory),
                target.pid,
                rate_hz,
                flush_interval_s=flush_interval_s,
                growing_segments=flush_interval_s >= FLUSH_INTERVAL_S,
            )
            return Attached(probe, probe, "shm", rate_hz, target.dsn)
        except LeadlineError as e:
            if tier == "shm" or e.kind in ("storage", "usage"):
                raise
            memory_error = e
        return _attach_sql(target, directory, rate_hz, memory_error, flush_interval_s)
    if tier == "shm":
        raise LeadlineError(
            "unsupported",
            "shared memory can be read only on the server's own host",
            detail="; ".join(target.notes),
            hint="run leadline there, or leave out --tier shm",
        )
    return _attach_sql(target, directory, rate_hz, None, flush_interval_s)


def follow(target: PostgresServer, attached: Attached, directory: Path) -> Following:
    """Lets the sampler of `attached` go on when the server has started again."""
    sampler, before = attached.sampler, target

    def again(found: PostgresServer) -> str:
        nonlocal before
        if isinstance(sampler, SqlRecorder):
            dsn = found.dsn if found.dsn is not None else socket_dsn(found)
            if dsn is None:
                raise LeadlineError("gone", "the server's port is not known yet")
            cause = sampler.attach_again(found, dsn)
        else:
            assert found.pid is not None
            sampler.attach_again(found.pid)
            cause = "crash" if (found.pid, found.start_ticks) == (before.pid, before.start_ticks) else "restart"
        before = found
        return cause

    attached.probe = followed = Following(sampler, target, again, str(directory), round(1e9 / attached.rate_hz))
    return followed


def _attach_sql(
    target: PostgresServer, directory: Path, rate_hz: float, memory_error: LeadlineError | None, flush_interval_s: float
) -> Attached:
    dsn = target.dsn if target.dsn is not None else socket_dsn(target)
    notes = []
    if memory_error is not None:
        why = "; ".join(part for part in (memory_error.message, memory_error.detail) if part)
        notes.append(f"shared memory was not read: {why}. Sampled over SQL instead. To read memory: {memory_error.hint}")
    if dsn is None:
        raise memory_error or LeadlineError(
            "usage", "sampling over SQL needs a connection string", hint="leadline take postgresql://USER@HOST:PORT/DATABASE ..."
        )
    try:
        open_writer = partial(core_writer, growing=flush_interval_s >= FLUSH_INTERVAL_S)
        probe = SqlRecorder(str(directory), target, dsn, rate_hz, flush_interval_s=flush_interval_s, open_writer=open_writer)
    except LeadlineError as e:
        if memory_error is None:
            raise
        raise LeadlineError(
            memory_error.kind,
            memory_error.message,
            detail=f"{memory_error.detail}; over SQL: {e.message} ({e.detail})",
            hint=memory_error.hint,
            where=memory_error.where,
        ) from e
    if rate_hz > probe.rate_hz:
        notes.append(f"{rate_hz:g} passes per second were requested; over SQL {probe.rate_hz:g} are possible")
    return Attached(probe, probe, "sql", probe.rate_hz, dsn, tuple(notes))


def describe(manifest: Manifest, attached: Attached) -> None:
    """Takes over what the probe knows of the server and of itself; again at the end, when it knows more."""
    found = attached.probe.describe()
    target = manifest.target
    target.version_num = found["server_version_num"] or target.version_num
    target.version = target.version or short_version(found["server_version"])
    target.detail["max_connections"] = found["max_connections"] or target.detail.get("max_connections")
    target.detail["data_dir"] = found["data_dir"] or target.detail.get("data_dir")
    for name, state in found["probes"].items():
        manifest.probes[name] = made = ProbeState(**state)
        made.tier = attached.tier if name in SAMPLED else None
    sessions = manifest.probes["sessions"]
    sessions.rate_hz, sessions.access = attached.rate_hz, {**found["access"]}
    sessions.detail |= {"layout_checks": found["layout_checks"]}


def short_version(text: str) -> str:
    """The version as the setting server_version has it: without the product's name and the compiler."""
    return text.removeprefix("PostgreSQL ").split(" on ")[0]


class SessionsProbe:
    """The sessions of a server, and its catalog before and after the window."""

    name = "sessions"

    def __init__(self, target: PostgresServer, attached: Attached, *, required: bool = True) -> None:
        self.required, self.attached = required, attached
        self._sampler = attached.probe
        self._on_this_host = target.pid is not None
        self._catalog = CatalogReader(target, attached.dsn)
        self._followed = attached.probe if isinstance(attached.probe, Following) else None
        self._final: SamplerFinal | None = None

    def before(self, store: Store, manifest: Manifest) -> None:
        if not self._on_this_host:
            manifest.note("host facts were not read: the server does not run on this host")
            why, hint = "the server does not run on this host", "take the capture on the server's host"
            manifest.probes.setdefault("host", ProbeState("off", why, hint))
        self._collect("before", store, manifest)

    def start(self) -> None:
        self._sampler.start()

    def status(self) -> SamplerStatus:
        return self._sampler.status()

    def stop(self) -> SamplerFinal:
        self._final = self._final or self._sampler.stop()
        return self._final

    def write_soon(self) -> None:
        self._sampler.write_soon()

    def describe(self, manifest: Manifest) -> None:
        describe(manifest, self.attached)

    def after(self, store: Store, manifest: Manifest) -> None:
        gaps = self._followed.gaps if self._followed else []
        for gap in gaps:
            manifest.note(gap.sentence(self._final["ts_to"] if self._final else None, manifest.clock.wall_offset_ns))
        if self._followed:
            self._catalog.follow(self._followed.target)
        error = self._final["error"] if self._final else None
        if gaps and gaps[-1].ts_to is None:
            manifest.note("the catalog was not read after the window: the server had ended")
        elif error is not None and error["kind"] == "gone":  # another server may answer, with other counters
            manifest.note("the catalog was not read after the window: the server had ended or restarted")
        else:
            self._collect("after", store, manifest)

    def progress(self) -> str:
        status = self._sampler.status()
        if self._followed and (away := self._followed.progress()):
            return away
        missed = f", {status['missed']} missed" if status["missed"] else ""
        return f"{status['ticks']} passes{missed}, {status['sessions']} sessions"

    def _collect(self, phase: str, store: Store, manifest: Manifest) -> None:
        found = self._catalog.read(phase)
        store.add_all(found.rows)
        manifest.note(*found.notes)
        manifest.probes["catalog"] = self._catalog.probe()
