"""Rows of a table when files other than its own are damaged: what is lost is said, what is not certain is marked, the rest is read.

Oracle: what the server answered before it was stopped and its files were damaged.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from conftest import Server, running
from crc import crc32c
from leadline.cli import run

PAGE = 8192
NEXT_XID, RELSEG_SIZE = 64, 220  # in pg_control
MISSING_XACT = "  reason: pg_xact/0000 is missing"


@dataclass
class Cluster:
    """A server that was stopped, and where its things are."""

    root: Path
    files: dict[str, str]  # of relations, below the root
    blocks: dict[str, int]  # of rows of catalogs
    oids: dict[str, int]
    next_xid: int
    has_checksums: bool


def fill(server: Server) -> Cluster:
    sql = server.sql
    files: dict[str, str] = {}
    blocks: dict[str, int] = {}
    with server.connect() as connection:
        run_sql = connection.execute
        run_sql("create table t as select i as n from generate_series(1, 100) i")
        run_sql("create table fresh as select i as n, 'paid'::text as status from generate_series(1, 7) i")
        run_sql("create type mood as enum ('sad', 'glad')")
        run_sql("create table moods (n int, m mood)")
        run_sql("insert into moods values (1, 'sad'), (2, 'glad')")
        run_sql("create table big (n int, v text)")
        run_sql("alter table big alter v set storage external")
        run_sql("insert into big select i, repeat(chr(96 + i), 5000) from generate_series(1, 5) i")
        run_sql("create table pieces (n int, v text)")
        run_sql("alter table pieces alter v set storage external")
        for n, first in ((1, 10_000), (2, 20_000)):
            run_sql(f"insert into pieces select {n}, string_agg(i::text, '') from generate_series({first}, {first + 499}) i")
        run_sql("create table late (n int, m text)")
        run_sql("insert into late values (1, 'a'), (2, 'b')")
        # The row of a column that was added later is on a page of its own.
        [[last]] = run_sql("select pg_relation_size('pg_attribute') / 8192 - 1").fetchall()
        where = "select (ctid::text::point)[0]::int from pg_attribute where attrelid = 'late'::regclass and attname = 'added'"
        for i in range(20):
            run_sql(f"create table filler_{i} ({', '.join(f'c{k} int' for k in range(30))})")
        run_sql("alter table late add column added int")
        run_sql("insert into late values (3, 'c', 30)")
        [[blocks["added"]]] = run_sql(where).fetchall()
        assert blocks["added"] > last
        for name, catalog, condition in [
            ("mood", "pg_type", "typname = 'mood'"),
            ("label", "pg_enum", "enumlabel = 'glad'"),
            ("class", "pg_class", "relname = 'late'"),
            ("layout", "pg_attribute", "attrelid = 'pg_class'::regclass and attname = 'relname'"),
            ("int4", "pg_type", "typname = 'int4'"),
        ]:
            query = f"select (ctid::text::point)[0]::int from {catalog} where {condition}"
            [[blocks[name]]] = run_sql(query).fetchall()
        run_sql("create table pages as select i as n, repeat('x', 1000) as v from generate_series(1, 70) i")
        run_sql("vacuum pages")
        run_sql("create table uncounted (n int, v text)")
        run_sql("insert into uncounted select i, repeat('x', 1000) from generate_series(1, 70) i")
        run_sql("create table frozen (n int, v text)")
        run_sql("begin")
        run_sql("truncate frozen")
        with connection.cursor().copy("copy frozen from stdin (freeze)") as copy:
            for i in range(1, 71):
                copy.write_row((i, "x" * 1000))
        run_sql("commit")
        run_sql("create table m (n int primary key, v int)")
        run_sql("insert into m values (1, 10)")
        run_sql("create database other")
        run_sql("create database third")
    with server.connect(autocommit=False) as one, server.connect(autocommit=False) as two, server.connect(autocommit=False) as three:
        one.execute("select from m for key share")
        two.execute("select from m for key share")
        three.execute("update m set v = 20")
        three.commit()
        one.commit()
        two.commit()
    with server.connect(autocommit=False) as connection:
        connection.execute("delete from t where n <= 10")
        connection.rollback()
    names = ["t", "fresh", "moods", "big", "late", "m", "pages", "uncounted", "frozen"]
    names += ["pg_attribute", "pg_type", "pg_enum", "pg_class", "pg_database"]
    oids = {}
    for name in names:
        [[files[name], oids[name]]] = sql(f"select pg_relation_filepath('{name}'), '{name}'::regclass::oid::int8")
    for name, table in (("toast", "big"), ("toast of pieces", "pieces")):
        [[files[name], oids[name]]] = sql(
            f"select pg_relation_filepath(reltoastrelid), reltoastrelid::int8 from pg_class where oid = '{table}'::regclass"
        )
    for name, oid in sql("select datname, oid::int8 from pg_database"):
        files[f"database {name}"], oids[f"database {name}"] = f"base/{oid}", oid
    [[next_xid]] = sql("select (pg_snapshot_xmax(pg_current_snapshot())::text)::int8")
    [[has_checksums]] = sql("show data_checksums")
    server.private.stop()
    return Cluster(server.private.data_dir, files, blocks, oids, next_xid, has_checksums == "on")


@pytest.fixture(scope="module", params=[13, 18], ids=["pg13", "pg18"])
def made(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running(request.param, autovacuum=False) as server:
        yield fill(server)


@pytest.fixture
def damaged(made: Cluster, tmp_path: Path) -> Cluster:
    """A copy that shares its files: change one by `write` or remove it."""
    root = tmp_path / "data"
    shutil.copytree(made.root, root, copy_function=link, ignore=shutil.ignore_patterns("pg_wal"))
    return Cluster(root, made.files, made.blocks, made.oids, made.next_xid, made.has_checksums)


def link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another file system
        shutil.copy2(source, target)


def write(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def change_control(root: Path, at: int, value: int) -> None:
    path = root / "global/pg_control"
    content = bytearray(path.read_bytes())
    [crc_at] = [i for i in range(200, 400, 4) if content[i : i + 4] == crc32c(bytes(content[:i])).to_bytes(4, "little")]
    content[at : at + 4] = value.to_bytes(4, "little")
    content[crc_at : crc_at + 4] = crc32c(bytes(content[:crc_at])).to_bytes(4, "little")
    write(path, bytes(content))


def zero(path: Path, block: int) -> None:
    content = bytearray(path.read_bytes())
    content[block * PAGE : (block + 1) * PAGE] = bytes(PAGE)
    write(path, bytes(content))


@dataclass
class Said:
    code: int
    rows: list[dict[str, Any]]
    err: list[str]


Ask = Callable[..., Said]


@pytest.fixture
def ask(damaged: Cluster, capsys: pytest.CaptureFixture[str]) -> Ask:
    """ask(table, options): what `rows --json` prints of it."""

    def asked(table: str, *options: str, database: str = "postgres") -> Said:
        capsys.readouterr()
        code = run(["rows", str(damaged.root), table, "--database", database, "--json", *options])
        printed = capsys.readouterr()
        return Said(code, json.loads(printed.out), printed.err.splitlines())

    return asked


def clean(said: Said) -> list[dict[str, Any]]:
    assert (said.code, said.err) == (0, [])
    return said.rows


# -- transaction logs --------------------------------------------------------------------------------------------------


def test_what_is_whole_has_no_status(ask: Ask) -> None:
    assert len(clean(ask("t"))) == 100
    assert clean(ask("fresh"))[0] == {"ctid": "(0,1)", "n": "1", "status": "paid"}
    assert clean(ask("m")) == [{"ctid": "(0,2)", "n": "1", "v": "20"}]
    assert [row["added"] for row in clean(ask("late"))] == [None, None, "30"]
    assert [row["m"] for row in clean(ask("moods"))] == ["sad", "glad"]
    assert [len(row["v"]) for row in clean(ask("big"))] == [5000] * 5


def test_a_delete_that_was_rolled_back_is_not_known_without_pg_xact(damaged: Cluster, ask: Ask) -> None:
    (damaged.root / "pg_xact/0000").unlink()
    said = ask("t")
    assert (said.code, len(said.rows)) == (1, 100)
    assert [row["n"] for row in said.rows if row.get("status") == "unknown"] == [str(n) for n in range(1, 11)]
    assert "warning: 10 rows of unknown status: whether they are visible is not known" in said.err
    assert MISSING_XACT in said.err
    # A column of the table has the name: the status has another.
    fresh = ask("fresh")
    assert fresh.rows[0] == {"ctid": "(0,1)", "_status": "unknown", "n": "1", "status": "paid"}
    dead = ask("t", "--dead")
    assert [row["status"] for row in dead.rows] == ["unknown"] * 10 + ["live"] * 90


def test_exports_have_a_column_for_it(damaged: Cluster, ask: Ask, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (damaged.root / "pg_xact/0000").unlink()
    for kind in ("csv", "parquet"):
        out = tmp_path / f"t.{kind}"
        code = run(["rows", str(damaged.root), "t", "--database", "postgres", "-o", str(out), "--json"])
        made = json.loads(capsys.readouterr().out)
        assert (code, made["rows"], made["unknown_rows"], made["unknown_why"]) == (1, 100, 10, [MISSING_XACT.removeprefix("  reason: ")])
        with duckdb.connect() as reader:
            found = reader.execute(f"select status, count(*), max(n) from '{out}' group by 1 order by 1").fetchall()
        assert found == [("live", 90, 100), ("unknown", 10, 10)]
    with (tmp_path / "t.csv").open() as file:
        assert next(csv.reader(file)) == ["ctid", "status", "n"]
    assert run(["rows", str(damaged.root), "t", "--database", "postgres"]) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0].split() == ["ctid", "status", "n"]
    assert run(["rows", str(damaged.root), "t", "--database", "postgres", "--limit", "3"]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 5


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (lambda content: b"", "pg_xact/0000 is too short"),
        (lambda content: content[:100], "pg_xact/0000 is too short"),
        (lambda content: bytes(len(content)), "page 0 of pg_xact/0000 contains only zeros"),
    ],
    ids=["empty", "cut", "zeros"],
)
def test_a_part_of_pg_xact_is_as_good_as_none(content: Callable[[bytes], bytes], why: str, damaged: Cluster, ask: Ask) -> None:
    path = damaged.root / "pg_xact/0000"
    write(path, content(path.read_bytes()))
    said = ask("t")
    assert (said.code, len(said.rows), sum(row.get("status") == "unknown" for row in said.rows)) == (1, 100, 10)
    assert f"  reason: {why}" in said.err


@pytest.mark.parametrize("name", ["members", "offsets"])
@pytest.mark.parametrize("how", ["missing", "zeros"])
def test_a_row_updated_under_lockers_is_not_known_without_pg_multixact(name: str, how: str, damaged: Cluster, ask: Ask) -> None:
    path = damaged.root / f"pg_multixact/{name}/0000"
    if how == "missing":
        path.unlink()
    else:
        write(path, bytes(path.stat().st_size))
    said = ask("m")
    assert said.rows == [{"ctid": "(0,1)", "status": "unknown", "n": "1", "v": "10"}, {"ctid": "(0,2)", "n": "1", "v": "20"}]
    why = "is missing" if how == "missing" else "contains only zeros"
    assert said.code == 1 and [line for line in said.err if line.startswith("  reason: ") and why in line and name in line]
    assert len(clean(ask("moods"))) == 2


def test_page_check_names_what_is_lost_of_the_logs(damaged: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    def problems() -> list[tuple[str, str, str]]:
        run(["page", "check", str(damaged.root), "--json"])
        found = json.loads(capsys.readouterr().out)["problems"]
        return [(p["class"], os.path.relpath(p["path"], damaged.root), p["message"]) for p in found]

    assert problems() == []
    (damaged.root / "pg_xact/0000").unlink()
    (damaged.root / "pg_multixact/offsets/0000").unlink()
    members = damaged.root / "pg_multixact/members/0000"
    write(members, bytes(members.stat().st_size))
    found = [problem for problem in problems() if problem[0] == "xact"]
    assert [path for _, path, _ in found] == ["pg_multixact/members/0000", "pg_multixact/offsets/0000", "pg_xact/0000"]
    assert found[2][2].startswith("the status of transactions ") and found[2][2].endswith(" cannot be read: pg_xact/0000 is missing")
    assert str(damaged.next_xid - 1) in found[2][2]


def test_alter_pending_counts_rows_of_unknown_status(damaged: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["alter", "pending", str(damaged.root), "--table", "postgres.public.late", "--json"]
    assert run(line) == 0
    before = json.loads(capsys.readouterr().out)
    (damaged.root / "pg_xact/0000").unlink()
    assert run(line) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out) == before
    assert "warning: whether 2 rows of these are visible is not known: pg_xact/0000 is missing" in printed.err


def test_rows_of_transactions_of_the_future_are_shown_with_a_note(damaged: Cluster, ask: Ask) -> None:
    """What pg_resetwal -x leaves when its number is too low."""
    control = damaged.root / "global/pg_control"
    assert int.from_bytes(control.read_bytes()[NEXT_XID : NEXT_XID + 4], "little") == damaged.next_xid
    change_control(damaged.root, NEXT_XID, damaged.next_xid - 3)
    said = ask("m")
    assert (said.code, said.rows) == (1, [{"ctid": "(0,2)", "n": "1", "v": "20"}])
    assert "warning: 1 row of transactions later than the next one: a server does not show them" in said.err
    assert len(clean(ask("moods"))) == 2


@pytest.mark.parametrize("content", [None, b"", bytes(8192), b"\xff" * 8192], ids=["missing", "empty", "zeros", "noise"])
def test_rows_can_be_read_without_pg_control(content: bytes | None, damaged: Cluster, ask: Ask) -> None:
    path = damaged.root / "global/pg_control"
    if content is None:
        path.unlink()
    else:
        write(path, content)
    said = ask("t")
    assert (said.code, len(said.rows), {row.get("status") for row in said.rows}) == (1, 100, {None})
    assert any("pg_control" in line and "the page size is that of the catalogs" in line for line in said.err)
    (damaged.root / "pg_xact/0000").unlink()
    assert sum(row.get("status") == "unknown" for row in ask("t").rows) == 10


# -- catalogs ----------------------------------------------------------------------------------------------------------


def test_a_column_whose_row_is_lost_is_said_and_the_rest_read(damaged: Cluster, ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    block = damaged.blocks["added"]
    zero(damaged.root / damaged.files["pg_attribute"], block)
    said = ask("late")
    assert said.code == 1
    assert [(row["n"], row["m"], "added" in row) for row in said.rows] == [("1", "a", False), ("2", "b", False), ("3", "c", False)]
    assert "warning: the catalog is damaged: pg_attribute has no row for column 3 of public.late; it is left out" in said.err
    assert f"warning: the catalog is damaged: pg_attribute: only zeros: block {block}" in said.err
    assert len(clean(ask("t"))) == 100
    assert run(["alter", "pending", str(damaged.root), "--table", "late", "--json"]) == 1
    assert "pg_attribute has no row for column 3 of public.late" in capsys.readouterr().err


def test_a_label_or_a_type_that_is_lost_is_said(damaged: Cluster, ask: Ask) -> None:
    zero(damaged.root / damaged.files["pg_enum"], damaged.blocks["label"])
    said = ask("moods")
    assert (said.code, [row["n"] for row in said.rows]) == (1, ["1", "2"])
    assert all(row["m"].startswith("<enum label ") and row["m"].endswith(" is missing>") for row in said.rows)
    assert any("2 values not valid for the type" in line for line in said.err)
    zero(damaged.root / damaged.files["pg_type"], damaged.blocks["mood"])
    said = ask("moods")
    assert (said.code, [row["n"] for row in said.rows]) == (1, ["1", "2"])
    assert any(line.startswith("warning: the catalog is damaged: pg_type has no row for type ") for line in said.err)
    assert any("only zeros" in line for line in said.err)


def test_what_initdb_gave_all_databases_is_taken_from_another(damaged: Cluster, ask: Ask) -> None:
    zero(damaged.root / damaged.files["pg_attribute"], damaged.blocks["layout"])
    said = ask("late")
    assert (said.code, len(said.rows)) == (1, 3)
    assert any("pg_attribute has not all columns of pg_class; they are taken from the database with OID " in line for line in said.err)
    zero(damaged.root / damaged.files["pg_type"], damaged.blocks["int4"])
    said = ask("t")
    assert (said.code, said.rows[99]) == (1, {"ctid": "(0,100)", "n": "100"})
    assert any("pg_type has no row for type int4; it is taken from the database with OID " in line for line in said.err)


def test_a_table_whose_row_is_lost_is_not_found_and_why(damaged: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    block = damaged.blocks["class"]
    zero(damaged.root / damaged.files["pg_class"], block)
    for path in ([str(damaged.root), "late", "--database", "postgres"], [str(damaged.root / damaged.files["late"])]):
        assert run(["rows", *path, "--json"]) == 2
        error = json.loads(capsys.readouterr().out)["error"]
        assert f"pg_class: only zeros: block {block}" in error["detail"]
    assert run(["alter", "pending", str(damaged.root), "--json"]) == 1
    printed = capsys.readouterr()
    assert "public.late" not in printed.out
    assert "warning: the catalog is damaged: postgres: pg_class has no row for " in printed.err


def test_a_schema_whose_row_is_lost_is_said(damaged: Cluster, ask: Ask) -> None:
    path = damaged.root / damaged.files["database postgres"] / "2615"
    write(path, bytes(path.stat().st_size))
    said = ask("public.t")
    assert (said.code, len(said.rows)) == (1, 100)
    assert any(line.startswith("warning: the catalog is damaged: pg_namespace has no row for schema 11, ") for line in said.err)


def test_damaged_pages_of_catalogs_are_said(damaged: Cluster, ask: Ask) -> None:
    path = damaged.root / damaged.files["pg_class"]
    content = bytearray(path.read_bytes())
    content[PAGE - 100] ^= 0xFF
    content[PAGE : PAGE + 24] = bytes([0xFF] * 24)
    write(path, bytes(content))
    said = ask("t")
    assert (said.code, len(said.rows)) == (1, 100)
    damage = [line.removeprefix("warning: the catalog is damaged: ") for line in said.err if "catalog is damaged" in line]
    assert any(line.startswith("pg_class: no table page: block 1; ") for line in damage)
    assert any(line.startswith("pg_class: wrong checksum: block") for line in damage) == damaged.has_checksums


@pytest.mark.parametrize("how", ["missing", "damaged"])
@pytest.mark.parametrize("folder", ["base", "global"])
def test_the_map_of_the_catalogs_can_be_done_without(how: str, folder: str, damaged: Cluster, ask: Ask) -> None:
    path = damaged.root / (damaged.files["database postgres"] if folder == "base" else folder) / "pg_filenode.map"
    if how == "missing":
        path.unlink()
    else:
        write(path, bytes([7] * path.stat().st_size))
    said = ask("t")
    assert (said.code, len(said.rows)) == (1, 100)
    assert any("pg_filenode.map" in line and "from the files that initdb made" in line for line in said.err)


# -- other databases ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["template1", "other"])
@pytest.mark.parametrize("how", ["emptied", "removed", "pg_class", "pg_attribute"])
def test_the_loss_of_another_database_is_its_own(
    name: str, how: str, damaged: Cluster, ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = damaged.root / damaged.files[f"database {name}"]
    if how in ("pg_class", "pg_attribute"):
        (folder / {"pg_class": "1259", "pg_attribute": "1249"}[how]).unlink()
    else:
        shutil.rmtree(folder)
        if how == "emptied":
            folder.mkdir()
    assert len(clean(ask("t"))) == 100
    assert run(["alter", "pending", str(damaged.root), "--json"]) == (1 if name == "other" else 0)
    printed = capsys.readouterr()
    assert {row["relation"] for row in json.loads(printed.out)} == {"public.late"}
    assert ("warning: database other cannot be read: " in printed.err) == (name == "other")
    assert run(["rows", str(damaged.root), "t", "--database", name, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] in ("not_found", "invalid")


def test_without_the_list_of_databases_each_has_its_number(damaged: Cluster, ask: Ask) -> None:
    (damaged.root / damaged.files["pg_database"]).unlink()
    said = ask("t", database=str(damaged.oids["database postgres"]))
    assert (said.code, len(said.rows)) == (1, 100)
    assert any("pg_database cannot be read" in line for line in said.err)


# -- files of the relation and of its values ---------------------------------------------------------------------------


def test_values_without_a_toast_file_are_missing_and_the_rest_is_read(damaged: Cluster, ask: Ask) -> None:
    (damaged.root / damaged.files["toast"]).unlink()
    said = ask("big", "--limit", "3")
    rows = [row for row in said.rows if "n" in row]
    assert (said.code, [row["n"] for row in rows]) == (1, ["1", "2", "3"])
    assert all(f" of toast table {damaged.oids['toast']} is missing>" in row["v"] for row in rows)
    assert "warning: 3 values could not be read" in said.err


def test_a_row_is_given_where_a_lost_value_would_decide(damaged: Cluster, ask: Ask) -> None:
    (damaged.root / damaged.files["toast"]).unlink()
    said = ask("big", "--where", "v = 'x' and n > 2", "--columns", "n")
    assert (said.code, [row["n"] for row in said.rows]) == (1, ["3", "4", "5"])
    assert said.err == ["warning: 3 rows in the result although a value that the condition needs could not be read"]
    said = ask("big", "--where", "v is not null and n > 2", "--columns", "n")
    assert (said.code, [row["n"] for row in said.rows], said.err) == (0, ["3", "4", "5"], [])


def test_a_toast_page_with_a_wrong_checksum_is_said(damaged: Cluster, ask: Ask) -> None:
    path = damaged.root / damaged.files["toast"]
    content = bytearray(path.read_bytes())
    content[content.index(b"aaaaaaaa") + 500] = ord("X")
    write(path, bytes(content))
    said = ask("big")
    assert said.rows[0]["v"].count("X") == 1
    warned = "warning: 1 TOAST page with a wrong checksum; the values in them are printed as stored" in said.err
    assert (warned, said.code) == (damaged.has_checksums, int(damaged.has_checksums))


@pytest.mark.parametrize("how", ["moved", "renumbered", "twice", "dead", "gone"])
def test_pieces_of_a_value_are_put_in_order_and_told_when_they_are_not_all_there(how: str, damaged: Cluster, ask: Ask) -> None:
    """Two values of 2,500 bytes are two pieces each, on one page: line pointers 1 and 2, 3 and 4."""
    path = damaged.root / damaged.files["toast of pieces"]
    content = bytearray(path.read_bytes())
    pointers = [int.from_bytes(content[at : at + 4], "little") for at in range(24, 24 + 4 * 4, 4)]

    def point(lp: int, to: int) -> None:
        content[20 + 4 * lp : 24 + 4 * lp] = to.to_bytes(4, "little")

    def head(lp: int) -> int:
        """Where the oid of the value is, before the number of the piece."""
        at = pointers[lp - 1] & 0x7FFF
        return at + content[at + 22]

    match how:
        case "moved":
            point(1, pointers[1])
            point(2, pointers[0])
        case "renumbered":
            content[head(2) + 4] = 7
        case "twice":
            content[head(4) : head(4) + 4] = content[head(1) : head(1) + 4]
        case "dead":
            point(2, 3 << 15)
        case "gone":
            point(2, 0)
    write(path, bytes(content))
    said = ask("pieces")
    values = {row["n"]: row["v"] for row in said.rows if "n" in row}
    whole = {"1": "".join(map(str, range(10_000, 10_500))), "2": "".join(map(str, range(20_000, 20_500)))}
    first, second = damaged.oids["toast of pieces"], "is missing>"
    lost = {
        "moved": {},
        "twice": {"1": "has two pieces with the same number>", "2": second},
    }.get(how, {"1": second})
    for n, value in values.items():
        if n in lost:
            assert value.startswith("<value ") and value.endswith(f" of toast table {first} {lost[n]}")
        else:
            assert value == whole[n]
    wrong = ["warning: 1 TOAST page with a wrong checksum; the values in them are printed as stored"] if damaged.has_checksums else []
    assert set(said.err[: len(wrong)]) == set(wrong)
    assert said.code == int(bool(lost or wrong))
    assert len([line for line in said.err if line.startswith("unreadable: ")]) == len(lost)


@pytest.mark.parametrize("lost", ["middle", "first", "short"])
def test_the_gap_that_a_missing_file_leaves_is_said(lost: str, damaged: Cluster, ask: Ask) -> None:
    blocks = 512  # of a file, more than any other relation has
    change_control(damaged.root, RELSEG_SIZE, blocks)
    first = damaged.root / damaged.files["t"]
    content = first.read_bytes()
    shutil.copy2(first, f"{first}.2")
    if lost == "first":
        first.unlink()
    elif lost == "middle":
        write(first, content)
        os.truncate(first, blocks * PAGE)
    start = {"first": 0, "middle": blocks, "short": 1}[lost]
    said = ask("t")
    rows = [row for row in said.rows if "n" in row]
    there = [*([] if lost == "first" else [0]), 2 * blocks]
    assert [row["ctid"] for row in rows] == [f"({block},{lp})" for block in there for lp in range(1, 101)]
    missing = 2 * blocks - start
    assert said.code == 1
    assert f"warning: {missing:,} blocks missing from the middle of the table, with all rows in them" in said.err
    name = first.name
    why = {"middle": f"{name}.1 is missing or empty", "first": f"{name} to {name}.1 are missing or empty"}
    words = why.get(lost, f"{name} is too short, and the files after it up to {name}.1 are missing")
    assert f"unreadable: block {start}: blocks {start} to {2 * blocks - 1} are missing: {words}" in said.err


def test_a_page_of_zeros_before_others_is_said(damaged: Cluster, ask: Ask, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = damaged.root / damaged.files["pages"]
    assert path.stat().st_size == 10 * PAGE
    for block in (0, 4, 9):  # the last one may be one that the server added
        zero(path, block)
    said = ask("pages")
    assert (said.code, len(said.rows)) == (0, 49)
    assert said.err == ["note: 2 pages of only zeros before pages in use: never used, or lost (blocks 0, 4)"]
    line = ["rows", str(damaged.root), "pages", "--database", "postgres", "-o", str(tmp_path / "pages.csv"), "--threads", "2", "--json"]
    assert run(line) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["rows"], made["empty_pages"], made["zero_pages"], made["zeros_at"]) == (49, 3, 2, "blocks 0, 4")


@pytest.mark.parametrize(("first", "last"), [(0, 512), (0, 4096), (14, 16)], ids=["sector", "half", "pd_upper"])
def test_a_page_whose_header_is_zeros_is_not_an_empty_one(first: int, last: int, damaged: Cluster, ask: Ask) -> None:
    path = damaged.root / damaged.files["pages"]
    content = bytearray(path.read_bytes())
    content[4 * PAGE + first : 4 * PAGE + last] = bytes(last - first)
    write(path, bytes(content))
    said = ask("pages")
    assert (said.code, len([row for row in said.rows if "n" in row])) == (1, 63)
    assert said.err == [
        "warning: 1 page could not be read; run leadline page check for details",
        "unreadable: block 4: this is not a table page",
    ]


@pytest.mark.parametrize("kept", [0, 1, 9])
def test_a_file_that_ends_too_early_is_said(kept: int, damaged: Cluster, ask: Ask) -> None:
    for name in ("pages", "uncounted", "frozen"):
        path = damaged.root / damaged.files[name]
        assert path.stat().st_size == 10 * PAGE
        assert len(clean(ask(name))) == 70
        write(path, path.read_bytes()[: kept * PAGE])
        said = ask(name)
        if name == "pages":
            lost, known = 10 - kept, "its last count (pg_class.relpages)"
        elif Path(f"{path}_vm").exists():
            lost, known = 10 - kept, "its visibility map (at least so many)"
        elif not Path(f"{path}_fsm").exists():
            continue
        else:  # which does not have the last page, where the next row goes
            lost, known = 9 - kept, "its free space map (at least so many)"
        assert (said.code, len(said.rows)) == (int(lost > 0), 7 * kept)
        words = f"warning: {lost} block{'s' * (lost > 1)} missing from the end of the table, by {known}"
        assert said.err == ([words] if lost else [])


def test_a_damaged_map_knows_nothing(damaged: Cluster, ask: Ask) -> None:
    path = damaged.root / f"{damaged.files['pages']}_vm"
    for content in (b"\xff" * PAGE, b"", b"\xff" * 100, bytes(3 * PAGE)):
        write(path, content)
        assert len(clean(ask("pages"))) == 70


def test_pages_of_zeros_are_counted(damaged: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zero(damaged.root / damaged.files["t"], 0)
    assert run(["rows", str(damaged.root), "t", "--database", "postgres", "-o", str(tmp_path / "t.csv"), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["rows"], made["empty_pages"]) == (0, 1)


def test_several_troubles_at_once(damaged: Cluster, ask: Ask) -> None:
    (damaged.root / "pg_xact/0000").unlink()
    (damaged.root / damaged.files["toast"]).unlink()
    (damaged.root / damaged.files["database postgres"] / "pg_filenode.map").unlink()
    shutil.rmtree(damaged.root / damaged.files["database other"])
    zero(damaged.root / damaged.files["pg_enum"], damaged.blocks["label"])
    said = ask("big")
    rows = [row for row in said.rows if "n" in row]
    assert (said.code, [row["n"] for row in rows], {row.get("status") for row in rows}) == (1, ["1", "2", "3", "4", "5"], {"unknown"})
    assert len([row for row in ask("moods").rows if "m" in row]) == 2
