"""The demo from start to end: a private server, the shop's data, its clients, one capture, one report, and nothing left running.

The capture is taken by the same function that `leadline take` calls, from the same arguments a user would give. Nothing that
this package knows about its load is handed on.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from leadline.capture.directory import new_capture
from leadline.capture.manifest import MANIFEST
from leadline.demo.load_process import LoadProcess
from leadline.demo.schema import load_schema
from leadline.engines.postgres.server import PrivateServer, find_binaries
from leadline.errors import LeadlineError, cannot_be_written
from leadline.progress import Progress

DIRECTORY, CAPTURE, REPORT = "leadline-demo", "capture.leadline", "report.html"
BOOK = "book"  # where `make demo` records its run
WARM_UP_S = 2.0
NEEDED_BYTES, NEEDED_BYTES_PER_S = 1024**3, 40 * 1024**2  # measured: 0.2 GB, and 30 MB of rows and WAL a second

SETTINGS: dict[str, object] = {
    "shared_buffers": "128MB",
    "max_connections": 60,
    "max_wal_size": "4GB",
    "synchronous_commit": "off",  # so that the disk of a laptop does not hide the rest
    "jit": "off",
}
QUERY_ID_SINCE = 14


@dataclass(frozen=True)
class DemoResult:
    """Where the demo left what it made."""

    capture: Path
    report: Path


def prepare_directory(directory: Path) -> DemoResult:
    """The directory of the demo, empty of an earlier demo's files. Raises LeadlineError('usage') when it holds anything else."""
    result = DemoResult(directory / CAPTURE, directory / REPORT)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        known = [result.capture, result.report, *([directory / BOOK] if (directory / BOOK / "spool").is_dir() else [])]
        foreign = sorted(path.name for path in directory.iterdir() if path not in known)
        if not foreign and result.capture.exists() and not (result.capture / MANIFEST).is_file():
            foreign = [CAPTURE]
        if foreign:
            raise LeadlineError(
                "usage",
                "the directory contains files that are not from an earlier demo",
                detail=", ".join(foreign[:5]) + (" ..." if len(foreign) > 5 else ""),
                hint="use leadline demo -o DIR to write elsewhere",
                where=str(directory),
            )
        if result.capture.exists():
            with new_capture(result.capture, overwrite=True, exactly=True):  # unless another demo writes it now
                result.capture.rmdir()
        result.report.unlink(missing_ok=True)
    except OSError as e:
        raise cannot_be_written("the directory of the demo", e, directory) from e
    return result


def check_room(seconds: float) -> None:
    """Raises LeadlineError('storage') when the temporary directory is too small for the private server and its load."""
    directory = tempfile.gettempdir()
    free, needed = shutil.disk_usage(directory).free, NEEDED_BYTES + NEEDED_BYTES_PER_S * seconds
    if free < needed:
        raise LeadlineError(
            "storage",
            f"the demo needs {needed / 1024**3:.1f} GB of temporary space, but only {free / 1024**3:.1f} GB are free",
            hint="set TMPDIR to a directory with more space, or lower --seconds",
            where=directory,
        )


def run_demo(
    directory: Path,
    *,
    pg_bin: Path | None = None,
    major: int | None = None,
    seconds: float = 20.0,
    rate_hz: float = 100.0,
    announce: Callable[[str], None],
    progress: Progress,
) -> DemoResult:
    """Runs the demo; leaves a capture and a report in `directory`. Server and clients are gone when it returns or raises.

    announce: gets a line for each step. Raises LeadlineError, and KeyboardInterrupt after clearing up.
    """
    from leadline.probes.take import take
    from leadline.views.report import check_packages, write_report

    check_packages("leadline demo", "demo")
    binaries = find_binaries(pg_bin, major)
    result = prepare_directory(directory)
    check_room(seconds)
    settings = SETTINGS | ({"compute_query_id": "on"} if binaries.major >= QUERY_ID_SINCE else {})
    announce(f"starting a private PostgreSQL {binaries.version} ({binaries.source}); Ctrl-C stops and removes it")
    with PrivateServer(binaries.bin_dir, settings=settings) as server:
        for note in server.notes:
            announce(note)
        announce(f"it runs as user {server.user.name}, postmaster {server.pid}, in {server.base_dir}; loading the data of a small shop")
        load_schema(server.dsn)
        with LoadProcess(server.dsn) as load:
            announce("the shop clients are running")
            load.run_for(WARM_UP_S)
            announce(f"taking a capture of {seconds:g} s, {rate_hz:g} passes per second")
            take(
                dsn=server.dsn,
                pid=server.pid,
                data_dir=None,
                for_s=seconds,
                rate_hz=rate_hz,
                out=result.capture,
                overwrite=True,
                progress=progress,
            )
            load.run_for(0)
        announce("stopping the clients and the server, and removing its data")
    announce("writing the report")
    write_report(result.capture, result.report)
    return result
