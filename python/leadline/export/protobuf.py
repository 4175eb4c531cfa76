"""The wire format of Protocol Buffers, as far as pprof, Perfetto and OpenTelemetry need it: https://protobuf.dev/programming-guides/encoding

Written by hand, not with the package protobuf: that one is 2 MB, has a version for each generation of generated code, and clashes with
the one of other programs in the same environment. The formats need a dozen kinds of messages, and each field below is one line.
A test reads what is written with a decoder of its own, and with Google's pprof where that is installed.
"""

from __future__ import annotations

import struct

VARINT, FIXED64, BYTES = 0, 1, 2


def varint(value: int) -> bytes:
    """A number, 7 bits to a byte, the lowest first. A negative one as its 64 bits."""
    if 0 <= value < 128:  # nearly always
        return bytes((value,))
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """An integer, bool or enum. 0 is what a reader takes where a field is absent, so it is left out."""
    return varint(field << 3 | VARINT) + varint(value) if value else b""


def present(field: int, value: int) -> bytes:
    """An integer, also 0: where a reader asks whether it is there."""
    return varint(field << 3 | VARINT) + varint(value)


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | FIXED64) + struct.pack("<d", value)


def fixed(field: int, value: int) -> bytes:
    """8 bytes, for ids that use all bits."""
    return varint(field << 3 | FIXED64) + struct.pack("<Q", value)


def message(field: int, content: bytes) -> bytes:
    """A message within another, also an empty one."""
    return varint(field << 3 | BYTES) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    return message(field, value.encode(errors="replace"))


def packed(field: int, values: list[int]) -> bytes:
    """Several integers in one field."""
    return message(field, b"".join(map(varint, values)))


def fields(content: bytes) -> dict[int, list[int | bytes]]:
    """What a message holds, by number of the field: integers, and the bytes of the rest. Raises ValueError."""
    found: dict[int, list[int | bytes]] = {}
    at = 0
    while at < len(content):
        key, at = _read_varint(content, at)
        value: int | bytes
        if key & 7 == VARINT:
            value, at = _read_varint(content, at)
        elif key & 7 in (BYTES, FIXED64):
            length, at = _read_varint(content, at) if key & 7 == BYTES else (8, at)
            value, at = content[at : at + length], at + length
        else:
            raise ValueError(f"wire type {key & 7}")
        if at > len(content):
            raise ValueError("a field is cut")
        found.setdefault(key >> 3, []).append(value)
    return found


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(content):
            break
        value |= (content[at] & 127) << shift
        at += 1
        if content[at - 1] < 128:
            return value, at
    raise ValueError("a number is cut")
