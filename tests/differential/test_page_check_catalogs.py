"""leadline page check --level values on rows of catalogs that cannot be, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from conftest import Server
from damages.catalog import CHANGES, Field, change
from damages.found import problems
from damages.pages import Made, Page
from recovery import ChecksummedServer, loaded


@dataclass
class Stopped:
    """A cluster. oids: of the table and its index."""

    server: Server
    made: Made
    oids: dict[str, int]


@pytest.fixture(scope="module")
def stopped() -> Iterator[Stopped]:
    with loaded(18, ChecksummedServer, fsync="off") as server:
        server.sql("create table shop (id int primary key, words text)")
        server.sql("insert into shop select n, md5(n::text) from generate_series(1, 100) n")
        paths = {name: server.sql(f"select pg_relation_filepath('{name}')")[0][0] for name in ("pg_attribute", "pg_index", "pg_class")}
        oids = {name: server.sql(f"select '{name}'::regclass::oid")[0][0] for name in ("shop", "shop_pkey")}
        server.private.stop()
        files = {name: server.private.data_dir / path for name, path in paths.items()}
        assert problems(server.private.data_dir, "values") == {}
        yield Stopped(server, Made("shop", files), oids)


@pytest.mark.parametrize(("what", "field", "new"), CHANGES, ids=[what for what, _, _ in CHANGES])
def test_a_row_that_contradicts_another_is_told(stopped: Stopped, what: str, field: Field, new: Callable[[int], int]) -> None:
    made = stopped.made
    oid = stopped.oids["shop_pkey" if field.catalog == "pg_index" else "shop"]
    before = change(made, field, oid, new)
    path, block = made.written[-1]
    try:
        found = [message for messages in problems(stopped.server.private.data_dir, "values").values() for message in messages]
        assert found, made.seen
    finally:
        made.write(Page(path, block, bytearray(before)))
    assert problems(stopped.server.private.data_dir, "values") == {}
