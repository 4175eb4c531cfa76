"""Packets of files and interfaces."""

from collections.abc import Callable
from typing import Any, TypedDict, final, type_check_only

from leadline._core.capture import ProbeFinal, ProbeStatus, Written

__all__ = ["Sniffer", "read_file", "read_files"]

@type_check_only
class Sizes(TypedDict):
    """Packets of one direction. Bytes of a packet are on the wire."""

    direction: str
    packets: int
    wire_bytes: int
    payload_bytes: int
    min_bytes: int
    max_bytes: int
    mean_bytes: float
    stddev_bytes: float

@type_check_only
class Interval(TypedDict):
    """ts: its beginning."""

    ts: int
    sizes: list[Sizes]

@type_check_only
class Times(TypedDict):
    """A distribution; quantiles are within 0.1 %, and exact of up to 1024 times."""

    count: int
    mean_ns: float
    p50_ns: int
    p90_ns: int
    p99_ns: int
    p999_ns: int
    p9999_ns: int
    max_ns: int

@type_check_only
class FileCounts(TypedDict):
    """What else was in the files. sorted: files that were not in the order of time. unknown_link: a link type that is not read.

    ended_early: why one ends before its end."""

    packets: int
    bytes: int
    skipped_blocks: int
    without_time: int
    dropped: int
    sorted: int
    unknown_link: int | None
    ended_early: str | None

@type_check_only
class Summary(TypedDict):
    """What was seen. answer: from a request to the first byte of its answer; whole: to the last; gap: from an answer to the next request.

    servers: different ones. connections: rows of wire_connection by column, of the longest; empty when they were written into a capture."""

    counts: dict[str, int]
    ts_from: int | None
    ts_to: int | None
    interval_ns: int
    sizes: list[Sizes]
    intervals: list[Interval]
    answer: Times | None
    whole: Times | None
    gap: Times | None
    servers: int
    connections: list[dict[str, Any]]

@type_check_only
class FileSummary(Summary):
    file: FileCounts
    tables: dict[str, Written]

@type_check_only
class LiveSummary(Summary):
    lost: int

@type_check_only
class SnifferStatus(ProbeStatus):
    packets: int
    lost: int

@type_check_only
class SnifferFinal(ProbeFinal):
    packets: int
    lost: int

def read_file(path: str, *, ports: list[int], interval_s: float = 1.0, capture_dir: str | None = None) -> FileSummary:
    """Follows the packets of a file; with capture_dir also writes tables there.

    ports: of servers; none for all. Raises kinds invalid, unsupported, storage, not_found."""

def read_files(
    sources: list[tuple[str, int]],
    *,
    ports: list[int],
    hosts: list[tuple[bytes, int]] = ...,
    interval_s: float = 1.0,
    capture_dir: str | None = None,
    stop: Callable[[], bool] | None = None,
    listed: int | None = None,
    filter: list[tuple[int, list[tuple[int, int, int, int]], str]] | None = None,
) -> FileSummary:
    """Follows the packets of files and pipes by their time; sources: names and open descriptors.

    hosts: addresses as IPv6 and how many of their bits count; none for all. stop: asked now and then and after each signal whether what was
    read is all. listed: only the connections with the most round trips. filter: by link type of libpcap a program of classic BPF (code, two
    jumps and constant of each instruction), or why there is none. Raises kinds invalid, unsupported, storage, usage."""

@final
class Sniffer:
    """Captures packets of an interface in a thread of its own."""

    def __new__(
        cls,
        capture_dir: str | None,
        interface: str,
        ports: list[int],
        *,
        hosts: list[tuple[bytes, int]] = ...,
        interval_s: float = 1.0,
        snaplen: int = 262144,
        ring_bytes: int = 33554432,
        flush_interval_s: float = 5.0,
        growing_segments: bool = True,
        listed: int | None = None,
        filter: list[tuple[int, int, int, int]] | None = None,
    ) -> Sniffer:
        """Opens the ring; packets are caught from now on. filter: runs in the kernel, from the IP header on.

        Raises kinds rights, not_found, unsupported."""

    def start(self) -> None: ...
    def status(self) -> SnifferStatus: ...
    def stop(self) -> SnifferFinal:
        """Flushes and joins. loss: packets, packets_lost, packets_unreadable, fragments_alone, connections_given_up."""

    def summary(self) -> LiveSummary:
        """What was seen; after stop."""
