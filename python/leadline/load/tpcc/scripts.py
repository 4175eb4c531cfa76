"""The five transactions, as scripts of pgbench: clause 2 of the specification of TPC-C, with its mix and its times (clause 5.2)."""

from __future__ import annotations

from dataclasses import dataclass

MOST_LINES, DISTRICTS, PARTS = 15, 10, "'BAR','OUGHT','ABLE','PRI','PRES','ESE','ANTI','CALLY','ATION','EING'"
# Constants of the drawing that is not uniform: any, but that of the last names is 66 from the one with which the tables were filled.
C_CUSTOMER, C_ITEM, C_NAME = 511, 4111, 223
VARIABLES = {"items": "100000", "customers": "3000"}


@dataclass(frozen=True)
class Transaction:
    """weight: of 100. keying_s: before it. think_s: after it, on the average."""

    name: str
    weight: int
    keying_s: float
    think_s: float
    text: str


HOME = """\
\\if :terminal_id < 0
\\set w_id random(1, :scale)
\\set home_d random(1, 10)
\\else
\\set w_id 1 + :terminal_id / 10 % :scale
\\set home_d 1 + :terminal_id % 10
\\endif
\\set d_id random(1, 10)
"""
OTHER_WAREHOUSE = """\
\\set {name} random(1, :scale - 1)
\\if :{name} >= :w_id
\\set {name} :{name} + 1
\\endif
"""
CUSTOMER = f"((random(0, 1023) | random(1, :customers)) + {C_CUSTOMER}) % :customers + 1"
ITEM = f"((random(0, 8191) | random(1, :items)) + {C_ITEM}) % :items + 1"
LAST_NAME = f"((random(0, 255) | random(0, 999)) + {C_NAME}) % 1000 % :customers"
DIGITS = (":name::int / 100 % 10", ":name::int / 10 % 10", ":name::int % 10")
NAME = " || ".join(f"(array[{PARTS}])[{digit} + 1]" for digit in DIGITS)
DISTRICT_INFO = " ".join(f"when {number} then s_dist_{number:02}" for number in range(1, DISTRICTS + 1))


def by_name_or_id(warehouse: str, district: str) -> str:
    """Six of ten customers are asked for by their last name: the one in the middle of those who have it."""
    return f"""\
\\if :by_name <= 60
select c_id from (select c_id, row_number() over (order by c_first) as n, count(*) over () as total from customer
where c_w_id = :{warehouse} and c_d_id = :{district} and c_last = {NAME}) named where n = (total + 1) / 2 \\gset
\\else
\\set c_id :drawn_c_id
\\endif
"""


def _drawn(number: int) -> str:
    other = OTHER_WAREHOUSE.format(name=f"w{number}")
    return f"""\
\\if :lines >= {number}
\\set i{number} {ITEM}
\\set w{number} :w_id
\\set q{number} random(1, 10)
\\if :scale > 1 and random(1, 100) = 1
{other}\\set local 0
\\endif
\\if :wrong = 1 and :lines = {number}
\\set i{number} 0
\\endif
\\endif
"""


def _line(number: int) -> str:
    return f"""\
\\if :lines >= {number}
select coalesce(max(i_price), -1) as price from item where i_id = :i{number} \\gset
\\if :price >= 0
with changed as (update stock set
s_quantity = s_quantity - :q{number}::int + case when s_quantity >= :q{number}::int + 10 then 0 else 91 end,
s_ytd = s_ytd + :q{number}::int, s_order_cnt = s_order_cnt + 1,
s_remote_cnt = s_remote_cnt + case when :w{number}::int = :w_id::int then 0 else 1 end
where s_i_id = :i{number} and s_w_id = :w{number} returning case :d_id::int {DISTRICT_INFO} end as info)
insert into order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info)
select :o_id::int, :d_id::int, :w_id::int, {number}, :i{number}::int, :w{number}::int, :q{number}::int,
:q{number}::int * :price::numeric, info from changed;
\\endif
\\endif
"""


LINES = range(1, MOST_LINES + 1)
# One of 100 asks for an item that does not exist, at the very end, and is rolled back.
NEW_ORDER = f"""\
{HOME}\\set c_id {CUSTOMER}
\\set lines random(5, {MOST_LINES})
\\set wrong random(1, 100)
\\set local 1
{"".join(_drawn(number) for number in LINES)}BEGIN;
select w_tax from warehouse where w_id = :w_id \\gset
update district set d_next_o_id = d_next_o_id + 1 where d_w_id = :w_id and d_id = :d_id returning d_next_o_id - 1 as o_id, d_tax \\gset
select c_discount, c_last, c_credit from customer where c_w_id = :w_id and c_d_id = :d_id and c_id = :c_id \\gset
insert into orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)
values (:o_id, :d_id, :w_id, :c_id, now(), :lines, :local);
insert into new_order (no_o_id, no_d_id, no_w_id) values (:o_id, :d_id, :w_id);
{"".join(_line(number) for number in LINES)}\\if :price >= 0
COMMIT;
\\else
ROLLBACK;
\\endif
"""

PAYMENT = f"""\
{HOME}\\set c_w :w_id
\\set c_d :d_id
\\if :scale > 1 and random(1, 100) <= 15
{OTHER_WAREHOUSE.format(name="c_w")}\\set c_d random(1, 10)
\\endif
\\set by_name random(1, 100)
\\set name {LAST_NAME}
\\set drawn_c_id {CUSTOMER}
\\set cents random(100, 500000)
BEGIN;
update warehouse set w_ytd = w_ytd + :cents::numeric / 100 where w_id = :w_id returning w_name, w_street_1, w_city, w_state, w_zip \\gset
update district set d_ytd = d_ytd + :cents::numeric / 100 where d_w_id = :w_id and d_id = :d_id
returning d_name, d_street_1, d_city, d_state, d_zip \\gset
{by_name_or_id("c_w", "c_d")}update customer set
c_balance = c_balance - :cents::numeric / 100, c_ytd_payment = c_ytd_payment + :cents::numeric / 100,
c_payment_cnt = c_payment_cnt + 1, c_data = case when c_credit = 'BC'
then left(concat_ws(' ', c_id, c_d_id, c_w_id, :d_id::int, :w_id::int, :cents::numeric / 100, c_data), 500) else c_data end
where c_w_id = :c_w and c_d_id = :c_d and c_id = :c_id returning c_first, c_last, c_balance \\gset
insert into history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)
select :c_id::int, :c_d::int, :c_w::int, d_id, w_id, now(), :cents::numeric / 100, w_name || '    ' || d_name
from warehouse join district on d_w_id = w_id where w_id = :w_id and d_id = :d_id;
COMMIT;
"""

ORDER_STATUS = f"""\
{HOME}\\set by_name random(1, 100)
\\set name {LAST_NAME}
\\set drawn_c_id {CUSTOMER}
BEGIN;
{by_name_or_id("w_id", "d_id")}select c_balance, c_first, c_middle, c_last from customer
where c_w_id = :w_id and c_d_id = :d_id and c_id = :c_id;
select o_id, o_carrier_id, o_entry_d from orders
where o_w_id = :w_id and o_d_id = :d_id and o_c_id = :c_id order by o_id desc limit 1 \\gset
select ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d from order_line
where ol_w_id = :w_id and ol_d_id = :d_id and ol_o_id = :o_id;
COMMIT;
"""


def _delivered(district: int) -> str:
    where = f"no_w_id = :w_id and no_d_id = {district}"
    return f"""\
with gone as (delete from new_order where {where} and no_o_id = (select min(no_o_id) from new_order where {where}) returning no_o_id)
select coalesce(max(no_o_id), 0) as o_id from gone \\gset
\\if :o_id > 0
update orders set o_carrier_id = :carrier where o_w_id = :w_id and o_d_id = {district} and o_id = :o_id returning o_c_id as c_id \\gset
update order_line set ol_delivery_d = now() where ol_w_id = :w_id and ol_d_id = {district} and ol_o_id = :o_id;
update customer set c_delivery_cnt = c_delivery_cnt + 1, c_balance = c_balance
+ (select sum(ol_amount) from order_line where ol_w_id = :w_id and ol_d_id = {district} and ol_o_id = :o_id)
where c_w_id = :w_id and c_d_id = {district} and c_id = :c_id;
\\endif
"""


DELIVERY = f"""\
{HOME}\\set carrier random(1, 10)
BEGIN;
{"".join(_delivered(district) for district in range(1, DISTRICTS + 1))}COMMIT;
"""

STOCK_LEVEL = f"""\
{HOME}\\set threshold random(10, 20)
BEGIN;
select d_next_o_id from district where d_w_id = :w_id and d_id = :home_d \\gset
select count(distinct s_i_id) from order_line join stock on s_i_id = ol_i_id and s_w_id = ol_w_id
where ol_w_id = :w_id and ol_d_id = :home_d and ol_o_id < :d_next_o_id and ol_o_id >= :d_next_o_id::int - 20 and s_quantity < :threshold;
COMMIT;
"""

TRANSACTIONS = (
    Transaction("new-order", 45, 18, 12, NEW_ORDER),
    Transaction("payment", 43, 3, 12, PAYMENT),
    Transaction("order-status", 4, 2, 10, ORDER_STATUS),
    Transaction("delivery", 4, 2, 5, DELIVERY),
    Transaction("stock-level", 4, 2, 5, STOCK_LEVEL),
)
