"""The TPC-C-like load: its tables, its transactions and its consistency conditions."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from commands import output_of
from conftest import Server, wait_until
from leadline.load.tpcc.conditions import check
from leadline.load.tpcc.scripts import TRANSACTIONS
from leadline.load.tpcc.tables import DONE, TABLES, Sizes, init
from leadline.net.login import server_of
from load_runs import load, measured

SMALL = Sizes(items=500, customers=60)
# Of so few items, two orders deadlock now and then.
SMALL_WORDS = ("-D", "items=500", "-D", "customers=60", "--max-tries", 0)


@pytest.fixture(scope="module")
def server(servers: Callable[[int], Server]) -> Iterator[Server]:
    server = servers(17)
    init(server_of(server.dsn), 2, jobs=2, force=True, sizes=SMALL)
    yield server
    server.sql(f"drop table {', '.join((*TABLES, DONE))}")


def broken(server: Server) -> list[int]:
    return [of["condition"] for of in check(server_of(server.dsn)) if not of["holds"]]


def test_tables_have_the_rows_of_the_specification(server: Server) -> None:
    counts = {name: server.sql(f"select count(*) from {name}")[0][0] for name in TABLES}
    lines = counts.pop("order_line")
    assert lines == server.sql("select sum(o_ol_cnt) from orders")[0][0]
    assert counts == {
        "item": 500, "warehouse": 2, "district": 20, "customer": 1200, "history": 1200, "orders": 1200, "new_order": 360, "stock": 1000,
    }  # fmt: skip
    assert broken(server) == []


@pytest.mark.parametrize("mode", ["simple", "extended", "prepared"])
def test_all_five_transactions_run_and_leave_the_tables_consistent(server: Server, mode: str) -> None:
    before = server.sql("select (select count(*) from orders), (select count(*) from history), (select count(*) from new_order)")[0]
    outcome, found = load(server.dsn, "--workload", "tpcc-like", *SMALL_WORDS, "-M", mode, "-c", 4, "-t", 100, "--seed", 7)
    assert (outcome, found["void"], found["scale"], found["workload"]) == (0, None, 2, "TPC-C-like"), found
    assert [of["holds"] for of in found["consistency"]] == [True] * 4
    done = {script["name"]: script["latency"]["count"] for script in measured(found)["scripts"]}
    assert sum(done.values()) == measured(found)["done"] == 400
    assert 130 < done["new-order"] < 230 and 120 < done["payment"] < 220 and min(done.values()) > 2
    orders, payments, waiting = server.sql(
        "select (select count(*) from orders), (select count(*) from history), (select count(*) from new_order)"
    )[0]
    assert payments - before[1] == done["payment"]
    # One new order of a hundred is rolled back: 0 to 8 of 180.
    assert 0 <= done["new-order"] - (orders - before[0]) <= 8
    delivered = orders - before[0] - (waiting - before[2])
    assert 0 < delivered <= 10 * done["delivery"]


def test_shares_of_what_is_drawn_are_those_of_the_specification(server: Server) -> None:
    server.sql("truncate history")
    orders = server.sql("select max(o_id) from orders")[0][0]
    load(server.dsn, "--workload", "tpcc-like", *SMALL_WORDS, "-M", "prepared", "-c", 4, "-t", 500, "--seed", 3)
    ((remote, payments),) = server.sql("select count(*) filter (where h_w_id <> h_c_w_id), count(*) from history")
    assert 0.1 < remote / payments < 0.2  # 15 % of 860
    ((low, high, mean),) = server.sql(f"select min(o_ol_cnt), max(o_ol_cnt), avg(o_ol_cnt) from orders where o_id > {orders}")
    assert (low, high) == (5, 15) and 9.5 < mean < 10.5
    ((remote, lines),) = server.sql("select count(*) filter (where ol_supply_w_id <> ol_w_id), count(*) from order_line where ol_o_id > 60")
    assert 0.005 < remote / lines < 0.016  # 1 % of 9,000
    assert server.sql("select count(*) from stock where s_quantity not between 10 and 100") == [(0,)]
    assert [of.weight for of in TRANSACTIONS] == [45, 43, 4, 4, 4]


def test_terminals_share_clients_and_their_clock_runs_while_they_wait(server: Server) -> None:
    words = ("--workload", "tpcc-like", *SMALL_WORDS, "-M", "prepared", "--for", "2s", "--seed", 5)
    _, found = load(server.dsn, *words, "--terminals", 20, "--time-factor", 0.05, "-c", 2)
    phase = measured(found)
    # A cycle is keying and thinking: 21.3 s on the average, times 0.05, of 20 terminals.
    expected = 20 / (0.05 * (0.45 * 30 + 0.43 * 15 + 0.04 * (12 + 7 + 7))) * 2
    assert expected * 0.5 < phase["due"] < expected * 1.5
    assert phase["due"] == phase["begun"] == phase["done"] + phase["failed"] == phase["lag"]["count"]
    assert (found["terminals"], found["time_factor"]) == (20, 0.05)
    # Without any time of their own, 20 terminals wait for one client: the wait is part of the latency.
    _, found = load(server.dsn, *words, "--terminals", 20, "--time-factor", 0, "-c", 1)
    phase = measured(found)
    assert phase["latency"]["p50_ns"] > 10 * phase["service"]["p50_ns"]
    assert phase["lag"]["p50_ns"] > 0.8 * phase["latency"]["p50_ns"]


BREAKS = {
    1: "update warehouse set w_ytd = w_ytd + 1 where w_id = 1",
    2: "update district set d_next_o_id = d_next_o_id + 1 where d_w_id = 1 and d_id = 3",
    3: "delete from new_order n where no_w_id = 2 and no_d_id = 4 and no_o_id = (select max(no_o_id) - 1 from new_order where no_w_id = 2 "
    "and no_d_id = 4)",
    4: "delete from order_line where ol_w_id = 2 and ol_d_id = 1 and ol_o_id = 5 and ol_number = 1",
}


def test_each_condition_is_seen_when_it_breaks(server: Server) -> None:
    for condition, breaks in BREAKS.items():
        table = breaks.split()[2 if breaks.startswith("delete") else 1]
        server.sql(f"create table kept as select * from {table}")
        server.sql(breaks)
        assert broken(server) == [condition]
        server.sql(f"truncate {table}")
        server.sql(f"insert into {table} select * from kept")
        server.sql("drop table kept")
    assert broken(server) == []


def test_a_run_that_breaks_a_condition_is_void(server: Server, tmp_path: Path) -> None:
    from leadline.cli import run

    server.sql(BREAKS[4])
    words = ("--workload", "tpcc-like", *SMALL_WORDS, "-t", 1)
    outcome, found = load(server.dsn, *words, "-o", tmp_path / "x")
    assert outcome == 1 and found["void"].startswith("consistency condition 4 does not hold")
    assert [of["holds"] for of in found["consistency"]] == [True, True, True, False]
    assert found["consistency"][3]["broken"] == 1 and found["consistency"][3]["examples"][0].startswith("2 1 ")
    assert f"VOID: {found['void']}" in " ".join(output_of("show", found["capture"]).split())
    with redirect_stdout(io.StringIO()) as out:
        assert run(["load", "run", server.dsn, *map(str, words)]) == 1
    assert out.getvalue().startswith("VOID: consistency condition 4 does not hold")
    init(server_of(server.dsn), 2, jobs=2, force=True, sizes=SMALL)


FILL = """
import sys
from leadline.load.tpcc.tables import Sizes, init
from leadline.net.login import server_of
init(server_of(sys.argv[1]), 3, jobs=2, sizes=Sizes(items=500, customers=60))
"""


def rows_of(server: Server) -> list[Any]:
    """What the tables hold, whatever the order of the rows."""
    return [server.sql(f"select count(*), sum(hashtext(t::text)) from {name} t")[0] for name in TABLES]


def test_a_filling_that_is_killed_goes_on_and_loses_no_row(server: Server) -> None:
    where = server_of(server.dsn)
    init(where, 3, jobs=2, force=True, sizes=SMALL)
    whole = rows_of(server)
    init(where, 3, jobs=1, sizes=SMALL)  # nothing is left to do
    assert rows_of(server) == whole
    steps = server.sql(f"select count(*) from {DONE}")[0][0]
    server.sql(f"drop table {', '.join((*TABLES, DONE))}")
    ours = "select count(*) from pg_stat_activity where application_name = 'leadline' and pid <> pg_backend_pid()"
    kills = 0
    for after in (1, 2, 4, 6, 9, 12, 14, 17, 20, 23):
        kills += _killed(server, after)
        # Sessions of a killed client end on their own; one of them may still be about to take the lock.
        wait_until(lambda: server.sql(ours) == [(0,)], what="the end of all sessions of the filling")
    assert kills >= 3
    subprocess.run([sys.executable, "-c", FILL, server.dsn], check=True)
    assert _steps(server) == steps and rows_of(server) == whole
    assert broken(server) == []


def _killed(server: Server, after: int) -> bool:
    """Whether a filling was killed before its end, once so many steps were done."""
    child = subprocess.Popen([sys.executable, "-c", FILL, server.dsn])
    wait_until(lambda: child.poll() is not None or _steps(server) >= after)
    child.send_signal(signal.SIGKILL)
    return child.wait() == -signal.SIGKILL


def _steps(server: Server) -> int:
    if server.sql(f"select to_regclass('{DONE}')") == [(None,)]:
        return 0
    return int(server.sql(f"select count(*) from {DONE}")[0][0])


def test_tables_that_are_not_filled_to_the_end_are_refused(fresh_server: Callable[..., Server]) -> None:
    from leadline.cli import run

    server = fresh_server(13)
    outcome, found = load(server.dsn, "--workload", "tpcc-like", "-t", 1)
    assert outcome == 2 and found["error"]["message"] == "there are no tables of a TPC-C-like load"
    init(server_of(server.dsn), 1, jobs=2, sizes=SMALL)
    assert load(server.dsn, "--workload", "tpcc-like", *SMALL_WORDS, "-c", 2, "-t", 50, "-M", "prepared")[0] == 0
    server.sql(f"delete from {DONE} where part = 'all'")
    outcome, found = load(server.dsn, "--workload", "tpcc-like", "-t", 1)
    assert outcome == 2 and "not filled to the end" in found["error"]["message"]
    assert run(["load", "init", server.dsn, "--workload", "tpcc-like", "--warehouses", "2"]) == 2  # made for one
    for words in (("--terminals", 5, "--rate", 1), ("-b", "tpcb", "-b", "tpcc-like"), ("--terminals", 5, "-b", "select")):
        assert load(server.dsn, *(words if "-b" in words else ("-b", "tpcc-like", *words)))[0] == 2, words
