"""What a node tree refers to, asked of the running server that it comes from: the names that a dead cluster's catalogs would give."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from conftest import Server
from leadline._core.rows import ValueTexts
from leadline.files.salvage.node_names import NotWritten

QUALIFIED = "case when n.nspname = 'pg_catalog' then '' else quote_ident(n.nspname) || '.' end"


def named(catalog: str, name: str, namespace: str) -> str:
    qualified = f"select {QUALIFIED} || quote_ident({name})"
    return f"{qualified} from pg_catalog.{catalog} o join pg_namespace n on n.oid = {namespace} where o.oid = %s"


OF_OIDS = {
    "relation": named("pg_class", "relname", "relnamespace"),
    "function": named("pg_proc", "proname", "pronamespace"),
    "collation": named("pg_collation", "collname", "collnamespace"),
    "operator": """select case when n.nspname = 'pg_catalog' then oprname else format('OPERATOR(%%I.%%s)', n.nspname, oprname) end
        from pg_operator o join pg_namespace n on n.oid = oprnamespace where o.oid = %s and oprright <> 0""",
    "outputs": """select (select array_agg(quote_ident(proargnames[i]) order by i) from generate_subscripts(proargmodes, 1) i
        where proargmodes[i] in ('o', 'b', 't')) from pg_proc where oid = %s""",
    "fields": """with recursive base as (
            select oid, typtype, typbasetype, typrelid from pg_type where oid = %s
            union all select t.oid, t.typtype, t.typbasetype, t.typrelid
            from pg_type t join base b on b.typtype = 'd' and t.oid = b.typbasetype
        ) select array_agg(case when not attisdropped then quote_ident(attname) end order by attnum)
        from base join pg_attribute on attrelid = typrelid and attnum > 0 where typtype = 'c'""",
}


class NamesOverSql:
    """Names of the test database. `checkpoint` the server first: values are read as from the files of a dead cluster."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connection = server.connect(options="-c search_path=")
        self._values = ValueTexts(server.private.data_dir, "postgres")
        self._one = cache(self._ask)

    def close(self) -> None:
        self._connection.close()

    def _ask(self, query: str, *parameters: Any) -> Any:
        row = self._connection.execute(query, parameters).fetchone()
        if row is None:
            raise NotWritten(f"nothing has the number {parameters}")
        return row[0]

    def function(self, oid: int) -> str:
        return self._one(OF_OIDS["function"], oid)

    def operator(self, oid: int) -> str:
        return self._one(OF_OIDS["operator"], oid)

    def type_name(self, oid: int, typmod: int = -1) -> str:
        return self._one("select format_type(oid, %s) from pg_type where oid = %s", typmod, oid)

    def relation(self, oid: int) -> str:
        return self._one(OF_OIDS["relation"], oid)

    def column(self, relid: int, attnum: int) -> str:
        query = "select quote_ident(attname) from pg_attribute where attrelid = %s and attnum = %s and not attisdropped"
        return self._one(query, relid, attnum)

    def columns(self, relid: int) -> list[str | None]:
        query = "select array_agg(case when not attisdropped then quote_ident(attname) end order by attnum) from pg_attribute"
        return self._one(f"{query} where attrelid = %s and attnum > 0", relid) or []

    def collation(self, oid: int) -> str:
        return self._one(OF_OIDS["collation"], oid)

    def fields(self, type_oid: int) -> list[str | None] | None:
        return self._one(OF_OIDS["fields"], type_oid)

    def outputs(self, function_oid: int) -> list[str] | None:
        return self._one(OF_OIDS["outputs"], function_oid)

    def registered(self, type_oid: int, oid: int) -> str | None:
        return self._one("select format('%%s', case %s when 3734 then (%s::oid::regconfig)::text end)", type_oid, oid)

    def quoted(self, name: str) -> str:
        return self._one("select quote_ident(%s)", name)

    def value(self, type_oid: int, payload: bytes) -> str | None:
        return self._values.text(type_oid, payload)


@contextmanager
def names_over(pg: Server, objects: str) -> Iterator[NamesOverSql]:
    """The names of a server on which these objects are made first."""
    with pg.connect() as connection:
        connection.execute(objects.encode())
    pg.sql("checkpoint")  # values are printed by what is in the files
    names = NamesOverSql(pg)
    yield names
    names.close()
