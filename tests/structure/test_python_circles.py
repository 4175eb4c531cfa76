"""No modules of the package lead back to themselves by what they import, within functions too; only what types need does not count.

A package and the modules it is made of count as one, as in test_rust_circles.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import leadline

PACKAGE = Path(leadline.__file__).parent


def modules(package: Path) -> dict[str, ast.Module]:
    """Each module by its dotted name below the package, but the package itself: it only names what is below."""
    found = {}
    for path in package.rglob("*.py"):
        if name := ".".join(path.relative_to(package).with_suffix("").parts).removesuffix("__init__").removesuffix("."):
            found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imported(node: ast.AST) -> Iterator[str]:
    """Dotted names, at any depth but below `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.ImportFrom) and child.module and child.level == 0:
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        elif isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        yield from imported(child)


def circles(package: Path, name: str) -> set[str]:
    """The modules that lead back to themselves."""
    known = modules(package)

    def used(module: str) -> set[str]:
        inside = [found.removeprefix(f"{name}.") for found in imported(known[module]) if found.startswith(f"{name}.")]
        return {to for found in inside for to in (found, found.rpartition(".")[0]) if to in known} - {module}

    def family(one: str, other: str) -> bool:
        return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")

    uses = {module: {to for to in used(module) if not family(module, to)} for module in known}

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        new = {start}
        while new:
            new = {to for module in new for to in uses[module]} - seen
            seen |= new
        return seen

    return {module for module in known if module in reached(module)}


def test_no_modules_import_each_other() -> None:
    assert len(modules(PACKAGE)) > 300
    assert circles(PACKAGE, "leadline") == set()


def test_a_circle_is_found(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("from made import a")
    (tmp_path / "a.py").write_text("from made.b import X\nfrom made.parts import one")
    (tmp_path / "b.py").write_text("def f():\n    from made import c")
    (tmp_path / "c.py").write_text("import made.a")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("from made.parts.one import Y")
    (tmp_path / "parts" / "one.py").write_text("from made.parts import Z")
    assert circles(tmp_path, "made") == {"a", "b", "c"}
    (tmp_path / "c.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import made.a")
    assert circles(tmp_path, "made") == set()
