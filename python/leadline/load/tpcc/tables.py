"""Makes and fills the nine tables, in parallel; a filling that was killed goes on where it was.

Each part of the rows is one transaction, which also notes that the part is there: none is lost, and none comes twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from leadline._core.load import tpcc_numbers, tpcc_rows
from leadline.errors import LeadlineError
from leadline.load.scale import connect
from leadline.net.login import Server

if TYPE_CHECKING:
    import psycopg

Progress = Callable[[int, int, str], None]  # done, of, what
DONE = "leadline_tpcc_done"  # a row for each part that is there
LOCK = 0x7063_6343  # of the database: one filling at a time
ENTERED = "2026-01-01 00:00:00"  # the same also when a filling goes on another day
PIECE = 5_000  # numbers whose rows are made at once
ADDRESS = "{0}street_1 varchar(20), {0}street_2 varchar(20), {0}city varchar(20), {0}state char(2), {0}zip char(9)"
TABLES = {
    "item": "i_id int not null, i_im_id int, i_name varchar(24), i_price numeric(5,2), i_data varchar(50)",
    "warehouse": f"w_id int not null, w_name varchar(10), {ADDRESS.format('w_')}, w_tax numeric(4,4), w_ytd numeric(12,2)",
    "district": (
        f"d_id int not null, d_w_id int not null, d_name varchar(10), {ADDRESS.format('d_')}, d_tax numeric(4,4), d_ytd numeric(12,2), "
        "d_next_o_id int"
    ),
    "customer": (
        "c_id int not null, c_d_id int not null, c_w_id int not null, c_first varchar(16), c_middle char(2), c_last varchar(16), "
        f"{ADDRESS.format('c_')}, c_phone char(16), c_since timestamp, c_credit char(2), c_credit_lim numeric(12,2), "
        "c_discount numeric(4,4), "
        "c_balance numeric(12,2), c_ytd_payment numeric(12,2), c_payment_cnt int, c_delivery_cnt int, c_data varchar(500)"
    ),
    "history": (
        "h_c_id int, h_c_d_id int, h_c_w_id int, h_d_id int, h_w_id int, h_date timestamp, h_amount numeric(6,2), h_data varchar(24)"
    ),
    "orders": (
        "o_id int not null, o_d_id int not null, o_w_id int not null, o_c_id int, o_entry_d timestamp, o_carrier_id int, o_ol_cnt int, "
        "o_all_local int"
    ),
    "new_order": "no_o_id int not null, no_d_id int not null, no_w_id int not null",
    "order_line": (
        "ol_o_id int not null, ol_d_id int not null, ol_w_id int not null, ol_number int not null, ol_i_id int, ol_supply_w_id int, "
        "ol_delivery_d timestamp, ol_quantity int, ol_amount numeric(6,2), ol_dist_info char(24)"
    ),
    "stock": (
        "s_i_id int not null, s_w_id int not null, s_quantity int, "
        + "".join(f"s_dist_{district:02} char(24), " for district in range(1, 11))
        + "s_ytd int, s_order_cnt int, s_remote_cnt int, s_data varchar(50)"
    ),
}
# In this order, with the names that a failed step is told by.
KEYS = {
    "item": "i_id",
    "warehouse": "w_id",
    "district": "d_w_id, d_id",
    "customer": "c_w_id, c_d_id, c_id",
    "orders": "o_w_id, o_d_id, o_id",
    "new_order": "no_w_id, no_d_id, no_o_id",
    "order_line": "ol_w_id, ol_d_id, ol_o_id, ol_number",
    "stock": "s_w_id, s_i_id",
}
INDEXES = {"customer": "c_w_id, c_d_id, c_last, c_first", "orders": "o_w_id, o_d_id, o_c_id, o_id"}
# What is filled together, in one transaction.
PARTS = (("stock",), ("customer", "history"), ("orders", "new_order", "order_line"), ("district", "warehouse"))


@dataclass(frozen=True)
class Sizes:
    """customers: of each district, which has as many orders at first."""

    items: int = 100_000
    customers: int = 3_000


def init(
    server: Server, warehouses: int, *, jobs: int, force: bool = False, sizes: Sizes | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Makes and fills the tables, or goes on filling them. force: in place of those that are there. Raises LeadlineError."""
    import psycopg

    sizes = sizes or Sizes()
    try:
        with connect(server) as connection:
            if connection.execute("select pg_try_advisory_lock(%s)", [LOCK]).fetchone() == (False,):
                raise LeadlineError("usage", "the tables are being filled by another session", hint="wait until it has ended")
            resumed = _made(connection, warehouses, sizes, force=force)
            _fill(server, connection, warehouses, jobs, sizes, progress or (lambda *_: None))
    except psycopg.Error as e:
        raise LeadlineError("connection", "the tables cannot be made", detail=str(e).strip(), where=str(server)) from e
    rows = {"item": sizes.items, "stock": warehouses * sizes.items, "customer": warehouses * 10 * sizes.customers}
    return {"server": str(server), "warehouses": warehouses, "resumed": resumed, "rows": rows}


def warehouses_of(server: Server) -> int:
    """How many there are, of tables that are filled. Raises LeadlineError."""
    import psycopg

    hint = "fill them with `leadline load init DSN --workload tpcc-like --warehouses N`"
    with connect(server) as connection:
        try:
            done = connection.execute(f"select part from {DONE} where part like 'warehouses %' or part = 'all'").fetchall()
        except psycopg.errors.UndefinedTable as e:
            raise LeadlineError("not_found", "there are no tables of a TPC-C-like load", detail=str(e).strip(), hint=hint) from e
    if ("all",) not in done:
        raise LeadlineError("invalid", "the tables of the TPC-C-like load are not filled to the end", hint=f"go on: {hint}")
    return next(int(part.split()[1]) for (part,) in done if part != "all")


def _made(connection: psycopg.Connection[Any], warehouses: int, sizes: Sizes, *, force: bool) -> bool:
    """Empty tables, unless a filling of the same size is to go on. Whether it is."""
    size = f"warehouses {warehouses} items {sizes.items} customers {sizes.customers}"
    there = [name for name in (*TABLES, DONE) if connection.execute("select to_regclass(%s)", [name]).fetchone() != (None,)]
    if there and not force:
        before = connection.execute(f"select part from {DONE} where part like 'warehouses %'").fetchall() if DONE in there else []
        if before == [(size,)]:
            return True
        detail = f"made for {before[0][0]}" if before else ", ".join(there)
        raise LeadlineError("usage", "there are tables of these names", detail=detail, hint="--force drops them and makes new ones")
    with connection.transaction():
        if there:
            connection.execute(f"drop table {', '.join(there)}")
        for name, columns in TABLES.items():
            connection.execute(f"create table {name} ({columns})")
        connection.execute(f"create table {DONE} (part text primary key)")
        connection.execute(f"insert into {DONE} values (%s)", [size])
    return False


Step = tuple[str, Callable[["psycopg.Connection[Any]"], None]]


def _fill(server: Server, connection: psycopg.Connection[Any], warehouses: int, jobs: int, sizes: Sizes, tell: Progress) -> None:
    parts: list[Step] = [("item", lambda session: _copy(session, ("item",), 0, sizes))]
    for warehouse in range(1, warehouses + 1):
        for tables in PARTS:

            def copy(session: psycopg.Connection[Any], tables: tuple[str, ...] = tables, warehouse: int = warehouse) -> None:
                _copy(session, tables, warehouse, sizes)

            parts.append((f"{tables[0]} of warehouse {warehouse}", copy))
    keys: list[Step] = [(f"key of {name}", _statement(f"alter table {name} add primary key ({columns})")) for name, columns in KEYS.items()]
    keys += [(f"index of {name}", _statement(f"create index on {name} ({columns})")) for name, columns in INDEXES.items()]
    done = {part for (part,) in connection.execute(f"select part from {DONE}").fetchall()}
    total = len(parts) + len(keys) + 1
    count = sum(name in done for name, _ in (*parts, *keys))
    lock = threading.Lock()

    def told(name: str) -> None:
        nonlocal count
        with lock:
            count += 1
            tell(count, total, name)

    for steps in (parts, keys):
        _all(server, [step for step in steps if step[0] not in done], jobs, told)
    if "all" not in done:
        tell(count, total, "vacuum")
        for name in TABLES:
            connection.execute(f"vacuum analyze {name}")
        connection.execute(f"insert into {DONE} values ('all')")
    tell(total, total, "")


def _all(server: Server, steps: list[Step], jobs: int, told: Callable[[str], None]) -> None:
    """Each step in a transaction of its own, so many at once. After an error or Ctrl-C no further one begins."""
    waiting: SimpleQueue[Step] = SimpleQueue()
    for step in steps:
        waiting.put(step)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            with connect(server) as session:
                while not failed:
                    name, act = waiting.get_nowait()
                    with session.transaction():
                        act(session)
                        session.execute(f"insert into {DONE} values (%s)", [name])
                    told(name)
        except Empty:
            pass
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(jobs, len(steps)))]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt as e:
        failed.append(e)
        raise
    if failed:
        raise failed[0]


def _statement(text: str) -> Callable[[psycopg.Connection[Any]], None]:
    def act(session: psycopg.Connection[Any]) -> None:
        session.execute(text)

    return act


def _copy(session: psycopg.Connection[Any], tables: tuple[str, ...], warehouse: int, sizes: Sizes) -> None:
    for table in tables:
        count = tpcc_numbers(table, sizes.items, sizes.customers)
        with session.cursor() as cursor, cursor.copy(f"copy {table} from stdin") as copy:
            for at in range(0, count, PIECE):
                copy.write(tpcc_rows(table, warehouse, sizes.items, sizes.customers, at, min(at + PIECE, count), ENTERED))
