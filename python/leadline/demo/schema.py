"""The shop's tables, small enough to be loaded in a second or two."""

from __future__ import annotations

import psycopg

STATEMENTS = """
create table customer (customer_id int primary key, name text not null, city text not null, orders int not null default 0);
insert into customer select n, 'customer ' || n, 'city ' || n % 100 from generate_series(1, 20000) n;

create table voucher (voucher_id int primary key, campaign text not null, budget_cents bigint not null);
insert into voucher select n, 'campaign ' || n, 1000000 from generate_series(1, 20) n;

create table article (article_id int primary key, name text not null, price_cents int not null, stock int not null);
insert into article select n, 'article ' || n, 100 + n % 9900, n % 500 from generate_series(1, 50000) n;

create table order_event (event_id bigserial primary key, customer_id int not null, kind smallint not null);

create sequence invoice_number;

create table ledger (
    entry_id int not null, booked_on date not null, account text not null, note text not null, amount_cents bigint not null
);
insert into ledger
select n, date '2024-01-01' + n % 700, 'account ' || n % 1000, repeat('posting ', 12), n % 100000 from generate_series(1, 150000) n;

vacuum analyze;
checkpoint;
"""


def load_schema(dsn: str) -> None:
    """Creates and fills the tables in an empty database."""
    with psycopg.connect(dsn, autocommit=True, application_name="shop-setup") as connection:
        for statement in STATEMENTS.split(";"):
            if statement.strip():
                connection.execute(statement)
