"""A recovery written as an ordinary capture: what the log consisted of, what was done to which relation, and where the time went."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline._core.capture import TableWriter
from leadline.capture.directory import new_capture
from leadline.capture.making import Making
from leadline.capture.manifest import ProbeState, Target
from leadline.errors import LeadlineError
from leadline.files.wal import FORKS, names_of

if TYPE_CHECKING:
    from leadline._core.replay import Report

TABLES = ("recovery_type", "recovery_relation", "recovery_phase", "recovery_thread")
RELATION = ("applied", "restored", "superseded", "removed", "older", "pages", "pages_written", "pages_read")


def captured(data_dir: str, out: Path, options: dict[str, Any], recover: Callable[[], Report], *, overwrite: bool) -> tuple[Report, Path]:
    """Recovers, and writes what was done. The capture is begun first: where it cannot be, nothing is recovered.

    Raises LeadlineError; a capture of a recovery that failed says so.
    """
    with new_capture(out, overwrite=overwrite) as directory:
        target = Target("recovery", str(Path(data_dir).resolve()))
        making = Making(directory, target, options)
        making.manifest.probes["recovery"] = ProbeState(tier="files")
        with making.from_files() as manifest:
            report = recover()
            names: dict[tuple[int, int, int], str] = {}
            if report["is_clean"]:
                manifest.note("the server was shut down cleanly: there was nothing to recover")
            else:
                target.version, target.version_num = str(report["major"]), report["major"] * 10_000
                target.detail = {name: value for name, value in report.items() if name not in ("kinds", "relations", "threads", "seconds")}
                try:
                    names, lost = names_of(data_dir)
                    for database, why in lost:
                        manifest.note(f"names of relations of database {database} are not known: {why}")
                except LeadlineError as e:
                    manifest.note(f"names of relations are not known: {e}")
            for table, rows in zip(TABLES, _rows(report, names), strict=True):
                writer = TableWriter(str(directory), table)
                writer.append(list(rows))
                manifest.tables[table] = writer.close()
            manifest.cost.bytes_written = sum(figures["bytes"] for figures in manifest.tables.values())
    return report, directory


def _rows(report: Report, names: dict[tuple[int, int, int], str]) -> Iterable[Iterable[tuple[Any, ...]]]:
    """Of each table, in the order of TABLES."""
    yield ((k["rmgr"], k["type"], k["records"], k["record_bytes"], k["fpi"], k["fpi_bytes"]) for k in report["kinds"])
    yield (_relation(dict(of), names) for of in report["relations"])
    phases = enumerate(report["seconds"].items(), 1)
    yield ((step, phase, round(took * 1e9)) for step, (phase, took) in phases)
    yield ((number, *times) for number, times in enumerate(report["threads"], 1))


def _relation(of: dict[str, Any], names: dict[tuple[int, int, int], str]) -> tuple[Any, ...]:
    key = of["spcnode"], of["dbnode"], of["relfilenode"]
    return (*key, FORKS[of["fork"]], names.get(key), *(of[name] for name in RELATION))
