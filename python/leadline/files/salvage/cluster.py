"""What all databases of a dead cluster share: roles."""

from __future__ import annotations

import shlex

from leadline.files.salvage.catalog import Catalog, quoted
from leadline.files.salvage.node_names import string

WORDS = {"rolsuper": "superuser", "rolcreaterole": "createrole", "rolcreatedb": "createdb", "rolcanlogin": "login"}
WORDS |= {"rolreplication": "replication", "rolbypassrls": "bypassrls"}
NO_PASSWORDS = "-- Passwords are not written. Set them with: alter role NAME password 'PASSWORD'\n"


def globals_sql(catalog: Catalog) -> str:
    """Roles and their memberships, as pg_dumpall --globals-only has them, without passwords."""
    roles = sorted((row for row in catalog.rows("pg_authid") if int(row["oid"]) >= 16384), key=lambda row: int(row["oid"]))
    lines = [NO_PASSWORDS]
    for row in roles:
        words = [word for column, word in WORDS.items() if row[column] == "t"] + ["noinherit"] * (row["rolinherit"] == "f")
        words += [f"connection limit {row['rolconnlimit']}"] * (row["rolconnlimit"] != "-1")
        words += [f"valid until {string(row['rolvaliduntil'])}"] if row["rolvaliduntil"] else []
        lines.append(f"create role {quoted(row['rolname'])} {' '.join(words)}".rstrip() + ";\n")
    known = catalog.by_oid("pg_authid")
    for row in catalog.rows("pg_auth_members"):
        of, member = known.get(int(row["roleid"])), known.get(int(row["member"]))
        if of is not None and member is not None and int(row["member"]) >= 16384:
            option = " with admin option" if row["admin_option"] == "t" else ""
            lines.append(f"grant {quoted(of['rolname'])} to {quoted(member['rolname'])}{option};\n")
    return "".join(lines)


def create_database(catalog: Catalog, name: str) -> str:
    """The command that makes a database for what is written: all of it is UTF-8, whatever the encoding was."""
    row = next((row for row in catalog.rows("pg_database") if row["datname"] == catalog.database), None)
    locale = f"--lc-collate={shlex.quote(row['datcollate'])} --lc-ctype={shlex.quote(row['datctype'])} " if row else ""
    return f"createdb -T template0 -E UTF8 {locale}{shlex.quote(name)}"
