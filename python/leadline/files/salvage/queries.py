"""Queries of a node tree as SQL: views, subqueries of policies, bodies of functions.

JOIN ... USING is written where both sides have just one column of each name, else as the condition that it means. The name of a join as a
whole is left out: its columns are written as those of the tables in it.
"""

from __future__ import annotations

from leadline.files.salvage.constants import RECORD, labelled, literal
from leadline.files.salvage.json_scalars import JsonScalars
from leadline.files.salvage.node_names import Names, NotWritten, bounded
from leadline.files.salvage.node_trees import Node, NotATree, parse, parse_nodes
from leadline.files.salvage.query_scopes import Entry, Kind, QueryScope
from leadline.files.salvage.scalars import OF_SUBLINK, Scope, last_part, without_implicit

SELECT = 1
SET_OPERATIONS = {1: "UNION", 2: "INTERSECT", 3: "EXCEPT"}
JOINS = ("JOIN", "LEFT JOIN", "FULL JOIN", "RIGHT JOIN")
EXISTS, ALL, ANY, ROW_COMPARE, EXPRESSION, ARRAY = 0, 1, 2, 3, 4, 6
LOCKS = {1: "KEY SHARE", 2: "SHARE", 3: "NO KEY UPDATE", 4: "UPDATE"}
WAITS = ("", " SKIP LOCKED", " NOWAIT")
GROUPING_EMPTY, GROUPING_SIMPLE = 0, 1
GROUPINGS = {2: "ROLLUP", 3: "CUBE", 4: "GROUPING SETS"}
MATERIALIZED = ("", "MATERIALIZED ", "NOT MATERIALIZED ")
CALLS = ("SQLVALUEFUNCTION", "COALESCE", "COALESCEEXPR", "MINMAX", "MINMAXEXPR")
"""What can stand in FROM as a function does."""
FRAME_SAID, FRAME_BETWEEN = 0x1, 0x10
FRAME_MODES = ((0x2, "RANGE"), (0x4, "ROWS"), (0x8, "GROUPS"))
FRAME_STARTS = ((0x20, "UNBOUNDED PRECEDING"), (0x200, "CURRENT ROW"), (0x800, "{} PRECEDING"), (0x2000, "{} FOLLOWING"))
FRAME_ENDS = ((0x100, "UNBOUNDED FOLLOWING"), (0x400, "CURRENT ROW"), (0x1000, "{} PRECEDING"), (0x4000, "{} FOLLOWING"))
FRAME_EXCLUSIONS = ((0x8000, " EXCLUDE CURRENT ROW"), (0x10000, " EXCLUDE GROUP"), (0x20000, " EXCLUDE TIES"), (0, ""))


def view_query(ev_action_text: str, names: Names) -> str:
    """The SELECT of a view. Its columns may have other names since: name them in CREATE VIEW."""

    def write() -> str:
        actions = parse_nodes(ev_action_text)
        if len(actions) != 1:
            raise NotWritten("the rule is not that of a view")
        return Queries(names, []).query(actions[0])

    return bounded(write)


def function_body(prosqlbody_text: str, names: Names) -> str:
    """RETURN or BEGIN ATOMIC of a function in SQL (since 14). Arguments stand as $1, $2."""

    def write() -> str:
        tree, queries = parse(prosqlbody_text), Queries(names, [])
        if isinstance(tree, Node):
            return f"RETURN {queries.returned(tree)}"
        if not isinstance(tree, list) or len(tree) != 1 or not isinstance(tree[0], list):
            raise NotATree("the tree is not of a function's body")
        statements = Node("the body", {"items": tree[0]}).nodes("items")
        return "\n".join(["BEGIN ATOMIC", *(f" {queries.query(statement)};" for statement in statements), "END"])

    return bounded(write)


class Queries(JsonScalars):
    """Writes queries, and expressions with queries in them."""

    def __init__(self, names: Names, scopes: list[Scope]) -> None:
        super().__init__(names, scopes)
        self._writers |= {"AGGREF": self._aggregate, "WINDOWFUNC": self._window_function, "GROUPINGFUNC": self._grouping}

    def query(self, node: Node) -> str:
        """One SELECT, with what stands before and after it."""
        return self._inside(node).select()

    def returned(self, node: Node) -> str:
        """The one value of a body that is RETURN."""
        inside, targets = self._inside(node), node.nodes("targetList")
        if not node.is_true("isReturn") or len(targets) != 1:
            raise NotWritten("QUERY is not what a function returns")
        return inside.write(targets[0].node("expr"), False)

    def _inside(self, node: Node) -> OneQuery:
        if node.name != "QUERY" or node.number("commandType") != SELECT or node.has("utilityStmt"):
            raise NotWritten(f"{node.name} is not a SELECT")
        if node.is_true("hasModifyingCTE") or node.number("resultRelation") or node.items("withCheckOptions"):
            raise NotWritten("QUERY changes data")
        taken = {name for scope in self.scopes for name in scope.table_names()}
        scope = QueryScope(node, self.names, taken)
        return OneQuery(self.names, [*self.scopes, scope], scope)

    def _var(self, var: Node) -> str:
        behind = self._behind(var)
        if behind is None:
            return super()._var(var)
        return self._within(self._scopes_of(var)).write(behind)

    def _scopes_of(self, var: Node) -> list[Scope]:
        return self.scopes[: len(self.scopes) - var.number("varlevelsup")]

    def _within(self, scopes: list[Scope]) -> Queries:
        return Queries(self.names, scopes)

    def _behind(self, var: Node) -> Node | None:
        scope = self.scope(var.number("varlevelsup"))
        return scope.behind(var) if isinstance(scope, QueryScope) else None

    def fields_of(self, node: Node) -> list[str | None] | None:
        found = super().fields_of(node)
        if found is not None or node.name != "VAR" or self.type_of(node) != RECORD:
            return found
        scopes, scope, attnum = self._scopes_of(node), self.scope(node.number("varlevelsup")), node.number("varattno")
        if not isinstance(scope, QueryScope):
            return None
        if (behind := self._behind(node)) is not None:
            return self._within(scopes).fields_of(behind)
        if attnum == 0:
            return scope.entry(node.number("varno")).columns
        entry = scope.at(node.number("varno"))
        if entry.number("rtekind") == Kind.CTE:
            scopes = scopes[: len(scopes) - entry.number("ctelevelsup")]
            query = self._cte_query(scopes[-1] if scopes else None, entry.text("ctename"))
        else:
            query = entry.optional_node("subquery")
        if query is None or not 0 < attnum <= len(query.nodes("targetList")):
            return None
        return self._within(scopes)._inside(query).fields_of(query.nodes("targetList")[attnum - 1].node("expr"))

    def _cte_query(self, scope: Scope | None, name: str) -> Node | None:
        ctes = scope.query.nodes("cteList") if isinstance(scope, QueryScope) else []
        return next((cte.node("ctequery") for cte in ctes if cte.text("ctename") == name), None)

    def type_of(self, node: Node) -> int:
        if node.name == "SUBLINK" and node.number("subLinkType") == EXPRESSION:
            targets = node.node("subselect").nodes("targetList")
            return self.type_of(targets[0].node("expr")) if targets else 0
        return super().type_of(node)

    def sublink(self, node: Node) -> str:
        text = f"({self.query(node.node('subselect'))})"
        match node.number("subLinkType"):
            case 0:
                return f"(EXISTS {text})"
            case 4:
                return text
            case 6:
                return f"ARRAY{text}"
            case 1 | 2 | 3 as kind:
                left, operator = self._compared_with_query(node.node("testexpr"))
                return f"({left} {operator} {('ALL ', 'ANY ', '')[kind - 1]}{text})"
        raise NotWritten("SUBLINK is of a form that is not known")

    def _compared_with_query(self, test: Node) -> tuple[str, str]:
        """What stands before a subquery that is compared with it, and the operator."""
        if test.name == "ROWCOMPARE" or test.name == "ROWCOMPAREEXPR":
            left, right, numbers = test.nodes("largs"), test.nodes("rargs"), test.numbers("opnos")
        else:
            parts = test.nodes("args") if test.name == "BOOLEXPR" else [test]
            if any(part.name != "OPEXPR" for part in parts):
                raise NotWritten(f"SUBLINK compares by {test.name}")
            pairs = [self._pair(part) for part in parts]
            left, right, numbers = [pair[0] for pair in pairs], [pair[1] for pair in pairs], [part.number("opno") for part in parts]
        operators = {self.operator(number) for number in numbers}
        params = [without_implicit(node) for node in right]
        if len(operators) != 1 or any(param.name != "PARAM" or param.number("paramkind") != OF_SUBLINK for param in params):
            raise NotWritten("SUBLINK compares in a way that cannot be written")
        if [param.number("paramid") for param in params] != list(range(1, len(left) + 1)):
            raise NotWritten("SUBLINK compares columns in another order")
        written = [self.write(node) for node in left]
        return written[0] if len(written) == 1 else f"ROW({', '.join(written)})", operators.pop()

    def _filter(self, node: Node) -> str:
        condition = node.optional_node("aggfilter")
        return f" FILTER (WHERE {self.write(condition, False)})" if condition else ""

    def json_aggregate(self, name: str, options: str, function: Node, separator: str) -> str:
        """JSON_OBJECTAGG and JSON_ARRAYAGG, which the tree has as the function that does it."""
        if function.name == "AGGREF":
            args = [target.node("expr") for target in function.nodes("args") if not target.truth("resjunk")]
            order = self._aggregate_order(function)
        elif function.name == "WINDOWFUNC":
            args, order = function.nodes("args"), ""
        else:
            raise NotWritten(f"{function.name} aggregates JSON")
        text = f"{name}({separator.join(self.write(arg) for arg in args)}{order}{options}){self._filter(function)}"
        return f"{text} OVER {self.window(function.number('winref'))}" if function.name == "WINDOWFUNC" else text

    def _aggregate_order(self, node: Node) -> str:
        order = ", ".join(self.sorted_by(item, node.nodes("args")) for item in node.nodes("aggorder"))
        return f" ORDER BY {order}" if order else ""

    def _aggregate(self, node: Node) -> str:
        if node.has("aggsplit") and node.number("aggsplit") != 0:
            raise NotWritten("AGGREF is half of an aggregate")
        name, order = self.names.function(node.number("aggfnoid")), self._aggregate_order(node)
        args = [target.node("expr") for target in node.nodes("args") if not target.truth("resjunk")]
        if node.text("aggkind") != "n":
            direct = self.arguments(node.nodes("aggdirectargs"), node.truth("aggvariadic"))
            return f"{name}({direct}) WITHIN GROUP ({order.lstrip()}){self._filter(node)}"
        inside = "*" if node.truth("aggstar") else self.arguments(args, node.truth("aggvariadic"))
        distinct = "DISTINCT " if node.items("aggdistinct") else ""
        return f"{name}({distinct}{inside}{order}){self._filter(node)}"

    def _window_function(self, node: Node) -> str:
        inside = "*" if node.truth("winstar") else self.arguments(node.nodes("args"), False)
        over = self.window(node.number("winref"))
        return f"{self.names.function(node.number('winfnoid'))}({inside}){self._filter(node)} OVER {over}"

    def window(self, number: int) -> str:
        raise NotWritten("WINDOWFUNC stands where no window is")

    def _grouping(self, node: Node) -> str:
        return f"GROUPING({self._list(node, 'args')})"

    def _grouped(self, node: Node) -> Node:
        """What a column of GROUP BY or of a join is, as 18 keeps it."""
        while node.name == "VAR" and node.number("varlevelsup") == 0 and (behind := self._behind(node)) is not None:
            if behind is node:
                raise NotWritten("VAR stands for itself")
            node = behind
        return node

    def target(self, item: Node, targets: list[Node], by_number: bool = False) -> str:
        """The expression that a clause of sorting or grouping means; `by_number`: as the number of its column."""
        return self.target_of(item.number("tleSortGroupRef"), targets, by_number)

    def target_of(self, number: int, targets: list[Node], by_number: bool = False) -> str:
        for target in targets:
            if number and target.number("ressortgroupref") == number:
                if by_number:
                    return str(target.number("resno"))
                expression = self._grouped(target.node("expr"))
                if expression.name == "CONST":
                    return labelled(expression, self.names)
                text = self.write(expression)
                return text if expression.name == "VAR" else f"({text})"
        raise NotWritten("SORTGROUPCLAUSE is of a column that is not there")

    def sorted_by(self, item: Node, targets: list[Node], by_number: bool = False) -> str:
        """An item of ORDER BY, with its direction."""
        text = self.target(item, targets, by_number)
        operator, nulls_first = self.operator(item.number("sortop")), item.truth("nulls_first")
        if operator == "<":
            return f"{text} NULLS FIRST" if nulls_first else text
        if operator == ">":
            return f"{text} DESC" if nulls_first else f"{text} DESC NULLS LAST"
        return f"{text} USING {operator} NULLS {'FIRST' if nulls_first else 'LAST'}"


class OneQuery(Queries):
    """Within one query."""

    def __init__(self, names: Names, scopes: list[Scope], scope: QueryScope) -> None:
        super().__init__(names, scopes)
        self._scope, self._query = scope, scope.query

    def select(self) -> str:
        query = self._query
        by_number = query.has("setOperations")
        targets = query.nodes("targetList")
        parts = [self._with(), self._set_operation(query.node("setOperations")) if by_number else self._simple(targets)]
        if query.items("sortClause"):
            parts.append(f"ORDER BY {', '.join(self.sorted_by(item, targets, by_number) for item in query.nodes('sortClause'))}")
        return " ".join(part for part in [*parts, *self._limits(), *self._locks()] if part)

    def _simple(self, targets: list[Node]) -> str:
        query = self._query
        if (rows := self._only_values(targets)) is not None:
            return rows
        parts = ["SELECT", self._distinct_clause(targets), ", ".join(self._output(item) for item in targets if not item.truth("resjunk"))]
        tree = query.node("jointree")
        if tree.items("fromlist"):
            parts.append(f"FROM {', '.join(self._from(item)[0] for item in tree.nodes('fromlist'))}")
        if (condition := tree.optional_node("quals")) is not None:
            parts.append(f"WHERE {self.write(condition, False)}")
        parts.append(self._group_by(targets))
        if (condition := query.optional_node("havingQual")) is not None:
            parts.append(f"HAVING {self.write(condition, False)}")
        windows = [window for window in query.nodes("windowClause") if window.has("name")]
        if windows:
            named = (f"{self.names.quoted(window.text('name'))} AS ({self._window(window)})" for window in windows)
            parts.append(f"WINDOW {', '.join(named)}")
        return " ".join(part for part in parts if part)

    def _only_values(self, targets: list[Node]) -> str | None:
        """VALUES alone, which the tree has as a SELECT of its columns."""
        query, entries = self._query, list(self._scope.entries.items())
        others = ("sortClause", "limitOffset", "limitCount", "rowMarks", "groupClause", "groupingSets", "distinctClause", "windowClause")
        if len(entries) != 1 or entries[0][1].kind != Kind.VALUES or entries[0][1].node.has("alias") or query.node("jointree").has("quals"):
            return None
        number, entry = entries[0]
        columns = [(target.optional_text("resname"), target.node("expr")) for target in targets]
        is_plain = [name and self.names.quoted(name) for name, _ in columns] == entry.columns
        are_its = all(
            var.name == "VAR" and var.number("varno") == number and var.number("varattno") == i and var.number("varlevelsup") == 0
            for i, (_, var) in enumerate(columns, 1)
        )
        if not is_plain or not are_its or query.has("havingQual") or any(query.has(field) for field in others):
            return None
        return f"VALUES {self._values(entry)}"

    def _output(self, target: Node) -> str:
        if target.name != "TARGETENTRY":
            raise NotWritten(f"{target.name} is in the list of columns")
        text, name = self.item(target.node("expr")), self.names.quoted(target.text("resname"))
        return text if text.endswith(f".{name}") and target.node("expr").name == "VAR" else f"{text} AS {name}"

    def _distinct_clause(self, targets: list[Node]) -> str:
        clauses = self._query.nodes("distinctClause")
        if not clauses:
            return ""
        if not self._query.truth("hasDistinctOn"):
            return "DISTINCT"
        return f"DISTINCT ON ({', '.join(self.target(item, targets) for item in clauses)})"

    # -- WITH, UNION, GROUP BY, windows, LIMIT -----------------------------------------------------------------------------

    def _with(self) -> str:
        ctes = self._query.nodes("cteList")
        if not ctes:
            return ""
        return f"WITH {'RECURSIVE ' if self._query.truth('hasRecursive') else ''}{', '.join(self._cte(cte) for cte in ctes)}"

    def _cte(self, cte: Node) -> str:
        names = self._words(cte.texts("aliascolnames"))
        materialized = self._choose(cte, "ctematerialized", MATERIALIZED)
        name = f"{self.names.quoted(cte.text('ctename'))}{f'({names})' if names else ''}"
        text = f"{name} AS {materialized}({self.query(cte.node('ctequery'))})"
        if (search := cte.optional_node("search_clause")) is not None:
            how = "BREADTH" if search.truth("search_breadth_first") else "DEPTH"
            columns, into = self._words(search.texts("search_col_list")), self.names.quoted(search.text("search_seq_column"))
            text += f" SEARCH {how} FIRST BY {columns} SET {into}"
        if (cycle := cte.optional_node("cycle_clause")) is not None:
            mark, path = (self.names.quoted(cycle.text(field)) for field in ("cycle_mark_column", "cycle_path_column"))
            value, default = (self._mark(cycle.node(field)) for field in ("cycle_mark_value", "cycle_mark_default"))
            text += f" CYCLE {self._words(cycle.texts('cycle_col_list'))} SET {mark} TO {value} DEFAULT {default} USING {path}"
        return text

    def _mark(self, node: Node) -> str:
        """A constant where only a literal can stand, with its type before it."""
        if node.name != "CONST":
            raise NotWritten(f"{node.name} marks a cycle")
        text = literal(node, self.names, label=False)
        return f"{self.names.type_name(node.number('consttype'))} {text}" if text[-1] == "'" else text

    def _words(self, names: list[str]) -> str:
        return ", ".join(self.names.quoted(name) for name in names)

    def _set_operation(self, node: Node) -> str:
        """A long chain nests to the left: it is followed, not descended."""
        operations = []
        while node.name == "SETOPERATIONSTMT" and node.node("larg").name == "SETOPERATIONSTMT":
            operations.append(node)
            node = node.node("larg")
        text = self._set_operand(node) if node.name == "RANGETBLREF" else self._united(self._set_operand(node.node("larg")), node)
        for node in reversed(operations):
            text = self._united(f"({text})", node)
        return text

    def _united(self, left: str, node: Node) -> str:
        if node.name != "SETOPERATIONSTMT" or node.number("op") not in SET_OPERATIONS:
            raise NotWritten(f"{node.name} is not a UNION, INTERSECT or EXCEPT")
        word = f"{SET_OPERATIONS[node.number('op')]}{' ALL' if node.truth('all') else ''}"
        return f"{left} {word} {self._set_operand(node.node('rarg'))}"

    def _set_operand(self, node: Node) -> str:
        if node.name == "RANGETBLREF":
            return f"({self.query(self._scope.at(node.number('rtindex')).node('subquery'))})"
        return f"({self._set_operation(node)})"

    def _group_by(self, targets: list[Node]) -> str:
        query = self._query
        clauses, sets = query.nodes("groupClause"), query.nodes("groupingSets")
        if not clauses and not sets:
            return ""
        written = [self._grouping_set(item, targets) for item in sets] or [self.target(item, targets) for item in clauses]
        return f"GROUP BY {'DISTINCT ' if query.is_true('groupDistinct') else ''}{', '.join(written)}"

    def _grouping_set(self, node: Node, targets: list[Node]) -> str:
        kind = node.number("kind")
        if node.name == "GROUPINGSET" and kind == GROUPING_EMPTY:
            return "()"
        if node.name == "GROUPINGSET" and kind == GROUPING_SIMPLE:
            return f"({', '.join(self.target_of(number, targets) for number in node.numbers('content'))})"
        if node.name != "GROUPINGSET" or kind not in GROUPINGS:
            raise NotWritten(f"{node.name} is not a grouping set")
        return f"{GROUPINGS[kind]} ({', '.join(self._grouping_set(item, targets) for item in node.nodes('content'))})"

    def window(self, number: int) -> str:
        for window in self._query.nodes("windowClause"):
            if window.number("winref") == number:
                return self.names.quoted(window.text("name")) if window.has("name") else f"({self._window(window)})"
        raise NotWritten("WINDOWFUNC is over a window that is not there")

    def _window(self, node: Node) -> str:
        targets, base = self._query.nodes("targetList"), node.optional_text("refname")
        parts = [self.names.quoted(base)] if base is not None else []
        if base is None and node.items("partitionClause"):
            parts.append(f"PARTITION BY {', '.join(self.target(item, targets) for item in node.nodes('partitionClause'))}")
        if node.items("orderClause") and not node.truth("copiedOrder"):
            parts.append(f"ORDER BY {', '.join(self.sorted_by(item, targets) for item in node.nodes('orderClause'))}")
        if node.number("frameOptions") & FRAME_SAID:
            parts.append(self._frame(node, node.number("frameOptions")))
        return " ".join(parts)

    def _frame(self, node: Node, options: int) -> str:
        mode, exclusion = _flag(options, FRAME_MODES), _flag(options, FRAME_EXCLUSIONS)
        start = self._frame_end(_flag(options, FRAME_STARTS), node, "startOffset")
        if not options & FRAME_BETWEEN:
            return f"{mode} {start}{exclusion}"
        return f"{mode} BETWEEN {start} AND {self._frame_end(_flag(options, FRAME_ENDS), node, 'endOffset')}{exclusion}"

    def _frame_end(self, words: str, node: Node, field: str) -> str:
        return words.format(self.write(node.node(field), False)) if "{}" in words else words

    def _limits(self) -> list[str]:
        query, parts = self._query, []
        if (offset := query.optional_node("limitOffset")) is not None:
            parts.append(f"OFFSET {self.write(offset, False)}")
        if (count := query.optional_node("limitCount")) is not None:
            if query.number("limitOption") == 1:
                parts.append(f"FETCH FIRST ({self.write(count, False)}) ROWS WITH TIES")
            else:
                is_all = count.name == "CONST" and count.truth("constisnull")
                parts.append("LIMIT ALL" if is_all else f"LIMIT {self.write(count, False)}")
        return parts

    def _locks(self) -> list[str]:
        written = []
        for mark in self._query.nodes("rowMarks"):
            if mark.truth("pushedDown"):
                continue
            if mark.number("strength") not in LOCKS:
                raise NotWritten("ROWMARKCLAUSE has an unknown strength")
            name = self._scope.entry(mark.number("rti")).name
            written.append(f"FOR {LOCKS[mark.number('strength')]} OF {name}{self._choose(mark, 'waitPolicy', WAITS)}")
        return written

    # -- FROM --------------------------------------------------------------------------------------------------------------

    def _from(self, node: Node) -> tuple[str, list[str]]:
        """An item, and the columns that it has by their names alone."""
        if node.name == "RANGETBLREF":
            entry = self._scope.entry(node.number("rtindex"))
            return self._entry(entry), entry.visible
        if node.name != "JOINEXPR":
            raise NotWritten(f"{node.name} in FROM is not known")
        (left, left_columns), (right, right_columns) = self._from(node.node("larg")), self._from(node.node("rarg"))
        columns, words = left_columns + right_columns, self._choose(node, "jointype", JOINS)
        condition = node.optional_node("quals")
        if condition is None:
            if words != "JOIN":
                raise NotWritten("JOINEXPR has no condition")
            return f"({left} CROSS JOIN {right})", columns
        using = [self.names.quoted(name) for name in node.texts("usingClause")]
        is_alone = all(side.count(name) == 1 for side in (left_columns, right_columns) for name in using)
        if using and is_alone and self._means(using, condition):
            rest = [name for name in columns if name not in using]
            return f"({left} {words} {right} USING ({', '.join(using)}))", using + rest
        return f"({left} {words} {right} ON ({self.write(condition, False)}))", columns

    def _means(self, using: list[str], condition: Node) -> bool:
        """Whether the condition is that the columns of these names are equal; they may have other names since."""
        parts = condition.nodes("args") if condition.name == "BOOLEXPR" and condition.text("boolop") == "and" else [condition]
        if len(parts) != len(using):
            return False
        for name, part in zip(using, parts):
            if part.name != "OPEXPR" or self.operator(part.number("opno")) != "=":
                return False
            for arg in self._pair(part):
                var = without_implicit(arg)
                if var.name != "VAR" or var.number("varlevelsup") != 0 or self._scope.column_name(var) != name:
                    return False
        return True

    def _entry(self, entry: Entry) -> str:
        node = entry.node
        lateral = "LATERAL " if node.is_true("lateral") else ""
        columns = f"({', '.join(entry.visible)})" if entry.listed and entry.visible else ""
        match entry.kind:
            case Kind.RELATION:
                return self._table(entry, columns)
            case Kind.SUBQUERY:
                return f"{lateral}({self.query(node.node('subquery'))}) AS {entry.name}{columns}"
            case Kind.FUNCTION:
                return f"{lateral}{self._functions(entry, columns)}"
            case Kind.VALUES:
                return f"{lateral}(VALUES {self._values(entry)}) AS {entry.name}{columns}"
            case Kind.CTE:
                name = self.names.quoted(node.text("ctename"))
                return name if name == entry.name and not columns else f"{name} AS {entry.name}{columns}"
            case Kind.TABLE_FUNCTION:
                return f"{lateral}{self._xml_table(node.node('tablefunc'))} AS {entry.name}{columns}"
        raise NotWritten(f"{node.name} is of kind {entry.kind}, which is not known")

    def _xml_table(self, node: Node) -> str:
        if node.has("functype") and node.number("functype") != 0:
            raise NotWritten("TABLEFUNC is JSON_TABLE, which is not known")
        names, paths, defaults = node.texts("colnames"), node.items("colexprs"), node.items("coldefexprs")
        kinds, typmods, required = node.numbers("coltypes"), node.numbers("coltypmods"), node.numbers("notnulls")
        if not len(names) == len(kinds) == len(typmods) == len(paths) == len(defaults):
            raise NotWritten("TABLEFUNC has columns without types")
        columns = []
        for i, (name, kind, typmod, path, default) in enumerate(zip(names, kinds, typmods, paths, defaults)):
            if i == node.number("ordinalitycol"):
                columns.append(f"{self.names.quoted(name)} FOR ORDINALITY")
                continue
            parts = [self.names.quoted(name), self.names.type_name(kind, typmod)]
            parts += [f"DEFAULT ({self.write(default, False)})"] if isinstance(default, Node) else []
            parts += [f"PATH ({self.write(path, False)})"] if isinstance(path, Node) else []
            columns.append(" ".join([*parts, "NOT NULL"] if i in required else parts))
        spaces = ", ".join(self._namespace(uri, name) for uri, name in zip(node.nodes("ns_uris"), node.items("ns_names")))
        start = f"XMLNAMESPACES({spaces}), " if spaces else ""
        row, document = self.write(node.node("rowexpr"), False), self.write(node.node("docexpr"), False)
        return f"XMLTABLE({start}({row}) PASSING ({document}) COLUMNS {', '.join(columns)})"

    def _namespace(self, uri: Node, name: object) -> str:
        text = self.write(uri, False)
        return f"DEFAULT {text}" if name is None else f"{text} AS {self._words(Node('XMLNAMESPACES', {'name': [name]}).texts('name'))}"

    def _table(self, entry: Entry, columns: str) -> str:
        node = entry.node
        relation = self.names.relation(node.number("relid"))
        if last_part(relation) == relation:  # a query of WITH could have that name
            relation = f"pg_catalog.{relation}"
        text = relation if node.truth("inh") else f"ONLY {relation}"
        if columns or last_part(relation) != entry.name:
            text += f" AS {entry.name}{columns}"
        if (sample := node.optional_node("tablesample")) is not None:
            args = ", ".join(self.write(arg, False) for arg in sample.nodes("args"))
            text += f" TABLESAMPLE {self.names.function(sample.number('tsmhandler'))} ({args})"
            if (seed := sample.optional_node("repeatable")) is not None:
                text += f" REPEATABLE ({self.write(seed, False)})"
        return text

    def _values(self, entry: Entry) -> str:
        rows = [Node("VALUES", {"row": row}).nodes("row") for row in entry.node.items("values_lists")]
        return ", ".join(f"({', '.join(self.item(value, False) for value in row)})" for row in rows)

    def _functions(self, entry: Entry, columns: str) -> str:
        node = entry.node
        functions, ordinality = node.nodes("functions"), " WITH ORDINALITY" if node.truth("funcordinality") else ""
        defined = [self._defined_columns(function) for function in functions]
        calls = [self._call(function.node("funcexpr")) for function in functions]
        if len(functions) == 1 and not (defined[0] and ordinality):
            return f"{calls[0]}{ordinality} AS {entry.name}{f'({defined[0]})' if defined[0] else columns}"
        if not functions:
            raise NotWritten("a function in FROM is not there")
        inside = ", ".join(f"{call} AS ({columns})" if columns else call for call, columns in zip(calls, defined))
        return f"ROWS FROM ({inside}){ordinality} AS {entry.name}{columns}"

    def _defined_columns(self, function: Node) -> str:
        """The columns that the query says a function has."""
        names = function.texts("funccolnames")
        kinds, typmods, collations = (function.numbers(f"funccol{what}") for what in ("types", "typmods", "collations"))
        if not names:
            return ""
        if not len(names) == len(kinds) == len(typmods) == len(collations):
            raise NotWritten("RANGETBLFUNCTION has columns without types")
        words = []
        for name, kind, typmod, collation in zip(names, kinds, typmods, collations):
            collate = f" COLLATE {self.names.collation(collation)}" if collation not in (0, 100) else ""
            words.append(f"{self.names.quoted(name)} {self.names.type_name(kind, typmod)}{collate}")
        return ", ".join(words)

    def _call(self, node: Node) -> str:
        if node.name in CALLS or (node.name == "FUNCEXPR" and node.number("funcformat") == 0):
            return self.write(node)
        raise NotWritten(f"{node.name} in FROM is not a call of a function")


def _flag(options: int, words: tuple[tuple[int, str], ...]) -> str:
    for flag, text in words:
        if options & flag == flag:
            return text
    raise NotWritten("WINDOWCLAUSE has an unknown frame")

