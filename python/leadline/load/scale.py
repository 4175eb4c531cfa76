"""pgbench's four tables: made, filled, and how large they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from leadline.errors import LeadlineError
from leadline.net.login import Server

if TYPE_CHECKING:
    import psycopg

Progress = Callable[[int, int, str], None]  # done, of, what
BRANCHES, TELLERS, ACCOUNTS = 1, 10, 100_000  # for each unit of the scale
TABLES = ("pgbench_accounts", "pgbench_branches", "pgbench_history", "pgbench_tellers")
# As pgbench makes them: the fillers bring rows to 100 bytes.
CREATE = """
create table pgbench_history(tid int, bid int, aid {aid}, delta int, mtime timestamp, filler char(22));
create table pgbench_tellers(tid int not null, bid int, tbalance int, filler char(84)) with (fillfactor={fillfactor});
create table pgbench_accounts(aid {aid} not null, bid int, abalance int, filler char(84)) with (fillfactor={fillfactor});
create table pgbench_branches(bid int not null, bbalance int, filler char(88)) with (fillfactor={fillfactor})
"""
KEYS = """
alter table pgbench_branches add primary key (bid);
alter table pgbench_tellers add primary key (tid);
alter table pgbench_accounts add primary key (aid)
"""
BEYOND_INT = 20_000  # a scale from which accounts need a bigint


def scale_of(server: Server) -> int:
    """How many branches there are: pgbench's scale. Raises LeadlineError."""
    import psycopg

    with connect(server) as connection:
        try:
            row = connection.execute("select count(*) from pgbench_branches").fetchone()
        except psycopg.errors.UndefinedTable as e:
            hint = "make pgbench's tables with `leadline load init`, or name your own --script"
            raise LeadlineError("not_found", "there is no table pgbench_branches", detail=str(e).strip(), hint=hint) from e
    scale = int(row[0]) if row else 0
    if scale == 0:
        raise LeadlineError("invalid", "the table pgbench_branches is empty", hint="fill it with `leadline load init --force`")
    return scale


def init(server: Server, scale: int, *, fillfactor: int = 100, force: bool = False, progress: Progress | None = None) -> dict[str, Any]:
    """Makes and fills the tables. force: in place of those that are there. Raises LeadlineError."""
    import psycopg

    tell = progress or (lambda *_: None)
    try:
        with connect(server) as connection:
            there = [table for table in TABLES if connection.execute("select to_regclass(%s)", [table]).fetchone() != (None,)]
            if there and not force:
                detail, hint = ", ".join(there), "--force drops them and makes new ones"
                raise LeadlineError("usage", "there are tables of these names", detail=detail, hint=hint)
            _fill(connection, scale, fillfactor, there, tell)
    except psycopg.Error as e:
        raise LeadlineError("connection", "the tables cannot be made", detail=str(e).strip(), where=str(server)) from e
    return {"server": str(server), "scale": scale, "rows": {"pgbench_accounts": scale * ACCOUNTS, "pgbench_tellers": scale * TELLERS}}


def _fill(connection: psycopg.Connection[Any], scale: int, fillfactor: int, there: list[str], tell: Progress) -> None:
    aid = "bigint" if scale >= BEYOND_INT else "int"
    if there:
        connection.execute(f"drop table {', '.join(there)}")
    for statement in CREATE.format(aid=aid, fillfactor=fillfactor).split(";"):
        connection.execute(statement)
    with connection.transaction():
        # Tables of this transaction may be written without WAL where wal_level allows, and their rows are frozen at once by the VACUUM.
        connection.execute("truncate pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers")
        connection.execute("insert into pgbench_branches(bid, bbalance) select bid, 0 from generate_series(1, %s) as bid", [scale])
        connection.execute(
            "insert into pgbench_tellers(tid, bid, tbalance) select tid, (tid - 1) / %s + 1, 0 from generate_series(1, %s) as tid",
            [TELLERS, TELLERS * scale],
        )
        for unit in range(scale):
            tell(unit, scale, f"{unit:,} of {scale:,} branches")
            connection.execute(
                "insert into pgbench_accounts(aid, bid, abalance, filler) "
                "select aid, (aid - 1) / %s + 1, 0, '' from generate_series(%s::bigint, %s::bigint) as aid",
                [ACCOUNTS, unit * ACCOUNTS + 1, (unit + 1) * ACCOUNTS],
            )
    tell(scale, scale, "vacuum")
    for table in TABLES:
        connection.execute(f"vacuum analyze {table}")
    tell(scale, scale, "primary keys")
    for statement in KEYS.split(";"):
        connection.execute(statement)


def connect(server: Server) -> psycopg.Connection[Any]:
    """A session of psycopg with the same server. Raises LeadlineError."""
    import psycopg

    host = server.host.rpartition("/.s.PGSQL.")[0] if server.host.startswith("/") else server.host
    given = {"host": host, "port": str(server.port), "user": server.user, "dbname": server.database, "password": server.password}
    given |= {"sslmode": server.sslmode, "sslrootcert": server.sslrootcert, "connect_timeout": "10", "application_name": "leadline"}
    try:
        words = psycopg.conninfo.make_conninfo("", **{name: value for name, value in given.items() if value})
        return psycopg.connect(words, autocommit=True)
    except psycopg.Error as e:
        raise LeadlineError("connection", "cannot connect to the server", detail=str(e).strip(), where=str(server)) from e
