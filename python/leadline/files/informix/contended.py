"""Which objects' buffers are waited for: the question over a capture that import, show and --json ask."""

from __future__ import annotations

import textwrap
from typing import Any

from leadline.capture.reader import Capture
from leadline.figures import count
from leadline.output import to_table

WIDTH = 80
MOST = 20

# onstat -X lists only buffers that somebody holds or waits for; -B lists others too.
CONTENDED = "(listing = 'X' or access <> '' or waiters > 0)"


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


def as_dict(capture: Capture) -> dict[str, Any]:
    """What is printed, as numbers."""
    m = capture.manifest
    return {
        "path": str(capture.path),
        "samples": capture.rows("from informix_sample order by sample"),
        "rows": {name: about["rows"] for name, about in m.tables.items()},
        "objects": objects(capture),
        "unknown_lines": m.probe("informix").loss.get("unknown_lines", {}),
        "notes": m.notes,
    }


def as_text(found: dict[str, Any]) -> str:
    """The most contended objects, then what is doubtful or was left out."""
    rows = found["rows"]
    samples, buffers = count(len(found["samples"]), "sample"), count(rows.get("informix_buffer", 0), "buffer")
    extents, chunks = count(rows.get("informix_extent", 0), "extent"), count(rows.get("informix_chunk", 0), "chunk")
    lines = [f"{samples} of onstat with {buffers}; {extents} in {chunks}", ""]
    shown = [_line(row) for row in found["objects"][:MOST]]
    if shown:
        lines.append(to_table(["object", "waiters", "pages", "exclusive", "shared", "kind of page"], shown, WIDTH))
        if len(found["objects"]) > MOST:
            lines.append(f"{len(found['objects']) - MOST} more: leadline sql {found['path']} \"from informix_hot_buffer\"")
    else:
        lines.append("no buffer was held or waited for")
    for path, unknown in found["unknown_lines"].items():
        if unknown["count"]:
            lines += ["", f"{path}: {count(unknown['count'], 'line')} of unknown form left out, the first:"]
            lines += [f"  {line}" for line in unknown["first"]]
    notes = [note for note in found["notes"] if "of unknown form" not in note]
    lines += ["", *(line for note in notes for line in textwrap.wrap(f"note: {note}", WIDTH, subsequent_indent="  "))]
    return "\n".join(lines)


def _line(row: dict[str, Any]) -> list[Any]:
    name = f"{row['datname']}:{row['relname']}" if row["relname"] else row["object"]  # the owner would not fit
    return [name, row["waiters"], row["pages"], row["exclusive"], row["shared"], row["page_types"]]
