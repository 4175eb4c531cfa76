"""Where the pages of a relation are, asked of the server; they are then read from its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, LiteralString

import psycopg

from leadline.engines.postgres.catalog.connection import connect
from leadline.errors import LeadlineError
from leadline.files.pages import Place, parse_place

WHERE = """
select pg_catalog.current_setting('data_directory'), pg_catalog.pg_relation_filepath(r), s.setting::bigint
from pg_catalog.pg_settings s, (select %s::pg_catalog.regclass as r) as named
where s.name operator(pg_catalog.=) 'segment_size'
"""
TABLE = """
select pg_catalog.current_setting('data_directory'), pg_catalog.pg_relation_filepath(c.oid), c.relkind::text,
  pg_catalog.format('%%I.%%I', n.nspname, c.relname), pg_catalog.current_database()::text
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace
where c.oid operator(pg_catalog.=) %s::pg_catalog.regclass
"""


def place_in_server(dsn: str, text: str, fork: str = "main") -> Place:
    """The file and block of REL or REL:BLOCK. BLOCK counts from the start of the fork, over all its files.

    Raises LeadlineError: no such relation, one without a file, no right to know where the data directory is.
    """
    asked = parse_place(text)
    directory, path, segment_blocks = _files_of(dsn, str(asked.path))
    segment, block = divmod(asked.block, segment_blocks)
    name = path + ("" if fork == "main" else f"_{fork}") + (f".{segment}" if segment else "")
    return Place(Path(directory) / name, block)


def table_in_server(dsn: str, name: str) -> tuple[Path, str | None, str | None]:
    """The first file of a table; of a partitioned one, which has none, the data directory, its name and its database.

    Raises as place_in_server does.
    """
    row = _ask(dsn, TABLE, name)
    if row is None or (row[1] is None and row[2] != "p"):
        raise LeadlineError("invalid", f"{name} has no file", hint="views have no rows of their own")
    if row[1] is None:
        return Path(row[0]), row[3], row[4]
    return Path(row[0]) / row[1], None, None


def file_path(dsn: str, name: str) -> str:
    """What pg_relation_filepath says of a relation. Raises as place_in_server does."""
    return _files_of(dsn, name)[1]


def _files_of(dsn: str, name: str) -> tuple[str, str, int]:
    """Data directory, first file within it, and blocks in a file."""
    row = _ask(dsn, WHERE, name)
    if row is None or row[1] is None:
        hint = "views and partitioned tables have no file; for a partitioned table, name a partition"
        raise LeadlineError("invalid", f"{name} has no file", hint=hint)
    return row[0], row[1], row[2]


def _ask(dsn: str, query: LiteralString, name: str) -> Any:
    """The row, None without one."""
    with connect(dsn, own_names=True) as connection:
        try:
            return connection.execute(query, [name]).fetchone()
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, psycopg.errors.InvalidName) as e:
            hint = "write the name as in SQL: SCHEMA.NAME"
            raise LeadlineError("not_found", f"no relation named {name}", detail=_first(e), hint=hint) from e
        except psycopg.errors.InsufficientPrivilege as e:
            hint = "grant pg_read_all_settings to this user, or give the path of the file"
            raise LeadlineError("rights", "this user cannot see where the files of the server are", detail=_first(e), hint=hint) from e
        except psycopg.Error as e:
            raise LeadlineError("query", "cannot find out where the relation is stored", detail=_first(e)) from e


def _first(e: psycopg.Error) -> str:
    return str(e).strip().splitlines()[0]
