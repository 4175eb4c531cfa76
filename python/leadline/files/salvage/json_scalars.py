"""Expressions of SQL/JSON as SQL: constructors and IS JSON (since 16), JSON_VALUE, JSON_QUERY and JSON_EXISTS (since 17)."""

from __future__ import annotations

from leadline.files.salvage.constants import BOOL, literal
from leadline.files.salvage.node_names import Names, NotWritten
from leadline.files.salvage.node_trees import Node
from leadline.files.salvage.scalars import Scalars, Scope

JSONB = 3802
FORMATS = ("", " FORMAT JSON", " FORMAT JSONB")
ENCODINGS = ("", " ENCODING UTF8", " ENCODING UTF16", " ENCODING UTF32")
ITEM_TYPES = ("", " OBJECT", " ARRAY", " SCALAR")
OBJECT, ARRAY, OBJECT_AGGREGATE, ARRAY_AGGREGATE, PARSE, SCALAR, SERIALIZE = range(1, 8)
CONSTRUCTORS = ("", "JSON_OBJECT", "JSON_ARRAY", "JSON_OBJECTAGG", "JSON_ARRAYAGG", "JSON", "JSON_SCALAR", "JSON_SERIALIZE")
FUNCTIONS = ("JSON_EXISTS", "JSON_QUERY", "JSON_VALUE")
EXISTS, QUERY = 0, 1
WRAPPERS = (" WITHOUT WRAPPER", " WITHOUT WRAPPER", " WITH CONDITIONAL WRAPPER", " WITH UNCONDITIONAL WRAPPER")
BEHAVIORS = ("NULL", "ERROR", "EMPTY", "TRUE", "FALSE", "UNKNOWN", "EMPTY ARRAY", "EMPTY OBJECT", "DEFAULT")
NULL, FALSE, DEFAULT = 0, 4, 8


class JsonScalars(Scalars):
    def __init__(self, names: Names, scopes: list[Scope]) -> None:
        super().__init__(names, scopes)
        self._writers |= {
            "JSONCONSTRUCTOREXPR": self._constructor,
            "JSONVALUEEXPR": lambda node: f"{self.write(node.node('raw_expr'), False)}{self._format(node.node('format'))}",
            "JSONISPREDICATE": self._is_json,
            "JSONEXPR": self._json_function,
        }

    def json_aggregate(self, name: str, options: str, function: Node, separator: str) -> str:
        raise NotWritten("JSONCONSTRUCTOREXPR has an aggregate, where none can be")

    def _format(self, node: Node) -> str:
        return f"{self._choose(node, 'format_type', FORMATS)}{self._choose(node, 'encoding', ENCODINGS)}"

    def _returning(self, node: Node, json_by_default: bool) -> str:
        returning = node.node("returning")
        kind, form = returning.number("typid"), returning.node("format")
        if kind == 0:
            return ""
        usual = 2 if kind == JSONB else 1
        said = "" if json_by_default and form.number("format_type") == usual else self._format(form)
        return f" RETURNING {self.names.type_name(kind, returning.number('typmod'))}{said}"

    def _constructor(self, node: Node) -> str:
        kind, name = node.number("type"), self._choose(node, "type", CONSTRUCTORS)
        options = ""
        if node.truth("absent_on_null"):
            options += " ABSENT ON NULL" if kind in (OBJECT, OBJECT_AGGREGATE) else ""
        else:
            options += " NULL ON NULL" if kind in (ARRAY, ARRAY_AGGREGATE) else ""
        options += " WITH UNIQUE KEYS" if node.truth("unique") else ""
        options += self._returning(node, True) if kind not in (PARSE, SCALAR) else ""
        args = [self.write(arg) for arg in node.nodes("args")]
        if kind in (OBJECT_AGGREGATE, ARRAY_AGGREGATE):
            return self.json_aggregate(name, options, node.node("func"), " : " if kind == OBJECT_AGGREGATE else ", ")
        if kind == OBJECT:
            if len(args) % 2:
                raise NotWritten("JSONCONSTRUCTOREXPR has a key without a value")
            args = [f"{key} : {value}" for key, value in zip(args[::2], args[1::2])]
        elif not name or (kind != ARRAY and len(args) != 1):
            raise NotWritten("JSONCONSTRUCTOREXPR is of a form that is not known")
        return f"{name}({', '.join(args)}{options if args else options.lstrip()})"

    def _is_json(self, node: Node) -> str:
        unique = " WITH UNIQUE KEYS" if node.truth("unique_keys") else ""
        return f"({self.write(node.node('expr'))} IS JSON{self._choose(node, 'item_type', ITEM_TYPES)}{unique})"

    def _json_function(self, node: Node) -> str:
        kind, name, path = node.number("op"), self._choose(node, "op", FUNCTIONS), node.node("path_spec")
        text = f"{self.write(node.node('formatted_expr'))}, "
        text += literal(path, self.names, label=False) if path.name == "CONST" else self.write(path)
        values, names = node.nodes("passing_values"), node.texts("passing_names")
        if len(values) != len(names):
            raise NotWritten("JSONEXPR passes values without names")
        if values:
            text += f" PASSING {', '.join(f'{self.write(value)} AS {self.names.quoted(name)}' for value, name in zip(values, names))}"
        if kind != EXISTS or node.node("returning").number("typid") != BOOL:
            text += self._returning(node, kind == QUERY)
        if kind == QUERY:
            text += self._choose(node, "wrapper", WRAPPERS) + (" OMIT QUOTES" if node.truth("omit_quotes") else " KEEP QUOTES")
        usual = FALSE if kind == EXISTS else NULL
        for field, event in (("on_empty", "EMPTY"), ("on_error", "ERROR")):
            behavior = node.optional_node(field)
            if behavior is not None and behavior.number("btype") != usual:
                default = f" {self.write(behavior.node('expr'), False)}" if behavior.number("btype") == DEFAULT else ""
                text += f" {self._choose(behavior, 'btype', BEHAVIORS)}{default} ON {event}"
        return f"{name}({text})"
