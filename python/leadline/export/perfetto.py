"""A trace for https://ui.perfetto.dev, in its own format: track events in protobuf.

Not as JSON (Chrome's trace events), which Perfetto reads too: there a time is a number of microseconds in a double, slices that begin
at the same time may change places (google/perfetto#226, #583), and a file is ten times as large. Here times are ns in 64 bits, the order of
the file decides between equal ones, and names are stored once.

The fields: https://github.com/google/perfetto/tree/main/protos/perfetto/trace. Times stay those of the capture, CLOCK_MONOTONIC:
a snapshot of the clocks says so, and what the wall clock was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leadline.capture.reader import Capture
from leadline.errors import LeadlineError
from leadline.export.protobuf import double, fixed, message, number, present, text
from leadline.export.timeline import (
    Counter,
    Event,
    Track,
    count_session_events,
    count_thread_events,
    counters,
    finding_track,
    session_tracks,
    thread_tracks,
)
from leadline.export.window import Span
from leadline.figures import one_line

REALTIME, MONOTONIC, BOOTTIME = 1, 3, 6
# Fields of TracePacket.
CLOCKS, TIMESTAMP, SEQUENCE, EVENT, INTERNED, FLAGS, CLOCK_OF_TIMESTAMP, DESCRIPTOR, DEFAULTS = 6, 8, 10, 11, 12, 13, 58, 60, 59
CLEARED, NEEDED = 1, 2  # flags: names that were numbered before are forgotten; numbers of names are used
BEGIN, END, MOMENT, COUNTER = 1, 2, 3, 4
CATEGORIES, EVENT_NAMES, ARGUMENT_NAMES = 1, 2, 3  # fields of InternedData
OURS = 1  # number of the only sequence of packets
PART = 1 << 16
IN_ORDER = 3  # child_ordering: by rank


class Written:
    """What has gone into a trace. events: slices, moments and values of counters. cut: slices that were made to end with the one around
    them."""

    def __init__(self) -> None:
        self.events = self.tracks = self.cut = 0


def check_size(capture: Capture, pid: int | None, span: Span, most: int) -> None:
    """Raises LeadlineError('usage') for a trace of more events than that."""
    events = count_session_events(capture, pid, span) + count_thread_events(capture, pid, span)
    if pid is None and not capture.unavailable("tick"):  # of the counter, which changes at most with each pass
        events += capture.scalar(f"select count(*) from tick where {span.of('ts')}")
    if events > most:
        hint = "--since 0 --until 10 exports a part of the window, --pid PID one process; --max-events N allows more"
        raise LeadlineError(
            "usage", f"this trace would have {events:,} events, more than {most:,}", detail="Perfetto holds a trace in memory", hint=hint
        )


def perfetto(capture: Capture, pid: int | None, span: Span, written: Written) -> Iterator[bytes]:
    """The file, in parts. Raises LeadlineError('not_found') when nothing in the capture has a time of its own."""
    part: list[bytes] = []
    size = 0
    for packet in _Trace(written).packets(capture, pid, span):
        part.append(message(1, packet))
        size += len(packet)
        if size > PART:
            yield b"".join(part)
            part, size = [], 0
    if not written.events:
        raise LeadlineError(
            "not_found", "nothing in this capture has a place on a time line", hint=f"leadline show {capture.path}", where=str(capture.path)
        )
    yield b"".join(part)


class _Trace:
    def __init__(self, written: Written) -> None:
        self.written = written
        self._numbers: dict[tuple[int, str], int] = {}  # of a name, in its field of InternedData
        self._new = b""  # names that the next packet brings
        self._uuid = 0
        self._groups: dict[str, int] = {}
        self._processes: dict[int, int] = {}

    def packets(self, capture: Capture, pid: int | None, span: Span) -> Iterator[bytes]:
        yield _clocks(capture, span)
        yield number(SEQUENCE, OURS) + number(FLAGS, CLEARED) + message(DEFAULTS, number(CLOCK_OF_TIMESTAMP, MONOTONIC))
        if pid is None:
            if found := finding_track(capture, span):
                yield from self._track(found)
            for counter in counters(capture, span):
                yield from self._counter(counter)
        for track in session_tracks(capture, pid, span):
            yield from self._track(track)
        for track in thread_tracks(capture, pid, span):
            yield from self._track(track)

    def _track(self, track: Track) -> Iterator[bytes]:
        """Its descriptor, then the events, each slice within those that are open."""
        yield from self._above(track)
        uuid = self._next()
        about = number(1, uuid) + text(2, track.name)
        if track.tid:
            about += message(4, number(1, track.pid) + number(2, track.tid) + text(5, track.name))
        elif track.group:
            about += number(5, self._groups[track.group]) + number(12, uuid)
        yield self._described(about)
        self.written.tracks += 1
        open_ends: list[int] = []
        for event in track.events:
            while open_ends and open_ends[-1] <= event.ts:
                yield self._packet(open_ends.pop(), number(9, END) + number(11, uuid))
            if event.end is None:
                yield self._packet(event.ts, self._event(event, MOMENT, uuid))
                continue
            end = max(event.end, event.ts)
            if open_ends and end > open_ends[-1]:
                end = open_ends[-1]
                self.written.cut += 1
            open_ends.append(end)
            yield self._packet(event.ts, self._event(event, BEGIN, uuid))
        while open_ends:
            yield self._packet(open_ends.pop(), number(9, END) + number(11, uuid))

    def _above(self, track: Track) -> Iterator[bytes]:
        """What the track stands below: a group, or its process."""
        if track.group and track.group not in self._groups:
            self._groups[track.group] = uuid = self._next()
            yield self._described(number(1, uuid) + text(2, track.group) + number(11, IN_ORDER))
        if track.tid and track.pid not in self._processes:
            self._processes[track.pid] = uuid = self._next()
            yield self._described(number(1, uuid) + message(3, number(1, track.pid) + text(6, track.name)))

    def _counter(self, counter: Counter) -> Iterator[bytes]:
        uuid = self._next()
        yield self._described(number(1, uuid) + text(2, counter.name) + message(8, text(6, counter.unit)))
        self.written.tracks += 1
        for ts, value in counter.values:
            self.written.events += 1
            counted = present(30, value) if isinstance(value, int) else double(44, value)
            yield self._packet(ts, number(9, COUNTER) + number(11, uuid) + counted)

    def _event(self, event: Event, kind: int, uuid: int) -> bytes:
        self.written.events += 1
        fields = [number(9, kind), number(11, uuid), number(3, self._named(CATEGORIES, event.category))]
        fields.append(number(10, self._named(EVENT_NAMES, event.name)))
        fields += [message(4, number(1, self._named(ARGUMENT_NAMES, name)) + _value(value)) for name, value in event.args.items()]
        if event.flow is not None:
            fields.append(fixed(47, event.flow))
        return b"".join(fields)

    def _named(self, field: int, name: str) -> int:
        """The number of a name, which is said with the first packet that uses it."""
        if found := self._numbers.get((field, name)):
            return found
        self._numbers[field, name] = new = len(self._numbers) + 1
        self._new += message(field, number(1, new) + text(2, name))
        return new

    def _packet(self, ts: int, event: bytes) -> bytes:
        names, self._new = self._new, b""
        said = message(INTERNED, names) if names else b""
        return present(TIMESTAMP, ts) + number(SEQUENCE, OURS) + number(FLAGS, NEEDED) + said + message(EVENT, event)

    def _described(self, about: bytes) -> bytes:
        return number(SEQUENCE, OURS) + message(DESCRIPTOR, about)

    def _next(self) -> int:
        self._uuid += 1
        return self._uuid


def _clocks(capture: Capture, span: Span) -> bytes:
    """The clocks against each other, as the capture has read them first; and that times are those of CLOCK_MONOTONIC."""
    ts, wall, boot = span.ts_from, span.began_ns, 0
    if capture.unavailable("clock") is None:
        for row in capture.rows("select ts, realtime_ns, boottime_ns from clock order by ts limit 1"):
            ts, wall, boot = row["ts"], row["realtime_ns"], row["boottime_ns"]
    pairs = [(MONOTONIC, ts), (REALTIME, wall), (BOOTTIME, boot or ts)]
    clocks = b"".join(message(1, number(1, clock) + present(2, at)) for clock, at in pairs if at or clock == MONOTONIC)
    when = present(TIMESTAMP, ts) + number(CLOCK_OF_TIMESTAMP, MONOTONIC)
    return number(SEQUENCE, OURS) + when + message(CLOCKS, clocks + number(2, MONOTONIC))


def _value(value: Any) -> bytes:
    """The value of a DebugAnnotation."""
    if isinstance(value, bool):
        return present(2, value)
    if isinstance(value, int):
        return present(4, value)
    if isinstance(value, float):
        return double(5, value)
    return text(6, one_line(str(value)))
