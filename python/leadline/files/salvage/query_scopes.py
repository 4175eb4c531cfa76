"""What a query reads, and how its columns are called.

Every table, subquery and function in FROM has a name of its own, also where queries are nested, so that each column can be written with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from leadline.files.salvage.node_names import Names, NotWritten
from leadline.files.salvage.node_trees import Node
from leadline.files.salvage.scalars import SYSTEM_COLUMNS, last_part


class Kind(IntEnum):
    """What an entry of the range table is."""

    RELATION = 0
    SUBQUERY = 1
    JOIN = 2
    FUNCTION = 3
    TABLE_FUNCTION = 4
    VALUES = 5
    CTE = 6
    GROUP = 9


BEHIND: dict[int, str] = {Kind.JOIN: "joinaliasvars", Kind.GROUP: "groupexprs"}
"""Where the expressions are that the columns stand for."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something in FROM. name, columns: as SQL has them, None for a dropped column; listed: whether its columns need names beside it."""

    node: Node
    kind: int
    name: str
    columns: list[str | None]
    listed: bool

    @property
    def visible(self) -> list[str]:
        return [column for column in self.columns if column is not None]


class QueryScope:
    """One query. `taken`: names of the queries around it."""

    def __init__(self, query: Node, names: Names, taken: set[str]) -> None:
        self.query = query
        self._names = names
        self._table = query.nodes("rtable")
        self.taken = set(taken)
        self.entries: dict[int, Entry] = {}
        for number in sorted(_reached(query)):
            self.entries[number] = self._entry(self.at(number))

    def at(self, number: int) -> Node:
        if not 0 < number <= len(self._table) or self._table[number - 1].name not in ("RTE", "RANGETBLENTRY"):
            raise NotWritten(f"the query has no entry {number} of its range table")
        return self._table[number - 1]

    def entry(self, number: int) -> Entry:
        if number not in self.entries:
            raise NotWritten(f"entry {number} of the range table is not in FROM")
        return self.entries[number]

    def behind(self, var: Node) -> Node | None:
        """The expression that a column of a join or of GROUP BY stands for."""
        field = BEHIND.get(self._kind(var.number("varno")))
        if field is None:
            return None
        items, number = self.at(var.number("varno")).items(field), var.number("varattno")
        found = items[number - 1] if 0 < number <= len(items) else None
        if not isinstance(found, Node):
            raise NotWritten("VAR is of a column of a join that is not there")
        return found

    def column_name(self, var: Node) -> str:
        """Its name alone, also of a column of a join."""
        number, attnum = var.number("varno"), var.number("varattno")
        if self._kind(number) == Kind.JOIN:
            names = self.at(number).node("eref").texts("colnames")
            return self._names.quoted(names[attnum - 1]) if 0 < attnum <= len(names) else ""
        entry = self.entry(number)
        if attnum < 0 and entry.kind == Kind.RELATION and attnum in SYSTEM_COLUMNS:
            return SYSTEM_COLUMNS[attnum]
        found = entry.columns[attnum - 1] if 0 < attnum <= len(entry.columns) else None
        if found is None:
            raise NotWritten(f"VAR is of column {attnum} of {entry.name}, which is not there")
        return found

    def column(self, var: Node, levels_up: int) -> str:
        return f"{self.entry(var.number('varno')).name}.{self.column_name(var)}"

    def whole_row(self, var: Node) -> str:
        return f"{self.entry(var.number('varno')).name}.*"

    def table_names(self) -> set[str]:
        return self.taken

    def _kind(self, number: int) -> int:
        return self.at(number).number("rtekind")

    def _entry(self, node: Node) -> Entry:
        kind = node.number("rtekind")
        alias, eref = node.optional_node("alias"), node.node("eref")
        given = alias.texts("colnames") if alias else []
        if kind == Kind.RELATION:
            columns, listed = self._relation_columns(node, given)
            base = self._names.quoted(alias.text("aliasname")) if alias else last_part(self._names.relation(node.number("relid")))
        else:
            base = self._names.quoted((alias or eref).text("aliasname"))
            plain = [name or None for name in eref.texts("colnames")]
            columns = [None if name is None else self._names.quoted(name) for name in _distinct(plain)]
            listed = bool(given) or kind == Kind.VALUES or _distinct(plain) != plain
            if kind == Kind.FUNCTION and not listed:
                columns, listed = self._function_columns(node, columns)
        return Entry(node, kind, self._own_name(base), columns, listed)

    def _relation_columns(self, node: Node, given: list[str]) -> tuple[list[str | None], bool]:
        """A list of column names beside a table may be of before a column was dropped."""
        current = self._names.columns(node.number("relid"))
        if not given:
            return current, False
        renamed = [self._names.quoted(name) if name else None for name in given]
        if len(renamed) > len(current) or any(new is None and old is not None for new, old in zip(renamed, current)):
            raise NotWritten("a table has not the columns that its names in FROM are for")
        return [None if old is None else new for new, old in zip(renamed, current)] + current[len(renamed) :], True

    def _function_columns(self, node: Node, columns: list[str | None]) -> tuple[list[str | None], bool]:
        """A single column is called as the function is in FROM. Others have names of their own, which stay right where another version of
        the function has more columns.
        """
        functions = node.nodes("functions")
        if len(functions) != 1 or functions[0].has("funccolnames"):
            return columns, False
        expression = functions[0].node("funcexpr")
        kind = expression.number("funcresulttype") if expression.name == "FUNCEXPR" else 0
        fields = self._names.fields(kind) if kind else None
        if fields is None:
            return columns, functions[0].number("funccolcount") == 1
        return fields + (columns[-1:] if node.truth("funcordinality") else []), False

    def _own_name(self, base: str) -> str:
        name, number = base, 0
        while name in self.taken:
            number += 1
            plain = base[1:-1].replace('""', '"') if base.startswith('"') else base
            name = self._names.quoted(f"{plain}_{number}")
        self.taken.add(name)
        return name


def _distinct(names: Iterable[str | None]) -> list[str | None]:
    """With numbers behind names that come again."""
    found: list[str | None] = []
    for name in names:
        new, number = name, 0
        while new is not None and new in found:
            number += 1
            new = f"{name}_{number}"
        found.append(new)
    return found


def _reached(query: Node) -> list[int]:
    """Entries that FROM has, without joins."""
    found: list[int] = []
    left = [query.node("jointree")] if query.has("jointree") else []
    while left:
        node = left.pop()
        if node.name == "FROMEXPR":
            left += node.nodes("fromlist")
        elif node.name == "JOINEXPR":
            left += [node.node("larg"), node.node("rarg")]
        elif node.name == "RANGETBLREF":
            found.append(node.number("rtindex"))
        else:
            raise NotWritten(f"{node.name} in FROM is not known")
    return found
