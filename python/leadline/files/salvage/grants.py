"""Owners, comments and privileges of what is written."""

from __future__ import annotations

import re

from leadline.files.salvage.catalog import Key, Row, elements, quoted
from leadline.files.salvage.node_names import string
from leadline.files.salvage.written import CATALOG_OF, Item, Writer

PRIVILEGES = {
    "r": "select", "a": "insert", "w": "update", "d": "delete", "D": "truncate", "x": "references", "t": "trigger", "m": "maintain",
    "X": "execute", "U": "usage", "C": "create", "c": "connect", "T": "temporary", "s": "set", "A": "alter system",
}  # fmt: skip
"""Letters of an aclitem (utils/acl.h)."""
ACL = {"pg_class": "relacl", "pg_namespace": "nspacl", "pg_proc": "proacl", "pg_type": "typacl", "pg_foreign_server": "srvacl"}
PUBLIC_BY_DEFAULT = {"pg_proc": "X", "pg_type": "U"}
BOOTSTRAP = 10  # the superuser that initdb made: who restores owns what it owned
ITEM = re.compile(r'((?:[^="]|"(?:[^"]|"")*")*)=([a-zA-Z*]*)/(.*)', re.DOTALL)


def items(writer: Writer) -> list[Item]:
    """What is set when all objects are there."""
    found = []
    named = {item.key: item for item in [*writer.before, *writer.after, *writer.last] if item.name}
    for item in named.values():
        if item.owner and item.owner != BOOTSTRAP:
            writer.attempt(f"owner of {item.name}", lambda item=item: found.append(_owner(writer, item)))  # type: ignore[misc]
    for item in named.values():
        if item.key.catalog in ACL:
            writer.attempt(f"privileges on {item.name}", lambda item=item: found.extend(_privileges(writer, item)))  # type: ignore[misc]
    for row in writer.catalog.rows("pg_namespace"):
        if row["nspname"] == "public":  # which each database has from the start
            lines = _granted(row["nspacl"], "schema public", "", writer.catalog.role(int(row["nspowner"])), "UC")
            found += [Item(Key("pg_namespace", int(row["oid"])), "", line) for line in lines]
    for row in writer.catalog.rows("pg_description"):
        commented = named.get(Key(CATALOG_OF.get(int(row["classoid"]), ""), int(row["objoid"])))
        if commented is not None:
            writer.attempt(f"comment on {commented.name}", lambda row=row, item=commented: found.append(_comment(writer, row, item)))  # type: ignore[misc]
    return found


DEFAULT_ON = {"r": "tables", "S": "sequences", "f": "functions", "T": "types", "n": "schemas", "L": "large objects"}
"""By defaclobjtype (catalog/pg_default_acl.h)."""


def default_privileges(writer: Writer) -> list[Item]:
    """ALTER DEFAULT PRIVILEGES: what objects have when they are made. In a schema they are added to those of the database."""
    found = list[Item]()
    for row in writer.catalog.rows("pg_default_acl"):
        writer.attempt(f"default privileges {row['oid']}", lambda row=row: found.extend(_default(writer, row)))  # type: ignore[misc]
    return found


def _default(writer: Writer, row: Row) -> list[Item]:
    catalog, kind = writer.catalog, row["defaclobjtype"]
    owner, schema = catalog.role(int(row["defaclrole"])), int(row["defaclnamespace"])
    head = f"alter default privileges for role {owner}" + (f" in schema {quoted(catalog.schema(schema))}" if schema else "")
    has_public = not schema and kind in ("f", "T")
    lines = _granted(row["defaclacl"], DEFAULT_ON[kind], "", "" if schema else owner, "default" if has_public else "")
    if not schema and not any((entry or "").startswith(f"{owner}=") for entry in elements(row["defaclacl"])):
        lines.append(f"revoke all on {DEFAULT_ON[kind]} from {owner};")
    return [Item(Key("pg_default_acl", int(row["oid"])), "", f"{head} {line}") for line in lines]


def _owner(writer: Writer, item: Item) -> Item:
    return Item(item.key, "", f"alter {item.name} owner to {writer.catalog.role(item.owner)};")


def _comment(writer: Writer, row: Row, item: Item) -> Item:
    name = item.name
    if number := int(row["objsubid"]):
        name = f"column {writer.catalog.relation(item.key.oid)}.{writer.catalog.column(item.key.oid, number)}"
    return Item(item.key, "", f"comment on {name} is {string(row['description'])};")


def _privileges(writer: Writer, item: Item) -> list[Item]:
    catalog = item.key.catalog
    row = writer.catalog.by_oid(catalog)[item.key.oid]
    kind, _, called = item.name.partition(" ")
    for word in ("materialized view ", "foreign table ", "foreign data wrapper "):
        called = item.name.removeprefix(word) if item.name.startswith(word) else called
    kind = {
        "view": "table",
        "materialized": "table",
        "foreign": "table",
        "server": "foreign server",
        "domain": "domain",
        "aggregate": "function",
    }.get(kind, kind)
    lines = _granted(row[ACL[catalog]], f"{kind} {called}", "", writer.catalog.role(item.owner), PUBLIC_BY_DEFAULT.get(catalog, ""))
    if catalog == "pg_class":
        for column in writer.catalog.attributes.get(item.key.oid, ()):
            if column["attacl"] and column["attisdropped"] == "f":
                lines += _granted(column["attacl"], f"{kind} {called}", f" ({quoted(column['attname'])})", "", "")
    return [Item(item.key, "", line) for line in lines]


def _granted(acl: str | None, on: str, columns: str, owner: str, default: str) -> list[str]:
    """`grant` for each entry. The owner has its rights anyway, unless some were taken from it."""
    if acl is None:
        return []
    found, public = [], False
    for entry in elements(acl):
        match = ITEM.fullmatch(entry or "")
        if match is None:
            raise ValueError(f"an unknown entry of its privileges: {entry}")
        who, letters = match[1], match[2]
        role = "public" if not who else who if who.startswith('"') else quoted(who)
        public |= not who
        if role == owner:
            continue
        for option, chosen in (("", re.findall(r"(\w)(?!\*)", letters)), (" with grant option", re.findall(r"(\w)\*", letters))):
            if chosen:
                rights = ", ".join(PRIVILEGES[letter] + columns for letter in chosen)
                found.append(f"grant {rights} on {on} to {role}{option};")
    if default and not public:
        found.insert(0, f"revoke all on {on} from public;")
    return found
