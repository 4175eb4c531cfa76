"""The catalogs of one database as a dead cluster's files have them: rows as text, and how things are called in SQL."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from leadline._core.rows import RowScan, Tables, ValueTexts
from leadline.errors import LeadlineError
from leadline.files import row_losses
from leadline.files.salvage.node_names import NotWritten

Row = dict[str, Any]  # values are text, or None
AsOf = tuple[int, bool] | tuple[int, int, bool] | None
"""Rows as they were, for RowScan; None: as they are."""
BATCH = 5000


class Places(Protocol):
    """Where the rows are when the catalogs are those of another data directory."""

    def scan(self, catalog: Catalog, oid: int, columns: list[str] | None, dead: bool, as_of: AsOf) -> RowScan:
        """Raises LeadlineError."""


class Key(NamedTuple):
    """An object: the catalog that it is a row of, and its OID."""

    catalog: str
    oid: int


@functools.cache
def keywords() -> frozenset[str]:
    """Words that are quoted as names: those that SQL reserves, or that PostgreSQL does where a column, a type or a function may stand."""
    text = Path(__file__).with_name("keywords.txt").read_text(encoding="ascii")
    return frozenset(word for line in text.splitlines() if not line.startswith("#") for word in line.split())


def quoted(name: str) -> str:
    """A name as SQL reads it back."""
    if re.fullmatch(r"[a-z_][a-z0-9_]*", name) and name not in keywords():
        return name
    return '"' + name.replace('"', '""') + '"'


def numbers(text: str | None) -> list[int]:
    """The elements of an oidvector, an int2vector or an array of numbers."""
    return [int(word) for word in re.findall(r"-?\d+", text or "")]


def elements(text: str | None) -> list[str | None]:
    """The elements of an array of one dimension, as the server prints it."""
    if text is None:
        return []
    found: list[str | None] = []
    for quoted_text, bare in re.findall(r'"((?:[^"\\]|\\.)*)"|([^{},"]+)', text.partition("=")[2] if text.startswith("[") else text):
        found.append(re.sub(r"\\(.)", r"\1", quoted_text) if not bare else (None if bare == "NULL" else bare))
    return found


def rows_of(scan: RowScan) -> Iterator[Row]:
    """Its rows by the names of their columns. Raises LeadlineError."""
    while (rows := scan.rows(BATCH)) is not None:
        names = [*scan.provenance(), *(column for column, _ in scan.describe()["columns"])]
        yield from (dict(zip(names, row)) for row in rows)


class Catalog:
    """Of one database. losses: what of the catalogs could not be read, in words. modified: types whose modifiers were left off. places:
    where the rows of tables are, if the catalogs are not those of the dead database itself."""

    def __init__(self, data_dir: Path, database: str) -> None:
        self.data_dir, self.database = data_dir, database
        self.losses: list[str] = []
        self.modified: set[str] = set()
        self.places: Places | None = None
        self.tables = Tables(str(data_dir), database)
        self._values = ValueTexts(str(data_dir), database)
        self._read: dict[str, list[Row]] = {}
        self._keyed: dict[str, dict[int, Row]] = {}
        self._grouped: dict[tuple[str, str], dict[int, list[Row]]] = {}

    def rows(self, name: str) -> list[Row]:
        """The visible rows of pg_catalog.NAME; none where this major has no such catalog."""
        if name not in self._read:
            rows = list(self._scan(name))
            # Where nothing tells which version of a row is visible, both came: the later one counts.
            self._read[name] = list({row["oid"]: row for row in rows}.values()) if rows and "oid" in rows[0] else rows
        return self._read[name]

    def scan(self, oid: int, columns: list[str] | None = None, *, dead: bool = False, as_of: AsOf = None) -> RowScan:
        """The rows of a relation. Raises LeadlineError."""
        if self.places is not None:
            return self.places.scan(self, oid, columns, dead, as_of)
        return self.tables.scan(oid, columns=columns, dead=dead, as_of=as_of)

    def _scan(self, name: str) -> Iterator[Row]:
        try:
            scan = self.tables.scan(self.tables.find("pg_catalog", name))
            yield from (row for row in rows_of(scan) if row.get("oid", "") is not None)
        except LeadlineError as e:
            if e.kind != "not_found":
                self.losses.append(f"{name}: {e.message}")
            return
        status = scan.status()
        self.losses += [line for line in status["catalog_damage"] if line not in self.losses]
        self.losses += [f"{name}: {line}" for line in row_losses.losses(status)]

    def by_oid(self, name: str) -> dict[int, Row]:
        """The rows of a catalog that has OIDs."""
        if name not in self._keyed:
            self._keyed[name] = {int(row["oid"]): row for row in self.rows(name)}
        return self._keyed[name]

    @functools.cached_property
    def attributes(self) -> dict[int, list[Row]]:
        """The columns of each relation, in order, dropped ones too."""
        found = defaultdict(list)
        for row in self.rows("pg_attribute"):
            if int(row["attnum"]) > 0:
                found[int(row["attrelid"])].append(row)
        return {relid: sorted(rows, key=lambda row: int(row["attnum"])) for relid, rows in found.items()}

    def grouped(self, name: str, by: str) -> dict[int, list[Row]]:
        """The rows of a catalog by a column that is an OID."""
        if (name, by) not in self._grouped:
            found = defaultdict(list)
            for row in self.rows(name):
                found[int(row[by])].append(row)
            self._grouped[name, by] = dict(found)
        return self._grouped[name, by]

    # -- how things are called: Names of expressions.py -------------------------------------------------------------------

    def schema(self, oid: int) -> str:
        return str(self._named("pg_namespace", oid)["nspname"])

    def qualified(self, namespace: Any, name: str) -> str:
        schema = self.schema(int(namespace))
        return quoted(name) if schema == "pg_catalog" else f"{quoted(schema)}.{quoted(name)}"

    def relation(self, oid: int) -> str:
        row = self._named("pg_class", oid)
        return f"{quoted(self.schema(int(row['relnamespace'])))}.{quoted(row['relname'])}"

    def function(self, oid: int) -> str:
        row = self._named("pg_proc", oid)
        return self.qualified(row["pronamespace"], row["proname"])

    def operator(self, oid: int) -> str:
        row = self._named("pg_operator", oid)
        if not int(row["oprright"]):
            raise NotWritten(f"operator {row['oprname']} stands after its operand")
        schema = self.schema(int(row["oprnamespace"]))
        return str(row["oprname"]) if schema == "pg_catalog" else f"OPERATOR({quoted(schema)}.{row['oprname']})"

    def columns(self, relid: int) -> list[str | None]:
        return [None if row["attisdropped"] == "t" else quoted(row["attname"]) for row in self.attributes.get(relid, ())]

    def collation(self, oid: int) -> str:
        row = self._named("pg_collation", oid)
        return self.qualified(row["collnamespace"], row["collname"])

    def column(self, relid: int, attnum: int) -> str:
        for row in self.attributes.get(relid, ()):
            if int(row["attnum"]) == attnum and row["attisdropped"] == "f":
                return quoted(row["attname"])
        raise NotWritten(f"column {attnum} of relation {relid}")

    def role(self, oid: int) -> str:
        return "PUBLIC" if oid == 0 else quoted(self._named("pg_authid", oid)["rolname"])

    def type_name(self, oid: int, typmod: int = -1) -> str:
        """As format_type prints it, with a schema unless it is pg_catalog."""
        row = self._named("pg_type", oid)
        element = int(row["typelem"])
        if element and int(self.by_oid("pg_type").get(element, {}).get("typarray") or 0) == oid:
            return f"{self.type_name(element, typmod)}[]"
        schema = self.schema(int(row["typnamespace"]))
        if schema == "pg_catalog":
            return built_in_name(row["typname"], typmod)
        name = f"{quoted(schema)}.{quoted(row['typname'])}"
        if typmod >= 0:  # a number that only the functions of the type can print
            self.modified.add(name)
        return name

    def quoted(self, name: str) -> str:
        return quoted(name)

    def fields(self, type_oid: int) -> list[str | None] | None:
        row = self._named("pg_type", type_oid)
        if row["typtype"] == "d":
            return self.fields(int(row["typbasetype"]))
        relid = int(row["typrelid"] or 0)
        return self.columns(relid) if relid in self.attributes else None

    def outputs(self, function_oid: int) -> list[str] | None:
        row = self._named("pg_proc", function_oid)
        modes, names = elements(row["proargmodes"]), elements(row["proargnames"])
        return [quoted(name) for mode, name in zip(modes, names) if mode in ("o", "b", "t") and name is not None] or None

    def registered(self, type_oid: int, oid: int) -> str | None:
        """What a regproc and the like stands for, as its input takes it."""
        kind = self._named("pg_type", type_oid)["typname"]
        if kind in ("regproc", "regprocedure"):
            row = self._named("pg_proc", oid)
            types = ",".join(self.type_name(argument) for argument in numbers(row["proargtypes"]))
            return self.function(oid) + (f"({types})" if kind == "regprocedure" else "")
        if kind in ("regoper", "regoperator"):
            row = self._named("pg_operator", oid)
            sides = ",".join(self.type_name(side) if side else "none" for side in (int(row["oprleft"]), int(row["oprright"])))
            return f"{quoted(self.schema(int(row['oprnamespace'])))}.{row['oprname']}" + (f"({sides})" if kind == "regoperator" else "")
        if kind in ("regnamespace", "regrole"):
            return quoted(self.schema(oid)) if kind == "regnamespace" else self.role(oid)
        catalogs = {"regconfig": ("pg_ts_config", "cfg"), "regdictionary": ("pg_ts_dict", "dict"), "regcollation": ("pg_collation", "coll")}
        if kind in catalogs:
            table, prefix = catalogs[kind]
            row = self._named(table, oid)
            return self.qualified(row[f"{prefix}namespace"], row[f"{prefix}name"])
        return None

    def value(self, type_oid: int, payload: bytes) -> str | None:
        return self._values.text(type_oid, payload)

    def _named(self, catalog: str, oid: int) -> Row:
        found = self.by_oid(catalog).get(oid)
        if found is None:
            raise NotWritten(f"{catalog} has no row with OID {oid}")
        return found


# Names that SQL has for types of pg_catalog.
SQL_NAMES = {
    "int2": "smallint", "int4": "integer", "int8": "bigint", "float4": "real", "float8": "double precision", "bool": "boolean",
    "varchar": "character varying", "bpchar": "character", "varbit": "bit varying", "timetz": "time with time zone",
    "timestamptz": "timestamp with time zone", "time": "time without time zone", "timestamp": "timestamp without time zone",
}  # fmt: skip
_FIELDS = {4: "year", 2: "month", 8: "day", 1024: "hour", 2048: "minute", 4096: "second", 6: "year to month", 1032: "day to hour"}
_FIELDS |= {3080: "day to minute", 7176: "day to second", 3072: "hour to minute", 7168: "hour to second", 6144: "minute to second"}
"""Of an interval, by the bits of its typmod (utils/timestamp.h)."""
HEADER = 4  # which the typmod of a text or a number counts


def built_in_name(name: str, typmod: int) -> str:
    """A type of pg_catalog with what it was declared with."""
    if name == "bpchar" and typmod < 0:
        return "bpchar"  # `character` alone is one character
    if name == "bit" and typmod < 0:
        return '"bit"'
    if name == "char":
        return '"char"'
    called = SQL_NAMES.get(name, quoted(name) if name not in ("bit", "interval", "numeric", "json", "xml") else name)
    if typmod < 0:
        return called
    if name in ("varchar", "bpchar"):
        return f"{called}({typmod - HEADER})"
    if name == "numeric":
        scale = (typmod - HEADER) & 0x7FF
        return f"numeric({(typmod - HEADER) >> 16 & 0xFFFF},{scale - 0x800 if scale > 1023 else scale})"
    if name in ("time", "timetz", "timestamp", "timestamptz"):
        word, _, zone = called.partition(" ")
        return f"{word}({typmod}) {zone}"
    if name == "interval":
        fields, precision = typmod >> 16 & 0x7FFF, typmod & 0xFFFF
        words = f" {_FIELDS[fields]}" if fields in _FIELDS else ""
        return f"interval{words}" + (f"({precision})" if precision != 0xFFFF else "")
    return f"{called}({typmod})"
