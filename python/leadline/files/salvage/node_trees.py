"""Node trees: the text in which the catalogs keep defaults, checks, index expressions, policies and views (type pg_node_tree).

A tree may come from a damaged file. Whatever is not exactly what a server writes is refused, and nothing here calls itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DEEPEST = 5000
"""Levels of nesting. A server reads its own trees recursively, within max_stack_depth."""

_TOKEN = re.compile(r"[(){}]|(?:\\.|[^\\ \n\t(){}])+", re.DOTALL)
_SPACE = re.compile(r"[ \n\t]*")
_NODE_NAME = re.compile(r"[A-Z][A-Z_]*")
_FIELD_NAME = re.compile(r":[A-Za-z_.]+")
_NUMBER = re.compile(r"-?[0-9]{1,20}")
_DATUM = re.compile(r"([0-9]{1,10}) \[ ((?:-?[0-9]{1,3} )*)\]")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_OF_NUMBERS = ("i", "o", "x", "b")
"""What a list of integers, OIDs or transactions and a set of numbers begin with."""


class NotATree(ValueError):
    """The text is not a node tree, or a node does not have what one of its name has."""


@dataclass(frozen=True, slots=True)
class Datum:
    """A constant as it was in memory. length: of the value; a value that fits a machine word always has its 8 bytes here."""

    length: int
    data: bytes


class Word(str):
    """A number, a truth value, a name or a string, as written: with its escapes, a string in a list also with its quotes."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Node:
    """One node, and its fields in the order of the text."""

    name: str
    fields: dict[str, object]

    def has(self, field: str) -> bool:
        """Whether there is a value. Not every major has every field."""
        return self.fields.get(field) is not None

    def _value(self, field: str) -> object:
        try:
            return self.fields[field]
        except KeyError:
            raise NotATree(f"{self.name} has no field {field}") from None

    def _wrong(self, field: str) -> NotATree:
        return NotATree(f"{self.name} has an unexpected value of {field}")

    def number(self, field: str) -> int:
        value = self._value(field)
        if not isinstance(value, Word) or not _NUMBER.fullmatch(value):
            raise self._wrong(field)
        return int(value)

    def truth(self, field: str) -> bool:
        value = self._value(field)
        if value not in ("true", "false"):
            raise self._wrong(field)
        return value == "true"

    def is_true(self, field: str) -> bool:
        """False also where the major does not have the field."""
        return field in self.fields and self.truth(field)

    def optional_text(self, field: str) -> str | None:
        value = self.fields.get(field)
        if value is None:
            return None
        if not isinstance(value, Word):
            raise self._wrong(field)
        return "" if value == '""' else _ESCAPED.sub(r"\1", value)

    def text(self, field: str) -> str:
        value = self.optional_text(field)
        if value is None:
            raise self._wrong(field)
        return value

    def optional_node(self, field: str) -> Node | None:
        value = self.fields.get(field)
        if value is not None and not isinstance(value, Node):
            raise self._wrong(field)
        return value

    def node(self, field: str) -> Node:
        value = self.optional_node(field)
        if value is None:
            raise self._wrong(field)
        return value

    def items(self, field: str) -> list[object]:
        """The items of a list; none where there is no list."""
        value = self.fields.get(field)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._wrong(field)
        return value

    def nodes(self, field: str) -> list[Node]:
        return [self._checked(item, field) for item in self.items(field)]

    def _checked(self, item: object, field: str) -> Node:
        if not isinstance(item, Node):
            raise self._wrong(field)
        return item

    def numbers(self, field: str) -> list[int]:
        """Of a list of integers or OIDs, or of a set."""
        found = [item for item in self.items(field) if isinstance(item, int)]
        if len(found) != len(self.items(field)):
            raise self._wrong(field)
        return found

    def texts(self, field: str) -> list[str]:
        """Of a list of strings."""
        return [self._string(item, field) for item in self.items(field)]

    def _string(self, item: object, field: str) -> str:
        if not isinstance(item, Word) or len(item) < len('""') or item[0] != '"' or item[-1] != '"':
            raise self._wrong(field)
        return _ESCAPED.sub(r"\1", item[1:-1])

    def datum(self, field: str) -> Datum:
        value = self._value(field)
        if not isinstance(value, Datum):
            raise self._wrong(field)
        return value


class _Open:
    """A node or list whose end was not reached yet."""

    def __init__(self, node: Node | None) -> None:
        self.node = node
        self.field: str | None = None
        self.items: list[object] = []
        self.of_numbers = False

    def add(self, value: object) -> None:
        if self.node is None:
            self.items.append(value)
        elif self.field is None:
            raise NotATree(f"a value without a field in {self.node.name}")
        else:
            self.node.fields[self.field] = value
            self.field = None


def parse(text: str) -> object:
    """The one node or list that the text is of."""
    whole = _Open(None)
    open_ones = [whole]
    position = _SPACE.match(text).end()  # type: ignore[union-attr]  # matches anything
    while position < len(text):
        here = open_ones[-1]
        if here.field == "constvalue" and (datum := _DATUM.match(text, position)):
            here.add(_datum(datum))
            position = datum.end()
        else:
            token = _TOKEN.match(text, position)
            if token is None:
                raise NotATree("the text ends within a character")
            position = token.end()
            if token[0] == "{":
                name = _NODE_NAME.match(text, position)
                if name is None:
                    raise NotATree("a node without a name")
                position = name.end()
                open_ones.append(_Open(Node(name[0], {})))
            else:
                _take(token[0], open_ones)
        if len(open_ones) > DEEPEST:
            raise NotATree(f"nested deeper than {DEEPEST} levels")
        position = _SPACE.match(text, position).end()  # type: ignore[union-attr]
    if len(open_ones) != 1 or len(whole.items) != 1:
        raise NotATree("the text is not one whole tree")
    return whole.items[0]


def parse_node(text: str) -> Node:
    value = parse(text)
    if not isinstance(value, Node):
        raise NotATree("the tree is not of a node")
    return value


def parse_nodes(text: str) -> list[Node]:
    """The nodes of a tree that is a list of them."""
    value = parse(text)
    if not isinstance(value, list):
        raise NotATree("the tree is not a list")
    return Node("the list", {"items": value}).nodes("items")


def _take(token: str, open_ones: list[_Open]) -> None:
    """One token other than the beginning of a node."""
    here = open_ones[-1]
    if token == "(":
        open_ones.append(_Open(None))
    elif token in (")", "}"):
        if len(open_ones) == 1 or (here.node is None) != (token == ")") or here.field is not None:
            raise NotATree(f"an unexpected {token}")
        open_ones.pop()
        open_ones[-1].add(here.items if here.node is None else here.node)
    elif here.node is not None and here.field is None:
        if not _FIELD_NAME.fullmatch(token) or token[1:] in here.node.fields:
            raise NotATree(f"an unexpected word in {here.node.name}")
        here.field = token[1:]
    elif here.of_numbers:
        if not _NUMBER.fullmatch(token):
            raise NotATree("a list of numbers has something else")
        here.add(int(token))
    elif here.node is None and len(open_ones) > 1 and not here.items and token in _OF_NUMBERS:
        here.of_numbers = True
    else:
        here.add(None if token == "<>" else Word(token))


def _datum(found: re.Match[str]) -> Datum:
    values = [int(value) for value in found[2].split()]
    if any(not -128 <= value <= 255 for value in values):  # a char has a sign on one machine and none on another
        raise NotATree("a constant has something that is not a byte")
    return Datum(int(found[1]), bytes(value & 0xFF for value in values))
