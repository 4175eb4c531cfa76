"""leadline load init: the tables of workloads."""

from __future__ import annotations

import os
from typing import Any

import click


@click.command(
    "init",
    short_help="Make and fill the tables of a workload.",
    epilog="""\b
Examples:
  leadline load init postgres:///bench --scale 10
  leadline load init postgres:///bench --scale 100 --fillfactor 90 --force
  leadline load init postgres:///bench --workload tpcc-like --warehouses 10""",
)
@click.argument("dsn", metavar="DSN")
@click.option(
    "--scale", "-s", type=click.IntRange(1, 100_000), default=1, show_default=True, metavar="N",
    help="Units of 100,000 accounts, about 15 MB each.",
)  # fmt: skip
@click.option("--fillfactor", type=click.IntRange(10, 100), default=100, show_default=True, metavar="N", help="Fill pages only so far.")
@click.option(
    "--workload", type=click.Choice(["pgbench", "tpcc-like", "purge"]), default="pgbench", show_default=True, help="Whose tables.",
)
@click.option("--warehouses", "-w", type=click.IntRange(1, 100_000), metavar="N", help="tpcc-like: so many, about 110 MB each.")
@click.option("--jobs", "-j", type=click.IntRange(1, 256), metavar="N", help="tpcc-like: sessions that fill.  [default: one for each CPU]")
@click.option("--rows", type=click.IntRange(5), default=2_000_000, show_default=True, metavar="N", help="purge: rows that are to go.")
@click.option(
    "--content", type=click.Choice(["bytea", "large-object"]), default="bytea", show_default=True, help="purge: of the long values.",
)
@click.option(
    "--content-bytes", type=click.IntRange(64, 1 << 20), default=2_100, show_default=True, metavar="N", help="purge: length of each.",
)
@click.option("--force", is_flag=True, help="Drop tables of these names that are there.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(dsn: str, workload: str, force: bool, as_json: bool, **given: Any) -> int:
    """Make the tables of a workload and fill them.

    pgbench: pgbench_accounts, pgbench_branches, pgbench_tellers and pgbench_history, as pgbench -i makes them. The rows are made on the
    server, in one transaction; then the tables are vacuumed and get their primary keys.

    tpcc-like: warehouse, district, customer, history, orders, new_order, order_line, item and stock, filled by COPY in several sessions.
    If it is ended or killed, the same command goes on where it was: no row is lost, and none comes twice.

    purge: leadline_purge, with a partition for each of three jobs, two indexes and a column with long values, out of line. Of five rows,
    four are to go.
    """
    from leadline.figures import count
    from leadline.load import purge
    from leadline.load import scale as pgbench
    from leadline.load.tpcc import tables as tpcc
    from leadline.net.login import server_of
    from leadline.output import to_json
    from leadline.progress import TerminalLine

    line = TerminalLine()
    try:
        server = server_of(dsn)
        if workload == "pgbench":
            made = pgbench.init(server, given["scale"], fillfactor=given["fillfactor"], force=force, progress=line.share)
            text = f"{made['server']}: scale {given['scale']}, {made['rows']['pgbench_accounts']:,} accounts"
        elif workload == "purge":
            table = purge.Table(given["rows"], content=given["content"], bytes_each=given["content_bytes"])
            made = purge.init(server, table, force=force, progress=line.share)
            text = f"{made['server']}: {made['rows']:,} rows, of which {made['to_purge']:,} are to go"
        else:
            warehouses, most = given["warehouses"] or 1, given["jobs"] or len(os.sched_getaffinity(0))
            made = tpcc.init(server, warehouses, jobs=most, force=force, progress=line.share)
            text = f"{made['server']}: TPC-C-like, {count(warehouses, 'warehouse')}{', filled to the end' if made['resumed'] else ''}"
    finally:
        line.done()
    click.echo(to_json(made) if as_json else text)
    return 0
