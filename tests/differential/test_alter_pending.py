"""`leadline alter pending`: what it counts equals a slow reference through pageinspect; paths and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from alter_parts import alter, lz4, make, make_small, reference
from conftest import Server
from leadline._core.pending import pending_scan
from leadline.files import server as server_files


def test_pending_is_what_pageinspect_shows(pg: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with pg.connect() as connection:
        make(connection, "altered", pg.major)
        wanted = reference(pg, connection, "altered")
        gone = connection.execute(
            "select sum(octet_length(i.t_attrs[3]))::int from generate_series(0, pg_relation_size('altered') / 8192 - 1) b"
            " cross join lateral heap_page_item_attrs(get_raw_page('altered', b::int), 'altered'::regclass) i"
            " join altered v on v.ctid = format('(%s,%s)', b, i.lp)::tid"
        ).fetchone()
        assert wanted["short"][0] > 1000 and wanted["dropped"][0] > 500
        assert ("compression" in wanted) == lz4(connection, pg.major)
    found = alter(capsys, "pending", pg.dsn, "--table", "altered")
    assert {row["relation"] for row in found} == {"public.altered"}
    by_reason = {row["reason"]: row for row in found}
    assert {reason: (row["rows"], row["pages"]) for reason, row in by_reason.items()} == {k: v for k, v in wanted.items() if k != "any"}
    assert by_reason["dropped"]["bytes"] == gone[0]
    assert by_reason["short"]["bytes"] == 0


def test_indexes_that_reindex_would_improve(fresh_server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server = fresh_server(18)
    with server.connect() as connection:
        connection.execute("create table keyed (id int, t text, n numeric, f float8, tags int[])")
        connection.execute("insert into keyed (id) values (1)")
        [table] = connection.execute("select pg_relation_filepath('keyed')").fetchone()
        connection.execute("create collation loose (provider = icu, locale = 'und', deterministic = false)")
        indexes = ["keyed_id on keyed (id)", "keyed_t on keyed (t, id)", "keyed_n on keyed (n)", "keyed_f on keyed (f)"]
        indexes += ["keyed_more on keyed (id) include (t)", "keyed_loose on keyed (t collate loose)", "keyed_hash on keyed using hash (id)"]
        for index in [*indexes, "keyed_gin on keyed using gin (tags)"]:
            connection.execute(f"create index {index}")
        connection.execute("checkpoint")
        paths = dict(connection.execute("select relname, pg_relation_filepath(oid) from pg_class where relname like 'keyed_%'"))
    assert alter(capsys, "pending", server.dsn) == []  # those that cannot be deduplicated are as new as they can be
    server.private.stop()
    root = Path(server.private.data_dir)
    for name, path in paths.items():
        if name in ("keyed_hash", "keyed_gin"):
            patch(root / path, 28 if name == "keyed_hash" else 72, 3 if name == "keyed_hash" else 1)
        else:
            patch(root / path, 64, 0)  # as pg_upgrade from 12 leaves it
    patch(root / paths["keyed_f"], 28, 3)
    found = {row["relation"]: (row["reason"], row["rows"], row["pages"]) for row in alter(capsys, "pending", root)}
    assert found == {
        "public.keyed_id": ("btree-dedup", None, 2),
        "public.keyed_t": ("btree-dedup", None, 2),
        "public.keyed_f": ("btree-version", None, 2),
        "public.keyed_hash": ("hash", None, found["public.keyed_hash"][2]),
        "public.keyed_gin": ("gin", None, 1),
    }
    patch(root / table, 4000, 7)  # between line pointers and rows: only the checksum tells
    torn = [sum(r["unread_pages"] for r in pending_scan(str(root / table), verify=verify)["relations"]) for verify in (False, True)]
    assert torn == [0, 1]


def patch(path: Path, at: int, value: int) -> None:
    """Overwrites four bytes."""
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(value.to_bytes(4, "little"))


def test_paths_name_databases_and_files(servers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server = servers(15)
    with server.connect() as connection:
        connection.execute("drop database if exists other")
        connection.execute("create database other")
        make_small(connection, "here")
        with server.connect(dbname="other") as elsewhere:
            make_small(elsewhere, "there")
        connection.execute("checkpoint")
        [file] = connection.execute("select pg_relation_filepath('here')").fetchone()
    root = server.private.data_dir

    def names(*arguments: Any) -> set[tuple[str, str]]:
        return {(row["database"], row["relation"]) for row in alter(capsys, "pending", *arguments)}

    assert {("other", "public.there"), ("postgres", "public.here")} <= names(root)
    assert names(root, "--table", "other.public.there") == names(root, "--table", "there") == {("other", "public.there")}
    assert names(f"{root}/{file}") == {("postgres", "public.here")}
    assert ("other", "public.there") not in names(server.dsn)
    assert names(str(server.pid), "--table", "public.here") == {("postgres", "public.here")}


def test_what_cannot_be_read_is_told(
    servers: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert alter(capsys, "pending", tmp_path, code=2)["error"]["kind"] == "invalid"
    assert alter(capsys, "pending", tmp_path / "none", code=2)["error"]["kind"] == "not_found"
    server = servers(15)
    unknown = alter(capsys, "pending", server.dsn, "--table", "unknown", code=2)["error"]
    assert (unknown["kind"], unknown["message"]) == ("not_found", "no table named unknown")
    assert alter(capsys, "resolve", server.dsn, "--table", "t", "--max-lag", "many", code=2)["error"]["kind"] == "usage"

    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(server_files, "open", refuse, raising=False)
    refused = alter(capsys, "pending", server.dsn, code=2)["error"]
    assert refused["kind"] == "rights" and refused["hint"].startswith("sudo -u ")
