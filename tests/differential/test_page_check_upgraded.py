"""leadline page check --level values on a cluster that pg_upgrade made, whose pages an older major wrote."""

from __future__ import annotations

import psycopg
import pytest
from conftest import LONG
from damages.cluster import INDEXES, create
from recovery import PlainServer, loaded
from redo_index_load import LOADS
from test_page_check_clean import checked, waiting
from upgraded import upgraded

OLD = [13, 14] if LONG else []
AFTER = ["vacuum", "update of_rows set t = t || 'y' where id % 3 = 0", "delete from of_btree where few = 2", "vacuum", "checkpoint"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("major", OLD)
def test_an_upgraded_cluster_has_no_problems(major: int) -> None:
    with loaded(major, PlainServer, wal_level="logical", max_locks_per_transaction=256) as server:
        with server.connect() as db:
            db.execute("create type mood as enum ('sad', 'happy')")
            for template in [*INDEXES, "plain", "aborted", "sequence"]:
                create(db, f"of_{template}", template)
            db.execute("create database indexes")
        with server.connect(dbname="indexes") as db:
            for load in LOADS.values():
                for statement in load():
                    db.execute(statement.encode())
        with upgraded(server) as (data_dir, private):
            as_upgraded = checked(data_dir)
            assert waiting(as_upgraded) == 0
            with private:
                with psycopg.connect(private.dsn, autocommit=True) as db:
                    for statement in AFTER:
                        db.execute(statement.encode())
                checked(data_dir)
            assert waiting(checked(data_dir)) == 0
