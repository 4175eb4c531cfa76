"""Sections of a capture made from what onstat and oncheck of Informix print: whose buffers are held and waited for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rich.text import Text

from leadline.capture.reader import Capture
from leadline.figures import count
from leadline.views.grid import Column, Grid
from leadline.views.sections import Context, Section, Tile
from leadline.views.text import section

NEEDS = ("informix_buffer",)
MOST = 20
# onstat -X lists only buffers that somebody holds or waits for; -B lists others too.
CONTENDED = "(listing = 'X' or access <> '' or waiters > 0)"
COLUMNS = (
    Column("object", "object", "text"),
    Column("waiters", "waiters"),
    Column("pages", "pages"),
    Column("exclusive", "exclusive"),
    Column("shared", "shared"),
    Column("page_types", "kind of page", "text"),
)


def objects(capture: Capture) -> list[dict[str, Any]]:
    """Rows {object, datname, relname, dbspace, waiters, buffers, pages, samples, exclusive, shared, page_types}, most waited for first.

    waiters, buffers, exclusive and shared count lines of all samples, pages each page once.
    """
    return capture.rows(
        f"""select object, datname, relname, dbspace, sum(waiters)::bigint as waiters, count(*) as buffers,
                   count(distinct (chunk, page)) as pages, count(distinct sample) as samples,
                   count(*) filter (access = 'exclusive') as exclusive, count(*) filter (access = 'shared') as shared,
                   string_agg(distinct page_type, ', ' order by page_type) as page_types
            from informix_hot_buffer where {CONTENDED}
            group by object, datname, relname, dbspace order by waiters desc, buffers desc, object"""
    )


def _objects(of: Context) -> Grid:
    found = objects(of.capture)
    rows = []
    for row in found[:MOST]:
        name = f"{row['datname']}:{row['relname']}" if row["relname"] else row["object"]  # the owner would not fit
        rows.append((name, *(row[c.name] for c in COLUMNS[1:])))
    grid = of.grid(COLUMNS, found, MOST, "informix_hot_buffer", _read(of), "no buffer was held or waited for")
    return replace(grid, rows=rows)


def _read(of: Context) -> str:
    rows = {name: about.get("rows", 0) for name, about in of.capture.manifest.tables.items()}
    samples, buffers = count(rows.get("informix_sample", 0), "sample"), count(rows.get("informix_buffer", 0), "buffer")
    extents, chunks = count(rows.get("informix_extent", 0), "extent"), count(rows.get("informix_chunk", 0), "chunk")
    return f"{samples} of onstat with {buffers}; {extents} in {chunks}"


def _tiles(of: Context, _: Any) -> list[Tile]:
    found = objects(of.capture)
    waiters, pages = sum(row["waiters"] for row in found), sum(row["pages"] for row in found)
    about = of.capture.manifest.tables.get("informix_sample")
    samples = about["rows"] if about else 0
    return [
        Tile("Waiters", f"{waiters:,}", f"for buffers, in {count(samples, 'sample')}"),
        Tile("Objects", f"{len(found):,}", "with a buffer held or waited for"),
        Tile("Pages", f"{pages:,}", "held or waited for"),
    ]


def _unknown(of: Context) -> dict[str, Any]:
    lines: dict[str, Any] = of.capture.manifest.probe("informix").loss.get("unknown_lines", {})
    return lines


def _unknown_lines(of: Context, unknown: dict[str, Any]) -> Iterator[Text]:
    for path, lines in unknown.items():
        if lines["count"]:
            yield from section(f"{path}: {count(lines['count'], 'line')} in an unknown format skipped, the first")
            for line in lines["first"]:
                yield Text(f"  {line}")


SECTIONS = (
    Section("contended", "Contended objects", NEEDS, _objects, tiles=_tiles, in_json=False),
    Section("samples", "", NEEDS, lambda of: of.capture.rows("from informix_sample order by sample"), in_text=False, in_html=False),
    Section("objects", "", NEEDS, lambda of: objects(of.capture), in_text=False, in_html=False),
    Section("unknown_lines", "", NEEDS, _unknown, _unknown_lines, in_html=False),
)
