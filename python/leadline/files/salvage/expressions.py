"""SQL of what the catalogs keep as node trees: defaults, checks, index expressions, policies, conditions of triggers, bounds of partitions.

The text means the same on every PostgreSQL from 13 to 18 that has what it calls. What cannot be written so raises NotWritten, and a text
that is not a node tree NotATree.
"""

from __future__ import annotations

from leadline.files.salvage.constants import literal
from leadline.files.salvage.node_names import Names, NotWritten, bounded
from leadline.files.salvage.node_trees import Node, NotATree, parse_node, parse_nodes
from leadline.files.salvage.queries import Queries
from leadline.files.salvage.scalars import RelationScope, Scalars, Scope, TriggerScope

__all__ = ["Names", "NotATree", "NotWritten", "expression", "expressions", "partition_bound", "trigger_condition"]

BOUND_ENDS = {-1: "MINVALUE", 1: "MAXVALUE"}


def expression(tree_text: str, names: Names, relid: int | None = None) -> str:
    """One expression; `relid`: the table whose columns it uses. A key of an index or partitioning stands in parentheses around it."""
    return bounded(lambda: Queries(names, _scopes(names, relid)).write(parse_node(tree_text), implicit=False))


def expressions(tree_text: str, names: Names, relid: int | None = None) -> list[str]:
    """A list of them: the expressions of an index, a partition key or extended statistics, the defaults of a function's last arguments."""

    def write() -> list[str]:
        scalars = Queries(names, _scopes(names, relid))
        return [scalars.write(node, implicit=False) for node in parse_nodes(tree_text)]

    return bounded(write)


def trigger_condition(tree_text: str, names: Names, relid: int) -> str:
    """WHEN of a trigger on a table: its columns are of `old` and `new`."""
    return bounded(lambda: Scalars(names, [TriggerScope(names, relid)]).write(parse_node(tree_text), implicit=False))


def partition_bound(tree_text: str, names: Names) -> str:
    """From FOR VALUES on, or DEFAULT."""
    return bounded(lambda: _bound(parse_node(tree_text), names))


def _scopes(names: Names, relid: int | None) -> list[Scope]:
    return [] if relid is None else [RelationScope(names, relid)]


def _bound(node: Node, names: Names) -> str:
    if node.name != "PARTITIONBOUNDSPEC":
        raise NotWritten(f"{node.name} is not the bound of a partition")
    if node.truth("is_default"):
        return "DEFAULT"
    match node.text("strategy"):
        case "h":
            return f"FOR VALUES WITH (MODULUS {node.number('modulus')}, REMAINDER {node.number('remainder')})"
        case "l":
            return f"FOR VALUES IN ({_values([_constant(value, names) for value in node.nodes('listdatums')])})"
        case "r":
            lower, upper = ([_end(value, names) for value in node.nodes(field)] for field in ("lowerdatums", "upperdatums"))
            return f"FOR VALUES FROM ({_values(lower)}) TO ({_values(upper)})"
    raise NotWritten("PARTITIONBOUNDSPEC has an unknown strategy")


def _values(written: list[str]) -> str:
    if not written:
        raise NotWritten("PARTITIONBOUNDSPEC has no values")
    return ", ".join(written)


def _end(node: Node, names: Names) -> str:
    if node.name != "PARTITIONRANGEDATUM":
        raise NotWritten(f"{node.name} is not the end of a range")
    kind = node.number("kind")
    return BOUND_ENDS[kind] if kind in BOUND_ENDS else _constant(node.node("value"), names)


def _constant(node: Node, names: Names) -> str:
    if node.name != "CONST":
        raise NotWritten(f"{node.name} is not a constant, as a bound must be")
    return literal(node, names, label=False)
