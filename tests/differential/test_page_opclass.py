"""Items of SP-GiST and BRIN: their rows in `page scan`, and their values, which only operator classes give a meaning to.

BRIN is compared with pageinspect. That has nothing for SP-GiST: here the tree is walked, and must lead to the rows of the table,
each below the nodes that its value belongs to.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from conftest import Server, running
from leadline.capture.reader import Capture, open_capture
from leadline.cli import run
from page_parts import every_page, every_typed_page, numbered, relation_file, shown_values
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
            connection.execute(ROWS.format(table="o_tree", least=1, most=1000))
            for index, (column, _) in TREES.items():
                connection.execute(f"create index {index} on o_tree using spgist ({column})")
            if server.major > 13:
                connection.execute("create index o_include on o_tree using spgist (p) include (id, a)")
                connection.execute("create index o_include_null on o_tree using spgist (a) include (r, id)")
            connection.execute(ROWS.format(table="o_tree", least=1001, most=1700))
            connection.execute("delete from o_tree where id % 9 = 0")
            connection.execute("vacuum o_tree")
            # What vacuum found as a redirect is a placeholder now; here are new ones.
            connection.execute(ROWS.format(table="o_tree", least=1701, most=2200))
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


def scanned(server: Server, indexes: Iterable[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Capture:
    assert run(["page", "scan", *(relation_file(server, index) for index in indexes), "-o", str(tmp_path / "scan"), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["rows"]["index_item"] > 10
    return open_capture(tmp_path / "scan")


def test_scanned_leaves_of_spgist_name_every_row(indexed: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = sorted(row[0] for row in indexed.sql("select ctid::text from o_tree"))
    states = set()
    with closing(scanned(indexed, TREES, tmp_path, capsys)) as capture:
        query = "select kind, i.*, spgist_bits & 3 as state from index_item i join page using (file_id, block) where file_id = $1"
        files = {row["path"]: row["file_id"] for row in capture.rows("select path, file_id from page_file")}
        items_of = {index: capture.rows(query, [files[relation_file(indexed, index)]]) for index in TREES}
    for index, items in items_of.items():
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
    with closing(scanned(indexed, ["o_brin"], tmp_path, capsys)) as capture:
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


# -- values ------------------------------------------------------------------------------------------------------------


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?[\d.]+", text)]


def quadrant_of_point(prefix: str, _level: int, value: str) -> int:
    (cx, cy), (x, y) = numbers(prefix), numbers(value)
    return {(True, True): 0, (True, False): 1, (False, False): 2, (False, True): 3}[x >= cx, y > cy or (y == cy and x >= cx)]


def side_of_point(prefix: str, level: int, value: str) -> int | None:
    """y, then x, then y ...; what is equal may be on either side."""
    at, split = numbers(value)[1 - level % 2], float(prefix)
    return None if at == split else int(at > split)


def quadrant_of_box(prefix: str, _level: int, value: str) -> int:
    # Low x, high x, low y, high y; a box is printed with its high corner first.
    bits = [numbers(value)[i] > numbers(prefix)[i] for i in (2, 0, 3, 1)]
    return sum(bit << i for i, bit in enumerate(reversed(bits)))


def quadrant_of_range(prefix: str, _level: int, value: str) -> int:
    if value == "empty":
        return 4
    (low, high), (least, greatest) = numbers(value), numbers(prefix)
    return {(True, True): 0, (True, False): 1, (False, False): 2, (False, True): 3}[low >= least, high >= greatest]


def side_of_address(prefix: str, _level: int, value: str) -> int | None:
    """Longer networks than the prefix go by their next bit, to one of two pairs of nodes; here only that they are in it."""
    assert ipaddress.ip_interface(value).network.subnet_of(ipaddress.ip_network(prefix))  # type: ignore[arg-type]
    return None


SIDES: dict[str, Callable[[str, int, str], int | None]] = {
    "o_quad": quadrant_of_point,
    "o_kd": side_of_point,
    "o_box": quadrant_of_box,
    "o_poly": quadrant_of_box,
    "o_range": quadrant_of_range,
    "o_inet": side_of_address,
}
Step = tuple[str | None, int, int, str | None]


class Tree:
    """An SP-GiST index walked from its roots."""

    def __init__(self, server: Server, index: str) -> None:
        self.tuples: dict[str, tuple[str, dict[str, Any]]] = {}
        for block, page in every_typed_page(server, index):
            self.tuples |= {f"({block},{lp})": (page["kind"], part) for lp, part in tuples_of(page)}

    def leaves(self) -> Iterator[tuple[list[Step], dict[str, Any]]]:
        """The way to each live leaf, and the leaf. Block 1 is the root of rows with a key, 2 of those without."""
        for block in (1, 2):
            for tid in [tid for tid in self.tuples if tid.startswith(f"({block},")]:
                yield from self._below(tid, [])

    def _below(self, tid: str, way: list[Step]) -> Iterator[tuple[list[Step], dict[str, Any]]]:
        kind, item = self.tuples[tid]
        fields = item["fields"]
        if "pointer" in fields:
            if (fields.get("tupstate") or {"value": fields.get("bits", {"value": 0})["value"] & 3})["value"] == 1:
                yield from self._below(fields["pointer"]["value"], way)
        elif kind == "spgist leaf":
            yield way, item
            following = fields["nextOffset"]["value"]
            if way and following:
                yield from self._below(re.sub(r",\d+", f",{following}", tid), way)
        else:
            nodes = [field["value"] for name, field in fields.items() if name.startswith("node t_tid")]
            typed = item["values"]
            labels = typed["labels"][1:-1].split(",") if "labels" in typed else [None] * len(nodes)
            assert len(labels) == len(nodes)
            same = "all the same" in fields["bits"]["words"]
            for number, (node, label) in enumerate(zip(nodes, labels)):
                if node != "(4294967295,0)":
                    yield from self._below(node, [*way, (typed.get("prefix"), -1 if same else number, len(way), label)])


@pytest.mark.parametrize("index", SIDES)
def test_values_of_spgist_are_those_of_the_rows_and_below_their_nodes(indexed: Server, index: str) -> None:
    rows = dict(indexed.sql(f"select ctid::text, {TREES[index][1]} from o_tree"))
    found, checked = {}, 0
    for way, leaf in Tree(indexed, index).leaves():
        [value] = leaf["values"].values()
        found[leaf["fields"]["heapPtr"]["value"]] = value
        for prefix, number, level, _ in way:
            if prefix is not None and number >= 0:
                side = SIDES[index](prefix, level, value)
                assert side in (None, number), (prefix, number, level, value)
                checked += 1
    assert found == rows
    assert checked > len(rows)


def test_text_of_spgist_is_along_the_way_to_its_end(indexed: Server) -> None:
    found = {}
    for way, leaf in Tree(indexed, "o_text").leaves():
        steps = ["".join((prefix or "", chr(int(label)) if int(label or 0) > 0 else "")) for prefix, _, _, label in way]
        [(name, end)] = leaf["values"].items()
        assert name == "end of a"
        found[leaf["fields"]["heapPtr"]["value"]] = None if end is None else "".join(steps) + end
    assert found == dict(indexed.sql("select ctid::text, a from o_tree"))
    assert None in found.values() and "" in found.values()


def test_included_columns_of_spgist_stand_in_its_leaves(indexed: Server) -> None:
    if indexed.major == 13:
        return  # 14 is the first that has them
    for index, columns in (("o_include", "p::text, id::text, a"), ("o_include_null", "null, r::text, id::text")):
        rows = {tid: values for tid, *values in indexed.sql(f"select ctid::text, {columns} from o_tree")}
        found = {}
        for kind, item, typed in shown_values(indexed, index):
            if kind == "spgist leaf":
                found[item["fields"]["heapPtr"]["value"]] = list(typed.values())
        if index == "o_include_null":
            nulls = {tid for (tid,) in indexed.sql("select ctid::text from o_tree where a is null")}
            assert {tid for tid, values in found.items() if values[0] is None} == nulls
            found = {tid: [None, *values[1:]] for tid, values in found.items()}
        assert found == rows


def test_values_of_brin_are_those_of_pageinspect(indexed: Server) -> None:
    nulls = "case when allnulls then 'all' when hasnulls then 'some' else 'none' end"
    theirs = {row[:3]: row[3:] for row in brin_items(indexed, "o_brin", f"itemoffset, attnum, value, {nulls}") if row[1] is not None}
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for block, page in every_typed_page(indexed, "o_brin"):
        for lp, item in numbered(page, "range").items():
            typed = item["values"]
            for number, column in enumerate(("id", "a", "b", "i", "r"), 1):
                kept = [typed[name] for name in typed if name.split(" ")[-1] == column]
                *values, of_nulls = kept
                text = None if of_nulls == "all" else "{" + " .. ".join(values) + "}"
                assert values and [value is None for value in values] == [of_nulls == "all"] * len(values)
                found[block, lp, number] = (text, of_nulls)
    assert found == theirs
    assert {of_nulls for _, of_nulls in found.values()} == {"all", "some", "none"}
    unions = {text.split(" .. ", 1)[1] for (_, _, number), (text, _) in found.items() if number > 2 and text}
    assert len(unions) > 2, "ranges with and without what cannot be merged, and with and without empty values are wanted"


@pytest.mark.usefixtures("terminal")
def test_summaries_that_are_not_read_say_so(indexed: Server, capsys: pytest.CaptureFixture[str]) -> None:
    if indexed.major == 13:
        return  # 14 is the first that has them
    opaque = "id, a text_bloom_ops, id int4_minmax_multi_ops, r"
    with indexed.connect() as connection:
        connection.execute(f"create index o_opaque on o_range_of using brin ({opaque}) with (pages_per_range = 2)")
        connection.execute("checkpoint")
    summaries: dict[str, int] = {}
    for _, item, typed in shown_values(indexed, "o_opaque"):
        for column, words in (("a", "bloom filter"), ("id1", "ranges of minmax_multi")):
            if typed[f"nulls in {column}"] != "all":
                assert re.fullmatch(rf"<{words}, \d+ bytes>", typed[f"summary of {column}"])
                summaries[column] = summaries.get(column, 0) + 1
        assert "union of r" in typed and item["part"] == "range"
    assert min(summaries["a"], summaries["id1"]) > 0
    path = relation_file(indexed, "o_opaque")
    assert run(["page", "show", f"{path}:2"]) == 0
    shown = capsys.readouterr().out
    assert "min of id = '" in shown and "bloom filter" in shown
    assert max(len(line) for line in shown.splitlines() if path not in line) <= 80


def test_operator_classes_of_others_are_not_guessed_at(indexed: Server) -> None:
    """Their functions, which no one can know, happen to do here what those of the server do."""
    functions = ["spg_quad_choose", "spg_quad_picksplit", "spg_quad_inner_consistent", "spg_quad_leaf_consistent"]
    others = ", ".join(f"function {number} {function}" for number, function in enumerate(functions, 2))
    with indexed.connect() as connection:
        for name, theirs, result in (("own_config", "spg_quad_config", "void"), ("own_opcinfo", "brin_minmax_opcinfo", "internal")):
            arguments = "internal, internal" if result == "void" else "internal"
            connection.execute(f"create function {name}({arguments}) returns {result} language internal as '{theirs}'")
        connection.execute(f"create operator class own_tree for type point using spgist as operator 1 <<, function 1 own_config, {others}")
        connection.execute(
            "create operator class own_range for type int4 using brin as operator 1 <, operator 2 <=, operator 3 =, operator 4 >=,"
            "operator 5 >, function 1 own_opcinfo, function 2 brin_minmax_add_value, function 3 brin_minmax_consistent,"
            "function 4 brin_minmax_union"
        )
        connection.execute("create index o_own on o_tree using spgist (p own_tree)")
        connection.execute("create index o_own_brin on o_tree using brin (id, id own_range, id) with (pages_per_range = 10000)")
        connection.execute("checkpoint")
    unknown = "<unknown operator class>"
    assert {tuple(typed.items()) for _, _, typed in shown_values(indexed, "o_own")} == {(("p", unknown),)}
    [(_, _, typed)] = shown_values(indexed, "o_own_brin")
    [ends] = indexed.sql("select min(id)::text, max(id)::text from o_tree")
    # Where the values of the third column are is not known either.
    assert typed == {"min of id": ends[0], "max of id": ends[1], "nulls in id": "none", "summary of id1": unknown}
