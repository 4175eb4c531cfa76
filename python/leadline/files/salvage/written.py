"""What is written of a database: each object with its SQL, and what could not be written."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

from leadline.files.salvage.catalog import Catalog, Key, Row, quoted
from leadline.files.salvage.expressions import NotATree, NotWritten, expression

CLASSES = {
    "pg_am": 2601, "pg_cast": 2605, "pg_class": 1259, "pg_attrdef": 2604, "pg_collation": 3456, "pg_constraint": 2606,
    "pg_conversion": 2607, "pg_event_trigger": 3466, "pg_extension": 3079, "pg_foreign_data_wrapper": 2328, "pg_foreign_server": 1417,
    "pg_language": 2612, "pg_namespace": 2615, "pg_opclass": 2616, "pg_operator": 2617, "pg_opfamily": 2753, "pg_policy": 3256,
    "pg_proc": 1255, "pg_publication": 6104, "pg_rewrite": 2618, "pg_statistic_ext": 3381, "pg_subscription": 6100, "pg_transform": 3576,
    "pg_trigger": 2620, "pg_ts_config": 3602, "pg_ts_dict": 3600, "pg_ts_parser": 3601, "pg_ts_template": 3764, "pg_type": 1247,
}  # fmt: skip
"""OIDs of the catalogs, which are the same in all majors."""
CATALOG_OF = {oid: name for name, oid in CLASSES.items()}


@dataclass
class Item:
    """One object. name: as `comment on` and `alter ... owner` have it, such as `table shop.orders`; empty for a part of another.
    needs: beside what pg_depend says.
    """

    key: Key
    name: str
    sql: str
    owner: int = 0
    needs: tuple[Key, ...] = ()


@dataclass
class Lost:
    """What could not be written: an object or a part of it, and why."""

    what: str
    why: str


@dataclass
class Writer:
    """Collects what is written of one database. last: made when all else is there, also what is granted."""

    catalog: Catalog
    before: list[Item] = field(default_factory=list)
    after: list[Item] = field(default_factory=list)
    last: list[Item] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    members: set[Key] = field(default_factory=set)
    merged: dict[Key, Key] = field(default_factory=dict)

    def lose(self, what: str, why: object) -> None:
        self.lost.append(Lost(what, str(why)))

    def attempt(self, what: str, write: Callable[[], None]) -> None:
        """Writes an object, or says why it cannot be written: the catalogs may be damaged, or an expression of a kind that is not known."""
        try:
            write()
        except (NotWritten, NotATree, LookupError, ValueError) as e:
            self.lose(what, f"the catalogs lack {e}" if isinstance(e, LookupError) else e)
        except (AttributeError, TypeError):  # null where the catalogs of a server have a value
            self.lose(what, "the catalogs lack a value of it")

    def expression(self, tree: str | None, what: str, relid: int | None = None) -> str | None:
        """A stored expression as SQL; None where there is none, or it cannot be written, which is then said."""
        if tree is None:
            return None
        try:
            return expression(tree, self.catalog, relid)
        except (NotWritten, NotATree, ValueError) as e:
            self.lose(what, e)
            return None

    def calls_own(self, key: Key) -> bool:
        """Whether a stored expression calls a function that users made, which may need the table itself."""
        return key in self._calling

    @functools.cached_property
    def _calling(self) -> set[Key]:
        functions = str(CLASSES["pg_proc"])
        rows = (row for row in self.catalog.rows("pg_depend") if row["refclassid"] == functions and int(row["refobjid"]) >= 16384)
        return {Key(CATALOG_OF.get(int(row["classid"]), ""), int(row["objid"])) for row in rows}

    def constrain(self, row: Row, table: str, definition: str) -> None:
        """Adds a constraint, a row of pg_constraint, when the rows are there. table: with `only` before it or not."""
        name = quoted(row["conname"])
        sql = f"alter table {table} add constraint {name} {definition};"
        self.after.append(Item(Key("pg_constraint", int(row["oid"])), f"constraint {name} on {table.removeprefix('only ')}", sql))

    def is_mine(self, catalog: str, row: Row) -> bool:
        """Whether users made it, and no extension."""
        key = Key(catalog, int(row["oid"]))
        return key.oid >= 16384 and key not in self.members
