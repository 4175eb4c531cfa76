"""Items of SP-GiST and BRIN: their rows in `page scan`, and their values, which only operator classes give a meaning to.

BRIN is compared with pageinspect. That has nothing for SP-GiST: here the tree is walked, and must lead to the rows of the table,
each below the nodes that its value belongs to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from conftest import Server, running
from leadline.capture import Capture, open_capture
from leadline.cli import run
from page_parts import every_page, numbered, relation_file
from servers import MAJORS

ROWS = """
insert into {table} select i,
  case when i % 40 > 0 then case when i % 11 > 0 then repeat('way', i % 4) || md5((i % 900)::text) else '' end end,
  point(i * 7919 % 1000, i * 104729 % 1000), point(i * 31 % 500, i * 17 % 500),
  box(point(i % 97, i % 89), point(i % 97 + i % 7, i % 89 + i % 5)),
  polygon(box(point(i % 71, i % 53), point(i % 71 + i % 13, i % 53 + i % 3))),
  case when i % 50 > 0 then int4range(i * 13 % 2000, i * 13 % 2000 + 1 + i % 300) else 'empty' end,
  case when i % 3 > 0 then set_masklen('10.0.0.0'::inet + i * 65537 % 16777216, case when i % 5 > 0 then 32 else 24 end)
    else '2001:db8::'::inet + i * 99991 end
  from generate_series({least}, {most}) i
"""
COLUMNS = "(id int, a text, p point, k point, b box, g polygon, r int4range, i inet) with (autovacuum_enabled = off)"
# Index, what is indexed, and what a leaf has of it.
TREES = {
    "o_text": ("a", "a"),
    "o_quad": ("p", "p::text"),
    "o_kd": ("k kd_point_ops", "k::text"),
    "o_box": ("b", "b::text"),
    "o_poly": ("g", "box(g)::text"),
    "o_range": ("r", "r::text"),
    "o_inet": ("i inet_ops", "format('%s', i)"),
}


@pytest.fixture(scope="module", params=MAJORS, ids=[f"pg{major}" for major in MAJORS])
def indexed(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of each major with indexes that were built, added to and taken from."""
    with running(request.param, autovacuum=False) as server:
        with server.connect() as connection:
            connection.execute("create extension pageinspect")
            connection.execute(f"create table o_tree {COLUMNS}")
            connection.execute(ROWS.format(table="o_tree", least=1, most=2000))
            for index, (column, _) in TREES.items():
                connection.execute(f"create index {index} on o_tree using spgist ({column})")
            if server.major > 13:
                connection.execute("create index o_include on o_tree using spgist (p) include (id, a)")
                connection.execute("create index o_include_null on o_tree using spgist (a) include (r, id)")
            connection.execute(ROWS.format(table="o_tree", least=2001, most=3500))
            connection.execute("delete from o_tree where id % 9 = 0")
            connection.execute("vacuum o_tree")
            # What vacuum found as a redirect is a placeholder now; here are new ones.
            connection.execute(ROWS.format(table="o_tree", least=3501, most=4500))
            connection.execute(f"create table o_range_of {COLUMNS}")
            connection.execute(ROWS.format(table="o_range_of", least=1, most=1500))
            connection.execute("update o_range_of set a = null where id < 300")
            connection.execute("delete from o_range_of where id between 400 and 800")
            connection.execute("vacuum o_range_of")
            connection.execute("create index o_brin on o_range_of using brin (id, a, b, i, r) with (pages_per_range = 1)")
            [[first]] = connection.execute("select max((ctid::text::point)[0])::int + 2 from o_range_of where id < 400").fetchall()
            connection.execute("select brin_desummarize_range('o_brin', %s)", [first])
            connection.execute("select brin_summarize_range('o_brin', %s)", [first])
            connection.execute("checkpoint")
        yield server


def scanned(server: Server, index: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Capture:
    assert run(["page", "scan", relation_file(server, index), "-o", str(tmp_path / index), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["rows"]["index_item"] > 10
    return open_capture(tmp_path / index)


def test_scanned_leaves_of_spgist_name_every_row(indexed: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = sorted(row[0] for row in indexed.sql("select ctid::text from o_tree"))
    states = set()
    for index in TREES:
        with closing(scanned(indexed, index, tmp_path, capsys)) as capture:
            items = capture.rows("select kind, i.*, spgist_bits & 3 as state from index_item i join page using (file_id, block)")
        leaves = [item for item in items if item["kind"] == "spgist leaf"]
        assert sorted(f"({t['t_tid_block']},{t['t_tid_posid']})" for t in leaves if t["state"] == 0) == rows
        assert all(t["spgist_bits"] >> 2 == t["lp_len"] for t in leaves)
        states |= {(item["kind"], item["state"]) for item in items}
        # The other items: nodes and prefix of inner tuples, and where redirects lead.
        shown = {(block, n, part["offset"]): part["fields"] for block, page in every_page(indexed, index) for n, part in tuples_of(page)}
        assert shown.keys() == {(item["block"], item["lp"], item["lp_off"]) for item in items}
        for item in items:
            fields = shown[item["block"], item["lp"], item["lp_off"]]
            assert item["spgist_bits"] == (fields.get("bits") or fields["tupstate_size"])["value"]
            assert item["t_info"] == (fields.get("size", {}) if "bits" in fields and item["state"] == 0 else fields["t_info"])["value"]
            tid = (fields.get("heapPtr") or fields.get("pointer") or {"value": "(0,0)"})["value"]
            assert f"({item['t_tid_block']},{item['t_tid_posid']})" == tid
    assert {("spgist leaf", 0), ("spgist leaf", 1), ("spgist leaf", 3), ("spgist inner", 0)} <= states


def tuples_of(page: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    return list(numbered(page, "tuple").items())


def brin_items(server: Server, index: str, columns: str) -> Iterator[tuple[Any, ...]]:
    with server.connect() as connection:
        for block, page in every_page(server, index):
            if page["kind"] == "brin summaries":
                query = f"select {block}, {columns} from brin_page_items(get_raw_page('{index}', {block}), '{index}')"
                yield from connection.execute(query).fetchall()  # type: ignore[arg-type]


def test_scanned_items_of_brin_are_those_of_pageinspect(indexed: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(scanned(indexed, "o_brin", tmp_path, capsys)) as capture:
        rows = capture.rows("select block, lp, t_tid_block, t_tid_posid, t_info, spgist_bits from index_item order by block, lp")
    # Before 16 it does not tell empty ranges, whose columns are all null.
    empty_told = "empty" if indexed.major >= 16 else "bool_and(allnulls) over (partition by itemoffset)"
    theirs: dict[tuple[int, int], tuple[Any, ...]] = {}
    told = f"itemoffset, blknum, placeholder, {empty_told}, bool_or(allnulls or hasnulls) over (partition by itemoffset)"
    for block, lp, blknum, *bits in brin_items(indexed, "o_brin", told):
        theirs[block, lp] = (blknum or 0, *(bool(bit) for bit in bits))
    masks = (0x40, 0x20, 0x80)
    found = {(r["block"], r["lp"]): (r["t_tid_block"], *(bool(r["t_info"] & mask) for mask in masks)) for r in rows}
    assert found == theirs and not any(r["t_tid_posid"] or r["spgist_bits"] for r in rows)
    assert {row[2] for row in theirs.values()} == {row[3] for row in theirs.values()} == {True, False}
