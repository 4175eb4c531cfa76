"""Publications, and subscriptions without passwords: they are disabled, and connect to nothing when they are made."""

from __future__ import annotations

import re

from leadline.files.salvage.catalog import Key, Row, elements, numbers, quoted
from leadline.files.salvage.expressions import expression
from leadline.files.salvage.node_names import string
from leadline.files.salvage.written import Item, Writer

ACTIONS = {"pubinsert": "insert", "pubupdate": "update", "pubdelete": "delete", "pubtruncate": "truncate"}
PASSWORD = re.compile(r"\s*\b(?:password|sslpassword)\s*=\s*(?:'(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)*)")
IN_URI = re.compile(r"(://[^:@/]*):[^@/]*@|([?&](?:password|sslpassword)=)[^&]*")
STREAMING = {"f": "off", "t": "on", "p": "parallel"}
TWO_PHASE = ("p", "e")  # asked for, and granted


def write(writer: Writer) -> None:
    for row in writer.catalog.rows("pg_publication"):
        if writer.is_mine("pg_publication", row):
            writer.attempt(f"publication {row['pubname']}", lambda row=row: _publication(writer, row))  # type: ignore[misc]
    for row in writer.catalog.rows("pg_subscription"):
        if writer.is_mine("pg_subscription", row) and int(row["subdbid"]) == _database(writer):
            writer.attempt(f"subscription {row['subname']}", lambda row=row: _subscription(writer, row))  # type: ignore[misc]


def _database(writer: Writer) -> int:
    rows = writer.catalog.rows("pg_database")
    return next((int(row["oid"]) for row in rows if row["datname"] == writer.catalog.database), 0)


def _publication(writer: Writer, row: Row) -> None:
    catalog, oid = writer.catalog, int(row["oid"])
    tables = [_table(writer, each) for each in catalog.grouped("pg_publication_rel", "prpubid").get(oid, ())]
    schemas = [int(each["pnnspid"]) for each in catalog.grouped("pg_publication_namespace", "pnpubid").get(oid, ())]
    what = [f"table {', '.join(sorted(tables))}"] * bool(tables)
    what += [f"tables in schema {', '.join(sorted(quoted(catalog.schema(each)) for each in schemas))}"] * bool(schemas)
    of = " for all tables" if row["puballtables"] == "t" else f" for {', '.join(what)}" if what else ""
    given = [f"publish = {string(', '.join(word for column, word in ACTIONS.items() if row[column] == 't'))}"]
    given += ["publish_via_partition_root = true"] * (row["pubviaroot"] == "t")
    given += ["publish_generated_columns = stored"] * (row.get("pubgencols") == "s")
    sql = f"create publication {quoted(row['pubname'])}{of} with ({', '.join(given)});"
    writer.after.append(Item(Key("pg_publication", oid), f"publication {quoted(row['pubname'])}", sql, int(row["pubowner"])))


def _table(writer: Writer, row: Row) -> str:
    """With the columns and the condition that it is published by."""
    catalog, relid = writer.catalog, int(row["prrelid"])
    attnums = numbers(row.get("prattrs"))
    columns = f" ({', '.join(catalog.column(relid, number) for number in attnums)})" if attnums else ""
    where = f" where ({expression(row['prqual'], catalog, relid)})" if row.get("prqual") else ""
    return f"only {catalog.relation(relid)}{columns}{where}"


def without_password(connection: str) -> str:
    """A connection string, in either of its forms."""
    if "://" in connection:
        return IN_URI.sub(lambda found: f"{found[1]}@" if found[1] else f"{found[2]}", connection)
    return PASSWORD.sub("", connection).strip()


def _subscription(writer: Writer, row: Row) -> None:
    connection = without_password(row["subconninfo"] or "")
    given = ["connect = false", f"slot_name = {string(row['subslotname'])}" if row["subslotname"] else "slot_name = none"]
    given += ["binary = true"] * (row.get("subbinary") == "t")
    if (streaming := STREAMING.get(row.get("substream") or "f", "off")) != "off":
        given.append(f"streaming = {streaming}")
    given += ["two_phase = on"] * (row.get("subtwophasestate") in TWO_PHASE)
    given += ["disable_on_error = true"] * (row.get("subdisableonerr") == "t")
    given += [f"synchronous_commit = {string(row['subsynccommit'])}"] * (row["subsynccommit"] not in (None, "off"))
    given += ["password_required = false"] * (row.get("subpasswordrequired") == "f")
    given += ["run_as_owner = true"] * (row.get("subrunasowner") == "t")
    given += [f"origin = {row.get('suborigin')}"] * (row.get("suborigin") not in (None, "any"))
    given += ["failover = true"] * (row.get("subfailover") == "t")
    publications = ", ".join(quoted(name) for name in elements(row["subpublications"]) if name is not None)
    name = quoted(row["subname"])
    # That it is not connected is a warning of the server.
    sql = "set client_min_messages = error;\n"
    sql += f"create subscription {name} connection {string(connection)} publication {publications} with ({', '.join(given)});\n"
    sql += "set client_min_messages = warning;"
    writer.after.append(Item(Key("pg_subscription", int(row["oid"])), f"subscription {name}", sql, int(row["subowner"])))
    if connection != row["subconninfo"]:
        writer.lose(f"password of subscription {row['subname']}", "passwords are not written")
