"""Pages made by each major, read from its files, against what its own pageinspect says of them.

Where pageinspect takes bytes it is given those of the file: a page in memory may have got hint bits since it was written.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import Server, running
from leadline._core.pages import page_read
from leadline.cli import run
from leadline.files.pages.run import Pages
from leadline.files.pages.text import show_text
from page_parts import blocks, every_page, numbered, part, relation_file, shown_values, tids_of, values
from servers import MAJORS

SCHEMA = """
create extension if not exists pageinspect;
create table p_heap (id int primary key, a text, b int, c text) with (fillfactor = 70, autovacuum_enabled = off);
create table p_toast (id int, big text) with (autovacuum_enabled = off);
create table p_dup (k int, n int) with (autovacuum_enabled = off);
create sequence p_seq start 41;
insert into p_heap select i, case when i % 3 = 0 then null else repeat('x', i % 50) end, i % 5, 'c' from generate_series(1, 900) i;
insert into p_toast select i, (select string_agg(md5(i::text || j::text), '') from generate_series(1, 300) j) from generate_series(1, 5) i;
insert into p_dup select i % 7, i from generate_series(1, 6000) i;
select nextval('p_seq');
create index p_btree_dup on p_dup (k);
create index p_btree_include on p_heap (b) include (c);
create index p_btree_text on p_heap (a, id);
create index p_hash on p_dup using hash (n);
create table p_hash_del as select i % 3 as k, i from generate_series(1, 6000) i;
create index p_hash_dup on p_hash_del using hash (k);
delete from p_hash_del where i % 2 > 0;
vacuum p_hash_del;
create table p_gin as select i as id, array[i % 3, i % 50, i] as tags from generate_series(1, 12000) i;
create index p_gin_idx on p_gin using gin (tags) with (fastupdate = on);
insert into p_gin select i, array[1, 2, i] from generate_series(12001, 12200) i;
create table p_gist as select point(i, i % 100) as p from generate_series(1, 2500) i;
create index p_gist_idx on p_gist using gist (p);
create index p_spgist_idx on p_gist using spgist (p);
create index p_brin_idx on p_dup using brin (n) with (pages_per_range = 2);
vacuum (freeze) p_dup;
update p_heap set c = 'hot' where id % 4 = 0;
update p_heap set b = b + 100 where id % 9 = 0;
delete from p_heap where id between 300 and 600;
"""


@pytest.fixture(scope="module", params=MAJORS, ids=[f"pg{major}" for major in MAJORS])
def made(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of each major with pages of every kind on disk, in every state a row can have."""
    with running(request.param, autovacuum=False, max_prepared_transactions=5) as server:
        with server.connect() as connection:
            for statement in SCHEMA.split(";\n"):
                if statement.strip():
                    connection.execute(statement)
            connection.execute("vacuum p_heap")
        lock_rows_of_two_transactions(server)
        with server.connect() as connection, pytest.raises(ZeroDivisionError), connection.transaction():
            connection.execute("insert into p_heap select i, 'aborted', 1, 'c' from generate_series(2001, 2020) i")
            raise ZeroDivisionError
        with server.connect() as connection:
            connection.execute("update p_heap set c = 'after' where id % 16 = 0")
            connection.execute("delete from p_heap where id > 880")
            # Whole btree pages of deleted keys: vacuum marks them, and a second one finds them deletable.
            connection.execute("create table p_del as select i as k from generate_series(1, 5000) i")
            connection.execute("create index p_del_idx on p_del (k)")
            connection.execute("delete from p_del where k between 800 and 4000")
            connection.execute("vacuum p_del")
            connection.execute("select count(*) from p_heap")  # looks at every row, and notes what became of its transactions
            connection.execute("checkpoint")
        yield server


def lock_rows_of_two_transactions(server: Server) -> None:
    """A multixact: two sessions share a lock on the same row."""
    with server.connect(autocommit=False) as one, server.connect(autocommit=False) as two:
        for session in (one, two):
            session.execute("select 1 from p_heap where id = 7 for share")
            session.execute("select 1 from p_heap where id = 8 for key share")
        one.commit()
        two.commit()


def test_headers(made: Server) -> None:
    names = ("pd_lsn", "pd_checksum", "pd_flags", "pd_lower", "pd_upper", "pd_special", "pagesize", "version", "pd_prune_xid")
    with made.connect() as connection:
        for relation in ("p_heap", "p_btree_dup", "p_hash", "p_gin_idx", "p_gist_idx", "p_spgist_idx", "p_brin_idx", "p_seq"):
            path = relation_file(made, relation)
            for block, page in every_page(made, relation, most=20):
                row = connection.execute(
                    "select lsn::text, checksum, flags, lower, upper, special, pagesize, version, prune_xid::text::bigint "
                    "from page_header(pg_read_binary_file(%s, %s, 8192))",
                    [path, block * 8192],
                ).fetchone()
                assert row is not None
                ours = values(part(page, "header"), *names)
                # pageinspect prints the checksum as a signed number.
                assert ours == (row[0], row[1] & 0xFFFF, *row[2:]), (relation, block)


def heap_rows(connection: psycopg.Connection[Any], path: str, block: int) -> dict[int, tuple[Any, ...]]:
    rows = connection.execute(
        "select lp, lp_off, lp_flags, lp_len, t_xmin::text::bigint, t_xmax::text::bigint, t_field3, t_ctid::text, t_infomask2, "
        "t_infomask, t_hoff, t_bits, encode(t_data, 'hex') from heap_page_items(pg_read_binary_file(%s, %s, 8192))",
        [path, block * 8192],
    ).fetchall()
    return {row[0]: row[1:] for row in rows}


def test_heap_items(made: Server) -> None:
    seen: set[int] = set()
    tuple_names = ("t_xmin", "t_xmax", "t_field3", "t_ctid", "t_infomask2", "t_infomask", "t_hoff", "t_bits", "t_data")
    masks: set[tuple[int, int]] = set()
    [[toast]] = made.sql("select reltoastrelid::regclass::text from pg_class where relname = 'p_toast'")
    with made.connect() as connection:
        for relation in ("p_heap", "p_dup", "p_toast", toast, "pg_catalog.pg_class", "pg_catalog.pg_proc"):
            path = relation_file(made, relation)
            for block, page in every_page(made, relation):
                theirs = heap_rows(connection, path, block)
                pointers, tuples = numbered(page, "line pointer"), numbered(page, "tuple")
                assert pointers.keys() == theirs.keys()
                for lp, row in theirs.items():
                    assert values(pointers[lp], "lp_off", "lp_flags", "lp_len") == row[:3]
                    seen.add(row[1])
                    found = values(tuples[lp], *tuple_names) if lp in tuples else (None,) * len(tuple_names)
                    # Without a value there is no data: pageinspect has an empty bytea for that.
                    assert found[:-1] == row[3:-1] and (found[-1] or "") == (row[-1] or ""), (relation, block, lp)
                    if lp in tuples:
                        masks.add((row[7], row[8]))
                        check_flags(tuples[lp], connection)
    assert seen == {0, 1, 2, 3}, "the pages should have unused, normal, redirected and dead line pointers"
    states = {state for infomask2, infomask in masks for state in state_of(infomask2, infomask)}
    assert states == {"multixact", "frozen", "hot", "heap only", "external", "aborted", "deleted"}


_flags: dict[tuple[int, int, int], tuple[list[str], list[str]]] = {}


def check_flags(found: dict[str, Any], connection: psycopg.Connection[Any]) -> None:
    """Names of the bits, against heap_tuple_infomask_flags; each pair of masks once for each server."""
    infomask, infomask2 = values(found, "t_infomask", "t_infomask2")
    key = (connection.info.server_version, infomask, infomask2)
    if key not in _flags:
        row = connection.execute("select raw_flags, combined_flags from heap_tuple_infomask_flags(%s, %s)", key[1:]).fetchone()
        assert row is not None
        _flags[key] = row
    raw, combined = _flags[key]
    ours = [flag for name in ("t_infomask", "t_infomask2") for flag in found["fields"][name].get("flags", [])]
    assert sorted(ours) == sorted(raw)
    assert sorted(found["fields"].get("combined", {}).get("flags", [])) == sorted(combined)


def state_of(infomask2: int, infomask: int) -> Iterator[str]:
    if infomask & 0x1000:
        yield "multixact"
    if infomask & 0x300 == 0x300:
        yield "frozen"
    elif infomask & 0x200:
        yield "aborted"
    if infomask2 & 0x4000:
        yield "hot"
    if infomask2 & 0x8000:
        yield "heap only"
    if infomask & 0x4:
        yield "external"
    if infomask & 0x400 and not infomask & 0x80:
        yield "deleted"


BTREES = ("p_heap_pkey", "p_btree_dup", "p_btree_include", "p_btree_text", "p_del_idx", "pg_catalog.pg_class_oid_index")


def test_btree_meta_pages(made: Server) -> None:
    cleanup = "oldest_xact::text::bigint" if made.major == 13 else "last_cleanup_num_delpages"
    names = ("btm_magic", "btm_version", "btm_root", "btm_level", "btm_fastroot", "btm_fastlevel", "btm_last_cleanup_num_delpages")
    names = (*names, "btm_last_cleanup_num_heap_tuples", "btm_allequalimage")
    for index in BTREES:
        query = (
            f"select magic, version, root, level, fastroot, fastlevel, {cleanup}, last_cleanup_num_tuples, allequalimage from bt_metap(%s)"
        )
        [row] = made.sql(query, [index])
        page = page_read(relation_file(made, index), 0)
        assert (page["kind"], values(part(page, "contents"), *names)) == ("btree meta", row)


def test_btree_pages(made: Server) -> None:
    types: set[str] = set()
    level = "btpo" if made.major == 13 else "btpo_level"
    stats = "live_items, dead_items, avg_item_size, page_size, free_size, btpo_prev, btpo_next"
    postings = nulls = truncated = 0
    with made.connect() as connection:
        for index in BTREES:
            path = relation_file(made, index)
            for block in range(1, blocks(made, index)):
                page = page_read(path, block)
                assert page["problems"] == []
                row = connection.execute(
                    f"select type, {level}, btpo_flags, {stats} from bt_page_stats(%s, %s)", [index, block]
                ).fetchone()
                assert row is not None
                types.add(row[0])
                if made.major == 13 and row[0] == "d":
                    assert page["kind"] == "btree deleted"
                    continue  # it leaves all other figures out
                special = part(page, "special")
                assert values(special, "btpo_flags", "btpo_prev", "btpo_next") == (row[2], row[-2], row[-1])
                if "deleted" in page["kind"]:
                    continue  # and here some
                assert values(special, "btpo_level") == (row[1],)
                assert values(part(page, "summary"), "live_items", "dead_items", "avg_item_size") == row[3:6]
                assert (page["block_size"], *values(part(page, "summary"), "free_size")) == row[6:8]
                items, pointers = numbered(page, "item"), numbered(page, "line pointer")
                rows = connection.execute(
                    "select itemoffset, ctid::text, itemlen, nulls, vars, replace(data, ' ', ''), dead, htid::text, tids::text[] "
                    "from bt_page_items(%s, %s)",
                    [index, block],
                ).fetchall()
                assert items.keys() == {row[0] for row in rows}
                for number, ctid, length, has_nulls, has_vars, data, dead, htid, tids in rows:
                    item = items[number]
                    found = values(item, "t_tid", "itemlen", "data", "htid", "tids")
                    assert found[:2] == (ctid, length), (index, block, number)
                    assert (found[2] or "") == (data or ""), (index, block, number)
                    assert found[3:] == (htid, tids), (index, block, number)
                    flags = item["fields"]["t_info"].get("flags", [])
                    assert ("INDEX_NULL_MASK" in flags, "INDEX_VAR_MASK" in flags) == (has_nulls, has_vars)
                    if dead is not None:
                        assert (pointers[number]["fields"]["lp_flags"]["value"] == 3) == dead
                    postings += tids is not None
                    nulls += has_nulls
                    truncated += "attribute" in item["fields"]["t_tid"].get("words", "")
    assert {"l", "r"} <= types and types & {"d", "D"}, f"leaves, a root and deleted pages are wanted: {types}"
    assert postings and nulls and truncated


def test_hash_pages(made: Server) -> None:
    meta = (
        "magic", "version", "ntuples", "ffactor", "bsize", "bmsize", "bmshift", "maxbucket", "highmask", "lowmask",
        "ovflpoint", "firstfree", "nmaps", "procid", "spares", "mapp",
    )  # fmt: skip
    names = ", ".join(f"{n}::bigint[]" if n in ("spares", "mapp") else "procid::bigint" if n == "procid" else n for n in meta)
    types = {"hash meta": "metapage", "hash bucket": "bucket", "hash overflow": "overflow"}
    types |= {"hash bitmap": "bitmap", "hash unused": "unused"}
    seen = set()
    with made.connect() as connection:
        for block, page in every_page(made, "p_hash"):
            [kind] = connection.execute("select hash_page_type(get_raw_page('p_hash', %s))", [block]).fetchone() or [None]
            if page["kind"] == "new":
                assert kind == "unused"
                continue
            assert types[page["kind"]] == kind
            seen.add(kind)
            if kind == "metapage":
                row = connection.execute(f"select {names} from hash_metapage_info(get_raw_page('p_hash', 0))").fetchone()
                assert values(part(page, "contents"), *(f"hashm_{n}" for n in meta)) == row
            if kind not in ("bucket", "overflow"):
                continue
            query = (
                "select live_items, dead_items, free_size, hasho_prevblkno, hasho_nextblkno, hasho_bucket, hasho_flag, hasho_page_id "
                "from hash_page_stats(get_raw_page('p_hash', %s))"
            )
            row = connection.execute(query, [block]).fetchone()
            special = ("hasho_prevblkno", "hasho_nextblkno", "hasho_bucket", "hasho_flag", "hasho_page_id")
            ours = values(part(page, "summary"), "live_items", "dead_items", "free_size") + values(part(page, "special"), *special)
            assert ours == row, block
            rows = connection.execute(
                "select itemoffset, ctid::text, data from hash_page_items(get_raw_page('p_hash', %s))", [block]
            ).fetchall()
            assert [(n, *values(item, "t_tid", "hashkey")) for n, item in numbered(page, "item").items()] == rows
    assert {"metapage", "bucket", "bitmap"} <= seen


GIN_FLAGS = {
    "GIN_DATA": "data", "GIN_LEAF": "leaf", "GIN_DELETED": "deleted", "GIN_META": "meta", "GIN_LIST": "list",
    "GIN_LIST_FULLROW": "list_fullrow", "GIN_INCOMPLETE_SPLIT": "incomplete_split", "GIN_COMPRESSED": "compressed",
}  # fmt: skip


def test_gin_pages(made: Server) -> None:
    seen, postings = set(), 0
    with made.connect() as connection:
        for block, page in every_page(made, "p_gin_idx"):
            raw = [block]
            query = "select rightlink, maxoff, flags from gin_page_opaque_info(get_raw_page('p_gin_idx', %s))"
            row = connection.execute(query, raw).fetchone()
            special = part(page, "special")
            flags = sorted(GIN_FLAGS[flag] for flag in special["fields"]["flags"].get("flags", []))
            assert row is not None
            assert (*values(special, "rightlink", "maxoff"), flags) == (row[0], row[1], sorted(row[2])), block
            seen.add(page["kind"])
            if page["kind"] == "gin meta":
                meta = connection.execute("select * from gin_metapage_info(get_raw_page('p_gin_idx', 0))").fetchone()
                names = ("head", "tail", "tailFreeSize", "nPendingPages", "nPendingHeapTuples", "nTotalPages", "nEntryPages")
                assert values(part(page, "contents"), *names, "nDataPages", "nEntries", "ginVersion") == meta
            if page["kind"] == "gin posting tree leaf":
                query = "select first_tid::text, nbytes, tids::text[] from gin_leafpage_items(get_raw_page('p_gin_idx', %s))"
                rows = connection.execute(query, raw).fetchall()
                assert [values(s, "first", "nbytes", "tids") for s in numbered(page, "segment").values()] == rows
                postings += len(rows)
    wanted = {"gin meta", "gin entry leaf", "gin entry inner", "gin posting tree leaf", "gin pending list"}
    assert wanted <= seen and postings, seen


def test_gin_entries_name_every_row(made: Server) -> None:
    """The rows of all entries and posting trees are those that a query finds: each element of each array."""
    rows = 0
    for _, page in every_page(made, "p_gin_idx"):
        if page["kind"] == "gin entry leaf":
            rows += sum(len(item["fields"]["tids"]["value"]) for item in numbered(page, "item").values() if "tids" in item["fields"])
        elif page["kind"] == "gin posting tree leaf":
            rows += sum(len(s["fields"]["tids"]["value"]) for s in numbered(page, "segment").values())
    [[expected]] = made.sql("select count(distinct (id, tag)) from p_gin, unnest(tags) tag where id <= 12000")
    assert rows == expected


GIST_FLAGS = {
    "F_LEAF": "leaf", "F_DELETED": "deleted", "F_TUPLES_DELETED": "tuples_deleted", "F_FOLLOW_RIGHT": "follow_right",
    "F_HAS_GARBAGE": "has_garbage",
}  # fmt: skip


def test_gist_pages(made: Server) -> None:
    seen, rows = set(), []
    with made.connect() as connection:
        for block, page in every_page(made, "p_gist_idx"):
            seen.add(page["kind"])
            if page["kind"] == "gist leaf":
                rows += [item["fields"]["t_tid"]["value"] for item in numbered(page, "item").values()]
            if made.major > 13:  # pageinspect has nothing for GiST before
                check_gist_page(connection, block, page)
    assert seen == {"gist leaf", "gist inner"}
    assert sorted(rows) == sorted(row[0] for row in made.sql("select ctid::text from p_gist"))


def check_gist_page(connection: psycopg.Connection[Any], block: int, page: dict[str, Any]) -> None:
    query = "select lsn::text, nsn::text, rightlink, flags from gist_page_opaque_info(get_raw_page('p_gist_idx', %s))"
    row = connection.execute(query, [block]).fetchone()
    assert row is not None
    special = part(page, "special")
    ours = *values(part(page, "header"), "pd_lsn"), *values(special, "nsn", "rightlink")
    assert ours == (*row[:2], row[2] & 0xFFFFFFFF)  # "none" is printed as -1
    assert sorted(GIST_FLAGS[f] for f in special["fields"]["flags"].get("flags", [])) == sorted(row[3])
    query = "select itemoffset, ctid::text, itemlen, encode(key_data, 'hex') from gist_page_items_bytea(get_raw_page('p_gist_idx', %s))"
    theirs = connection.execute(query, [block]).fetchall()
    items = numbered(page, "item")
    assert [(n, *values(item, "t_tid", "itemlen")) for n, item in items.items()] == [row[:3] for row in theirs]
    for item, row in zip(items.values(), theirs):
        assert row[3].endswith(item["fields"]["key_data"]["value"])  # the whole tuple is printed; the key is its end


def test_brin_pages(made: Server) -> None:
    types = {"brin meta": "meta", "brin map": "revmap", "brin summaries": "regular"}
    with made.connect() as connection:
        for block, page in every_page(made, "p_brin_idx"):
            [kind] = connection.execute("select brin_page_type(get_raw_page('p_brin_idx', %s))", [block]).fetchone() or [None]
            assert types[page["kind"]] == kind
            if kind == "meta":
                query = "select magic, version, pagesperrange, lastrevmappage from brin_metapage_info(get_raw_page('p_brin_idx', 0))"
                magic, *rest = connection.execute(query).fetchone() or []
                found = values(part(page, "contents"), "brinMagic", "brinVersion", "pagesPerRange", "lastRevmapPage")
                assert found == (int(magic, 16), *rest)
            elif kind == "revmap":
                query = "select pages::text from brin_revmap_data(get_raw_page('p_brin_idx', %s)) pages"
                rows = connection.execute(query, [block]).fetchall()
                assert values(part(page, "map"), "rm_tids")[0] == [row[0] for row in rows]
            else:
                items = "brin_page_items(get_raw_page('p_brin_idx', %s), 'p_brin_idx')"
                rows = connection.execute(f"select itemoffset, blknum, placeholder, value from {items}", [block]).fetchall()
                for number, blknum, is_placeholder, value in rows:
                    item = numbered(page, "range")[number]
                    least, greatest = struct.unpack_from("<ii", bytes.fromhex(item["fields"]["bv_values"]["value"]))
                    assert f"{{{least} .. {greatest}}}" == value
                    assert values(item, "bt_blkno") == (blknum,)
                    assert ("BRIN_PLACEHOLDER_MASK" in item["fields"]["bt_info"].get("flags", [])) == is_placeholder
                assert len(rows) == len(numbered(page, "range")) > 3


def test_the_bits_of_a_hash_bitmap_are_those_of_its_overflow_pages(made: Server) -> None:
    pages = dict(every_page(made, "p_hash_dup"))
    overflow = [block for block, page in pages.items() if page["kind"] in ("hash overflow", "hash unused")]
    told = set()
    with made.connect() as connection:
        for block in overflow:
            row = connection.execute("select * from hash_bitmap_info('p_hash_dup', %s)", [block]).fetchone()
            assert row
            bitmap, bit, is_set = row
            assert pages[bitmap]["kind"] == "hash bitmap"
            octets = bytes.fromhex(part(pages[bitmap], "contents")["fields"]["bitmap"]["value"])
            assert bool(octets[bit // 8] >> bit % 8 & 1) == is_set
            told.add(is_set)
    assert told == {True, False}  # some are in use, some were given back


def test_spgist_leaves_name_every_row(made: Server) -> None:
    """pageinspect has nothing for SP-GiST; the rows that its leaves name are those of the table."""
    live, kinds = [], set()
    for _, page in every_page(made, "p_spgist_idx"):
        kinds.add(page["kind"])
        if page["kind"] == "spgist leaf":
            tuples = numbered(page, "tuple").values()
            live += [t["fields"]["heapPtr"]["value"] for t in tuples if t["fields"]["tupstate"]["value"] == 0]
    assert kinds == {"spgist meta", "spgist leaf", "spgist inner"}
    assert sorted(live) == sorted(row[0] for row in made.sql("select ctid::text from p_gist"))


EVER = {  # keys of all rows that a table ever had
    "p_btree_text": """
select case when i % 3 = 0 then null else repeat('x', i % 50) end, i::text from generate_series(1, 900) i
union all select 'aborted', i::text from generate_series(2001, 2020) i"""
}


@pytest.mark.parametrize(
    ("index", "table", "columns"),
    [("p_btree_text", "p_heap", "a, id::text"), ("p_btree_include", "p_heap", "b::text, c"), ("p_btree_dup", "p_dup", "k::text")],
)
def test_typed_keys_of_leaves_are_those_of_their_rows(made: Server, index: str, table: str, columns: str) -> None:
    rows = {tid: list(values) for tid, *values in made.sql(f"select ctid::text, {columns} from {table}")}
    # A page may be parted from the next by the key of a row that is no more.
    once = [*rows.values(), *(list(values) for values in made.sql(EVER.get(index, "select")))]
    found: dict[str, list[str | None]] = {}
    prefixes = 0
    for kind, item, typed in shown_values(made, index):
        if kind == "btree leaf" and "htid" in item["fields"]:
            found.update((tid, list(typed.values())) for tid in tids_of(item))
        elif typed:  # what parts two pages is the beginning of a key
            prefixes += 1
            assert list(typed.values()) in [key[: len(typed)] for key in once], index
    assert {tid: found[tid] for tid in rows} == rows  # versions of rows that are no more may be there too
    assert prefixes > 0


def test_typed_keys_of_hash_gin_and_gist(made: Server) -> None:
    hashes = {(tid, values["hash of n"]) for _, item, values in shown_values(made, "p_hash") for tid in tids_of(item)}
    assert hashes == set(made.sql("select ctid::text, (hashint4(n)::int8 & 4294967295)::int4::text from p_dup where hashint4(n) >= 0")) | {
        (tid, code) for tid, code in made.sql("select ctid::text, hashint4(n)::text from p_dup where hashint4(n) < 0")
    }
    tags = {values["tags"] for kind, _, values in shown_values(made, "p_gin_idx") if kind in ("gin entry leaf", "gin pending list")}
    assert tags == {tag for (tag,) in made.sql("select distinct unnest(tags)::text from p_gin")}
    boxes = {(tid, values["p"]) for kind, item, values in shown_values(made, "p_gist_idx") if kind == "gist leaf" for tid in tids_of(item)}
    assert boxes == set(made.sql("select ctid::text, box(p)::text from p_gist"))


def test_typed_values_of_tuples_dead_and_toasted_ones_too(made: Server, capsys: pytest.CaptureFixture[str]) -> None:
    living = dict(made.sql("select ctid::text, array[id::text, a, b::text, c] from p_heap"))
    found = {}
    for _, item, typed in shown_values(made, "p_heap"):
        found[item["number"], typed["id"], typed["c"]] = list(typed.values())
    assert all(row in found.values() for row in living.values())
    with made.connect() as connection:
        connection.execute("create table if not exists p_dead (id int) with (autovacuum_enabled = off)")
        connection.execute("truncate p_dead")
        connection.execute("insert into p_dead values (1), (2)")
        connection.execute("delete from p_dead where id = 1")
        connection.execute("checkpoint")
    assert [values["id"] for _, _, values in shown_values(made, "p_dead")] == ["1", "2"]
    (toasted, *_) = [values for _, _, values in shown_values(made, "p_toast")]
    [[big]] = made.sql("select big from p_toast where id = %s", [toasted["id"]])
    assert toasted["big"] == big
    assert run(["page", "show", "p_toast:0", "--dsn", made.dsn]) == 0
    shown = capsys.readouterr().out
    assert "public.p_toast (id int4, big text)" in shown and f": id = '{toasted['id']}', big = '{big[:20]}" in shown


def test_without_a_catalog_values_stay_bytes(made: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "16402"
    copy.write_bytes(Path(relation_file(made, "p_heap")).read_bytes())
    assert run(["page", "show", f"{copy}:0"]) == 0
    assert "no typed values: " in capsys.readouterr().out


def test_sequence(made: Server) -> None:
    page = page_read(relation_file(made, "p_seq"), 0)
    [row] = made.sql("select last_value, log_cnt, is_called from p_seq")
    assert page["kind"] == "sequence"
    assert values(part(page, "tuple"), "last_value", "log_cnt", "is_called") == row


def test_maps(made: Server) -> None:
    page = page_read(relation_file(made, "p_dup", "_vm"), 0)
    count = blocks(made, "p_dup")
    assert values(part(page, "map"), "all_visible", "all_frozen") == (count, count)
    with made.connect() as connection:
        for block in range(blocks(made, "p_heap", "fsm")):
            page = page_read(relation_file(made, "p_heap", "_fsm"), block)
            if page["kind"] == "new":
                continue
            assert page["kind"] == "free space map"
            [text] = connection.execute("select fsm_page_contents(get_raw_page('p_heap', 'fsm', %s))", [block]).fetchone() or [""]
            nodes = bytes.fromhex(part(page, "map")["fields"]["fp_nodes"]["value"])
            ours = "".join(f"{i}: {v}\n" for i, v in enumerate(nodes) if v)
            assert text == ours + f"fp_next_slot: {part(page, 'map')['fields']['fp_next_slot']['value']}\n"


@pytest.mark.usefixtures("terminal")
def test_regions_tile_every_page_of_the_catalog(made: Server) -> None:
    for relation in ("pg_catalog.pg_class", "pg_catalog.pg_proc", "pg_catalog.pg_proc_proname_args_nsp_index", *BTREES):
        for _, page in every_page(made, relation):
            at = 0
            for start, end, *_ in page["regions"]:
                assert start == at < end
                at = end
            assert at == page["block_size"]
            assert max(len(line) for line in show_text(page).splitlines()[1:]) <= 80


def test_the_data_directory_is_sound(made: Server) -> None:
    found = Pages([Path(made.private.data_dir)])
    assert list(found) == []
    [[relations]] = made.sql("select count(*) from pg_class where relname = 'p_heap'")
    assert relations == 1 and found.summary["pages"] > 1000
    wanted = {"heap", "btree leaf", "hash bucket", "gin entry leaf", "gist leaf", "spgist leaf", "brin map", "sequence"}
    assert wanted <= found.summary["kinds"].keys()
    assert "unknown" not in found.summary["kinds"]




def test_a_relation_can_be_named(servers: Callable[[int], Server], capsys: pytest.CaptureFixture[str]) -> None:
    server = servers(18)
    server.sql("create table p_named as select i from generate_series(1, 1000) i")
    server.sql("vacuum p_named")
    server.sql("checkpoint")
    path = relation_file(server, "p_named")

    def shown(*line: str) -> Any:
        code = run(["page", "show", *line, "--dsn", server.dsn, "--json"])
        return code, json.loads(capsys.readouterr().out)

    code, page = shown("p_named:3")
    assert (code, page["path"], page["block"], page["kind"]) == (0, path, 3, "heap")
    code, page = shown("public.p_named", "--fork", "vm")
    assert (code, page["path"], page["kind"]) == (0, path + "_vm", "visibility map")
    for name, kind in (("p_none", "not_found"), ("pg_views", "invalid"), ("p_named:9999", "invalid"), ("p_named:131072", "not_found")):
        code, answer = shown(name)
        assert (code, answer["error"]["kind"]) == (2, kind), name


def test_a_busy_server_gives_no_false_alarm(servers: Callable[[int], Server]) -> None:
    """Pages are checked while pgbench changes them, tables are dropped and others are cut off; 18 keeps checksums."""
    server = servers(18)
    server.pgbench_init(1)
    problems: list[dict[str, Any]] = []
    with server.pgbench("-c", 2, "-T", 30), server.connect() as connection:
        for _ in range(3):
            connection.execute("create table p_gone as select i from generate_series(1, 20000) i")
            connection.execute("delete from p_gone where i > 10000")
            pages = Pages([Path(server.private.data_dir)])
            connection.execute("vacuum p_gone")
            connection.execute("checkpoint")
            problems += list(pages)
            connection.execute("drop table p_gone")
            assert pages.summary["checksums"] > 1000
    assert problems == []


def test_checksums_are_the_servers_own(made: Server) -> None:
    """page_checksum() of the server on pages of every kind and block number."""
    with made.connect() as connection:
        for relation in ("p_heap", "p_btree_text", "p_gin_idx", "p_hash"):
            for block, page in every_page(made, relation, most=20):
                if page["kind"] == "new":
                    continue
                row = connection.execute("select page_checksum(get_raw_page(%s, %s), %s)", [relation, block, block]).fetchone()
                assert row is not None
                assert page["computed_checksum"] == row[0] & 0xFFFF, (relation, block)
