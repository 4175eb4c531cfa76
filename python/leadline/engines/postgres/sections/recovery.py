"""Sections of a capture of `leadline recover`: where its time went, what it did to which relation, what the log consisted of."""

from __future__ import annotations

from leadline.figures import percent, seconds
from leadline.units import sized
from leadline.views.grid import Column, Grid
from leadline.views.sections import Context, Section, Tile

NEEDS = ("recovery_phase", "recovery_thread", "recovery_relation", "recovery_type")
MOST = 12


def _phases(of: Context) -> Grid:
    rows = of.capture.rows(
        """
        select p.phase, p.wall_ns / 1e9 as wall_s, count(t.thread) as threads, sum(t.cpu_ns) / 1e9 as cpu_s,
               max(t.wall_ns) / 1e9 as longest_s, min(t.wall_ns) / 1e9 as shortest_s
        from recovery_phase p left join recovery_thread t using (phase) group by p.step, p.phase, p.wall_ns order by p.step
        """
    )
    columns = (
        Column("phase", "phase", "text"),
        Column("wall_s", "seconds", "seconds"),
        Column("threads", "threads"),
        Column("cpu_s", "their CPU s", "seconds"),
        Column("longest_s", "longest", "seconds", minor=True),
        Column("shortest_s", "shortest", "seconds", minor=True),
    )
    note = "Threads that read the WAL or wrote pages; one that read the WAL in a later pass, within the phase of pages, counts as read."
    return Grid.of(columns, rows, note)


def _relations(of: Context) -> Grid:
    rows = of.capture.rows(
        """
        select coalesce(relation, spcnode || '/' || dbnode || '/' || relfilenode) || case when fork = 'main' then '' else ' ' || fork end
                 as relation,
               applied, restored, superseded + removed as unneeded, pages_written, pages_read,
               applied / greatest(pages_written, 1) as per_page
        from recovery_relation order by applied + superseded + removed desc, relation
        """
    )
    columns = (
        Column("relation", "relation", "text"),
        Column("applied", "applied"),
        Column("unneeded", "not needed"),
        Column("restored", "images used"),
        Column("pages_written", "pages written"),
        Column("pages_read", "read", minor=True),
        Column("per_page", "per page", "rate", minor=True),
    )
    note = "Applied: changes of pages. Not needed: a later record makes the page anew, or the WAL removes it. Per page: changes applied."
    return of.grid(columns, rows, MOST, "recovery_relation", note, "no page was changed")


def _types(of: Context) -> Grid:
    rows = of.capture.rows(
        """
        select rmgr || ' ' || record_type as record_type, records, record_bytes as bytes, fpi as images, fpi_bytes as image_bytes,
               record_bytes / sum(record_bytes) over () as share
        from recovery_type order by bytes desc, record_type
        """
    )
    columns = (
        Column("record_type", "kind of record", "text"),
        Column("records", "records"),
        Column("bytes", "bytes", "bytes"),
        Column("images", "images", minor=True),
        Column("image_bytes", "their bytes", "bytes", minor=True),
        Column("share", "share", "share"),
    )
    return of.grid(columns, rows, MOST, "recovery_type")


def _tiles(of: Context, _: Grid) -> list[Tile]:
    row = of.capture.rows(
        """
        select (select coalesce(sum(wall_ns), 0) / 1e9 from recovery_phase) as wall_s,
               (select coalesce(sum(record_bytes), 0)::bigint from recovery_type) as bytes,
               (select coalesce(sum(records), 0)::bigint from recovery_type) as records,
               (select coalesce(sum(fpi), 0)::bigint from recovery_type) as images,
               coalesce(sum(restored), 0)::bigint as restored, coalesce(sum(pages_written), 0)::bigint as written,
               coalesce(sum(applied), 0)::bigint as applied
        from recovery_relation
        """
    )[0]
    used = f"{row['restored']:,} of {row['images']:,}" if row["images"] else "-"
    skipped = percent(1 - row["restored"] / row["images"]) + " were not needed" if row["images"] else "none in the WAL"
    return [
        Tile("Time", seconds(row["wall_s"]), "of all phases", "s"),
        Tile("Records", f"{row['records']:,}", f"{sized(row['bytes'])} of WAL"),
        Tile("Pages written", f"{row['written']:,}", f"by {row['applied']:,} changes"),
        Tile("Page images used", used, skipped),
    ]


SECTIONS = (
    Section("recovery_phases", "Phases", NEEDS, _phases, tiles=_tiles),
    Section("recovery_relations", "Relations", NEEDS, _relations),
    Section("recovery_types", "Kinds of records", NEEDS, _types),
)
