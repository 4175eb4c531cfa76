"""The shop's clients: one process, one thread and one connection per client, until its stdin ends.

    python -m leadline.demo.load DSN          prints "ready" when every client has done its first piece of work

Each client does what careless but ordinary applications do. What that costs the server is for the capture to find out:
nothing in this file is known to it. Work that arrives in bursts (messages of a queue, a batch every so often) is paced by the
clock, so a slow machine is loaded more, not longer.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

Connection = psycopg.Connection[Any]
Step = Callable[[Connection, threading.Event], None]

BURST_S = 0.137  # how often a batch of messages arrives; no multiple of a sampling period
PAYMENT_PROVIDER_S = 3.0  # how long the payment provider takes to answer
NETWORK_S = 0.001  # there and back between an application server and its database
DISK_S = 0.1  # how long the export's target takes for one piece


@dataclass(frozen=True)
class Client:
    """name: the application_name; step: one piece of work, repeated; count: how many such clients."""

    name: str
    step: Step
    count: int = 1


def pause(stop: threading.Event, seconds: float) -> None:
    stop.wait(seconds)


def wait_for_burst(stop: threading.Event, offset_s: float = 0.0) -> None:
    """Until offset_s after the next multiple of BURST_S on the clock that all clients share."""
    pause(stop, BURST_S - (time.monotonic() - offset_s) % BURST_S)


def enter_orders(db: Connection, stop: threading.Event) -> None:
    """Every message of the batch becomes a row; the key grows by one."""
    db.execute("insert into order_event (customer_id, kind) select 1 + n % 20000, n % 7 from generate_series(1, 2000) n")
    wait_for_burst(stop)


def number_invoices(db: Connection, stop: threading.Event) -> None:
    """Draws a block of numbers for the invoices of a batch, between the batches of orders."""
    db.execute("select max(nextval('invoice_number')) from generate_series(1, 15000)")
    wait_for_burst(stop, BURST_S / 2)


def check_out(db: Connection, stop: threading.Event) -> None:
    """Redeems a voucher, asks the payment provider, and only then commits."""
    with db.transaction():
        db.execute("update voucher set budget_cents = budget_cents - 500 where voucher_id = 1")
        pause(stop, PAYMENT_PROVIDER_S)
    pause(stop, 0.01)


def pay(db: Connection, stop: threading.Event) -> None:
    db.execute("update voucher set budget_cents = budget_cents - 100 where voucher_id = 1")
    pause(stop, 0.02)


def refund(db: Connection, stop: threading.Event) -> None:
    """Moves budget from one voucher to another."""
    with db.transaction():
        db.execute("update voucher set budget_cents = budget_cents - 100 where voucher_id = 2")
        db.execute("update voucher set budget_cents = budget_cents + 100 where voucher_id = 1")
    pause(stop, 0.02)


def top_up(db: Connection, stop: threading.Event) -> None:
    db.execute("update voucher set budget_cents = budget_cents + 1000 where voucher_id = 2")
    pause(stop, 0.02)


def export_ledger(db: Connection, stop: threading.Event) -> None:
    """Copies the ledger to a target that takes 400 rows at a time."""
    pg = db.pgconn  # the plain protocol: rows are taken from the network only when asked for
    result = pg.exec_(b"copy (select * from ledger) to stdout")
    if result.status != psycopg.pq.ExecStatus.COPY_OUT:
        raise psycopg.OperationalError(result.error_message.decode())
    rows = 0
    while not stop.is_set():
        length, _ = pg.get_copy_data(0)
        if length < 0:
            pg.get_result()
            return
        rows += 1
        if rows % 400 == 0:
            pause(stop, DISK_S)


def synchronise_stock(db: Connection, stop: threading.Event) -> None:
    """Walks through the articles with a driver whose fetch size is 5."""
    with db.transaction():
        db.execute("declare articles no scroll cursor for select article_id, stock from article")
        while not stop.is_set():
            pause(stop, NETWORK_S)
            if len(db.execute("fetch forward 5 from articles").fetchall()) < 5:
                return


def shop(db: Connection, stop: threading.Event) -> None:
    """A visitor: looks at some articles, then orders."""
    for _ in range(5):
        db.execute("select name, price_cents from article where article_id = %s", [random.randint(1, 50000)])
    db.execute("update customer set orders = orders + 1 where customer_id = %s", [random.randint(1, 20000)])
    pause(stop, random.uniform(0.005, 0.05))


CLIENTS = (
    Client("order-entry", enter_orders, 8),
    Client("invoice-batch", number_invoices, 6),
    Client("checkout", check_out),
    Client("payment", pay, 2),
    Client("refund", refund),
    Client("campaign", top_up),
    Client("report-export", export_ledger),
    Client("stock-sync", synchronise_stock),
    Client("web-shop", shop, 2),
)


class Load:
    """All clients, running. `error`: the first one that could not go on, in words."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.stop = threading.Event()
        self.error: str | None = None
        self.threads = [
            threading.Thread(target=self._run, args=(client,), name=f"{client.name}-{number}", daemon=True)
            for client in CLIENTS
            for number in range(client.count)
        ]
        self.connected = threading.Barrier(len(self.threads) + 1)

    def start(self) -> None:
        """Returns when all clients are connected and at work."""
        for thread in self.threads:
            thread.start()
        try:
            self.connected.wait(30)
        except threading.BrokenBarrierError:
            self.error = self.error or "some clients could not connect within 30 s"

    def end_with_stdin(self) -> None:
        sys.stdin.read()
        self.stop.set()

    def _run(self, client: Client) -> None:
        try:
            with psycopg.connect(self.dsn, autocommit=True, application_name=client.name, prepare_threshold=None) as db:
                self.connected.wait(30)
                while not self.stop.is_set():
                    client.step(db, self.stop)
        except (psycopg.Error, threading.BrokenBarrierError) as e:
            if not self.stop.is_set():
                self.error = self.error or f"{client.name}: {' '.join(str(e).split())}"
                self.stop.set()
                self.connected.abort()


def main(dsn: str) -> int:
    """Runs until stdin ends: its writer has closed it, or is gone."""
    load = Load(dsn)
    load.start()
    if load.error is None:
        print("ready", flush=True)
        threading.Thread(target=load.end_with_stdin, daemon=True).start()
        load.stop.wait()
    if load.error is not None:
        print(load.error, file=sys.stderr, flush=True)
        return 1
    return 0  # the threads are daemons: a client in the middle of a wait does not hold up the end


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
