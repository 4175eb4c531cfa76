"""What a capture or a run says of where and how it was measured: names and values as leadline.lab.comparable takes them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leadline.book.query import Book
from leadline.capture.manifest import MANIFEST
from leadline.capture.reader import Capture, open_capture
from leadline.errors import LeadlineError
from leadline.host.storage import UNKNOWN, ways

_SYSTEM = "nspname in ('pg_catalog', 'information_schema') or starts_with(nspname, 'pg_toast') or starts_with(nspname, 'pg_temp')"


@dataclass
class Side:
    """One of the two. kinds: what its facts are of: host, server, run. measured: how, by name. seconds: how long. figures: of a run."""

    name: str
    about: str
    kinds: set[str]
    facts: dict[str, str]
    measured: dict[str, str]
    seconds: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    capture: Capture | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "about": self.about, "seconds": self.seconds, "facts": self.facts, "measured": self.measured,
            "figures": self.figures,
        }  # fmt: skip


def side(text: str, book: Book | None = None) -> Side:
    """text: the directory of a capture, or a run of the logbook: of one that made a capture, that. Raises LeadlineError."""
    path = Path(text)
    if path.exists() or path.suffix == ".leadline" or "/" in text:
        return of_capture(path)
    book = book or Book()
    run = book.details(book.find(text))
    captures = [Path(made["path"]) for made in run["artifacts"] if made["kind"] == "capture"]
    there = [each for each in captures if (each / MANIFEST).is_file()]
    if len(there) == 1:
        found = of_capture(there[0])
        found.name, found.figures = f"run {run['uid'][:5]}", dict(run["metrics"])
        return found
    found = _of_run(run)
    if captures:
        found.measured["capture"] = "gone" if not there else f"{len(there)} of them, none chosen"
    return found


def _of_run(run: dict[str, Any]) -> Side:
    facts = {name: str(value) for name, value in run["facts"].items()} | {"host.name": run["host"] or UNKNOWN}
    facts["leadline.version"] = run["version"] or UNKNOWN
    measured = {"command": " ".join(run["argv"]) or run["name"], "status": run["status"]}
    ended = ((run["ended"] or run["started"]) - run["started"]) / 1e6
    about = f"{run['name']} on {run['host'] or 'a host not known'}, {run['status']}"
    return Side(f"run {run['uid'][:5]}", about, {"run"}, facts, measured, ended, dict(run["metrics"]))


def of_capture(path: Path) -> Side:
    """Raises LeadlineError for what is no capture."""
    return of_opened(open_capture(path, hold=True))


def of_opened(capture: Capture) -> Side:
    manifest, facts = capture.manifest, dict[str, str]()
    about = capture.rows("select * from capture")[0]
    is_server = capture.sampled or "load" in manifest.probes
    kinds = {"host", "server"} if is_server else {"host"} if manifest.probe("host").looked or manifest.probe("kernel").looked else set()
    facts |= {row["name"]: row["value"] for row in capture.rows("select name, value from host_fact")}
    facts |= {name: value for name, value in _older_storage(capture).items() if name not in facts}
    facts["leadline.version"] = manifest.product_version  # the manifest's host is where leadline ran: the server may be elsewhere
    if (steal := _steal(capture)) is not None:
        facts["steal.share"] = f"{steal:.4f}"
    if is_server:
        facts["server.product"] = manifest.target.kind
        facts["server.version"] = manifest.target.version or UNKNOWN
        if manifest.target.cpu_count:
            facts["server.cpu_count"] = str(manifest.target.cpu_count)  # that it may use: its affinity, and the quota of its group
        facts |= _settings(capture) | _data(capture)
    measured = {"kind": manifest.target.kind, "status": "interrupted" if capture.interrupted else manifest.status}
    for name, probe in manifest.probes.items():
        rate = f" at {probe.rate_hz:g} Hz" if probe.rate_hz else ""
        measured[f"probe {name}"] = f"{probe.status}{f' ({probe.tier})' if probe.tier else ''}{rate}"
    if capture.every_pass > 1:
        measured["samples"] = f"one pass in {capture.every_pass} was read"
    if manifest.clock.span_s is not None:
        measured["passes"] = f"coarse: one row each {manifest.clock.span_s} s"
    what = " ".join(filter(None, (manifest.target.kind, manifest.target.version)))
    seconds = about["window_s"] or 0.0
    said = f"{what}, recorded on {manifest.host.name or 'a host not known'}, {seconds:,.3g} s"
    return Side(str(capture.path), said, kinds, facts, measured, seconds, capture=capture)


def _settings(capture: Capture) -> dict[str, str]:
    rows = capture.rows("select name, setting, unit, source from setting")
    if not rows:
        return {}
    asked = any(row["source"] != "file" for row in rows)
    found = {f"setting.{row['name']}": f"{row['setting']} {row['unit'] or ''}".strip() for row in rows}
    return found | {"settings.from": "the server" if asked else "its files alone"}


def _data(capture: Capture) -> dict[str, str]:
    """Which tables there are, and how large: what a load ran over. Temporary and system tables are left out."""
    rows = capture.rows(
        f"""
        select nspname || '.' || relname as name, max(size_bytes) filter (size_bytes >= 0) as bytes, max(reltuples) as rows
        from relation where relkind in ('r', 'm', 'p') and not ({_SYSTEM}) group by datid, relid, name order by name
        """
    )
    if not capture.scalar("select count(*) from relation"):
        return {}
    names = hashlib.sha256("\n".join(row["name"] for row in rows).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    out = {"data.tables": str(len(rows)), "data.schema": names, "data.bytes": str(sum(row["bytes"] or 0 for row in rows))}
    if rows and all((row["rows"] or 0) >= 0 for row in rows):  # -1: never analysed
        out["data.rows"] = f"{sum(row['rows'] or 0 for row in rows):.0f}"
    return out


def _older_storage(capture: Capture) -> dict[str, str]:
    """The storage of captures that have it only as tables: mounts, and devices that are whole disks or parts of them."""
    devices = {row["name"]: row for row in capture.rows("select * from block_device")}
    out: dict[str, str] = {}
    for mount in capture.rows("select * from mount where holds <> ''"):
        device = mount["device"].rpartition("/")[2]
        whole = device if device in devices else re.sub(r"(?<=\d)p\d+$|(?<=[a-z])\d+$", "", device)
        for place in {"data", "wal"} & set(mount["holds"].split(",")):
            out[f"storage.{place}.fstype"] = mount["fstype"]
            out[f"storage.{place}.options"] = ways(mount["options"])
            out[f"storage.{place}.devices"] = "1" if whole in devices else UNKNOWN
            if (row := devices.get(whole)) is not None:
                described = {
                    "names": whole, "count": "1", "model": row["model"] or UNKNOWN, "rotational": str(int(row["rotational"])),
                    "scheduler": row["scheduler"], "write_cache": row["write_cache"], "nr_requests": str(row["nr_requests"]),
                    "size_bytes": str(row["size_bytes"]),
                }  # fmt: skip
                out |= {f"storage.{place}.device.0.{name}": value for name, value in described.items()}
    return out


def _steal(capture: Capture) -> float | None:
    """Share of the CPU time that a hypervisor gave to others."""
    rows = capture.rows(
        """
        select metric, sum(grown)::double as ns from host_rate where metric like 'stat.cpu\\_%\\_ns' escape '\\'
        and metric not like '%guest%' group by metric
        """
    )
    grown = {row["metric"]: row["ns"] for row in rows}
    whole = sum(grown.values())
    return grown.get("stat.cpu_steal_ns", 0.0) / whole if whole > 0 else None


def both(one: str, other: str) -> tuple[Side, Side]:
    """Raises LeadlineError."""
    try:
        return side(one), side(other)
    except OSError as e:
        raise LeadlineError("not_found", "a capture cannot be read", detail=str(e)) from e
