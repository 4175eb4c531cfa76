"""Texts of databases in other encodings than UTF-8, against a server that gives them to a client in UTF-8."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import Server, running
from leadline._core.pages import PageValues
from leadline._core.rows import RowScan
from leadline.cli import run
from server_encodings import characters, encodings
from test_rows import told

# A word of each encoding
RUNNING = """\
note: the server is running: the files lack changes that are only in its memory
  hint: run CHECKPOINT to write them
"""
WORDS = {"LATIN1": "grün", "WIN1252": "œuf à 2 €", "EUC_JP": "日本 ｱ丂", "SQL_ASCII": "grün"}
TYPES = """
create extension citext;
create type mood as enum ('sad', '{w}', '{w} "x"');
create type pair as (a int, b text);
create domain "{w}" as text;
create type textrange as range (subtype = text, collation = "C")
"""
VALUES = {
    "text": ["'{w}'", "'{w}, \"{w}\"\n'", "'ASCII'", "''"],
    "varchar(9)": ["'{w}'"],
    "char(12)": ["'{w}'"],
    "name": ["'{w}'"],
    "json": ['\'{{"{w}": ["{w}"]}}\''],
    "jsonb": ['\'{{"{w}": "{w}\\t\\"{w}\\" {w}{w}", "b": ["{w}", 1.5, "plain"]}}\''],
    "jsonpath": ['\'$."{w}" ? (@ == "{w}")\''],
    "xml": ["'<a b=\"{w}\">{w}</a>'", '\'<?xml version="1.1" encoding="ISO-8859-1"?><a b="{w}">{w}</a>\''],
    "tsvector": ["'''{w}'':1A b:2 ''it''''s {w}'''"],
    "tsquery": ["'''{w}'':A & !''b''''{w}'''"],
    "citext": ["'{w}'"],
    "mood": ["'{w}'", "'{w} \"x\"'"],
    "pair": ["row(1, '{w}, {w}')", "row(1, '{w}')"],
    '"{w}"': ["'{w}'"],
    "textrange": ["'[{w},\"{w}{w}\"]'"],
    "text[]": ["array['{w}', '{w} b', null, 'null', '{{{w}}}', '{w}\"\\{w}']"],
    "mood[]": ["'{{{w}}}'"],
    "pair[]": ["array[row(1, '{w}')::pair]"],
    "bytea": ["'{w}'"],
}


@pytest.fixture(scope="module", params=[13, 18], ids=["pg13", "pg18"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with running(request.param, autovacuum=False) as started:
        yield started


def in_encoding(server: Server, encoding: str) -> psycopg.Connection[Any]:
    """A connection in UTF-8 to the database of an encoding, made when it is first asked for."""
    name = encoding.lower()
    with server.connect() as connection:
        if not connection.execute("select from pg_database where datname = %s", (name,)).fetchall():
            connection.execute(f"create database {name} encoding '{encoding}' locale 'C' template template0")
    return server.connect(dbname=name, client_encoding="utf8")


def found(server: Server, encoding: str, relation: str) -> tuple[list[list[str | None]], int]:
    """Rows from the files, and how many characters of them could not be converted."""
    scan = RowScan(str(server.private.data_dir), relation=relation, database=encoding.lower())
    out: list[list[str | None]] = []
    while (rows := scan.rows(1000)) is not None:
        out += rows
    return out, scan.status()["unconverted_characters"]


def relation_file(server: Server, connection: psycopg.Connection[Any], relation: str) -> str:
    [[path]] = connection.execute("select pg_relation_filepath(%s::regclass)", (relation,)).fetchall()
    return f"{server.private.data_dir}/{path}"


def filled(server: Server, connection: psycopg.Connection[Any], encoding: str, relation: str) -> None:
    """A table of that name with a column for each type, named by the word too; older rows are without the last two."""
    word = WORDS[encoding]
    for statement in TYPES.format(w=word).split(";\n"):
        connection.execute(statement)
    values = {kind.format(w=word): [value.format(w=word) for value in of] for kind, of in VALUES.items()}
    if encoding in ("LATIN1", "WIN1252"):  # a character is one byte, which this type has
        values['"char"'] = [f"'{word[:1]}'", "'ü'", "'x'"]
    columns = ", ".join(f'"{word} {i}" {kind}' for i, kind in enumerate(values))
    connection.execute(f'create table "{relation}" (n int, {columns})')
    for row in range(max(map(len, values.values())) + 1):  # the last row is of nulls
        fields = [f"({of[row]})::{kind}" if row < len(of) else "null" for kind, of in values.items()]
        connection.execute(f"""insert into "{relation}" values ({row}, {", ".join(fields)})""")
    connection.execute(f"""alter table "{relation}" add later text default '{word}', add far text""")
    long = f"string_agg('{word}' || md5(g::text), '')"
    connection.execute(f'insert into "{relation}" (n, far) select 100, {long} from generate_series(1, 400) g')
    connection.execute("checkpoint")


@pytest.mark.parametrize("encoding", WORDS)
def test_texts_are_those_the_server_tells(server: Server, encoding: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    relation = f"{WORDS[encoding]}!"
    with in_encoding(server, encoding) as connection:
        filled(server, connection, encoding, relation)
        want = told(connection, f'select ctid, * from "{relation}"')
        assert found(server, encoding, relation) == (want, 0)
        capsys.readouterr()
        line = ["rows", str(server.private.data_dir), relation, "--database", encoding.lower()]
        assert run([*line, "--json"]) == 0
        printed = capsys.readouterr()
        query = f"select attname from pg_attribute where attrelid = '\"{relation}\"'::regclass and attnum > 0 order by attnum"
        names = ["ctid", *(name for [name] in connection.execute(query))]
        assert [list(row.items()) for row in json.loads(printed.out)] == [list(zip(names, row)) for row in want]
        assert printed.err == RUNNING
        assert run(line) == 0
        assert WORDS[encoding] in capsys.readouterr().out
        out = tmp_path / "rows.csv"
        assert run([*line, "-o", str(out)]) == 0
        with out.open(newline="", encoding="utf-8") as file:
            assert list(csv.reader(file)) == [names, *([value or "" for value in row] for row in want)]
        out = tmp_path / "rows.parquet"
        assert run([*line, "-o", str(out), "--json"]) == 0
        import duckdb

        read = duckdb.connect().execute(f"select * from '{out}'")
        assert [column[0] for column in read.description or []] == names
        assert [[as_text(value) for value in row] for row in read.fetchall()] == want


def as_text(value: Any) -> str | None:
    """A value of DuckDB as the server prints it."""
    return value if value is None else f"\\x{value.hex()}" if isinstance(value, bytes) else str(value)


def test_every_character_of_every_encoding(server: Server) -> None:
    """One database of raw bytes that its catalog says is in one encoding after the other."""
    with in_encoding(server, "SQL_ASCII") as connection, server.connect() as other:
        expected = {}
        for name in (numbers := encodings(other)):
            expected[name] = characters(other, name)
            connection.execute(f"create table all_of_{name} (t text)")
            query = f"insert into all_of_{name} select convert_from(b, 'SQL_ASCII') from unnest(%s::bytea[]) b"
            connection.execute(query, (list(expected[name]),))
        try:
            for name, number in numbers.items():
                other.execute("update pg_database set encoding = %s where datname = 'sql_ascii'", (number,))
                other.execute("checkpoint")
                rows, unconverted = found(server, "SQL_ASCII", f"all_of_{name.lower()}")
                texts = [text for _, text in rows]
                assert len(texts) == len(expected[name])
                whole = (None if "\ufffd" in (text or "") else text for text in texts)
                wrong = [(b, want, have) for (b, want), have in zip(expected[name].items(), whole) if want != have]
                assert not wrong, (name, len(wrong), wrong[:5])
                assert unconverted == sum(text.count("\ufffd") for text in texts if text) >= list(expected[name].values()).count(None)
        finally:
            other.execute("update pg_database set encoding = 0 where datname = 'sql_ascii'")
    assert len(numbers) == 33 and sum(len(all_of) for all_of in expected.values()) > 90_000


def test_what_no_server_converts_is_told(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with in_encoding(server, "SQL_ASCII") as connection, server.connect() as other:
        with server.connect(dbname="sql_ascii", client_encoding="SQL_ASCII") as raw:
            raw.execute(b"create type odd_label as enum ('gr\xfcn')")
            raw.execute(b"create table odd as select 'gr\xfcn'::text as t, 'gr\xfcn'::odd_label as l, date 'infinity' as d")
        with pytest.raises(psycopg.errors.CharacterNotInRepertoire):
            connection.execute("select t from odd")
        for encoding, number in (("SQL_ASCII", 0), ("MULE_INTERNAL", 7)):
            other.execute("update pg_database set encoding = %s where datname = 'sql_ascii'", (number,))
            other.execute("checkpoint")
            line = ["rows", str(server.private.data_dir), "odd", "--database", "sql_ascii"]
            for output in ([], ["-o", str(tmp_path / "odd.csv"), "--force"], ["-o", str(tmp_path / "odd.parquet"), "--force"]):
                assert run([*line, *output]) == 0
                warning = f"warning: 2 characters cannot be converted from {encoding} to UTF-8: printed as U+FFFD\n"
                # A Parquet file is begun again, for the date that has no place in it, and its texts are not counted again.
                assert capsys.readouterr().err.endswith(warning)
            assert run([*line, "--json"]) == 0
            [row] = json.loads(capsys.readouterr().out)
            assert (row["t"], row["l"]) == ("gr\ufffdn", "gr\ufffdn")
            page = relation_file(server, connection, "odd")
            assert run(["page", "show", page]) == 0
            assert f"2 characters cannot be converted from {encoding} to UTF-8: printed as U+FFFD\n" in capsys.readouterr().out
            assert run(["page", "show", page, "--json"]) == 0
            shown = json.loads(capsys.readouterr().out)
            assert (shown["encoding"], shown["unconverted_characters"]) == (encoding, 2)
        other.execute("update pg_database set encoding = 0 where datname = 'sql_ascii'")
        assert run(["page", "show", relation_file(server, other, "pg_am"), "--json"]) == 0
        assert not {"encoding", "unconverted_characters"} & set(json.loads(capsys.readouterr().out))


def test_names_and_keys_are_converted(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with in_encoding(server, "LATIN1") as connection:
        connection.execute('create role "rôle"')
        connection.execute('create schema "schön" create table "grüße" ("größe" text, tags text[])')
        connection.execute("insert into schön.grüße values ('übel', '{ä,ö}'), ('wohl', null)")
        for method, column in (("btree", '"größe"'), ("gin", "tags"), ("brin", '"größe"')):
            connection.execute(f'create index "{method}_ü" on schön.grüße using {method} ({column})')
        connection.execute('alter table schön.grüße add later int default 1; grant select on schön.grüße to "rôle"')
        connection.execute("checkpoint")
        data_dir = str(server.private.data_dir)
        try:
            assert run(["rows", data_dir, "schön.grüße", "--database", "latin1", "--json"]) == 0
            assert json.loads(capsys.readouterr().out)[0] == {"ctid": "(0,1)", "größe": "übel", "tags": "{ä,ö}", "later": "1"}
            assert run(["rows", data_dir, "grüse", "--database", "latin1"]) == 2
            assert "closest match: schön.grüße\n" in capsys.readouterr().err
            rows, unconverted = found(server, "LATIN1", "pg_class")
            want = told(connection, "select relname, relacl from pg_class")
            at = 1 + [name for name, _ in RowScan(data_dir, relation="pg_class", database="latin1").describe()["columns"]].index("relacl")
            assert ([[row[2], row[at]] for row in rows], unconverted) == (want, 0)
            shown = {}
            for relation, block in (("grüße", 0), ("btree_ü", 1), ("gin_ü", 1), ("brin_ü", 2)):
                page = f"{relation_file(server, connection, f'schön.{relation}')}:{block}"
                assert run(["page", "show", page, "--json"]) == 0
                shown[relation] = json.loads(capsys.readouterr().out)
                assert (shown[relation]["relation"], shown[relation]["unconverted_characters"]) == (f"schön.{relation}", 0)
            values = {name: [part["values"] for part in page["parts"] if part.get("values")] for name, page in shown.items()}
            assert values["grüße"][0] == {"größe": "übel", "tags": "{ä,ö}", "later": "1"}
            assert [value["größe"] for value in values["btree_ü"]] == ["wohl", "übel"]
            assert [value["tags"] for value in values["gin_ü"]][:2] == ["ä", "ö"]
            assert (values["brin_ü"][0]["min of größe"], values["brin_ü"][0]["max of größe"]) == ("wohl", "übel")
            assert run(["alter", "pending", data_dir, "--table", "schön.grüße", "--json"]) == 0
            assert [row["relation"] for row in json.loads(capsys.readouterr().out)] == ["schön.grüße"]
        finally:
            connection.execute('drop schema "schön" cascade; drop role "rôle"')


def test_pieces_of_texts_are_not_taken_for_texts(server: Server) -> None:
    with in_encoding(server, "EUC_JP") as connection:
        # The root has no room for all: below it are the texts without what they begin with, which ends within a character.
        connection.execute("create table pieces as select '日' || repeat('a', 300) || i as t from generate_series(1, 100) i")
        connection.execute("insert into pieces select repeat('b', 300) || i from generate_series(1, 100) i")
        connection.execute("create index pieces_t on pieces using spgist (t)")
        connection.execute("checkpoint")
        path = relation_file(server, connection, "pieces_t")
    index, pages, found = PageValues(path), Path(path).read_bytes(), set()
    for block in range(1, len(pages) // 8192):
        for _, values in index.of(pages[block * 8192 : (block + 1) * 8192], block):
            found |= {text for name, text in values if name in ("prefix", "end of t") and text}
    second_byte = f"<of a text in EUC_JP: \\xfc{b'a'.hex() * 300}"
    assert {text for text in found if not text.isascii()} == set()
    assert [text for text in found if text.startswith(second_byte)] and [text for text in found if text.startswith("b" * 200)]


def test_what_all_databases_share_is_read_as_utf_8() -> None:
    """Through the first database whose names are: the order of their names does not decide."""
    with running(18, autovacuum=False) as own, own.connect() as connection:
        connection.execute("create database a_latin encoding 'LATIN1' locale 'C' template template0")
        connection.execute('create role "grün"')
        connection.execute("checkpoint")
        [[path]] = connection.execute("select pg_relation_filepath('pg_authid')").fetchall()
        rows = RowScan(f"{own.private.data_dir}/{path}").rows(1000)
        assert rows and "grün" in {row[2] for row in rows}
