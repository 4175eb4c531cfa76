"""Sessions and what they hold back: snapshots, transactions left open, places for connections, rules that let them in."""

from __future__ import annotations

from collections.abc import Iterator

from conftest import wait_until

from matrix.ground import Ground
from matrix.scenario import Expected, Truth, scenario
from matrix.scenarios.locks import UPDATE, holds


def transactions(g: Ground, number: int) -> None:
    with g.server.connect() as db:
        for _ in range(number):
            db.execute("select txid_current()")


@scenario(thresholds={"horizon_xids": 200})
def old_snapshot_of_an_idle_report(g: Ground) -> Iterator[Truth]:
    """A repeatable read transaction is idle while others commit."""
    pid = holds(g, "report", "set transaction isolation level repeatable read", "select count(*) from pg_class").info.backend_pid
    transactions(g, 300)
    age = f"select age(backend_xmin)::float8 from pg_stat_activity where pid = {pid}"
    yield lambda: [Expected("XMIN-HORIZON", f"pid {pid}", figures={"age_xids": g.sql(age)[0][0]})]


@scenario(thresholds={"horizon_xids": 200}, settings={"wal_level": "logical"})
def old_horizon_of_a_logical_slot(g: Ground) -> Iterator[Truth]:
    """Nobody reads a logical slot: it keeps old catalog rows."""
    g.sql("select pg_create_logical_replication_slot('cdc', 'pgoutput')")
    transactions(g, 300)
    age = "select age(catalog_xmin)::float8 from pg_replication_slots"
    yield lambda: [Expected("XMIN-HORIZON", "replication slot cdc", figures={"age_xids": g.sql(age)[0][0]})]


@scenario(thresholds={"horizon_xids": 200})
def old_horizon_of_a_prepared_transaction(g: Ground) -> Iterator[Truth]:
    """A prepared transaction is forgotten while others commit."""
    holds(g, "gone", "select txid_current()", "prepare transaction 'forgotten'")
    transactions(g, 300)
    age = "select age(transaction)::float8 from pg_prepared_xacts"
    yield lambda: [Expected("XMIN-HORIZON", "prepared transaction postgres/forgotten", figures={"age_xids": g.sql(age)[0][0]})]
    g.sql("rollback prepared 'forgotten'")


@scenario(thresholds={"idle_min_s": 2.0}, window_s=4.0)
def transaction_left_open_that_blocks_nobody(g: Ground) -> Iterator[Truth]:
    """A session holds a transaction id and does nothing; a minute counts as two seconds here."""
    t = g.table("account")
    pid = holds(g, "console", UPDATE.format(t, 1)).info.backend_pid
    yield lambda: [Expected("IDLE-IN-XACT", f"pid {pid}", None, ("application console",))]


@scenario(settings={"max_connections": 30, "superuser_reserved_connections": 5})
def sessions_at_the_limit_left_in_transactions(g: Ground) -> Iterator[Truth]:
    """All but one of the places are taken, most by transactions that were left open."""
    for number in range(24):
        session = g.connect("api")
        if number % 2:
            session.execute("begin")
    yield lambda: [Expected("CONN-NEAR-LIMIT", "max_connections", None, ("of the 25 slots", "of application api"), "high")]


@scenario()
def rules_that_let_everybody_in(g: Ground) -> Iterator[Truth]:
    """pg_hba.conf has rules for other hosts with trust and md5."""
    with open(g.server.private.data_dir / "pg_hba.conf", "a", encoding="utf-8") as file:
        file.write("host all all 0.0.0.0/0 trust\nhost shop app 203.0.113.0/24 md5\n")
    g.sql("select pg_reload_conf()")
    wait_until(lambda: g.sql("select 1 from pg_hba_file_rules where auth_method = 'md5'"), what="the new rules")
    yield lambda: [
        Expected("HBA-WEAK", "rule host all all 0.0.0.0/0 trust", None, ("every host",), "high"),
        Expected("HBA-WEAK", "rule host shop app 203.0.113.0/24 md5", None, ("user app",), "medium"),
    ]
