"""Loads whose log has every kind of record of B-tree, hash, GIN, GiST and SP-GiST indexes, for checks of redo.

Statement after statement, each in a transaction of its own: VACUUM needs that, and a page is used again only when no transaction
can still be on its way to it. A tree is high when its keys are wide, and wide text must not repeat itself, or it is compressed.
"""

from __future__ import annotations

from conftest import Server

# A text of 32 * {n} letters, another one for each {of}.
WIDE = "(select string_agg(md5(({of})::text || n), '' order by n) from generate_series(1, {n}) n)"

# The number of a row within its page.
NUMBER = "(ctid::text::point)[1]::int"

# What index scans find gone they mark, if they are plain ones.
PLAIN_INDEX_SCANS = ["set enable_seqscan = off", "set enable_bitmapscan = off"]
ANY_SCANS = ["reset enable_seqscan", "reset enable_bitmapscan"]


def wide(of: str, n: int) -> str:
    return WIDE.replace("{of}", of).replace("{n}", str(n))


def unchecked(*statements: str) -> list[str]:
    """Statements whose records get no images to compare with, because there are many of one kind."""
    return ["set wal_consistency_checking = ''", *statements, "reset wal_consistency_checking"]


def delete(of: str) -> list[str]:
    """Rows go, and what is in indexes stays."""
    return unchecked(f"delete from {of}")


def vacuum_twice(table: str) -> list[str]:
    """Deletes pages, and the second time finds that they can be used again."""
    return [f"vacuum {table}", "select txid_current()", f"vacuum {table}"]


def btree() -> list[str]:
    tall = f"lpad(g::text, 4, '0') || {wide('g', 30)}"
    load = [
        # Ascending, descending and random inserts.
        "create table numbers (a int, b text, c int)",
        "create index numbers_a on numbers (a)",
        "create unique index numbers_b on numbers (b, a) include (c)",
        *unchecked("insert into numbers select g, md5(g::text), g from generate_series(1, 1000) g"),
        "insert into numbers select -g, md5((-g)::text), g from generate_series(1, 400) g",
        *unchecked("insert into numbers select g * 7919 % 100003, md5('x' || g), g from generate_series(1, 600) g"),
        "insert into numbers select g * 7919 % 100003, md5('x' || g), g from generate_series(601, 800) g",
        # A tree of four levels: few keys to a page.
        "create table tall (a int, w text)",
        "create index tall_w on tall (w)",
        f"insert into tall select g, {tall} from (select n * 7919 % 1000 as g from generate_series(1, 999) n) as numbers",
        # Pages that become empty, and their parents with them; the pages are used again.
        *delete("tall where a between 200 and 700"),
        *vacuum_twice("tall"),
        f"insert into tall select g, {tall} from generate_series(300, 400) g",
        # Only the right edge is left, and a lower page is the fast root. The tree grows again, and so does the fast root.
        *delete("tall where a < 995"),
        *vacuum_twice("tall"),
        f"insert into tall select g, {tall} from generate_series(1000, 1200) g",
        *delete("tall"),
        *vacuum_twice("tall"),
        f"insert into tall select g, {tall} from generate_series(1, 60) g",
        # Duplicates become lists of rows; rows in places that VACUUM made free fall into the middle of lists.
        "create table dups (k int, pad text)",
        "create index dups_k on dups (k)",
        *unchecked("insert into dups select g % 5, repeat('x', 60) from generate_series(1, 4000) g"),
        "insert into dups select g % 5, repeat('x', 60) from generate_series(1, 700) g",
        *delete("dups where ctid::text like '%7)'"),
        "vacuum dups",
        "insert into dups select g % 5, repeat('x', 60) from generate_series(1, 500) g",
        *delete(f"dups where {NUMBER} % 3 = 0"),
        "vacuum dups",
    ]
    for n in range(6):
        load += [
            *unchecked("insert into dups select g % 5, repeat('y', 60) from generate_series(1, 350) g"),
            "insert into dups select g % 5, repeat('y', 60) from generate_series(1, 150) g",
            *delete(f"dups where {NUMBER} % {5 + n} = 1"),
            "vacuum dups",
        ]
    # Index scans mark items whose rows are gone; the next insert into the full page deletes them.
    load += [
        "create table killed (k int, v int) with (fillfactor = 50)",
        "create index killed_k on killed (k)",
        "create index killed_v on killed (v)",
        *unchecked("insert into killed select g, g from generate_series(1, 2000) g"),
        *PLAIN_INDEX_SCANS,
    ]
    for n in range(4):
        load += [
            *delete(f"killed where k % 5 = {n} and k between 100 and 1500"),
            "select count(v) from killed where k between 1 and 2000",
            f"insert into killed select g, {n} from generate_series(100, 1500) g where g % 5 = {n}",
        ]
    # The same where only a part of a list's rows is gone.
    load += [
        "create table versions (k int, v int) with (fillfactor = 50)",
        "create index versions_k on versions (k)",
        "create index versions_v on versions (v)",
        *unchecked("insert into versions select g % 40, g from generate_series(1, 2500) g"),
    ]
    for n in range(8):
        load += [
            f"update versions set v = v + 1 where v % 10 = {n}",
            f"select count(v) from versions where k between {n} and {n + 30}",
            "insert into versions select g % 40, g from generate_series(1, 250) g",
        ]
    return load + ANY_SCANS


def hashed() -> list[str]:
    load = [
        # Buckets that split, overflow pages, a bucket with one key.
        "create table hashed (a int, b text)",
        "create index hashed_a on hashed using hash (a)",
        "create index hashed_b on hashed using hash (b)",
        *unchecked("insert into hashed select g, md5(g::text) from generate_series(1, 3300) g"),
        "insert into hashed select g, md5(g::text) from generate_series(3301, 4000) g",
        *unchecked("insert into hashed select 7, 'same' from generate_series(1, 2380) g"),
        "insert into hashed select 7, 'same' from generate_series(1, 420) g",
        *unchecked("insert into hashed select g % 3, md5((g % 3)::text) from generate_series(1, 2500) g"),
        # Holes in every page, then chains that VACUUM draws together, then overflow pages used again.
        *delete("hashed where ctid::text like '%3)' or ctid::text like '%5)'"),
        "vacuum hashed",
        *unchecked("insert into hashed select g % 50, md5((g % 50)::text) from generate_series(1, 700) g"),
        "insert into hashed select g % 50, md5((g % 50)::text) from generate_series(1, 300) g",
        *delete(f"hashed where a = 7 and {NUMBER} % 10 > 0"),
        "vacuum hashed",
        *delete("hashed where a between 0 and 60"),
        "vacuum hashed",
        *unchecked("insert into hashed select g, md5(g::text) from generate_series(10000, 11600) g"),
        "insert into hashed select g, md5(g::text) from generate_series(11601, 12000) g",
        # A chain of one key: room in its first pages, two full ones, an empty one, and some rows at its end.
        "create table chained (a int, id int)",
        *unchecked("insert into chained select 7, g from generate_series(1, 2442) g"),
        "create index chained_a on chained using hash (a)",
        *delete("chained where id <= 5 or id between 408 and 457 or id between 1222 and 2027 or id between 2036 and 2422"),
        "vacuum chained",
        # Index scans mark items whose rows are gone: an insert deletes them, or VACUUM.
        "create table hash_killed (a int)",
        "create index hash_killed_a on hash_killed using hash (a)",
        *unchecked("insert into hash_killed select g % 2 from generate_series(1, 1500) g"),
        *PLAIN_INDEX_SCANS,
    ]
    for n in range(4):
        load += [
            *delete(f"hash_killed where a = 1 and ctid::text like '%{n})'"),
            "select count(*) from hash_killed where a = 1",
            "insert into hash_killed select 1 from generate_series(1, 300)",
        ]
    return [
        *load,
        *delete("hash_killed where a = 1 and ctid::text like '%5)'"),
        "select count(*) from hash_killed where a = 1",
        "vacuum hash_killed",
        *ANY_SCANS,
        "create unlogged table hash_unlogged (a int)",
        "create index hash_unlogged_a on hash_unlogged using hash (a)",
    ]


def gin() -> list[str]:
    return [
        # Entries with few rows and with trees of rows.
        "create table lists (a int[], t int)",
        "create index lists_a on lists using gin (a) with (fastupdate = off)",
        *unchecked("insert into lists select array[g % 10, g, g * 31 % 1009], g from generate_series(1, 2000) g"),
        "insert into lists select array[g % 10, g, g * 31 % 1009], g from generate_series(2001, 2400) g",
        *unchecked("insert into lists select array[1], g from generate_series(1, 2100) g"),
        "insert into lists select array[1], g from generate_series(1, 700) g",
        *unchecked("insert into lists select array[1], g from generate_series(1, 900) g"),
        "insert into lists select array[1], g from generate_series(1, 300) g",
        *delete("lists where t % 3 = 0"),
        "vacuum lists",
        "insert into lists select array[1, 2, g % 100], -g from generate_series(1, 800) g",
        # A tree of rows built at once: VACUUM empties pages in its middle, new rows fall between the others.
        "create table many (k int, t int)",
        *unchecked("insert into many select 1, g from generate_series(1, 60000) g"),
        "create index many_k on many using gin ((array[k])) with (fastupdate = off)",
        *delete("many where t between 20000 and 42000 or t % 5 = 0"),
        *vacuum_twice("many"),
        *unchecked("insert into many select 1, g from generate_series(1, 11000) g"),
        "insert into many select 1, g from generate_series(1, 1000) g",
        *delete("many where t % 2 = 0"),
        "vacuum many",
        # Entries that wait in a list: of one page, of a row with many pages; moved by hand, for their number, by VACUUM.
        "create table waiting (a int[])",
        "create index waiting_a on waiting using gin (a) with (fastupdate = on, gin_pending_list_limit = 64)",
        "insert into waiting select array[g % 7, g % 1000, g] from generate_series(1, 900) g",
        "insert into waiting select array(select h from generate_series(1, 3000) h) from generate_series(1, 2) g",
        "select gin_clean_pending_list('waiting_a')",
        "insert into waiting select array[g % 7, g % 1000, g] from generate_series(1, 300) g",
        "vacuum waiting",
        # A tree of entries of several levels.
        "create table entries (w text[])",
        "create index entries_w on entries using gin (w) with (fastupdate = off)",
        f"insert into entries select array[{wide('g', 20)}] from generate_series(1, 700) g",
    ]


def gist() -> list[str]:
    point = "point(g * 7919 % 10007, g * 104729 % 10009)"
    box = "box(point(g, g), point(g + 5, g % 97))"
    signature = "to_tsvector('simple', (select string_agg(md5((g * 1000 + n)::text), ' ') from generate_series(1, 80) n))"
    load = [
        "create table points (p point, b box)",
        "create index points_p on points using gist (p)",
        "create index points_b on points using gist (b)",
        *unchecked(f"insert into points select {point}, {box} from generate_series(1, 3500) g"),
        f"insert into points select {point}, {box} from generate_series(3501, 4000) g",
        # Leaves that become empty and are used again.
        *delete("points where p <@ box '(2000,2000),(8000,8000)'"),
        *vacuum_twice("points"),
        f"insert into points select {point}, {box} from generate_series(4001, 4400) g",
        *unchecked(f"insert into points select {point}, {box} from generate_series(4401, 5500) g"),
        *PLAIN_INDEX_SCANS,
    ]
    # Index scans mark items whose rows are gone; the next insert into the full page deletes them.
    for left in range(0, 4000, 1000):
        load += [
            *delete(f"points where p <@ box '({left},0),({left + 900},10000)'"),
            f"select count(*) from points where p <@ box '({left - 100},0),({left + 1000},10000)'",
            f"insert into points select point({left} + g % 900, g * 13 % 10000), null from generate_series(1, 500) g",
        ]
    return [
        *load,
        *ANY_SCANS,
        *delete("points where p[0] > 1000"),
        *vacuum_twice("points"),
        *unchecked(f"insert into points select {point}, null from generate_series(1, 1100) g"),
        f"insert into points select {point}, null from generate_series(1101, 1500) g",
        # Wide keys: inner pages split too.
        "create table words (v tsvector)",
        "create index words_v on words using gist (v tsvector_ops (siglen = 1500))",
        f"insert into words select {signature} from generate_series(1, 400) g",
        "create table spans (r int4range, exclude using gist (r with &&))",
        "insert into spans select int4range(g * 10, g * 10 + 5) from generate_series(1, 600) g order by g * 7919 % 601",
    ]


def spgist() -> list[str]:
    point = "point(g * 7919 % 10007, g * 104729 % 10009)"
    load = [
        "create table places (p point, t text)",
        "create index places_p on places using spgist (p)",
        "create index places_kd on places using spgist (p kd_point_ops)",
        "create index places_t on places using spgist (t)",
        *unchecked(f"insert into places select {point}, md5(g::text) from generate_series(1, 2200) g"),
        f"insert into places select {point}, md5(g::text) from generate_series(2201, 2500) g",
        "insert into places select point(g % 3, g % 5), repeat('abc', g % 40) || md5(g::text) from generate_series(1, 800) g",
        *unchecked("insert into places select null, null from generate_series(1, 900) g"),
        "insert into places select null, null from generate_series(1, 300) g",
        # Prefixes that become shorter, nodes that are added.
        "insert into places select point(1, 1), 'www.example.org/' || chr(32 + g % 90) || g from generate_series(1, 900) g",
        "insert into places select point(1, 1), 'www.exam' || g from generate_series(1, 300) g",
        "insert into places select point(1, 1), 'ww' || chr(33 + g % 90) || g from generate_series(1, 300) g",
        # Chains whose head is dead, placeholders, and tuples that lead elsewhere and nobody needs any more.
        *delete("places where ctid::text like '%3)' or ctid::text like '%4)'"),
        "vacuum places",
        *unchecked(f"insert into places select {point}, md5((-g)::text) from generate_series(1, 900) g"),
        f"insert into places select {point}, md5((-g)::text) from generate_series(901, 1200) g",
        *delete("places where p <@ box '(2000,2000),(8000,8000)' or t like 'w%'"),
        *vacuum_twice("places"),
        f"insert into places select {point}, md5((-g)::text) from generate_series(1, 300) g",
        *unchecked(f"insert into places select {point}, md5((-g)::text) from generate_series(301, 1000) g"),
        # Roots that are leaves.
        "create table few_places (p point)",
        "create index few_places_p on few_places using spgist (p)",
        "insert into few_places select point(g, g) from generate_series(1, 20) g",
        "insert into few_places select null from generate_series(1, 20) g",
        *delete("few_places where p[0] > 5 or p is null"),
        "vacuum few_places",
        "create table letters (t text)",
        "create index letters_t on letters using spgist (t)",
    ]
    for n in range(60):
        text = f"chr({40 + n}) || chr(40 + g % 80) || chr(40 + g % 7) || repeat('z', g % 50) || g"
        insert = f"insert into letters select {text} from generate_series(1, 60) g"
        load += [insert] if n % 4 == 3 else unchecked(insert)
    # Long prefixes: inner tuples fill their pages and have to move.
    for n in range(6):
        prefix, end = wide(str(n), 1 + 12 * n), "chr(40 + g % 80) || md5(g::text) from generate_series(1, 250) g"
        load += [f"insert into letters select {start} || {end}" for start in (prefix, f"left({prefix}, {16 + n})")]
    return load


LOADS = {"btree": btree, "hash": hashed, "gin": gin, "gist": gist, "spgist": spgist}


def index_load(server: Server) -> None:
    """Every kind of record of B-tree, hash, GIN, GiST and SP-GiST that names a page."""
    with server.connect() as connection:
        for load in LOADS.values():
            for statement in load():
                connection.execute(statement.encode())
