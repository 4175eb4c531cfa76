"""Whether leadline recovers a crashed data directory as its own server does: each recovers a copy, and every byte is compared."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadline._core.pages import page_read
from leadline.engines.postgres.server.binaries import find_binaries
from leadline.engines.postgres.server.cluster import ClusterServer
from leadline.errors import LeadlineError
from leadline.figures import count, seconds
from leadline.files.copies import compared_files, copy_cluster, differences, size_of
from leadline.files.recovery import recover
from leadline.progress import TerminalLine
from leadline.units import sized

SHOWN = 20
CONFIGURATION = ("postgresql.conf", "postgresql.auto.conf", "pg_hba.conf", "pg_ident.conf")
NOBODY = "local all all reject\n"
# Settings of the crashed server that change what recovery does, by their names in its control file.
KEPT = {
    "wal_level": "wal_level",
    "wal_log_hints": "wal_log_hints",
    "MaxConnections": "max_connections",
    "max_worker_processes": "max_worker_processes",
    "max_wal_senders": "max_wal_senders",
    "max_prepared_xacts": "max_prepared_transactions",
    "max_locks_per_xact": "max_locks_per_transaction",
    "track_commit_timestamp": "track_commit_timestamp",
}
# Nothing that the copy does may be seen elsewhere, and nothing may change it once it is recovered.
ALONE = {"autovacuum": False, "archive_mode": False, "logging_collector": False}


@dataclass(frozen=True)
class Verdict:
    """differences: empty when all is equal. server, server_s: the binaries that recovered, and seconds until their server was ready."""

    is_clean: bool
    files: int = 0
    file_bytes: int = 0
    differences: tuple[str, ...] = ()
    server: str = ""
    server_s: float = 0.0
    leadline_s: float = 0.0

    @property
    def is_equal(self) -> bool:
        return not self.differences


def verify(
    data_dir: str, memory: int | None, threads: int | None, *, pg_bin: Path | None, scratch: Path | None, line: TerminalLine
) -> Verdict:
    """Raises LeadlineError. The data directory is only read."""
    plan = recover(data_dir, memory, threads, dry_run=True, line=line)
    if plan["is_clean"]:
        return Verdict(is_clean=True)
    if any((kind["rmgr"], kind["type"]) == ("Tablespace", "CREATE") for kind in plan["kinds"]):
        raise LeadlineError(
            "unsupported",
            "this recovery cannot be tried on a copy",
            detail="the WAL creates a tablespace: recovery of a copy would write into the directory of the original",
            hint="recover without --verify, or start the server",
            where=data_dir,
        )
    binaries = find_binaries(pg_bin, plan["major"])
    root = Path(data_dir).resolve()
    with _directory(root, scratch) as directory:
        stock, ours = directory / "server", directory / "leadline"
        for copy in (stock, ours):
            copy_cluster(root, copy)
            (copy / "postmaster.pid").unlink(missing_ok=True)
            _configure_anew(copy)
        settings = _settings(root)
        server_s = _started_and_stopped(binaries.bin_dir, stock, settings)
        began = time.monotonic()
        recover(str(ours), memory, threads, dry_run=False, line=line)
        leadline_s = time.monotonic() - began
        leadline_s += _started_and_stopped(binaries.bin_dir, ours, settings)
        files = compared_files(stock)
        size = sum(path.stat().st_size for path in files.values())
        found = tuple(differences(stock, ours))
        return Verdict(False, len(files), size, found, f"{binaries.version} ({binaries.source})", server_s, leadline_s)


@contextmanager
def _directory(root: Path, scratch: Path | None) -> Iterator[Path]:
    """A directory for both copies that the owner of the data directory may enter; removed in the end."""
    above = scratch or root.parent
    try:
        need, free = 2 * size_of(root), shutil.disk_usage(above).free
        if need > free:
            raise LeadlineError(
                "storage",
                "there is no room for two copies of the data directory",
                detail=f"they need {sized(need)}, {sized(free)} are free",
                hint="give a directory on another disk: --scratch DIR",
                where=str(above),
            )
        directory = Path(tempfile.mkdtemp(prefix="leadline-verify-", dir=above))
        about = root.stat()
        shutil.chown(directory, about.st_uid, about.st_gid)
    except OSError as e:
        raise LeadlineError("storage", "cannot make a directory for the copies", detail=e.strerror or "", where=str(above)) from e
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _configure_anew(copy: Path) -> None:
    """Its own configuration may be anywhere, archives WAL, loads libraries."""
    about = copy.stat()
    for name in CONFIGURATION:
        path = copy / name
        path.unlink(missing_ok=True)
        path.write_text(NOBODY if name == "pg_hba.conf" else "")
        path.chmod(0o600)
        shutil.chown(path, about.st_uid, about.st_gid)


def _settings(root: Path) -> dict[str, Any]:
    [fields] = [part["fields"] for part in page_read(str(root / "global/pg_control"), 0)["parts"] if part["part"] == "ControlFileData"]
    return ALONE | {setting: _value(fields[name]) for name, setting in KEPT.items()}


def _value(field: Any) -> Any:
    return field.get("words") or field["value"]


def _started_and_stopped(bin_dir: Path, copy: Path, settings: dict[str, Any]) -> float:
    """Seconds until the server was ready."""
    began = time.monotonic()
    with ClusterServer(bin_dir, copy, settings=settings, start_timeout_s=86_400.0) as server:
        took = time.monotonic() - began
        server.stop(timeout_s=3600.0)
    return took


def text(verdict: Verdict) -> str:
    if verdict.is_clean:
        return "The server was shut down cleanly: there is nothing to recover."
    compared = f"{count(verdict.files, 'file')} ({sized(verdict.file_bytes)})"
    times = f"server {seconds(verdict.server_s)} s, leadline with the start of the server {seconds(verdict.leadline_s)} s"
    lines = [f"recovered by:  PostgreSQL {verdict.server}, and leadline", f"time:          {times}", ""]
    if verdict.is_equal:
        lines.append(f"Equal: {compared}, byte for byte. Free space maps were not compared. The data directory was not changed.")
        return "\n".join(lines)
    lines += verdict.differences[:SHOWN]
    if (more := len(verdict.differences) - SHOWN) > 0:
        lines.append(f"{more:,} more: --json lists all")
    wrong = f"Not equal: {count(len(verdict.differences), 'file')} of {compared}."
    lines += ["", f"{wrong} Start the server instead, and please report this as a bug."]
    return "\n".join(lines)
