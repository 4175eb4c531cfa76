"""Sections of a capture made from the pages of files: what the pages are, how full they are, whose they are."""

from __future__ import annotations

from leadline.figures import quantity
from leadline.units import sized
from leadline.views.grid import Column, Grid
from leadline.views.sections import Context, Section, Tile

NEEDS = ("page_file", "page")
MOST = 20
# Of a page of zeros all is free. Maps and meta pages do not fill up; a page of unknown kind says nothing of its room.
_FILL = """
    case when kind = 'unknown' or kind like '% map' or kind like '% meta' then null
         when kind like 'new%' then 0 else 1 - (pd_upper - pd_lower) / block_size end"""
_NAME = "case when f.relfilenode = 0 then regexp_replace(path, '.*/', '') else dbnode || '/' || f.relfilenode end"


def _kinds(of: Context) -> Grid:
    rows = of.capture.rows(
        f"""
        select kind, count(*) as pages, sum(f.block_size)::bigint as bytes,
               avg({_FILL}) as fill,
               sum(lp_normal)::bigint as items, sum(lp_dead)::bigint as dead, sum(lp_unused)::bigint as unused
        from page join page_file f using (file_id) group by kind order by pages desc, kind
        """
    )
    columns = (
        Column("kind", "kind of page", "text"),
        Column("pages", "pages"),
        Column("bytes", "bytes", "bytes"),
        Column("fill", "fill", "share"),
        Column("items", "items", "rate"),
        Column("dead", "dead", "rate"),
        Column("unused", "unused", "rate", minor=True),
    )
    note = "Fill: the part of a page that is not free, on average. Items, dead, unused: line pointers."
    return Grid.of(columns, rows, note)


def _files(of: Context) -> Grid:
    rows = of.capture.rows(
        f"""
        with named as (select distinct on (datid, relfilenode) datid, relfilenode, nspname || '.' || relname as name from relation)
        select coalesce(any_value(n.name), any_value({_NAME}))
               || case when fork = 'main' then '' else ' ' || fork end as file,
               mode(kind order by kind) as kind, count(*) as pages, sum(block_size)::bigint as bytes,
               avg({_FILL}) as fill,
               sum(greatest(pd_upper - pd_lower, 0))::bigint as free_bytes, sum(lp_dead)::bigint as dead
        from page_file f join page using (file_id) left join named n on n.datid = f.dbnode and n.relfilenode = f.relfilenode
        group by spcnode, dbnode, f.relfilenode, fork, case when f.relfilenode = 0 then path end order by bytes desc, file
        """
    )
    columns = (
        Column("file", "relation, or database/file", "text"),
        Column("kind", "main kind", "text", minor=True),
        Column("pages", "pages"),
        Column("bytes", "bytes", "bytes"),
        Column("fill", "fill", "share"),
        Column("free_bytes", "free", "bytes"),
        Column("dead", "dead", "rate"),
    )
    return of.grid(columns, rows, MOST, "page_file")


def _tiles(of: Context, kinds: Grid) -> list[Tile]:
    row = of.capture.rows("select count(*) as files, sum(bytes)::bigint as bytes from page_file")[0]
    pages = sum(r["pages"] for r in kinds.as_dicts())
    dead = sum(r["dead"] or 0 for r in kinds.as_dicts())
    return [
        Tile("Files", f"{row['files']:,}", sized(row["bytes"])),
        Tile("Pages", f"{pages:,}", f"of {len(kinds.rows)} kinds"),
        Tile("Dead line pointers", quantity(dead), "deleted rows whose line pointers are not reused yet"),
    ]


SECTIONS = (
    Section("page_kinds", "Kinds of pages", NEEDS, _kinds, tiles=_tiles),
    Section("page_files", "Relations and files", NEEDS, _files),
)
