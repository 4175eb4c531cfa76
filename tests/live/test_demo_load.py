"""The load of the demo: it shows four troubles to plain SQL, and ends early where it cannot go on.

Apart from what the demo measures (host/test_demo.py), as this does not need a host without other load.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import CopiedServer, background, is_running, wait_until
from leadline.demo import run
from leadline.demo.load import CLIENTS
from leadline.demo.load_process import LoadProcess
from leadline.demo.schema import load_schema
from leadline.engines.postgres.server import PrivateServer, find_binaries
from leadline.errors import LeadlineError

Rows = list[tuple[Any, ...]]


class Shop:
    """The demo's server under its load, asked by SQL only."""

    def __init__(self, server: PrivateServer, load: LoadProcess, connection: psycopg.Connection[Any]) -> None:
        self.server, self.load, self.connection = server, load, connection

    def rows(self, query: str) -> Rows:
        return self.connection.execute(query).fetchall()


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    binaries = find_binaries()
    with CopiedServer(binaries.bin_dir, settings=run.SETTINGS | {"fsync": False}) as server:
        load_schema(server.dsn)
        with LoadProcess(server.dsn) as load, psycopg.connect(server.dsn, autocommit=True, application_name="test") as connection:
            yield Shop(server, load, connection)


@pytest.mark.live
def test_there_are_many_clients_and_their_names_tell_no_trouble(shop: Shop) -> None:
    counted = dict(shop.rows("select application_name, count(*) from pg_stat_activity where backend_type = 'client backend' group by 1"))
    assert counted.pop("test") == 1
    assert counted == {client.name: client.count for client in CLIENTS}
    assert sum(counted.values()) >= 8


@pytest.mark.live
@pytest.mark.parametrize("name", ["order-entry", "invoice-batch"])
def test_clients_fight_for_one_page(shop: Shop, name: str) -> None:
    query = f"""
        select count(*) from pg_stat_activity
        where application_name = '{name}' and (wait_event_type, wait_event) = ('LWLock', 'BufferContent')"""
    seen: list[int] = []

    def often() -> bool:
        seen.append(shop.rows(query)[0][0])
        return sum(seen) >= 20 and max(seen) >= 2

    wait_until(often, 20, f"several {name} clients at once waiting for the content of a buffer")


@pytest.mark.live
def test_a_chain_of_locks_hangs_on_a_client_that_is_idle_in_transaction(shop: Shop) -> None:
    chain = """
        with recursive up as (
            select pid, array[application_name] as path from pg_stat_activity where application_name = 'campaign'
            union all
            select a.pid, up.path || a.application_name
            from up, unnest(pg_blocking_pids(up.pid)) as blocker join pg_stat_activity a on a.pid = blocker
            where cardinality(up.path) < 9
        )
        select path, state, wait_event from up join pg_stat_activity using (pid)
        where cardinality(pg_blocking_pids(pid)) = 0 and cardinality(path) >= 3"""
    found = wait_until(lambda: shop.rows(chain), 15, "a chain of depth two")
    path, state, wait_event = found[0]
    assert (path[0], path[1], path[-1]) == ("campaign", "refund", "checkout")
    assert (state, wait_event) == ("idle in transaction", "ClientRead")
    waiting = "select count(distinct pid) from pg_locks where not granted and locktype in ('transactionid', 'tuple')"
    wait_until(lambda: shop.rows(waiting)[0][0] >= 4, 15, "four sessions in the queue")


@pytest.mark.live
def test_the_root_holds_its_locks_again_and_again(shop: Shop) -> None:
    root = "select xact_start from pg_stat_activity where application_name = 'checkout' and state = 'idle in transaction'"
    seen: set[Any] = set()

    def three() -> bool:
        seen.update(row[0] for row in shop.rows(root) if row[0])
        return len(seen) >= 3

    wait_until(three, 20, "three transactions of the same root")


@pytest.mark.live
def test_a_client_reads_slowly(shop: Shop) -> None:
    state = "select state, wait_event_type, wait_event from pg_stat_activity where application_name = 'report-export'"
    wait_until(lambda: shop.rows(state) == [("active", "Client", "ClientWrite")], 10, "a server waiting for its client to read")


@pytest.mark.live
def test_a_client_fetches_few_rows_at_a_time(shop: Shop) -> None:
    state = """
        select query_start from pg_stat_activity
        where application_name = 'stock-sync' and state = 'idle in transaction' and query like 'fetch forward 5%'"""
    seen: set[Any] = set()

    def many() -> bool:
        seen.update(row[0] for row in shop.rows(state))
        return len(seen) >= 10

    wait_until(many, 10, "ten different fetches, the client away after each")


@pytest.mark.live
def test_the_load_is_alive_to_the_end(shop: Shop) -> None:
    """The last test of this load: a client that could not go on would have ended it."""
    shop.load.run_for(0)
    assert shop.rows("select count(*) from pg_stat_activity where application_name = 'checkout'") == [(1,)]


@pytest.mark.live
def test_a_client_that_cannot_go_on_is_told() -> None:
    with CopiedServer(find_binaries().bin_dir) as server:
        load_schema(server.dsn)
        with LoadProcess(server.dsn) as load, psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("alter table customer rename to gone")
            with pytest.raises(LeadlineError, match="ended early") as told:
                load.run_for(20)
            assert 'relation "customer" does not exist' in told.value.detail
            assert not is_running(load.pid)


@pytest.mark.live
def test_clients_that_cannot_connect_are_told() -> None:
    """The server has room for all of them in its queue of connections to accept, twice max_connections, and a slot for none."""
    settings = {"max_connections": 30}
    with CopiedServer(find_binaries().bin_dir, settings=settings) as server, ExitStack() as held:
        load_schema(server.dsn)
        for _ in range(settings["max_connections"]):
            try:
                held.enter_context(psycopg.connect(server.dsn))
            except psycopg.OperationalError:
                break
        with pytest.raises(LeadlineError, match="did not start") as told, LoadProcess(server.dsn):
            pytest.fail("it started")
        assert re.search("too many clients|reserved", told.value.detail)


def test_the_load_ends_when_its_parent_is_gone(tmp_path: Path) -> None:
    """Without a server: the process reads its stdin to the end also when it never got to work."""
    command = [sys.executable, "-m", "leadline.demo.load", f"host={tmp_path} user=nobody"]
    with background(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out) == (1, b"")
        assert b"connection" in err
