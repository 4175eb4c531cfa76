"""Which statements are commands that keep others out of a table."""

from __future__ import annotations

import duckdb
import pytest
from leadline.tables.macros import macros

BLOCKS = {
    "vacuum full t": "VACUUM FULL",
    "VACUUM (VERBOSE, FULL) t": "VACUUM FULL",
    "vacuum(full true, analyze) t": "VACUUM FULL",
    "vacuum full": "VACUUM FULL",
    "vacuum (analyze, full)": "VACUUM FULL",
    "cluster t using i": "CLUSTER",
    "reindex (verbose) index i": "REINDEX",
    "create unique  index i on t (a)": "CREATE INDEX",
    "create index on t (a)": "CREATE INDEX",
    "refresh materialized view m": "REFRESH MATERIALIZED VIEW",
    "/* job 1 */\n/* a\nb */ truncate only t": "TRUNCATE",
    "-- hi\nalter table t add c int": "ALTER TABLE",
    "begin; lock table t in exclusive mode;": "LOCK TABLE",
    "lock t": "LOCK TABLE",
    "drop trigger a on t": "DROP",
    "create or replace constraint trigger a": "CREATE TRIGGER",
}
LETS_WORK = [
    "vacuum t",
    "vacuum (full off) t",
    "vacuum (full false, verbose) t",
    "vacuum fullness",
    "reindex table concurrently t",
    "reindex (concurrently) table t",
    "create index concurrently i on t (a)",
    "drop index concurrently i",
    "refresh materialized view concurrently m",
    "select 1",
    "select cluster from t",
    "update t set truncate = $1",
    "-- truncate t\nselect 1",
    "clustered",
    "",
    None,
]


@pytest.mark.parametrize("query", [*BLOCKS, *LETS_WORK])
def test_the_command_of_a_statement(query: str | None) -> None:
    db = duckdb.connect()
    db.execute(macros().sql)
    assert db.execute("select blocking_command(?::varchar)", [query]).fetchall() == [(BLOCKS.get(query or ""),)]
