"""Files of packets into a capture or a summary, and the summary of packets as text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline import _core
from leadline.capture.folder import capture_folder, make_folder
from leadline.capture.making import Making
from leadline.capture.manifest import Clock, ProbeState, Target
from leadline.errors import LeadlineError
from leadline.figures import count, quantity
from leadline.output import to_table

if TYPE_CHECKING:
    from leadline._core.wire import FileSummary, Sizes, Summary, Times

MOST_LISTED = 20
SIZES = ("min", "mean", "max", "stddev", "payload B", "wire B")
PERCENTILES = ("p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns")


def read(path: str, ports: Collection[int], *, interval_s: float = 1.0) -> FileSummary:
    """What is in a file of packets. Raises LeadlineError."""
    _check(path)
    return _core.wire.read_file(path, ports=list(ports), interval_s=interval_s)


def _check(path: str) -> None:
    """A pipe that nobody writes to would be waited for without end."""
    if (file := Path(path)).exists() and not file.is_file():
        raise LeadlineError("invalid", "this is not a file of packets", detail="it is no regular file", where=path)


def read_into(
    path: str, ports: Collection[int], *, interval_s: float = 1.0, out: Path | None, overwrite: bool = False
) -> tuple[Path, FileSummary]:
    """A file of packets as a capture: its folder, and what was seen. Times of its tables are CLOCK_REALTIME. Raises LeadlineError."""
    _check(path)
    with Path(path).open("rb"):  # before anything is written
        pass
    directory = capture_folder(out, overwrite=overwrite)
    make_folder(directory)
    place = str(Path(path).resolve())
    making = Making(directory, Target("pcap", place, detail={"ports": list(ports)}), {"pcap": place, "ports": list(ports)})
    making.manifest.probes["wire"] = probe = ProbeState(tier="files")
    with making.from_files() as manifest:
        seen = _core.wire.read_file(path, ports=list(ports), interval_s=interval_s, capture_dir=str(directory))
        manifest.clock = Clock(seen["ts_from"], seen["ts_to"], 0)
        manifest.tables = seen["tables"]
        manifest.cost.bytes_written = sum(figures["bytes"] for figures in seen["tables"].values())
        file = seen["file"]
        probe.loss = {"packets": seen["counts"]["packets"], "packets_lost": file["dropped"], "fragments": seen["counts"]["fragments"]}
        if file["ended_early"]:
            probe.status, probe.why = "partial", file["ended_early"]
            manifest.note(file["ended_early"])
    return directory, seen


def connections(directory: Path) -> list[dict[str, Any]]:
    """Rows of wire_connection of a capture."""
    from contextlib import closing

    from leadline.capture.reader import open_capture

    with closing(open_capture(directory)) as capture:
        return capture.rows("from wire_connection order by connection_id")


def lines(seen: Summary, listed: Sequence[Mapping[str, Any]], *, intervals: bool = False) -> Iterator[str]:
    """The summary as text. listed: the connections."""
    counts = seen["counts"]
    span_s = _span_s(seen)
    yield f"{count(counts['packets'], 'packet')} in {span_s:.3f} s, {count(counts['connections'], 'connection')}"
    yield from _left_out(counts)
    if seen["sizes"]:
        yield ""
        yield to_table(["direction", "packets", "packets/s", *SIZES], _sizes(seen["sizes"], span_s))
    if intervals and seen["intervals"]:
        yield ""
        yield to_table(["second", "direction", "packets", *SIZES], list(_intervals(seen)))
    if seen["whole"] is not None:
        whole = seen["whole"]["count"]
        per_second = f" ({quantity(whole / span_s)} a second)" if span_s > 0 else ""
        yield ""
        yield f"{count(whole, 'round trip')}{per_second}, milliseconds"
        yield to_table(
            ["", "count", "mean", "p50", "p90", "p99", "p99.9", "max"],
            [
                ["answer: first byte", *_times(seen["answer"])],
                ["answer: last byte", *_times(seen["whole"])],
                ["client, between", *_times(seen["gap"])],
            ],
        )
    if listed:
        yield ""
        servers = {(c["server_addr"], c["server_port"]) for c in listed}
        several = len(servers) > 1
        if not several:
            yield f"server {end_text(*next(iter(servers)))}"
        names = ["client", *(["server"] if several else []), "protocol", "trips", "tx", "trips/tx", "answer ms", "client ms", "again"]
        yield to_table(names, [_row(c, several) for c in _longest(listed)])
        if len(listed) > MOST_LISTED:
            yield f"{len(listed) - MOST_LISTED:,} more connections"


def _span_s(seen: Summary) -> float:
    return 0.0 if seen["ts_from"] is None or seen["ts_to"] is None else (seen["ts_to"] - seen["ts_from"]) / 1e9


def _left_out(counts: Mapping[str, int]) -> Iterator[str]:
    named = (
        ("copies", "copies of packets that another interface had"), ("other_ports", "of other ports"), ("not_tcp", "not TCP"),
        ("unknown_link", "of a link type that is not read"), ("fragments", "parts of an IP packet, not put together"),
        ("cut_headers", "with headers that were not captured"), ("bad_headers", "with headers that contradict themselves"),
    )  # fmt: skip
    told = [f"{counts[name]:,} {text}" for name, text in named if counts[name]]
    if told:
        yield "packets left out: " + "; ".join(told)
    if counts["translated"]:
        yield f"{counts['translated']:,} of the copies had other addresses there: their connections are followed once"
    if counts["cut_messages"]:
        lost = count(counts["cut_messages"], "message")
        yield f"{lost} lost in {counts['cut_segments']:,} segments that were not captured whole (tcpdump -s)"
    if counts["uncounted"]:
        yield f"{count(counts['uncounted'], 'connection')} lost too many messages: their transactions are not counted"
    if counts["evicted"]:
        yield f"{counts['evicted']:,} connections were given up early: too many at a time"


def _size(sizes: Sizes) -> list[Any]:
    return [
        sizes["min_bytes"], round(sizes["mean_bytes"], 1), sizes["max_bytes"], round(sizes["stddev_bytes"], 1),
        quantity(sizes["payload_bytes"]), quantity(sizes["wire_bytes"]),
    ]  # fmt: skip


def _sizes(all_sizes: Iterable[Sizes], span_s: float) -> list[list[Any]]:
    return [[s["direction"], s["packets"], quantity(s["packets"] / span_s) if span_s else "", *_size(s)] for s in all_sizes]


def _intervals(seen: Summary) -> Iterator[list[Any]]:
    began = seen["intervals"][0]["ts"]
    for interval in seen["intervals"]:
        for sizes in interval["sizes"]:
            yield [round((interval["ts"] - began) / 1e9, 3), sizes["direction"], sizes["packets"], *_size(sizes)]


def ms(ns: float | None) -> str:
    """Milliseconds of nanoseconds, in as many figures as are of use."""
    return "" if ns is None else f"{ns / 1e6:.4g}" if ns < 1e9 else f"{ns / 1e6:,.0f}"


def _times(times: Times | None) -> list[Any]:
    if times is None:
        return [0] + [""] * 6
    return [times["count"], ms(times["mean_ns"]), *(ms(times[name]) for name in PERCENTILES)]  # type: ignore[literal-required]


def _longest(listed: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    return sorted(listed, key=lambda c: (-c["round_trips"], c["connection_id"]))[:MOST_LISTED]


def end_text(addr: str, port: int) -> str:
    return f"[{addr}]:{port}" if ":" in addr else f"{addr}:{port}"


def _row(c: Mapping[str, Any], with_server: bool) -> list[Any]:
    trips = c["round_trips"]
    return [
        end_text(c["client_addr"], c["client_port"]), *([end_text(c["server_addr"], c["server_port"])] if with_server else []),
        c["protocol"], trips,
        "" if c["transactions"] is None else c["transactions"],
        f"{trips / c['transactions']:.2f}" if c["transactions"] else "",
        ms(c["answer_ns"] / trips) if trips else "", ms(c["client_ns"] / trips) if trips else "",
        c["client_retransmits"] + c["server_retransmits"],
    ]  # fmt: skip
