"""The layers of the Python package: what may import what. Read LAYERS from top to bottom: each line may import those below it."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import leadline
import pytest

PACKAGE = Path(leadline.__file__).parent
LAYERS = (
    ("__main__", "docs"),
    ("api", "cli"),
    ("explore",),
    ("server",),
    ("metrics",),
    ("demo", "doctor", "export", "recorder", "study", "top", "why"),
    ("book.compare", "book.export", "compare"),
    ("engines.informix", "engines.postgres.sections"),
    ("views.report",),
    ("views",),
    ("load", "storage"),
    ("files", "net"),
    ("engines.postgres",),
    ("probes",),
    ("engines.live",),
    ("probes.probe",),
    ("findings",),
    ("capture",),
    ("book",),
    ("host", "lab", "tables"),
    ("output",),
    ("columns", "engines"),
    ("figures", "interrupt", "listening", "progress", "replacing", "units", "whole"),
    ("duck", "errors", "version"),
    ("_core",),
)
# What is particular to one engine; what is general must work without it.
ENGINES = ("load", "engines.informix", "engines.postgres", "engines.postgres.sections", "files")
GENERAL = ("capture", "engines", "findings", "host", "lab", "tables", "views", "views.report", "output")
GENERAL += ("columns", "figures", "interrupt", "listening", "metrics", "progress", "replacing", "units", "whole")
GENERAL += ("doctor", "engines.live", "probes", "probes.probe", "top", "duck", "errors", "version")
# What moved into engines/ stays there: a branch that was begun before adds files where they were.
MOVED = ("postgres", "files/informix", "findings/postgres", "findings/pooler")
# Between parts of one layer: nothing, except these.
WITHIN: set[tuple[str, str]] = set()


def part_of(module: str) -> str:
    """The part of the package that a dotted name below leadline belongs to: the longest name that LAYERS has."""
    names = {name for layer in LAYERS for name in layer}
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]) in names:
            return ".".join(parts[:length])
    raise AssertionError(f"leadline.{module} is in no layer: add it to LAYERS")


@functools.cache
def imported() -> list[tuple[str, str, str]]:
    """Importing module, dotted name, and where, for each absolute import at any depth of the code."""
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(file.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            found += [(module, name, f"{file.relative_to(PACKAGE)}:{node.lineno}") for name in names]
    return found


def imports() -> list[tuple[str, str, str]]:
    """Importing part, imported part, and where, for each import of the package's own modules."""
    own = [found for found in imported() if found[1].startswith("leadline.") and found[0] != "__init__"]
    return [(part_of(module), part_of(name.removeprefix("leadline.")), where) for module, name, where in own]


LEVEL = {name: len(LAYERS) - number for number, layer in enumerate(LAYERS) for name in layer}


def test_imports_point_down() -> None:
    wrong = [
        f"{where}: {user} imports {used}"
        for user, used, where in imports()
        if user != used and LEVEL[used] >= LEVEL[user] and (user, used) not in WITHIN
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("general", GENERAL)
def test_what_is_general_knows_no_engine(general: str) -> None:
    wrong = [f"{where}: {user} imports {used}" for user, used, where in imports() if user == general and used in ENGINES]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", MOVED)
def test_nothing_lies_where_engines_lay(folder: str) -> None:
    left = [str(file) for file in (PACKAGE / folder).rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    assert not left, f"it moved to engines/: {left}"


def test_duckdb_comes_from_one_module() -> None:
    """One import of the package around it, anywhere, makes each command pay for that package."""
    where = {module for module, name, _ in imported() if name.split(".")[0] in ("duckdb", "_duckdb")}
    assert where == {"duck"}


def test_every_import_was_looked_at() -> None:
    found = imports()
    assert ("cli", "errors") in {(user, used) for user, used, _ in found}
    assert len(found) > 300


def test_helpers_of_tests_lie_in_support() -> None:
    assert [file.name for file in Path(__file__).parents[1].glob("*.py")] == ["conftest.py"]
