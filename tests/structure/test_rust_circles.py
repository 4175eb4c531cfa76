"""No two files of a Rust crate use each other: their `crate::` and `super::` paths, followed to the file of the module they name.

A module and the ones it is made of (`reader.rs` and `reader/again.rs`) count as one, and what is in `mod tests` does not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

CRATES = Path(__file__).parents[2] / "crates"
Module = tuple[str, ...]


def modules(src: Path) -> dict[Module, str]:
    """The text of each module of a crate, without comments and tests; lib.rs is the empty name."""
    found = {}
    for path in src.rglob("*.rs"):
        parts = path.relative_to(src).with_suffix("").parts
        text = re.sub(r"//.*", "", path.read_text())
        found[parts[:-1] if parts[-1] in ("mod", "lib") else parts] = re.sub(r"#\[cfg\(test\)\]\s*mod \w+ \{.*", "", text, flags=re.DOTALL)
    return found


def expand(prefix: list[str], tree: str) -> Iterator[list[str]]:
    """The paths of `a::{b, c::{d, e}}`."""
    items, depth = [""], 0
    for letter in tree:
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            items.append("")
        else:
            items[-1] += letter
    for item in (item.strip() for item in items):
        nested = re.fullmatch(r"([\w:]*?)(?:::)?\{(.*)\}", item, re.DOTALL)
        if nested:
            yield from expand(prefix + [part for part in nested[1].split("::") if part], nested[2])
        elif item:
            yield prefix + item.split(" as ")[0].split("::")


def used(module: Module, text: str, known: dict[Module, str]) -> set[Module]:
    """The modules that a module's paths lead to."""
    paths = [path for tree in re.findall(r"\buse\s+((?:crate|super)\b[^;]*);", text) for path in expand([], tree)]
    paths += [path.split("::") for path in re.findall(r"\b(?:crate|super)(?:::\w+)+", text)]
    found = set()
    for path in paths:
        above = [] if path[0] == "crate" else list(module[: len(module) - path.count("super")])
        whole = above + [part for part in path if part not in ("crate", "super")]
        found.add(next(tuple(whole[:n]) for n in range(len(whole), -1, -1) if tuple(whole[:n]) in known))
    return found - {module, ()}


def circles(src: Path) -> set[Module]:
    """The modules that lead back to themselves."""
    known = modules(src)
    uses = {module: used(module, text, known) for module, text in known.items()}

    def family(a: Module, b: Module) -> bool:
        return a[: len(b)] == b or b[: len(a)] == a

    def reached(start: Module) -> set[Module]:
        seen: set[Module] = set()
        new = {start}
        while new:
            new = {to for module in new for to in uses[module] if not family(module, to)} - seen
            seen |= new
        return seen

    return {module for module in known if module and module in reached(module)}


@pytest.mark.parametrize("crate", sorted(str(path.parent.relative_to(CRATES)) for path in CRATES.glob("**/src")))
def test_no_files_of_a_crate_use_each_other(crate: str) -> None:
    assert modules(CRATES / crate / "src") and circles(CRATES / crate / "src") == set()


def test_a_circle_is_found(tmp_path: Path) -> None:
    (tmp_path / "lib.rs").write_text("mod a; mod b; mod c;")
    (tmp_path / "a.rs").write_text("use crate::{b::{self, X}, c};")
    (tmp_path / "b.rs").write_text("use super::c::Y;")
    (tmp_path / "c.rs").write_text("// use crate::a;\nfn f() { crate::a::g() }\n#[cfg(test)]\nmod tests { use crate::b; }")
    assert circles(tmp_path) == {("a",), ("b",), ("c",)}
    (tmp_path / "c.rs").write_text("// use crate::a;")
    assert circles(tmp_path) == set()
