"""A page as hex, each run of bytes under the name of the region it belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from leadline._core.pages import Page

PER_LINE = 16
# The kinds of regions and their colours on a terminal. Nothing is told by colour alone.
COLOURS = {
    "header": "cyan",
    "line pointer": "yellow",
    "tuple header": "green",
    "data": None,
    "meta": "magenta",
    "special": "blue",
    "padding": "bright_black",
    "free": "bright_black",
    "unused": "red",
}


def hex_lines(page: Page, *, colour: bool) -> Iterator[str]:
    """Lines of offset, at most 16 bytes of one region, and the region's name; runs of zeros are folded."""
    raw = page["raw"] or b""
    for start, end, part, number, field, kind in page["regions"]:
        name = " ".join(str(word) for word in (part, number, field) if word not in ("", None))
        if end - start > 2 * PER_LINE and not any(raw[start:end]):
            yield _line(start, f"{end - start} x 00", name, kind, colour)
            continue
        for at in range(start, end, PER_LINE):
            bytes_here = raw[at : min(at + PER_LINE, end)]
            yield _line(at, bytes_here.hex(" "), name if at == start else "", kind, colour)


def _line(at: int, text: str, name: str, kind: str, colour: bool) -> str:
    body = f"{text:<47}"
    if colour:
        body = click.style(body, fg=COLOURS.get(kind))
    return f"{at:5}  {body}  {name}".rstrip()


def hex_json(page: Page) -> list[dict[str, Any]]:
    """The regions as rows, with their bytes."""
    names = ("start", "end", "part", "number", "field", "kind")
    raw = page["raw"] or b""
    return [dict(zip(names, region)) | {"bytes": raw[region[0] : region[1]].hex()} for region in page["regions"]]
