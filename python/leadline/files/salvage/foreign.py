"""Foreign-data wrappers, servers and user mappings that users made, and what a foreign table has beside its columns; no passwords."""

from __future__ import annotations

from leadline.files.salvage.catalog import Catalog, Key, Row, elements, quoted
from leadline.files.salvage.node_names import string
from leadline.files.salvage.written import Item, Writer

SECRET = ("password", "sslpassword", "passcode")


def write(writer: Writer) -> None:
    for row in writer.catalog.rows("pg_foreign_data_wrapper"):
        if writer.is_mine("pg_foreign_data_wrapper", row):
            writer.attempt(f"foreign-data wrapper {row['fdwname']}", lambda row=row: _wrapper(writer, row))  # type: ignore[misc]
    for row in writer.catalog.rows("pg_foreign_server"):
        if writer.is_mine("pg_foreign_server", row):
            writer.attempt(f"foreign server {row['srvname']}", lambda row=row: _server(writer, row))  # type: ignore[misc]
    for row in writer.catalog.rows("pg_user_mapping"):
        writer.attempt(f"user mapping {row['oid']}", lambda row=row: _mapping(writer, row))  # type: ignore[misc]


def given(options: str | None, leave_out: tuple[str, ...] = ()) -> str:
    """As `options (...)`, or nothing."""
    pairs = (entry.partition("=") for entry in elements(options) if entry)
    found = ", ".join(f"{quoted(name)} {string(value)}" for name, _, value in pairs if name not in leave_out)
    return f" options ({found})" if found else ""


def of_table(catalog: Catalog, oid: int) -> str:
    """The server of a foreign table, and its options."""
    found = catalog.grouped("pg_foreign_table", "ftrelid")[oid][0]
    server = catalog.by_oid("pg_foreign_server")[int(found["ftserver"])]
    return f"\nserver {quoted(server['srvname'])}{given(found['ftoptions'])}"


def _wrapper(writer: Writer, row: Row) -> None:
    name = quoted(row["fdwname"])
    sql = f"create foreign data wrapper {name}"
    sql += f" handler {writer.catalog.function(int(row['fdwhandler']))}" if int(row["fdwhandler"]) else ""
    sql += f" validator {writer.catalog.function(int(row['fdwvalidator']))}" if int(row["fdwvalidator"]) else ""
    item = Item(
        Key("pg_foreign_data_wrapper", int(row["oid"])),
        f"foreign data wrapper {name}",
        f"{sql}{given(row['fdwoptions'])};",
        int(row["fdwowner"]),
    )
    writer.before.append(item)


def _server(writer: Writer, row: Row) -> None:
    name = quoted(row["srvname"])
    sql = f"create server {name}" + "".join(
        f" {word} {string(row[column])}" for column, word in (("srvtype", "type"), ("srvversion", "version")) if row[column]
    )
    wrapper = writer.catalog.by_oid("pg_foreign_data_wrapper")[int(row["srvfdw"])]
    sql += f" foreign data wrapper {quoted(wrapper['fdwname'])}{given(row['srvoptions'], SECRET)};"
    writer.before.append(Item(Key("pg_foreign_server", int(row["oid"])), f"server {name}", sql, int(row["srvowner"])))
    _say_secret(writer, row["srvoptions"], f"server {name}")


def _mapping(writer: Writer, row: Row) -> None:
    server = quoted(writer.catalog.by_oid("pg_foreign_server")[int(row["umserver"])]["srvname"])
    role = writer.catalog.role(int(row["umuser"]))
    sql = f"create user mapping for {role.lower() if role == 'PUBLIC' else role} server {server}{given(row['umoptions'], SECRET)};"
    writer.after.append(Item(Key("pg_user_mapping", int(row["oid"])), "", sql))
    _say_secret(writer, row["umoptions"], f"the user mapping of {role} for server {server}")


def _say_secret(writer: Writer, options: str | None, of: str) -> None:
    if given(options) != given(options, SECRET):
        writer.lose(f"password of {of}", "passwords are not written")
