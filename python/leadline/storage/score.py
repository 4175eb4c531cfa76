"""A forecast against what was measured: the error of each layout and load, and whether the forecast was there first."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from leadline.book.log import Log
from leadline.book.query import Book
from leadline.capture.reader import open_capture
from leadline.errors import LeadlineError
from leadline.storage.files import EXAMPLES
from leadline.whole import read_whole

# In the order in which they are preferred: the first that both sides have is what a row is judged by.
FIGURES = ("transactions_per_s", "requests_per_s", "rows_per_s", "reads_per_s", "writes_per_s")
KINDS, QUANTILES = ("transaction", "read", "write", "commit"), ("p50", "p95", "p99")
LONGEST_OUTPUT = 64 << 20
MOST_OF_LINE = 1 << 20


@dataclass
class Measured:
    """began_us: when the measurement began; None if it does not say. requests of a capture are those of devices, not of the load."""

    layout: str
    load: str
    figures: dict[str, float]
    source: str
    began_us: int | None
    of_drives: bool = False
    latency_ms: dict[str, dict[str, float]] = field(default_factory=dict)


def measured(text: str, layouts: Sequence[str], loads: Sequence[str]) -> list[Measured]:
    """LAYOUT[/LOAD]=CAPTURE, a file of JSON objects, or a run of the logbook that printed them. Raises LeadlineError."""
    name, sign, path = text.partition("=")
    if sign and not Path(text).exists():
        layout, _, load = name.partition("/")
        if not load and len(loads) == 1:
            load = loads[0]
        if layout not in layouts or load not in loads:
            there = [f"{one}/{other}" for one in layouts for other in loads]
            raise LeadlineError("usage", f"the forecast has no {name}", hint=f"it has {', '.join(there[:8])}")
        return [_of_capture(Path(path), layout, load)]
    if Path(text).is_dir():
        raise LeadlineError("usage", "say of which layout the capture is", hint=f"{layouts[0]}/{loads[0]}={text}", where=text)
    if os.path.lexists(text):
        return _some(list(_objects(read_whole(Path(text), LONGEST_OUTPUT, EXAMPLES), text, None)), text)
    return _of_run(text)


def _of_run(text: str) -> list[Measured]:
    book = Book()
    try:
        run = book.find(text)
        log = Log(book.place, run["uid"])
        try:
            data = b"".join(log.pieces(0, LONGEST_OUTPUT))
        finally:
            log.close()
    except FileNotFoundError:
        data = b""
    finally:
        book.close()
    where = f"run {run['uid'][:5]}"
    return _some(list(_objects(data, where, run["started"])), where)


def _some(found: list[Measured], where: str) -> list[Measured]:
    if not found:
        hint = 'a line such as {"layout": "6xR1", "load": "oltp", "requests_per_s": 1080}'
        raise LeadlineError("not_found", "there is no measurement in it", hint=hint, where=where)
    return found


def _objects(data: bytes, source: str, began: int | None) -> Iterator[Measured]:
    """JSON objects, one on a line; what else is printed is passed over."""
    for line in data.splitlines():
        if not line.lstrip().startswith(b"{") or len(line) > MOST_OF_LINE:
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(value, dict) or not isinstance(value.get("layout"), str) or not isinstance(value.get("load"), str):
            continue
        figures = {name: float(value[name]) for name in FIGURES if _is_figure(value.get(name))}
        said = value.get("began_us")
        moment = said if isinstance(said, int) and not isinstance(said, bool) else began
        if figures:
            yield Measured(value["layout"], value["load"], figures, source, moment, latency_ms=_latency(value.get("latency_ms")))


def _latency(value: Any) -> dict[str, dict[str, float]]:
    """Quantiles by kind; what is no number is passed over."""
    kinds = {kind: of for kind, of in value.items() if isinstance(of, dict)} if isinstance(value, dict) else {}
    return {kind: {name: float(of[name]) for name in QUANTILES if _is_figure(of.get(name))} for kind, of in kinds.items()}


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")


def _of_capture(path: Path, layout: str, load: str) -> Measured:
    """Transactions of a capture of `load run`, or requests of the devices of a block trace."""
    capture = open_capture(path)
    try:
        clock, figures, of_drives = capture.manifest.clock, {}, False
        if capture.unavailable("load_second") is None:
            row = capture.rows("select sum(done) as done, sum(duration_ns) / 1e9 as s from load_second where not warm_up")[0]
            if row["s"]:
                figures["transactions_per_s"] = float(row["done"]) / float(row["s"])
        elif capture.unavailable("block_io") is None:
            row = capture.rows("select count(*) as n, (max(ts) - min(ts)) / 1e9 as s from block_io where operation in ('read', 'write')")[0]
            if row["n"] and row["s"]:
                figures, of_drives = {"requests_per_s": row["n"] / row["s"]}, True
    finally:
        capture.close()
    if not figures:
        hint = "leadline load run ... -o CAPTURE, or leadline take --kernel ... -o CAPTURE"
        raise LeadlineError("not_found", "the capture has neither transactions nor requests of devices", hint=hint, where=str(path))
    began = None if clock.ts_from is None or clock.wall_offset_ns is None else (clock.ts_from + clock.wall_offset_ns) // 1000
    return Measured(layout, load, figures, str(path), began, of_drives)


def score(forecast: dict[str, Any], found: Sequence[Measured]) -> list[dict[str, Any]]:
    """A row for each that the forecast has, measured or not."""
    rows = []
    for of in forecast["results"]:
        mine = [one for one in found if (one.layout, one.load) == (of["layout"], of.get("load"))]
        for one in mine:
            rows += _row(of, one)
        if not mine:
            rows.append({"layout": of["layout"], "load": of.get("load"), "figure": None, "forecast": None, "measured": None, "error": None})
    return rows


def _row(of: dict[str, Any], one: Measured) -> list[dict[str, Any]]:
    figure = next((name for name in FIGURES if name in one.figures and _expected(of, name, one)), None)
    if figure is None:
        return []
    expected, got = _expected(of, figure, one), one.figures[figure]
    low, high = (None, None) if one.of_drives else of.get("interval", {}).get(figure, (None, None))
    error = expected / got - 1 if got else None
    row = {"layout": of["layout"], "load": of["load"], "figure": figure, "forecast": expected, "low": low, "high": high}
    row["latency_ms"] = [] if one.of_drives else _latencies(of.get("latency_ms") or {}, one.latency_ms)
    return [row | {"measured": got, "error": error, "of_drives": one.of_drives, "source": one.source, "began_us": one.began_us}]


def _latencies(forecast: dict[str, Any], found: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """Of each kind and quantile that both have."""
    both = [(kind, forecast.get(kind) or {}, found.get(kind) or {}) for kind in KINDS]
    return [
        {"of": kind, "quantile": name, "forecast": one[name], "measured": other[name]}
        for kind, one, other in both
        for name in QUANTILES
        if name in one and name in other
    ]


def _expected(of: dict[str, Any], figure: str, one: Measured) -> float:
    if one.of_drives:
        return float(sum(drive["reads_per_s"] + drive["writes_per_s"] for drive in of.get("drives", ())))
    return float(of.get(figure) or 0)


def seal(forecast: dict[str, Any], digest: str, rows: Sequence[dict[str, Any]]) -> tuple[bool, str]:
    """Whether the logbook shows that this forecast, byte for byte, was there before the first measurement began; and why."""
    if not forecast.get("run"):
        return False, "not sealed: the logbook was off when it was made"
    try:
        book = Book()
    except LeadlineError as e:
        return False, f"not shown to be sealed: {e.message}"
    try:
        run = book.details(book.find(str(forecast["run"])))
    except LeadlineError:
        return False, f"not shown to be sealed: this logbook has no run {str(forecast['run'])[:5]}"
    finally:
        book.close()
    if digest not in [artifact["hash"] for artifact in run["artifacts"]]:
        return False, f"not sealed: run {run['uid'][:5]} made another file than this one"
    if run["ended"] is None:
        return False, f"not sealed: run {run['uid'][:5]} has no end"
    when = moment(run["ended"])
    begins = [row["began_us"] for row in rows if row.get("error") is not None]
    if None in begins:
        return False, f"sealed at {when} as run {run['uid'][:5]}; a measurement does not say when it began"
    if begins and min(begins) < run["ended"]:
        return False, f"not sealed: a measurement began at {moment(min(begins))}, the forecast is of {when}"
    return True, f"sealed at {when} as run {run['uid'][:5]}, before the first measurement began"


def moment(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
