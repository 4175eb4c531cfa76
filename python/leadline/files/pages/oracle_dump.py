"""What `alter system dump datafile N block M` of Oracle printed, as a page in the shape of leadline._core.pages.page_read.

Names are those of the dump. It carries no bytes, so there are no offsets, and no checksum can be computed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from leadline.errors import LeadlineError
from leadline.files.pages import Place

if TYPE_CHECKING:
    from leadline._core.pages import Field, Page, Part, Wrong

ENCRYPTED = 0x10  # of flg
BEGINS = re.compile(r"^\s*(buffer tsn: |Block header dump: )", re.MULTILINE)
VALUE = r"(?P<value>0x[0-9a-f.]+|-?\d+|[A-Z-]+)(?![\w.])"
WORD = re.compile(rf"(?P<name>[a-z/_]+)[:=]\s*{VALUE}(?:\s*(?:\((?P<words>[^)]*)\)|[=-] ?(?P<meaning>\w[\w ]*)))?", re.I)
ITL = re.compile(r"^0x(\w+)\s+(0x\w+\.\w+\.\w+)\s+(0x\w+\.\w+\.\w+)\s+(\S{4})\s+(\d+)\s+(fsc|scn)\s+(0x[\w.]+)")
ROW = re.compile(r"^tab (\d+), row (\d+), @0x([0-9a-f]+)")
COLUMN = re.compile(r"^col\s+(\d+): (?:\[\s*(\d+)\](.*)|(\*NULL\*))")
MORE = re.compile(r"^((?: [0-9a-f]{2})+)\s*$")
DIRECTORY = ("tsiz", "hsiz", "pbl", "ntab", "nrow", "frre", "fsbo", "fseo", "avsp", "tosp")
HEADER = ("tsn", "rdba", "scn", "seq", "flg", "tail", "frmt", "chkval", "type")
BLOCK = ("seg/obj", "csc", "itc", "flg", "typ", "brn", "bdba", "ver", "opc", "inc", "exflg")


def is_dump(text: str) -> bool:
    return BEGINS.search(text) is not None


def read_dump(place: Place, text: str) -> Page:
    """The first block that the text dumps. Raises LeadlineError."""
    where = str(place.path)
    if place.block:
        raise LeadlineError("usage", "only the first block of a dump can be shown", hint="remove the block number", where=where)
    start = BEGINS.search(text)
    assert start is not None
    lines = text[start.start() :].splitlines()
    parts = _parts(lines)
    if not any(part["fields"] for part in parts):
        raise LeadlineError("invalid", "the block dump contains no block", where=where)
    header = parts[0]["fields"]
    encrypted = bool(_number_of(header, "flg") & ENCRYPTED)
    kind = next((f["words"] for p in parts for n, f in p["fields"].items() if n in ("type", "typ") and f.get("words")), "block")
    return {
        "path": where,
        "engine": "oracle",
        "block": _number_of(header, "rdba"),
        "fork": "",
        "fork_block": 0,
        "block_size": None,
        "kind": f"{kind}, encrypted" if encrypted else kind,
        "checksums": None,
        "computed_checksum": None,
        "parts": [part for part in parts if part["fields"]],
        "problems": _problems(parts),
        "regions": [],
        "raw": None,
        "dump": {"tool": "Oracle block dump", "missing_bytes": None},
    }


def _parts(lines: list[str]) -> list[Part]:
    header, block, directory = _part("header"), _part("transaction header"), _part("row directory")
    itl: list[Part] = []
    rows: list[Part] = []
    names: tuple[str, ...] = HEADER  # what the lines that follow speak of, and where it belongs
    part = header
    column = ""
    for line in lines:
        entry, row, col, more = ITL.match(line), ROW.match(line), COLUMN.match(line), MORE.match(line)
        if line.startswith("Block header dump:"):
            names, part = BLOCK, block
        elif line.startswith("data_block_dump"):
            names, part = DIRECTORY, directory
        elif line.startswith("end_of_block_dump"):
            break
        elif entry:
            itl.append(_entry(entry))
        elif row:
            rows.append(_part("row", len(rows)))
            _set(rows[-1], "tab", int(row[1]))
            _set(rows[-1], "row", int(row[2]))
            _set(rows[-1], "at", int(row[3], 16))
        elif rows and line.startswith("tl:"):
            _words(line, ("tl", "fb", "lb", "cc"), rows[-1])
            flags = re.search(r"fb: (\S+)", line)
            _set(rows[-1], "fb", flags[1] if flags else "")
        elif rows and col:
            column = f"col {col[1]}"
            _set(rows[-1], column, "" if col[4] else col[3].replace(" ", ""), "NULL" if col[4] else "")
            rows[-1]["fields"][column]["length"] = 0 if col[4] else int(col[2])
        elif more and column in (rows[-1]["fields"] if rows else {}):
            rows[-1]["fields"][column]["value"] += more[1].replace(" ", "")
        elif not rows:
            _words(line, names, part)
    return [header, block, *itl, directory, *rows]


def _part(name: str, number: int | None = None) -> Part:
    return {"part": name, "number": number, "offset": None, "length": None, "fields": {}}


def _set(part: Part, name: str, value: Any, words: str = "") -> None:
    part["fields"][name] = {"value": value, "offset": None, "length": None}
    if words:
        part["fields"][name]["words"] = words


def _number_of(fields: dict[str, Field], name: str) -> Any:
    """0 where the dump does not tell it."""
    return fields[name]["value"] if name in fields else 0


def _words(line: str, names: tuple[str, ...], part: Part) -> None:
    """Takes the "name: value" and "name=value" of a line whose names are looked for."""
    for match in WORD.finditer(line):
        name, value = match["name"], match["value"]
        if name in names and name not in part["fields"]:
            _set(part, name, _number(value), (match["words"] or match["meaning"] or "").strip())


def _number(text: str) -> int | str:
    try:
        return int(text, 0)
    except ValueError:
        return text  # such as a scn of two parts


def _entry(match: re.Match[str]) -> Part:
    part = _part("itl", int(match[1], 16))
    for name, value in (("xid", match[2]), ("uba", match[3]), ("flag", match[4])):
        _set(part, name, value)
    _set(part, "lck", int(match[5]))
    _set(part, match[6], match[7])
    return part


def _problems(parts: list[Part]) -> list[Wrong]:
    """Columns whose bytes are fewer or more than the dump says they are: a line is missing."""
    found: list[Wrong] = []
    for part in parts:
        for name, field in part["fields"].items():
            wanted, got = field["length"], len(field["value"]) // 2 if name.startswith("col ") else None
            if got is not None and got != wanted:
                message = f"row {part['number']} {name} has {got} bytes in the dump, expected {wanted}"
                wrong: Wrong = {
                    "class": "dump",
                    "what": name,
                    "item": part["number"],
                    "offset": None,
                    "wanted": str(wanted),
                    "found": str(got),
                    "message": message,
                }
                found.append(wrong)
    return found
