"""Sections of a capture made from PostgreSQL's log: what its bytes are, whose they are, where along the log they lie.

The log has no clock of its own: the axis is the position in the log.
"""

from __future__ import annotations

from leadline.figures import percent
from leadline.units import MB, sized
from leadline.views.grid import Column, Grid, Stack
from leadline.views.sections import Context, Section, Tile

NEEDS = ("wal_record_raw",)
STEPS = 120  # of the picture along the log
MOST = 12
IN_PICTURE = 7  # kinds of records with a colour of their own; the rest is one

# The name where the capture knows it, else tablespace/database/file as the server writes it.
_NAMED = """named as (
  select distinct on (datid, relfilenode) datid as dbnode, relfilenode, nspname || '.' || relname as name from relation)"""
_RELATION = "coalesce(n.name, b.spcnode || '/' || b.dbnode || '/' || b.relfilenode)"


def _picture(of: Context, parts: str) -> Stack:
    """MB in steps along the log. parts: a query of (start_lsn, name, bytes); the largest names have a colour each."""
    rows = of.capture.rows(
        f"""
        with extent as (select min(start_lsn) as first, greatest(max(end_lsn) - min(start_lsn), 1) as length from wal_record_raw),
        part as ({parts}),
        named as (select name, row_number() over (order by sum(bytes) desc, name) as place from part group by name)
        select least(floor((p.start_lsn - e.first) * {STEPS}.0 / e.length), {STEPS - 1})::int as step,
               case when n.place <= {IN_PICTURE} then n.name else 'others' end as name, least(n.place, {IN_PICTURE + 1}) as place,
               sum(p.bytes)::bigint as bytes, any_value(e.length) as length
        from part p join named n using (name) cross join extent e group by 1, 2, 3 order by step, place
        """
    )
    length = rows[0]["length"] / MB if rows else 1.0
    width = length / STEPS
    values = [(r["step"] * width, (r["step"] + 1) * width, r["name"], r["bytes"] / MB) for r in rows]
    return Stack(values, length, "MB from the start of the WAL", "MB of records", "MB")


def _along(of: Context) -> Grid:
    """Bytes by kind of record."""
    parts = """
      select r.start_lsn, coalesce(t.rmgr || ' ' || t.record_type, 'type ' || r.type_id) as name, r.record_length as bytes
      from wal_record_raw r left join wal_record_type t using (type_id)"""
    return Grid((), [], picture=_picture(of, parts))


def _kinds(of: Context) -> Grid:
    rows = of.capture.rows(
        """
        select coalesce(t.rmgr || ' ' || t.record_type, 'type ' || r.type_id) as record_type, count(*) as records,
               sum(record_length)::bigint as bytes, sum(fpi_length)::bigint as image_bytes,
               sum(record_length) / sum(sum(record_length)) over () as share
        from wal_record_raw r left join wal_record_type t using (type_id) group by 1 order by bytes desc, record_type
        """
    )
    columns = (
        Column("record_type", "kind of record", "text"),
        Column("records", "records"),
        Column("bytes", "bytes", "bytes"),
        Column("image_bytes", "page images", "bytes", minor=True),
        Column("share", "share", "share"),
    )
    return of.grid(columns, rows, MOST, "wal_record")


def _relations(of: Context) -> Grid:
    rows = of.capture.rows(
        f"""
        with {_NAMED}
        select {_RELATION} as relation, count(distinct b.start_lsn) as records, count(distinct b.block) as blocks,
               sum(b.data_length + b.fpi_length)::bigint as bytes, sum(b.fpi_length)::bigint as image_bytes,
               sum(b.data_length + b.fpi_length) / sum(sum(b.data_length + b.fpi_length)) over () as share
        from wal_block_raw b left join named n using (dbnode, relfilenode)
        group by all order by bytes desc, relation
        """
    )
    columns = (
        Column("relation", "relation", "text"),
        Column("records", "records"),
        Column("blocks", "blocks", minor=True),
        Column("bytes", "bytes", "bytes"),
        Column("image_bytes", "page images", "bytes", minor=True),
        Column("share", "share", "share"),
    )
    note = "Bytes that records contain for blocks of a relation: data and page images. Numbers are tablespace/database/file."
    parts = f"""
      with {_NAMED}
      select b.start_lsn, {_RELATION} as name, b.data_length + b.fpi_length as bytes
      from wal_block_raw b left join named n using (dbnode, relfilenode)"""
    return of.grid(columns, rows, MOST, "wal_block", note, picture=_picture(of, parts))


def _images(of: Context) -> Grid:
    """Page images; one is superseded when a later one in this log restores the same page, so that replay need not apply it."""
    rows = of.capture.rows(
        f"""
        with image as (
          select *, row_number() over (partition by spcnode, dbnode, relfilenode, fork, block order by start_lsn desc) as from_last
          from wal_block_raw where fpi_length > 0 and (fpi_info & 2) <> 0),
        {_NAMED}
        select {_RELATION} as relation, count(*) as images, sum(fpi_length)::bigint as bytes,
               count(*) filter (from_last > 1) as superseded,
               coalesce(sum(fpi_length) filter (from_last > 1), 0)::bigint as superseded_bytes
        from image b left join named n using (dbnode, relfilenode)
        group by all order by bytes desc, relation
        """
    )
    columns = (
        Column("relation", "relation", "text"),
        Column("images", "images"),
        Column("bytes", "bytes", "bytes"),
        Column("superseded", "superseded"),
        Column("superseded_bytes", "their bytes", "bytes"),
    )
    note = "Page images that replay restores. Superseded: a later image of the same page is in this log too."
    return of.grid(columns, rows, MOST, "wal_block", note, "no page images")


def _transactions(of: Context) -> Grid:
    rows = of.capture.rows(
        """
        select case when top_xid <> 0 then top_xid else xid end as xid, count(*) as records, sum(record_length)::bigint as bytes,
               sum(fpi_length)::bigint as image_bytes, (max(end_lsn) - min(start_lsn))::bigint as spans,
               sum(record_length) / (select sum(record_length) from wal_record_raw) as share
        from wal_record_raw where xid <> 0 group by 1 order by bytes desc, xid
        """
    )
    columns = (
        Column("xid", "transaction", "text"),
        Column("records", "records"),
        Column("bytes", "bytes", "bytes"),
        Column("image_bytes", "page images", "bytes", minor=True),
        Column("spans", "spans log of", "bytes"),
        Column("share", "share", "share"),
    )
    return of.grid(columns, rows, MOST, "wal_record", empty="no transaction wrote a record")


def _tiles(of: Context, _: Grid) -> list[Tile]:
    row = of.capture.rows(
        """
        select count(*) as records, coalesce(sum(record_length), 0)::bigint as bytes, coalesce(sum(fpi_length), 0)::bigint as fpi,
               count(distinct case when top_xid <> 0 then top_xid else xid end) filter (xid <> 0) as xacts
        from wal_record_raw
        """
    )[0]
    return [
        Tile("Records", f"{row['records']:,}", "in the WAL that was read"),
        Tile("Bytes", sized(row["bytes"]), "of records"),
        Tile("Page images", percent(row["fpi"] / row["bytes"]) if row["bytes"] else "-", f"{sized(row['fpi'])} of the bytes"),
        Tile("Transactions", f"{row['xacts']:,}", "that wrote records"),
    ]


SECTIONS = (
    Section("wal_along", "Along the WAL", NEEDS, _along, html="stack.html.j2", tiles=_tiles, in_text=False, in_json=False),
    Section("wal_kinds", "Kinds of records", NEEDS, _kinds),
    Section("wal_relations", "Relations", NEEDS, _relations),
    Section("wal_images", "Page images", NEEDS, _images),
    Section("wal_transactions", "Largest transactions", NEEDS, _transactions),
)
