"""Expressions of a node tree as SQL: every node that computes one value.

Operators, casts and tests stand in parentheses, so that what is around them does not matter. A conversion that the server added by
itself is left out where the server adds it again, and written as a cast where the type of an argument chooses the function or operator.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from leadline.files.salvage.constants import INT4, RECORD, literal
from leadline.files.salvage.node_names import Names, NotWritten, string
from leadline.files.salvage.node_trees import Node

CALL, CAST, IMPLICIT, SYNTAX = 0, 1, 2, 3
"""How a function was written: called, as a cast, not at all, in words of its own (since 14)."""
EXTERNAL, OF_SUBLINK = 0, 2
"""Kinds of parameters."""
SIMILAR_TO_SUBSTRING = 2074
SYSTEM_COLUMNS = {-1: "ctid", -2: "xmin", -3: "cmin", -4: "xmax", -5: "cmax", -6: "tableoid"}
VALUE_FUNCTIONS = (
    *("CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIME"),
    *("LOCALTIMESTAMP", "LOCALTIMESTAMP", "CURRENT_ROLE", "CURRENT_USER", "USER", "SESSION_USER", "CURRENT_CATALOG", "CURRENT_SCHEMA"),
)
WITH_PRECISION = {2, 4, 6, 8}
BOOLEAN_TESTS = ("IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE", "IS UNKNOWN", "IS NOT UNKNOWN")
POSTFIX_FACTORIAL = 388
TYPE_FIELDS = {
    "VAR": "vartype",
    "CONST": "consttype",
    "PARAM": "paramtype",
    "AGGREF": "aggtype",
    "WINDOWFUNC": "wintype",
    "FUNCEXPR": "funcresulttype",
    "OPEXPR": "opresulttype",
    "NULLIFEXPR": "opresulttype",
    "FIELDSELECT": "resulttype",
    "RELABELTYPE": "resulttype",
    "COERCEVIAIO": "resulttype",
    "ARRAYCOERCEEXPR": "resulttype",
    "CONVERTROWTYPEEXPR": "resulttype",
    "COERCETODOMAIN": "resulttype",
    "COERCETODOMAINVALUE": "typeId",
    "CASE": "casetype",
    "CASEEXPR": "casetype",
    "ARRAY": "array_typeid",
    "ARRAYEXPR": "array_typeid",
    "ROW": "row_typeid",
    "ROWEXPR": "row_typeid",
    "COALESCE": "coalescetype",
    "COALESCEEXPR": "coalescetype",
    "MINMAX": "minmaxtype",
    "MINMAXEXPR": "minmaxtype",
    "SQLVALUEFUNCTION": "type",
    "NEXTVALUEEXPR": "typeId",
}
"""Where a node says of which type its value is."""
FORMATS = {
    "RELABELTYPE": "relabelformat",
    "COERCEVIAIO": "coerceformat",
    "ARRAYCOERCEEXPR": "coerceformat",
    "CONVERTROWTYPEEXPR": "convertformat",
    "COERCETODOMAIN": "coercionformat",
}
"""Conversions, and where each says whether somebody wrote it."""


class Scope(Protocol):
    """What the columns of one level of a query are columns of."""

    def column(self, var: Node, levels_up: int) -> str: ...

    def whole_row(self, var: Node) -> str: ...

    def table_names(self) -> set[str]:
        """Names that a query inside must not give to something else."""


class RelationScope:
    """One table, and its columns by their names alone; inside a subquery with the table's."""

    def __init__(self, names: Names, relid: int, varno: int = 1) -> None:
        self._names, self._relid, self._varno = names, relid, varno

    def column(self, var: Node, levels_up: int) -> str:
        self._check(var)
        name = column_name(self._names, self._relid, var.number("varattno"))
        return f"{self._names.relation(self._relid)}.{name}" if levels_up else name

    def whole_row(self, var: Node) -> str:
        self._check(var)
        return f"{self._names.relation(self._relid)}.*"

    def table_names(self) -> set[str]:
        return {last_part(self._names.relation(self._relid))}

    def _check(self, var: Node) -> None:
        if var.number("varno") != self._varno:
            raise NotWritten(f"VAR is of relation {var.number('varno')} where there is one")


class TriggerScope:
    """The old and the new row of a trigger or rule."""

    def __init__(self, names: Names, relid: int) -> None:
        self._names, self._relid = names, relid

    def column(self, var: Node, levels_up: int) -> str:
        return f"{self._row(var)}.{column_name(self._names, self._relid, var.number('varattno'))}"

    def whole_row(self, var: Node) -> str:
        return f"{self._row(var)}.*"

    def table_names(self) -> set[str]:
        return {"old", "new"}

    def _row(self, var: Node) -> str:
        rows = {1: "old", 2: "new"}
        if var.number("varno") not in rows:
            raise NotWritten("VAR is neither of the old nor of the new row")
        return rows[var.number("varno")]


def last_part(qualified: str) -> str:
    """The name without its schema."""
    found = re.search(r'(?:"(?:[^"]|"")*"|[^."]+)$', qualified)
    if found is None:
        raise NotWritten(f"{qualified} is not a name")
    return found[0]


def column_name(names: Names, relid: int, attnum: int) -> str:
    if attnum < 0:
        if attnum not in SYSTEM_COLUMNS:
            raise NotWritten(f"VAR is of a system column {attnum} that does not exist")
        return SYSTEM_COLUMNS[attnum]
    return names.column(relid, attnum)


class Scalars:
    """Writes expressions. `scopes`: the levels of queries around, the innermost last."""

    def __init__(self, names: Names, scopes: list[Scope]) -> None:
        self.names = names
        self.scopes = scopes
        self._writers: dict[str, Callable[[Node], str]] = {
            "VAR": self._var,
            "CONST": lambda node: literal(node, names),
            "PARAM": self._param,
            "OPEXPR": self._operator,
            "DISTINCTEXPR": self._distinct,
            "NULLIFEXPR": self._nullif,
            "SCALARARRAYOPEXPR": self._scalar_array,
            "BOOLEXPR": self._boolean,
            "FUNCEXPR": self._function,
            "NAMEDARGEXPR": lambda node: f"{names.quoted(node.text('name'))} => {self.write(node.node('arg'))}",
            "SUBSCRIPTINGREF": self._subscript,
            "FIELDSELECT": self._field,
            "COLLATE": self._collate,
            "COLLATEEXPR": self._collate,
            "CASE": self._case,
            "CASEEXPR": self._case,
            "ARRAY": self._array,
            "ARRAYEXPR": self._array,
            "ROW": self._row,
            "ROWEXPR": self._row,
            "ROWCOMPARE": self._row_compare,
            "ROWCOMPAREEXPR": self._row_compare,
            "COALESCE": lambda node: f"COALESCE({self._list(node, 'args')})",
            "COALESCEEXPR": lambda node: f"COALESCE({self._list(node, 'args')})",
            "MINMAX": self._min_max,
            "MINMAXEXPR": self._min_max,
            "SQLVALUEFUNCTION": self._value_function,
            "NULLTEST": self._null_test,
            "BOOLEANTEST": self._boolean_test,
            "COERCETODOMAINVALUE": lambda node: "VALUE",
            "NEXTVALUEEXPR": lambda node: f"nextval({string(names.relation(node.number('seqid')))}::regclass)",
            "SUBLINK": self.sublink,
            "XMLEXPR": self._xml,
        }

    def write(self, node: Node, implicit: bool = True) -> str:
        """One expression; `implicit`: with the conversion around it that the server added."""
        if node.name in FORMATS:
            kind, typmod = node.number("resulttype"), node.number("resulttypmod") if "resulttypmod" in node.fields else -1
            return self._cast(node, node.node("arg"), node.number(FORMATS[node.name]), kind, typmod, implicit)
        if node.name == "FUNCEXPR" and node.number("funcformat") in (CAST, IMPLICIT):
            kind, args = node.number("funcresulttype"), node.nodes("args")
            if not args:
                raise NotWritten("FUNCEXPR is a cast of nothing")
            return self._cast(node, args[0], node.number("funcformat"), kind, _length(args), implicit)
        writer = self._writers.get(node.name)
        if writer is None:
            raise NotWritten(f"{node.name} is not known")
        return writer(node)

    def item(self, node: Node, implicit: bool = True) -> str:
        """One of a list where the whole row of a table would be taken for its columns."""
        text = self.write(node, implicit)
        is_row = node.name == "VAR" and node.number("varattno") == 0
        return f"{text}::{self.names.type_name(node.number('vartype'))}" if is_row else text

    def sublink(self, node: Node) -> str:
        raise NotWritten("SUBLINK has a query, where none can be")

    def type_of(self, node: Node) -> int:
        """The type of a value, 0 where it is not a row for sure."""
        return node.number(TYPE_FIELDS[node.name]) if node.name in TYPE_FIELDS else 0

    def _list(self, node: Node, field: str) -> str:
        args = node.nodes(field)
        if not args:
            raise NotWritten(f"{node.name} has no {field}")
        return ", ".join(self.write(arg) for arg in args)

    def _pair(self, node: Node) -> tuple[Node, Node]:
        args = node.nodes("args")
        if len(args) != 2:
            raise NotWritten(f"{node.name} does not have two operands")
        return args[0], args[1]

    def _choose(self, node: Node, field: str, choices: tuple[str, ...]) -> str:
        number = node.number(field)
        if not 0 <= number < len(choices):
            raise NotWritten(f"{node.name} has an unknown {field}")
        return choices[number]

    def scope(self, levels_up: int) -> Scope:
        if not 0 <= levels_up < len(self.scopes):
            raise NotWritten("VAR is of a relation that is not there")
        return self.scopes[-1 - levels_up]

    def _var(self, var: Node) -> str:
        if var.has("varreturningtype") and var.number("varreturningtype") != 0:
            raise NotWritten("VAR is of what a statement returns")
        levels_up = var.number("varlevelsup")
        scope = self.scope(levels_up)
        return scope.column(var, levels_up) if var.number("varattno") else scope.whole_row(var)

    def _param(self, node: Node) -> str:
        if node.number("paramkind") != EXTERNAL or node.number("paramid") < 1:
            raise NotWritten("PARAM is not of a function")
        return f"${node.number('paramid')}"

    def _cast(self, node: Node, arg: Node, form: int, kind: int, typmod: int, implicit: bool) -> str:
        if form == IMPLICIT and not implicit:
            return self.write(arg, False)
        if form not in (CALL, CAST, IMPLICIT):
            raise NotWritten(f"{node.name} was written in an unknown form")
        if arg.name == "CONST" and arg.number("consttype") == kind and arg.number("consttypmod") == -1 and not arg.truth("constisnull"):
            text = literal(arg, self.names, label=False)
            text = text if text[-1] == "'" else f"'{text}'"
        else:
            text = f"({self.write(arg, False)})"
        return f"{text}::{self.names.type_name(kind, typmod)}"

    def operator(self, oid: int) -> str:
        return self.names.operator(oid)

    def _operator(self, node: Node) -> str:
        args = node.nodes("args")
        if len(args) == 1 and node.number("opno") == POSTFIX_FACTORIAL:
            return f"factorial({self.write(args[0])})"
        if len(args) == 1:
            return f"({self.operator(node.number('opno'))} {self.write(args[0])})"
        left, right = self._pair(node)
        return f"({self.write(left)} {self.operator(node.number('opno'))} {self.write(right)})"

    def _distinct(self, node: Node) -> str:
        left, right = self._pair(node)
        a, b, operator = self.write(left), self.write(right), self.operator(node.number("opno"))
        if operator == "=":
            return f"({a} IS DISTINCT FROM {b})"
        self._twice(node, left, right)
        if self._is_row(self.type_of(left)) or self._is_row(self.type_of(right)):
            raise NotWritten(f"{node.name} compares rows by {operator}")
        return f"CASE WHEN (({a} IS NULL) OR ({b} IS NULL)) THEN (({a} IS NULL) <> ({b} IS NULL)) ELSE (NOT ({a} {operator} {b})) END"

    def _nullif(self, node: Node) -> str:
        left, right = self._pair(node)
        a, b, operator = self.write(left), self.write(right), self.operator(node.number("opno"))
        if operator == "=":
            return f"NULLIF({a}, {b})"
        self._twice(node, left, right)
        return f"CASE WHEN ({a} {operator} {b}) THEN NULL ELSE {a} END"

    def _twice(self, node: Node, *args: Node) -> None:
        """Words that stand for the operator = have no place for its schema. What they mean is written instead, and names each value twice:
        for a column or a constant that is the same.
        """
        if not all(_is_plain(arg) for arg in args):
            raise NotWritten(f"{node.name} compares by {self.operator(node.number('opno'))}, which SQL has no word for there")

    def _scalar_array(self, node: Node) -> str:
        left, right = self._pair(node)
        array = self.write(right)
        if right.name == "SUBLINK" and not array.startswith("ARRAY"):  # without a cast it would be a list of rows
            array = f"{array}::{self.names.type_name(self.type_of(right))}"
        quantifier = "ANY" if node.truth("useOr") else "ALL"
        return f"({self.write(left)} {self.operator(node.number('opno'))} {quantifier} ({array}))"

    def _boolean(self, node: Node) -> str:
        args, kind = node.nodes("args"), node.text("boolop")
        if kind == "not" and len(args) == 1:
            return f"(NOT {self.write(args[0], False)})"
        if kind not in ("and", "or") or len(args) < 2:
            raise NotWritten("BOOLEXPR is neither AND, OR nor NOT")
        return f"({f' {kind.upper()} '.join(self.write(arg, False) for arg in args)})"

    def _function(self, node: Node) -> str:
        args = node.nodes("args")
        name = self.names.function(node.number("funcid"))
        if node.number("funcformat") == SYNTAX:
            written = self._own_words(name.strip('"'), node.number("funcid"), args)
            if written is not None:
                return written
        elif node.number("funcformat") != CALL:
            raise NotWritten("FUNCEXPR was written in an unknown form")
        return f"{name}({self.arguments(args, node.truth('funcvariadic'))})"

    def arguments(self, args: list[Node], variadic: bool) -> str:
        written = [self.write(arg) for arg in args]
        if variadic:
            if not written:
                raise NotWritten("VARIADIC stands before nothing")
            written[-1] = f"VARIADIC {written[-1]}"
        return ", ".join(written)

    def _own_words(self, name: str, oid: int, args: list[Node]) -> str | None:
        """A function that SQL calls in words of its own; None if it can be called like any other."""
        match name, [self.write(arg, False) for arg in args]:
            case "timezone", [zone, when]:
                return f"({when} AT TIME ZONE {zone})"
            case "timezone", [when]:
                return f"({when} AT LOCAL)"
            case "extract", [_, when]:
                return f"EXTRACT({self._word(args[0])} FROM {when})"
            case "overlaps", [a, b, c, d]:
                return f"(({a}, {b}) OVERLAPS ({c}, {d}))"
            case "normalize", [text]:
                return f"NORMALIZE({text})"
            case "normalize", [text, _]:
                return f"NORMALIZE({text}, {self._word(args[1])})"
            case "is_normalized", [text]:
                return f"({text} IS NORMALIZED)"
            case "is_normalized", [text, _]:
                return f"({text} IS {self._word(args[1])} NORMALIZED)"
            case "pg_collation_for", [text]:
                return f"COLLATION FOR ({text})"
            case "overlay", [text, new, start]:
                return f"OVERLAY({text} PLACING {new} FROM {start})"
            case "overlay", [text, new, start, count]:
                return f"OVERLAY({text} PLACING {new} FROM {start} FOR {count})"
            case "position", [text, part]:
                return f"POSITION({part} IN {text})"
            case "substring", [text, start]:
                return f"SUBSTRING({text} FROM {start})"
            case "substring", [text, pattern, escape] if oid == SIMILAR_TO_SUBSTRING:
                return f"SUBSTRING({text} SIMILAR {pattern} ESCAPE {escape})"
            case "substring", [text, start, count]:
                return f"SUBSTRING({text} FROM {start} FOR {count})"
            case ("btrim" | "ltrim" | "rtrim"), [text, *characters]:
                side = {"b": "BOTH", "l": "LEADING", "r": "TRAILING"}[name[0]]
                return f"TRIM({' '.join([side, *characters])} FROM {text})"
            case "xmlexists", [path, document]:
                return f"XMLEXISTS(({path}) PASSING ({document}))"
            case "system_user", []:
                return "SYSTEM_USER"
        return None

    def _word(self, const: Node) -> str:
        """A word of the syntax, which the tree keeps as text."""
        if const.name != "CONST":
            raise NotWritten(f"{const.name} stands where a word must")
        text = literal(const, self.names, label=False)
        if not re.fullmatch(r"'[A-Za-z_]+'", text):
            raise NotWritten("CONST is not a word that can stand there")
        return text[1:-1]

    def _subscript(self, node: Node) -> str:
        if node.has("refassgnexpr"):
            raise NotWritten("SUBSCRIPTINGREF assigns a value")
        upper, lower = node.items("refupperindexpr"), node.items("reflowerindexpr")
        if not upper or (lower and len(lower) != len(upper)):
            raise NotWritten("SUBSCRIPTINGREF has no subscripts")
        parts = [self._subscript_part(node, item) for item in upper]
        if lower:
            parts = [f"{self._subscript_part(node, first)}:{last}" for first, last in zip(lower, parts)]
        elif "" in parts:
            raise NotWritten("SUBSCRIPTINGREF has an empty subscript")
        base = node.node("refexpr")
        text = self.write(base)
        return f"{text if base.name == 'VAR' else f'({text})'}{''.join(f'[{part}]' for part in parts)}"

    def _subscript_part(self, node: Node, item: object) -> str:
        if item is None:
            return ""
        if not isinstance(item, Node):
            raise NotWritten("SUBSCRIPTINGREF has an unknown subscript")
        return self.write(item, False)

    def _field(self, node: Node) -> str:
        arg, number = node.node("arg"), node.number("fieldnum")
        fields = self.fields_of(arg) or []
        name = fields[number - 1] if 0 < number <= len(fields) else None
        if name is None:
            raise NotWritten(f"FIELDSELECT is of field {number} of {arg.name}, whose names are not known")
        return f"({self.write(arg)}).{name}"

    def fields_of(self, node: Node) -> list[str | None] | None:
        """The names of the columns of a value; None if it is none of them, or nothing tells."""
        kind = self.type_of(node)
        if kind != RECORD:
            return self.names.fields(kind) if kind else None
        if node.name == "FUNCEXPR":
            found = self.names.outputs(node.number("funcid"))
            return list(found) if found is not None else None
        if node.name in ("ROW", "ROWEXPR"):
            return [self.names.quoted(name) for name in node.texts("colnames")]
        return None

    def _collate(self, node: Node) -> str:
        return f"({self.write(node.node('arg'))} COLLATE {self.names.collation(node.number('collOid'))})"

    def _case(self, node: Node) -> str:
        subject, whens = node.optional_node("arg"), node.nodes("args")
        if not whens or any(when.name not in ("WHEN", "CASEWHEN") for when in whens):
            raise NotWritten("CASE has no WHEN, or something else")
        parts = ["CASE"]
        conditions = [when.node("expr") for when in whens]
        if subject is None:
            written = [self.write(condition, False) for condition in conditions]
        else:
            compared = [self._compared(condition) for condition in conditions]
            is_said = all(operator == "=" for operator, _ in compared)
            if is_said:
                parts.append(self.write(subject))
            elif not _is_plain(subject):
                raise NotWritten(f"{node.name} compares by {compared[0][0]}, which SQL has no word for there")
            begin = "" if is_said else f"{self.write(subject)} "
            written = [f"{begin}{'' if is_said else f'{operator} '}{self.write(value)}" for operator, value in compared]
        parts += [f"WHEN {condition} THEN {self.write(when.node('result'))}" for condition, when in zip(written, whens)]
        if (otherwise := node.optional_node("defresult")) is not None:
            parts.append(f"ELSE {self.write(otherwise)}")
        return " ".join([*parts, "END"])

    def _compared(self, condition: Node) -> tuple[str, Node]:
        """How a WHEN compares with what stands after CASE, and with which value."""
        condition = without_implicit(condition)
        if condition.name == "OPEXPR":
            left, right = self._pair(condition)
            if without_implicit(left).name in ("CASETESTEXPR", "CASETEST"):
                return self.operator(condition.number("opno")), right
        raise NotWritten(f"{condition.name} in CASE compares in a way that cannot be written")

    def _array(self, node: Node) -> str:
        elements = node.nodes("elements")
        if not elements:
            return f"ARRAY[]::{self.names.type_name(node.number('array_typeid'))}"
        return f"ARRAY[{', '.join(self.write(element) for element in elements)}]"

    def _row(self, node: Node) -> str:
        args, kind = node.nodes("args"), node.number("row_typeid")
        if kind == RECORD:
            return f"ROW({', '.join(self.item(arg) for arg in args)})"
        fields = self.names.fields(kind)
        if fields is None or len(args) > len(fields):
            raise NotWritten(f"ROW is of type {kind}, whose columns are not known")
        written = [self.item(arg) for arg, field in zip(args, fields) if field is not None]
        written += ["NULL" for field in fields[len(args) :] if field is not None]
        text = f"ROW({', '.join(written)})"
        return f"{text}::{self.names.type_name(kind)}" if node.number("row_format") == CAST else text

    def _row_compare(self, node: Node) -> str:
        operators = {self.operator(oid) for oid in node.numbers("opnos")}
        if len(operators) != 1:
            raise NotWritten("ROWCOMPARE has more than one operator")
        left, right = node.nodes("largs"), node.nodes("rargs")
        if len(left) != len(right):
            raise NotWritten("ROWCOMPARE has rows of different lengths")
        return f"(ROW({self._list(node, 'largs')}) {operators.pop()} ROW({self._list(node, 'rargs')}))"

    def _min_max(self, node: Node) -> str:
        return f"{self._choose(node, 'op', ('GREATEST', 'LEAST'))}({self._list(node, 'args')})"

    def _value_function(self, node: Node) -> str:
        name = self._choose(node, "op", VALUE_FUNCTIONS)
        return f"{name}({node.number('typmod')})" if node.number("op") in WITH_PRECISION else name

    def _null_test(self, node: Node) -> str:
        arg = node.node("arg")
        is_row = not node.truth("argisrow") and self._is_row(self.type_of(arg))
        tests = ("IS NOT DISTINCT FROM NULL", "IS DISTINCT FROM NULL") if is_row else ("IS NULL", "IS NOT NULL")
        return f"({self.write(arg)} {self._choose(node, 'nulltesttype', tests)})"

    def _is_row(self, kind: int) -> bool:
        return kind == RECORD or (kind != 0 and self.names.fields(kind) is not None)

    def _boolean_test(self, node: Node) -> str:
        return f"({self.write(node.node('arg'), False)} {self._choose(node, 'booltesttype', BOOLEAN_TESTS)})"

    def _xml(self, node: Node) -> str:
        args = [self.write(arg) for arg in node.nodes("args")]
        named_args, arg_names = node.nodes("named_args"), node.texts("arg_names")
        if len(named_args) != len(arg_names):
            raise NotWritten("XMLEXPR has arguments without names")
        named = ", ".join(f"{self.write(arg)} AS {self._xml_name(name)}" for arg, name in zip(named_args, arg_names))
        option = self._choose(node, "xmloption", ("DOCUMENT", "CONTENT"))
        name = node.optional_text("name")
        match node.number("op"), args:
            case 0, [_, *_]:
                return f"XMLCONCAT({', '.join(args)})"
            case 1, _ if name is not None:
                attributes = [f"XMLATTRIBUTES({named})"] if named else []
                return f"XMLELEMENT({', '.join([f'NAME {self._xml_name(name)}', *attributes, *args])})"
            case 2, [] if named:
                return f"XMLFOREST({named})"
            case 4, [] if name is not None:
                return f"XMLPI(NAME {self._xml_name(name)})"
            case 4, [text] if name is not None:
                return f"XMLPI(NAME {self._xml_name(name)}, {text})"
            case 3, [text, _]:
                spaces = self._one_of(node, 1, {"true": "PRESERVE", "false": "STRIP"})
                return f"XMLPARSE({option} {text} {spaces} WHITESPACE)"
            case 5, [text, version, _]:
                alone = self._one_of(node, 2, {"0": " YES", "1": " NO", "2": " NO VALUE", "3": ""})
                said = "NO VALUE" if version.startswith("NULL") else version
                return f"XMLROOT({text}, VERSION {said}{f', STANDALONE{alone}' if alone else ''})"
            case 6, [text]:
                kind, indent = self.names.type_name(node.number("type"), node.number("typmod")), " INDENT" if node.is_true("indent") else ""
                return f"XMLSERIALIZE({option} {text} AS {kind}{indent})"
            case 7, [text]:
                return f"({text} IS DOCUMENT)"
        raise NotWritten("XMLEXPR is of a form that is not known")

    def _xml_name(self, name: str) -> str:
        """The tree has names as XML has them: with the numbers of characters that cannot stand in one."""
        return self.names.quoted(re.sub(r"_x([0-9A-Fa-f]{4})_", lambda found: chr(int(found[1], 16)), name))

    def _one_of(self, node: Node, number: int, choices: dict[str, str]) -> str:
        """The word for a constant argument."""
        arg = node.nodes("args")[number]
        text = literal(arg, self.names) if arg.name == "CONST" else ""
        if text not in choices:
            raise NotWritten(f"{node.name} has an unknown argument")
        return choices[text]


def without_implicit(node: Node) -> Node:
    """What is inside the conversions that the server added."""
    while True:
        if node.name in FORMATS and node.number(FORMATS[node.name]) == IMPLICIT:
            node = node.node("arg")
        elif node.name == "FUNCEXPR" and node.number("funcformat") == IMPLICIT and node.nodes("args"):
            node = node.nodes("args")[0]
        else:
            return node


def _is_plain(node: Node) -> bool:
    """A column or a constant, which have the same value each time."""
    while node.name == "RELABELTYPE":
        node = node.node("arg")
    return node.name in ("VAR", "CONST", "PARAM", "COERCETODOMAINVALUE")


def _length(args: list[Node]) -> int:
    """The typmod that a conversion to a length (`varchar(10)`) has as its second argument, or -1."""
    if len(args) not in (2, 3) or args[1].name != "CONST" or args[1].number("consttype") != INT4 or args[1].truth("constisnull"):
        return -1
    return int.from_bytes(args[1].datum("constvalue").data[:4], "little", signed=True)
