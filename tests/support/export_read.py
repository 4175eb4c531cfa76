"""Reads what `leadline export` writes: the wire format of Protocol Buffers, a profile of pprof, a trace of Perfetto.

By the documents of these formats, and without the code that writes them.
"""

from __future__ import annotations

import gzip
import struct
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

Fields = dict[int, list[Any]]


def fields_of(data: bytes) -> Fields:
    """By number: integers of varints and fixed64, bytes of the rest. Raises ValueError where a field is cut or of an unknown kind."""
    found: Fields = defaultdict(list)
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 0:
            value, at = _varint(data, at)
            found[key >> 3].append(value)
            continue
        if key & 7 not in (1, 2):
            raise ValueError(f"kind {key & 7} at {at}")
        length, at = (8, at) if key & 7 == 1 else _varint(data, at)
        if at + length > len(data):
            raise ValueError(f"field {key >> 3} is cut")
        part = data[at : at + length]
        found[key >> 3].append(int.from_bytes(part, "little") if key & 7 == 1 else part)
        at += length
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError(f"varint at {at} is cut")
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def numbers(packed: bytes) -> list[int]:
    found, at = [], 0
    while at < len(packed):
        value, at = _varint(packed, at)
        found.append(value)
    return found


@dataclass
class Pprof:
    """types: (type, unit) of each value. stacks: (path with the root first, values)."""

    types: list[tuple[str, str]]
    stacks: list[tuple[tuple[str, ...], list[int]]]
    time_ns: int
    duration_ns: int
    period: int
    default: str
    strings: list[str]


def read_pprof(data: bytes) -> Pprof:
    of = fields_of(gzip.decompress(data))
    strings = [text.decode() for text in of[6]]
    assert strings[0] == "" and len(set(strings)) == len(strings)
    functions = {fields_of(f)[1][0]: strings[fields_of(f)[2][0]] for f in of[5]}
    places = {}
    for location in map(fields_of, of[4]):
        [line] = location[4]
        places[location[1][0]] = functions[fields_of(line)[1][0]]
    types = [(strings[fields_of(t)[1][0]], strings[fields_of(t)[2][0]]) for t in of[1]]
    stacks = []
    for sample in map(fields_of, of[2]):
        values = numbers(sample[2][0])
        assert len(values) == len(types)
        stacks.append((tuple(places[place] for place in reversed(numbers(sample[1][0]))), values))
    one = {number: (of[number] or [0])[0] for number in (9, 10, 12, 14)}
    return Pprof(types, stacks, one[9], one[10], one[12], strings[one[14]], strings)


@dataclass
class Slice:
    """end: None of a moment. depth: how many slices are around it."""

    ts: int
    end: int | None
    name: str
    category: str
    args: dict[str, Any]
    depth: int
    flows: list[int]


@dataclass
class PerfettoTrack:
    name: str
    parent: str
    slices: list[Slice] = field(default_factory=list)
    values: list[tuple[int, float]] = field(default_factory=list)
    tid: int = 0
    pid: int = 0


@dataclass
class Perfetto:
    """clocks: ns by number of the clock. tracks: in the order of the file."""

    clocks: dict[int, int]
    primary: int
    tracks: list[PerfettoTrack]

    def named(self, part: str) -> PerfettoTrack:
        [found] = [track for track in self.tracks if part in track.name]
        return found


def read_perfetto(data: bytes) -> Perfetto:
    """Raises AssertionError where a track goes back in time, a slice has no begin or no end, or a name no number."""
    trace = Perfetto({}, 0, [])
    tracks: dict[int, PerfettoTrack] = {}
    names: dict[tuple[int, int], str] = {}
    opened: dict[int, list[Slice]] = defaultdict(list)
    last: dict[int, int] = defaultdict(int)
    whole = fields_of(data)
    assert set(whole) <= {1}
    for packet in map(fields_of, whole[1]):
        for snapshot in map(fields_of, packet[6]):
            trace.clocks |= {fields_of(c)[1][0]: fields_of(c)[2][0] for c in snapshot[1]}
            trace.primary = snapshot[2][0]
        for described in map(fields_of, packet[60]):
            [number] = described[1]
            assert number not in tracks
            tracks[number] = made = PerfettoTrack(_text(described[2]), tracks[described[5][0]].name if described[5] else "")
            trace.tracks.append(made)
            for thread in map(fields_of, described[4]):
                made.pid, made.tid = thread[1][0], thread[2][0]
        for interned in map(fields_of, packet[12]):
            for kind in (1, 2, 3):
                for entry in map(fields_of, interned[kind]):
                    names[kind, entry[1][0]] = _text(entry[2])
        for event in map(fields_of, packet[11]):
            [ts], [kind], [number] = packet[8], event[9], event[11]
            assert ts >= last[number] and packet[13] == [2]
            last[number] = ts
            track = tracks[number]
            if kind == 2:
                opened[number].pop().end = ts
            elif kind == 4:
                track.values.append((ts, event[30][0] if event[30] else struct.unpack("<d", event[44][0].to_bytes(8, "little"))[0]))
            else:
                args = {names[3, a[1][0]]: _value(a) for a in map(fields_of, event[4])}
                name, category = names[2, event[10][0]], names[1, event[3][0]]
                track.slices.append(Slice(ts, None, name, category, args, len(opened[number]), list(event[47])))
                if kind == 1:
                    opened[number].append(track.slices[-1])
    assert not any(opened.values())
    return trace


def _text(values: list[bytes]) -> str:
    return values[0].decode() if values else ""


def _value(annotation: Fields) -> Any:
    if annotation[4]:
        value = annotation[4][0]
        return value - (1 << 64) if value >> 63 else value
    if annotation[5]:
        return struct.unpack("<d", annotation[5][0].to_bytes(8, "little"))[0]
    return _text(annotation[6])
