"""Asserts that cannot fail, or that hide which of two things is meant: none may be in the tests.

An `or` at the top of an assert lets a wrong value through by its other side: say when which side holds. A condition at the top
(`a == b if c else d`) asserts `d` alone where `c` is false; in parentheses, `a == (b if c else d)`, it is meant.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
DISPLAYS = (ast.Tuple, ast.List, ast.Set, ast.Dict)
NEVER_FALSE = (ast.Lambda, ast.GeneratorExp)


def faults(source: str) -> Iterator[tuple[int, str]]:
    """Line and fault of each such assert."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assert):
            for part in _sides(node.test):
                if fault := _fault(part):
                    yield node.lineno, f"{fault}: {ast.unparse(part)[:100]}"


def _sides(test: ast.expr) -> list[ast.expr]:
    """What must hold each for itself: the sides of an `and`."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return [part for side in test.values for part in _sides(side)]
    return [test]


def _fault(test: ast.expr) -> str | None:
    if isinstance(test, ast.BoolOp):
        return "one side of an `or` is enough"
    if isinstance(test, ast.IfExp):
        return "a condition at the top"
    if isinstance(test, ast.Constant | ast.JoinedStr):
        return "a constant"
    if isinstance(test, DISPLAYS):
        return "a tuple, list, set or dict is true for what it is, not for what is in it"
    if isinstance(test, NEVER_FALSE):
        return "always true"
    if isinstance(test, ast.Compare):
        return _fault_of_comparison(test)
    return None


def _fault_of_comparison(test: ast.Compare) -> str | None:
    operands = [test.left, *test.comparators]
    for left, operator, right in zip(operands, test.ops, operands[1:]):
        if ast.dump(left) == ast.dump(right) and not any(isinstance(n, ast.Call) for n in ast.walk(left)):
            return "compared with itself"
        is_length = isinstance(left, ast.Call) and isinstance(left.func, ast.Name) and left.func.id == "len"
        if is_length and isinstance(operator, ast.GtE) and isinstance(right, ast.Constant) and right.value == 0:
            return "a length is never negative"
    return None


@pytest.mark.parametrize("file", sorted(TESTS.rglob("*.py")), ids=lambda file: str(file.relative_to(TESTS)))
def test_every_assert_can_fail(file: Path) -> None:
    found = [f"{file.relative_to(TESTS)}:{line}: {fault}" for line, fault in faults(file.read_text(encoding="utf-8"))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "assert parts <= {1} or parts",
        "assert a is None or b is None",
        "assert x and (a or b)",
        "assert a == b if c else d",
        "assert (a == b, 'why')",
        "assert [a == b]",
        "assert {'a': b}",
        "assert 'why'",
        "assert f'{a}'",
        "assert (a == b for b in c)",
        "assert lambda: a",
        "assert a == a",
        "assert len(found) >= 0",
    ],
)
def test_a_fault_is_found(text: str) -> None:
    assert len(list(faults(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "assert a == (b if c else d)",
        "assert (a or 0) == b",
        "assert any(a or b for a in c)",
        "assert ask() == ask()",
        "assert len(found) >= 1",
        "assert [a] == b",
        "assert not a",
    ],
)
def test_what_can_fail_is_left_alone(text: str) -> None:
    assert list(faults(text)) == []
