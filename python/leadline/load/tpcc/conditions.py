"""The consistency conditions 1 to 4 of TPC-C (clause 3.3.2), each as the rows that break it."""

from __future__ import annotations

from typing import Any

from leadline.load.scale import connect
from leadline.net.login import Server

ORDERS = """
(select d_w_id as w, d_id as d, d_next_o_id - 1 as last, newest_order, newest, oldest, waiting from district
left join (select o_w_id, o_d_id, max(o_id) as newest_order from orders group by 1, 2) o on o_w_id = d_w_id and o_d_id = d_id
left join (select no_w_id, no_d_id, max(no_o_id) as newest, min(no_o_id) as oldest, count(*) as waiting from new_order group by 1, 2) n
  on no_w_id = d_w_id and no_d_id = d_id) x"""
CONDITIONS = (
    (
        "w_ytd is the sum of d_ytd",
        """
        select w_id, w_ytd, sum(d_ytd) from warehouse left join district on d_w_id = w_id group by 1, 2
        having w_ytd is distinct from sum(d_ytd)""",
    ),
    (
        "d_next_o_id - 1 is the newest order, also of new_order",
        f"select w, d, last, newest_order, newest from {ORDERS} where last is distinct from newest_order or last <> newest",
    ),
    (
        "new_order has no gap in a district",
        f"select w, d, oldest, newest, waiting from {ORDERS} where newest - oldest + 1 <> waiting",
    ),
    (
        "o_ol_cnt adds up to the rows of order_line",
        """
        select coalesce(o_w_id, ol_w_id), coalesce(o_d_id, ol_d_id), expected, there
        from (select o_w_id, o_d_id, sum(o_ol_cnt) as expected from orders group by 1, 2) o
        full join (select ol_w_id, ol_d_id, count(*) as there from order_line group by 1, 2) l on ol_w_id = o_w_id and ol_d_id = o_d_id
        where expected is distinct from there""",
    ),
)
MOST = 3  # rows that are told of


def check(server: Server) -> list[dict[str, Any]]:
    """Each condition, and whether it holds: all on one snapshot. Raises LeadlineError."""
    found = []
    with connect(server) as connection, connection.transaction():
        connection.execute("set transaction isolation level repeatable read read only")
        for number, (said, query) in enumerate(CONDITIONS, 1):
            broken = connection.execute(query).fetchall()
            examples = [" ".join(str(value) for value in row) for row in broken[:MOST]]
            found.append({"condition": number, "says": said, "holds": not broken, "broken": len(broken), "examples": examples})
    return found
