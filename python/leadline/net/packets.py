"""Files of packets into a capture or a summary, and the summary of packets as text."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline import _core
from leadline.capture.directory import new_capture
from leadline.capture.making import Making
from leadline.capture.manifest import Clock, ProbeState, Target
from leadline.errors import LeadlineError
from leadline.figures import count, quantity
from leadline.output import to_table
from leadline.units import sized

if TYPE_CHECKING:
    from leadline._core.wire import FileSummary, Sizes, Summary, Times
    from leadline.probes.pcap_filter import Filter

MOST_LISTED = 20
MOST_AS_JSON = 20_000  # as crates/wire/src/analyser.rs has it
SIZES = ("min", "mean", "max", "stddev", "payload B", "wire B")
PERCENTILES = ("p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns")


STDIN = "-"

# An address as IPv6 and how many of its bits count.
Nets = Sequence[tuple[bytes, int]]


def read(
    paths: str | Sequence[str], ports: Collection[int], *, hosts: Nets = (), only: Filter | None = None, interval_s: float = 1.0,
    listed: int | None = None,
) -> FileSummary:  # fmt: skip
    """What is in files of packets, by their time. listed: only the connections with the most round trips. Raises LeadlineError."""
    with _opened(paths) as (sources, stop):
        return _core.wire.read_files(
            sources, ports=list(ports), hosts=list(hosts), interval_s=interval_s, stop=stop.is_set if stop else None, listed=listed,
            filter=None if only is None else only.for_files(),
        )  # fmt: skip


@contextmanager
def _opened(paths: str | Sequence[str]) -> Iterator[tuple[list[tuple[str, int]], threading.Event | None]]:
    """Descriptors of files, and what ends the reading where one is a pipe: a signal, so that what came until then is shown."""
    from leadline.probes.recording import stop_on_signal

    names = [paths] if isinstance(paths, str) else list(paths)
    with ExitStack() as stack:
        sources = []
        for name in names:
            if name == STDIN and os.isatty(0):
                raise LeadlineError("usage", "no packets come from a terminal", hint="tcpdump -w - ... | leadline net packets --pcap -")
            try:
                fd = 0 if name == STDIN else os.open(name, os.O_RDONLY | os.O_CLOEXEC)  # of a pipe: waits for who writes
            except FileNotFoundError:
                raise LeadlineError("not_found", "no such file or directory", where=name) from None
            if name != STDIN:
                stack.callback(os.close, fd)
            kind = os.fstat(fd).st_mode
            if stat.S_ISDIR(kind):
                hint = f"leadline show {name}" if Path(name, "manifest.json").exists() else ""
                raise LeadlineError("invalid", "this is not a file of packets", detail="it is a directory", hint=hint, where=name)
            sources.append(("stdin" if name == STDIN else name, fd))
        is_pipe = any(not stat.S_ISREG(os.fstat(fd).st_mode) for _, fd in sources)
        yield sources, stack.enter_context(stop_on_signal()) if is_pipe else None


def read_into(
    paths: str | Sequence[str], ports: Collection[int], *, hosts: Nets = (), only: Filter | None = None, interval_s: float = 1.0,
    out: Path | None, overwrite: bool = False,
) -> tuple[Path, FileSummary]:  # fmt: skip
    """Files of packets as a capture: its directory, and what was seen. Times of its tables are CLOCK_REALTIME. Raises LeadlineError."""
    names = [paths] if isinstance(paths, str) else list(paths)
    with _opened(names) as (sources, stop), new_capture(out, overwrite=overwrite) as directory:
        places = [name if name == STDIN else str(Path(name).resolve()) for name in names]
        options = {"pcap": places[0] if len(places) == 1 else places, "ports": list(ports)}
        if only is not None:
            options["filter"] = only.expression
        making = Making(directory, Target("pcap", ", ".join(places), detail={"ports": list(ports)}), options)
        making.manifest.probes["wire"] = probe = ProbeState(tier="files")
        with making.from_files() as manifest:
            seen = _core.wire.read_files(
                sources, ports=list(ports), hosts=list(hosts), interval_s=interval_s, capture_dir=str(directory),
                stop=stop.is_set if stop else None, filter=None if only is None else only.for_files(),
            )  # fmt: skip
            manifest.clock = Clock(seen["ts_from"], seen["ts_to"], 0)
            manifest.tables = seen["tables"]
            manifest.cost.bytes_written = sum(figures["bytes"] for figures in seen["tables"].values())
            counts, file = seen["counts"], seen["file"]
            probe.loss = {
                "packets": counts["packets"], "packets_lost": file["dropped"], "packets_copied": counts["copies"],
                "fragments_alone": counts["fragments_alone"],
            }  # fmt: skip
            manifest.note(*_left_out(counts))
            for told in warnings(seen):
                probe.status, probe.why = "partial", "; ".join(filter(None, (probe.why, told)))
                manifest.note(told)
    return directory, seen


def warnings(seen: FileSummary) -> Iterator[str]:
    """What was wrong with the files."""
    counts, file = seen["counts"], seen["file"]
    if file["ended_early"]:
        yield file["ended_early"]
    if counts["out_of_time"]:
        late = count(counts["out_of_time"], "packet")
        yield f"{late} came behind later ones: only a file that is not compressed is sorted (reordercap IN OUT)"
    if counts["unknown_link"]:
        yield f"{count(counts['unknown_link'], 'packet')} of link type {file['unknown_link']}, which is not read"


def connections(directory: Path, listed: int = MOST_AS_JSON) -> list[dict[str, Any]]:
    """The rows of wire_connection of a capture with the most round trips, in the order of the connections."""
    from contextlib import closing

    from leadline.capture.reader import open_capture

    with closing(open_capture(directory)) as capture:
        longest = f"from wire_connection order by round_trips desc, connection_id limit {listed}"
        return capture.rows(f"from ({longest}) order by connection_id")


def who_logged_in(
    paths: str | Sequence[str], ports: Collection[int], *, hosts: Nets = (), only: Filter | None = None
) -> Iterator[dict[str, Any]]:
    """What is said of each connection of files, without its figures: any number of them in little memory. Raises LeadlineError."""
    import tempfile
    from contextlib import closing

    from leadline.capture.reader import open_capture
    from leadline.tables import all_tables

    said = [c.name for c in all_tables()["wire_connection"].columns if c.type in ("string", "bool")] + ["server_port", "let_in"]
    with tempfile.TemporaryDirectory(prefix="leadline-") as scratch:
        directory, _ = read_into(paths, ports, hosts=hosts, only=only, out=Path(scratch) / "packets.leadline")
        with closing(open_capture(directory)) as capture:
            for row in capture.rows(f"select {', '.join(said)}, count(*) as like_it from wire_connection group by all order by all"):
                for _ in range(row["like_it"]):
                    yield row


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
        several = seen["servers"] > 1
        if not several:
            yield f"server {end_text(listed[0]['server_addr'], listed[0]['server_port'])}"
        names = ["client", *(["server"] if several else []), "protocol", "trips", "tx", "trips/tx", "answer ms", "client ms", "retrans"]
        yield to_table(names, [_row(c, several) for c in _longest(listed)])
        if counts["connections"] > MOST_LISTED:
            yield f"{counts['connections'] - MOST_LISTED:,} more connections: -o X.leadline keeps them all, --json lists them"


def _span_s(seen: Summary) -> float:
    return 0.0 if seen["ts_from"] is None or seen["ts_to"] is None else (seen["ts_to"] - seen["ts_from"]) / 1e9


def _left_out(counts: Mapping[str, int]) -> Iterator[str]:
    named = (
        ("copies", "copies of packets that another interface had"), ("filtered", "that the filter does not want"),
        ("other_ports", "of other ports"), ("other_hosts", "of other hosts"), ("not_tcp", "not TCP"),
        ("unknown_link", "of a link type that is not read"), ("fragments_alone", "parts of IP packets of which other parts are missing"),
        ("cut_headers", "with headers that were not captured"), ("bad_headers", "with headers that contradict themselves"),
    )  # fmt: skip
    told = [f"{counts[name]:,} {text}" for name, text in named if counts[name]]
    if told:
        yield "packets left out: " + "; ".join(told)
    if counts["joined"]:
        yield f"{count(counts['joined'], 'IP packet')} came in parts: each counts as one packet"
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
        sized(sizes["payload_bytes"]), sized(sizes["wire_bytes"]),
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
