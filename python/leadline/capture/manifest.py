"""The manifest of a capture: what it is evidence of, when, by which probes, and what they missed and cost.

This module alone knows the JSON (docs/concepts/contracts.md). Everything else works with these classes.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from leadline.errors import LeadlineError, cannot_be_written
from leadline.version import version

if TYPE_CHECKING:
    from leadline._core.capture import ErrorObject, Written

FORMAT_VERSION = 2
MANIFEST = "manifest.json"
CLIENT = "client backend"  # what session.backend_type says of the session of a client, of any engine
TIERS = {"shm": "shared memory", "sql": "SQL", "procfs": "/proc", "bpf": "by BPF", "perf": "by perf events"}
T = TypeVar("T")


@dataclass
class Clock:
    """The window in ns on CLOCK_MONOTONIC; ts_to is None while recording. wall_offset_ns: add to a ts for ns since 1970.

    span_s: of a coarse capture, the length of the spans of which each became one pass; None where each pass has its own rows.
    """

    ts_from: int | None = None
    ts_to: int | None = None
    wall_offset_ns: int | None = None
    span_s: int | None = None

    @property
    def window_s(self) -> float | None:
        return None if self.ts_from is None or self.ts_to is None else (self.ts_to - self.ts_from) / 1e9

    @property
    def began(self) -> datetime | None:
        """Start of the window by the wall clock, UTC."""
        if self.ts_from is None or self.wall_offset_ns is None:
            return None
        return datetime.fromtimestamp((self.ts_from + self.wall_offset_ns) / 1e9, UTC)


@dataclass
class Target:
    """What the capture is evidence of.

    kind: postgres, host, process, files, wal, informix, ...: an open set. name: one line for people. pid: its main process on
    this host. cpu_count: CPUs it may use. version, version_num: of the server (160014 of 16.14). detail: what only this kind
    has, e.g. dsn (without password), data_dir and max_connections of postgres.
    """

    kind: str
    name: str = ""
    pid: int | None = None
    cpu_count: int | None = None
    version: str | None = None
    version_num: int | None = None
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass
class Host:
    """The host on which the capture was made."""

    name: str = ""
    kernel: str = ""
    machine: str = ""

    @staticmethod
    def this() -> Host:
        system = platform.uname()
        return Host(system.node, system.release, system.machine)


@dataclass
class ProbeState:
    """What became of one probe.

    status: ok, partial (why says what is missing) or off. hint: what would give the rest. tier: how it looked (shm, sql, procfs,
    files, text, ...). rate_hz: passes a second of a sampling probe. loss: what was missed, counted by kind. cost: cpu_s, bytes_written.
    access: rights and ways it had. detail: what only this probe has, e.g. layout_checks; `without` and `unseen`: why a table of the
    probe is not there, or lacks what was there to be seen.
    """

    status: str = "ok"
    why: str = ""
    hint: str = ""
    tier: str | None = None
    rate_hz: float | None = None
    loss: dict[str, Any] = field(default_factory=dict)
    cost: dict[str, Any] = field(default_factory=dict)
    access: dict[str, Any] = field(default_factory=dict)
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def looked(self) -> bool:
        """It gathered evidence, all or in part."""
        return self.status in ("ok", "partial")


@dataclass
class Cost:
    """What leadline itself used. cpu_s: user and system, of the process in the window; setup_cpu_s: before it."""

    cpu_s: float | None = None
    window_s: float | None = None
    cpu_percent_of_core: float | None = None
    bytes_written: int | None = None
    setup_cpu_s: float | None = None

    def of_window(self, cpu_s: float, window_s: float) -> None:
        self.cpu_s, self.window_s = round(cpu_s, 6), round(window_s, 6)
        self.cpu_percent_of_core = round(100 * cpu_s / window_s, 3) if window_s > 0 else None


@dataclass
class Manifest:
    """One capture. status: recording, complete or failed; error: the error object that ended it early."""

    target: Target
    status: str = "recording"
    error: ErrorObject | None = None
    clock: Clock = field(default_factory=Clock)
    host: Host = field(default_factory=Host.this)
    probes: dict[str, ProbeState] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    tables: dict[str, Written] = field(default_factory=dict)
    cost: Cost = field(default_factory=Cost)
    options: dict[str, Any] = field(default_factory=dict)
    product_version: str = field(default_factory=version)
    format_version: int = FORMAT_VERSION

    def note(self, *texts: str) -> None:
        """Adds what people should know, each once."""
        self.notes += [text for text in dict.fromkeys(texts) if text not in self.notes]

    def probe(self, name: str) -> ProbeState:
        """The state of a probe; of one that was not run, `off` with the reason."""
        return self.probes.get(name) or ProbeState("off", f"probe {name} was not run")

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of manifest.json, to be read only: lists and dictionaries in it are those of the manifest."""
        content = {name: getattr(self, name) for name in _ORDER}
        for name in ("target", "host", "clock", "cost"):
            content[name] = dict(vars(content[name]))
        return content | {"probes": {name: dict(vars(state)) for name, state in self.probes.items()}}

    @staticmethod
    def from_dict(content: dict[str, Any]) -> Manifest:
        """Of a JSON object of this format; keys that are not known (a later minor format) are passed over."""
        known = {key: value for key, value in content.items() if key in _ORDER and value is not None}
        parts: dict[str, Any] = {"target": Target, "clock": Clock, "host": Host, "cost": Cost}
        made = {key: _made(parts[key], value) if key in parts else value for key, value in known.items()}
        made["probes"] = {name: _made(ProbeState, state) for name, state in known.get("probes", {}).items()}
        made.setdefault("target", Target("unknown"))
        return Manifest(**made)


_ORDER = (
    "format_version", "product_version", "status", "error", "target", "host", "clock", "probes", "notes", "tables", "cost", "options",
)  # fmt: skip


def _made(kind: type[T], content: dict[str, Any]) -> T:
    names = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    return kind(**{key: value for key, value in content.items() if key in names})


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Replaces the manifest as one step, so that a reader or a crash never sees half of it.

    While the capture is being recorded, the one before stays under the temporary name: a deletion every few seconds would make each
    new file of the capture dearer (crates/capture/src/rename.rs).
    """
    from leadline import _core

    temporary = directory / (MANIFEST + ".tmp")
    try:
        with open(temporary, "w", encoding="utf-8", errors="replace") as out:  # a path may be no UTF-8
            out.write(json.dumps(manifest.as_dict(), indent=1, ensure_ascii=False) + "\n")
            out.flush()
            os.fsync(out.fileno())
        if manifest.status == "recording":
            _core.capture.exchange(temporary, directory / MANIFEST)
        else:
            temporary.replace(directory / MANIFEST)
    except OSError as e:
        raise cannot_be_written("the manifest", e, directory) from e


def read_manifest(path: Path) -> Manifest:
    """The manifest of a capture directory, of this format or an older one. Raises LeadlineError when there is none or it is newer."""
    where = str(path)
    hint = "a capture is a directory NAME.leadline with a manifest.json; create one with leadline take"
    try:
        text = (path / MANIFEST).read_text(encoding="utf-8")
    except FileNotFoundError as e:
        what = "this is not a capture" if path.exists() else "no such capture"
        raise LeadlineError("not_found", what, hint=hint, where=where) from e
    except OSError as e:
        raise LeadlineError("storage", f"cannot read the capture: {e.strerror}", where=where) from e
    try:
        content: dict[str, Any] = json.loads(text)
        format_version = content["format_version"]
        if not isinstance(format_version, int) or format_version > FORMAT_VERSION:
            raise LeadlineError(
                "unsupported",
                f"the capture has format version {format_version}; this leadline reads versions up to {FORMAT_VERSION}",
                hint="open it with the leadline version that made it, or a newer one",
                where=where,
            )
        if format_version == 1:
            from leadline.capture.format1 import converted

            content = converted(content)
        return Manifest.from_dict(content)
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise LeadlineError("invalid", "the manifest of the capture is damaged", detail=repr(e), where=str(path / MANIFEST)) from e
