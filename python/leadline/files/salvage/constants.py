"""Constants of a node tree as literals."""

from __future__ import annotations

import re
from typing import Final

from leadline.files.salvage.node_names import Names, NotWritten, string
from leadline.files.salvage.node_trees import Node

BOOL, NAME, INT4, TEXT, NUMERIC, UNKNOWN, RECORD = 16, 19, 23, 25, 1700, 705, 2249
REGCLASS, REGTYPE, REGCOLLATION = 2205, 2206, 4191
REGISTERED: Final = {24: "regproc", 2202: "regprocedure", 2203: "regoper", 2204: "regoperator"} | {
    3734: "regconfig", 3769: "regdictionary", 4089: "regnamespace", 4096: "regrole"
}  # fmt: skip
"""Types of OIDs that print as a name. A number would be of another object in a new cluster."""
ARRAYS_OF_OIDS = {1008, 2207, 2208, 2209, 2210, 2211, 3735, 3770, 4090, 4097, 4192}
DEFAULT_COLLATIONS = {0, 100}
C_OF_NAME = 950
WORD = 8

_BARE_INTEGER = re.compile(r"[0-9]+")
_BARE_NUMERIC = re.compile(r"[0-9]+\.[0-9]+")


def literal(const: Node, names: Names, label: bool = True) -> str:
    """A constant; `label`: with its type, unless the literal alone has it."""
    kind = const.number("consttype")
    text = _null(const, names, label) if const.truth("constisnull") else _text(const, kind, names, label)
    collation = const.number("constcollid")
    if label and collation not in DEFAULT_COLLATIONS and (kind, collation) != (NAME, C_OF_NAME):
        return f"({text} COLLATE {names.collation(collation)})"
    return text


def labelled(const: Node, names: Names) -> str:
    """With its type in any case: where a bare number would mean the number of a column."""
    kind = const.number("consttype")
    if const.truth("constisnull") or kind not in (BOOL, INT4, NUMERIC, UNKNOWN):
        return literal(const, names)
    return f"{string(value_of(const, names))}::{names.type_name(kind, const.number('consttypmod'))}"


def value_of(const: Node, names: Names) -> str:
    """The text of the value."""
    kind = const.number("consttype")
    payload = _payload(const)
    if kind in ARRAYS_OF_OIDS:
        raise NotWritten(f"CONST is an array of OIDs (type {kind})")
    if kind in REGISTERED or kind in (REGCLASS, REGTYPE, REGCOLLATION):
        return _object(kind, int.from_bytes(payload, "little"), names)
    text = names.value(TEXT if kind == UNKNOWN else kind, payload)
    if text is None:
        raise NotWritten(f"CONST has a value of type {kind} that cannot be read")
    if "\0" in text:
        raise NotWritten(f"CONST has a zero byte in a value of type {kind}")
    return text


def _null(const: Node, names: Names, label: bool) -> str:
    kind = const.number("consttype")
    return f"NULL::{names.type_name(kind, const.number('consttypmod'))}" if label and kind != UNKNOWN else "NULL"


def _text(const: Node, kind: int, names: Names, label: bool) -> str:
    text = value_of(const, names)
    typmod = const.number("consttypmod")
    if kind == BOOL:
        if text not in ("t", "f", "true", "false"):
            raise NotWritten("CONST is neither true nor false")
        return "true" if text[0] == "t" else "false"
    if (kind == INT4 and _BARE_INTEGER.fullmatch(text)) or (kind == NUMERIC and typmod == -1 and _BARE_NUMERIC.fullmatch(text)):
        return text
    if not label or kind == UNKNOWN:
        return string(text)
    return f"{string(text)}::{names.type_name(kind, typmod)}"


def _object(kind: int, oid: int, names: Names) -> str:
    if oid == 0:
        return "-"
    if kind == REGCLASS:
        return names.relation(oid)
    if kind == REGTYPE:
        return names.type_name(oid)
    if kind == REGCOLLATION:
        return names.collation(oid)
    found = names.registered(kind, oid)
    if found is None:
        raise NotWritten(f"CONST is {REGISTERED[kind]} {oid}, which is not known")
    return found


def _payload(const: Node) -> bytes:
    """The value without what memory has around it."""
    datum, length = const.datum("constvalue"), const.number("constlen")
    if const.truth("constbyval"):
        if not 0 < length <= WORD or datum.length != length or len(datum.data) != WORD:
            raise NotWritten("CONST is not of the length that it says")
        return datum.data[:length]
    if datum.length != len(datum.data) or length not in (-1, -2, len(datum.data)):
        raise NotWritten("CONST is not of the length that it says")
    if length == -1:
        return _without_length_word(datum.data)
    if length == -2:
        if not datum.data.endswith(b"\0"):
            raise NotWritten("CONST has a string without an end")
        return datum.data[:-1]
    return datum.data


def _without_length_word(data: bytes) -> bytes:
    """The 1-byte or 4-byte length of a varlena, as a little-endian machine has it."""
    if not data or data[0] == 1 or data[0] & 3 == 2:
        raise NotWritten("CONST has a value that is compressed or lies elsewhere")
    if data[0] & 1:
        said, head = data[0] >> 1, 1
    else:
        said, head = int.from_bytes(data[:4], "little") >> 2, 4
    if said != len(data) or said < head:
        raise NotWritten("CONST is not of the length that it says")
    return data[head:]
