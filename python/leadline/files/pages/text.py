"""A page as text: its header, then each group of like parts as a table, with the meaning of flags in words."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from leadline.figures import unconverted
from leadline.files.pages import named
from leadline.output import terminal_width, to_table, width_here

if TYPE_CHECKING:
    from leadline._core.pages import Field, Page, Part

BYTES_SHOWN = 24
LIST_SHOWN = 4
CHECKSUMS = ("pd_checksum", "chkval_kcbh", "pg_cksum", "crc")
HIDDEN = frozenset({"padding", "ItemIdData", "free", "special"})


def show_text(page: Page) -> str:
    """All of a page, as wide as the terminal where numbers allow it."""
    lines = [
        f"{page['path']} block {page['block']}: {page['kind']}",
        _what_there_is(page),
    ]
    if (dump := page.get("dump")) and (missing := dump["missing_bytes"]):
        lines.append(f"from a dump of {dump['tool']} without {missing} bytes; zeros there make the checksum right")
    if page.get("relation"):
        columns = ", ".join(f"{name} {type_name}" for name, type_name in page["columns"] or [])
        lines += textwrap.wrap(f"{page['relation']} ({columns})", width_here(), subsequent_indent="  ")
        if number := page.get("unconverted_characters"):
            lines.append(unconverted(number, page["encoding"]))
    elif page.get("untyped"):
        lines += textwrap.wrap(f"no typed values: {page['untyped']}", width_here(), subsequent_indent="  ")
    for problem in page["problems"]:
        lines += textwrap.wrap(f"WRONG {problem['class']}: {problem['message']}", width_here(), subsequent_indent="  ")
    for name, group in itertools.groupby(page["parts"], key=lambda part: part["part"]):
        lines += ["", *_group(name, list(group))]
    return "\n".join(lines)


def _what_there_is(page: Page) -> str:
    if page["raw"] is None:
        return "no bytes: read from a formatted dump"
    return f"{_fork(page)}{page['block_size']} bytes; {checksum_words(page)}"


def _fork(page: Page) -> str:
    """Which fork of its relation; nothing for engines that have none."""
    return f"{page['fork']} fork, block {page['fork_block']} of it, " if page["fork"] else ""


def checksum_words(page: Page) -> str:
    """What the checksum says, and whether it was expected to say anything."""
    computed = page["computed_checksum"]
    # That of a file is at its end, that of a page at its beginning.
    fields = [part["fields"] for part in (page["parts"][0], page["parts"][-1])]
    stored = next((f[name]["value"] for f in fields for name in CHECKSUMS if name in f), None)
    if stored is None:
        return "this page has no checksum" if page["kind"] == "transaction log" else "no checksum found"
    if page["kind"] == "new":
        return "no checksum, as in every new page"
    if stored == computed:
        return f"checksum {stored:#06x} is right"
    if page["checksums"] or (page["checksums"] is None and stored):
        return f"checksum {stored:#06x} is wrong, computed {computed:#06x}"
    return "no checksums kept" if not stored else f"checksum {stored:#06x} is not current: checksums are off"


def hidden(name: str) -> bool:
    """Bytes without content; of several in one part the second is called "padding 2"."""
    return name in HIDDEN or name.startswith("padding ")


def _group(name: str, parts: list[Part]) -> list[str]:
    if len(parts) == 1 and parts[0]["number"] is None:
        return [name, *_fields(parts[0])]
    names = list(dict.fromkeys(n for part in parts for n in part["fields"] if not hidden(n)))
    rows = [[part["number"], *(_value(part["fields"].get(n)) for n in names), "; ".join(_words(part))] for part in parts]
    if not any(row[-1] for row in rows) and not any(part.get("values") for part in parts):
        return [name, to_table(["#", *names], [row[:-1] for row in rows])]
    if name in ("line pointer", "slot", "run"):
        return [name, to_table(["#", *names, "words"], rows)]
    return [name, *_records(parts)]


def _records(parts: list[Part]) -> Iterator[str]:
    """Items with many fields and words: a line of values each, then a line of words."""
    for part in parts:
        values = [f"{n} {_value(f)}" for n, f in part["fields"].items() if not hidden(n) and (f["length"] or not f.get("words"))]
        head = f"{part['number']:>4}  "
        yield from textwrap.wrap("  ".join(values), width_here(), initial_indent=head, subsequent_indent=" " * 6, break_long_words=False)
        words = _words(part)
        if words:
            yield from textwrap.wrap("; ".join(words), width_here(), initial_indent=" " * 6 + "= ", subsequent_indent=" " * 8)
        if values_of := part.get("values"):
            yield from textwrap.wrap(_typed(values_of), width_here(), initial_indent=" " * 6 + ": ", subsequent_indent=" " * 8)


def _typed(values: dict[str, str | None]) -> str:
    """a = 1, b = NULL, c = 'text', long ones cut on a terminal."""
    return ", ".join(f"{name} = {_literal(text)}" for name, text in values.items())


def _literal(text: str | None) -> str:
    """As SQL writes it; what a terminal would act upon or not show is escaped."""
    if text is None:
        return "NULL"
    most = 2 * BYTES_SHOWN if terminal_width() else len(text)
    shown = text[:most].replace("'", "''")
    escape = "" if shown.isprintable() else "E"
    if escape:
        shown = "".join(c if c.isprintable() and c != "\\" else c.encode("unicode_escape").decode() for c in shown)
    return f"{escape}'{shown}'" if len(text) <= most else f"{escape}'{shown}…' {len(text)} characters"


def _fields(part: Part) -> Iterator[str]:
    fields = {n: f for n, f in part["fields"].items() if not hidden(n)}
    width = max((len(n) for n in fields), default=0)
    if not fields:
        yield f"  {part['length']} bytes at {part['offset']}"
    for name, field in fields.items():
        head = f"  {name:<{width}}  {_value(field)}"
        words = field.get("words", "")
        if len(head) + 2 + len(words) > width_here():  # the rest of the words goes below the value
            indent = " " * (width + 6)
            yield from textwrap.wrap(words, width_here(), initial_indent=head + "  ", subsequent_indent=indent, break_long_words=False)
        else:
            yield head + (f"  {words}" if words else "")


def _words(part: Part) -> list[str]:
    return [f["words"] for n, f in part["fields"].items() if f.get("words") and not hidden(n)]


def _value(field: Field | None) -> Any:
    """A value, cut on a terminal where it is long: in a pipe, with --json and by page hex there is all of it."""
    if field is None:
        return None
    whole = terminal_width() is None
    value = field["value"]
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        shown = " ".join(map(str, value if whole else value[:LIST_SHOWN]))
        return shown if whole or len(value) <= LIST_SHOWN else f"{shown} … {len(value)} in all"
    if isinstance(value, str) and len(value) > 2 * BYTES_SHOWN and not whole:
        return f"{value[: 2 * BYTES_SHOWN]}… {field['length']} bytes"
    return value


def part_title(part: Part) -> str:
    """tuple 3 at 8032, 39 bytes"""
    return f"{named(part)} at {part['offset']}, {part['length']} bytes"
