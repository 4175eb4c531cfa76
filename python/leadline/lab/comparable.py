"""Whether two things were measured on what is alike: facts of both, the class of each fact (facts.toml), and what differs.

Pure functions of names and values. Where the facts come from is for the caller; a name or value that no one knows is no error.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.resources import files

from leadline.units import sized, whole_size

IDENTITY, COVARIATE, VOLATILE = CLASSES = ("identity", "covariate", "volatile")
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Row:
    """A row of facts.toml."""

    name: str
    kind: str
    called: str
    needed: tuple[str, ...] = ()
    within: float = 0.0
    follows: str = ""
    absent_follows: str = ""


@dataclass(frozen=True)
class Difference:
    """one, other: values; "unknown" for what was not to be read, and None for what is not there. is_factor: declared to differ."""

    name: str
    kind: str
    called: str
    one: str | None
    other: str | None
    is_factor: bool = False

    @property
    def refuses(self) -> bool:
        return self.kind == IDENTITY and not self.is_factor

    @property
    def text(self) -> str:
        """DATA DEVICE: rotational 0 against 1; in capitals only what refuses."""
        called = self.called.upper() if self.refuses else self.called
        return f"{called}: {own_name(self.name)} {shown(self.name, self.one)} against {shown(self.name, self.other)}"


@lru_cache(maxsize=1)
def rows() -> tuple[Row, ...]:
    """facts.toml in order."""
    table = tomllib.loads((files("leadline.lab") / "facts.toml").read_text(encoding="utf-8"))
    more = {"within", "follows", "absent_follows"}
    return tuple(
        Row(each["name"], each["class"], each["called"], tuple(each.get("needed", ())), **{name: each[name] for name in more & each.keys()})
        for each in table["fact"]
    )


@lru_cache(maxsize=10_000)
def row_of(name: str) -> Row:
    """The first row that fits; what fits none must agree."""
    return next((row for row in rows() if fnmatchcase(name, row.name)), Row(name, IDENTITY, "fact"))


def differences(
    one: Mapping[str, str], other: Mapping[str, str], kinds: Iterable[str], factors: Sequence[str] = ()
) -> list[Difference]:
    """All facts that do not agree, in the order of facts.toml. kinds: what the facts are of (host, server, run): facts that these need and
    that one of the two lacks are unknown. factors: what was meant to differ, by name of a fact, by the begin of one up to a dot, by the
    name of a setting, or by what facts.toml calls it."""
    of, names = set(kinds), list(dict.fromkeys((*one, *other)))
    needed = [row for row in rows() if of & set(row.needed)]
    names += [row.name for row in needed if not any(row_of(name) is row for name in names)]
    order = {row: at for at, row in enumerate(rows())}
    out = []
    for name in sorted(names, key=lambda name: (order.get(row_of(name), len(order)), name)):
        row = row_of(name)
        missing = UNKNOWN if row in needed else None
        a, b = one.get(name, missing), other.get(name, missing)
        if not agree(row, a, b):
            causes = [name, row.follows, row.absent_follows if None in (a, b) else ""]
            declared = any(is_named(cause, factor) for cause in causes if cause for factor in factors)
            out.append(Difference(name, row.kind, row.called, a, b, declared))
    return out


def agree(row: Row, one: str | None, other: str | None) -> bool:
    """Unknown agrees with nothing, not even with itself."""
    if UNKNOWN in (one, other):
        return False
    if row.within and one is not None and other is not None:
        try:
            a, b = float(one), float(other)
        except ValueError:
            return one == other
        return abs(a - b) <= row.within * max(abs(a), abs(b))
    return one == other


def is_named(name: str, factor: str) -> bool:
    """Whether a factor names this fact."""
    return factor in (name, name.removeprefix("setting.")) or name.startswith(f"{factor}.") or factor.lower() == row_of(name).called.lower()


def own_name(name: str) -> str:
    """The last part of a name, with the number of a device that is not the first."""
    if "*" in name:
        return "all"
    numbered = re.fullmatch(r"storage\.\w+\.device\.(\d+)\.(.+)", name)
    if numbered:
        return numbered[2] if numbered[1] == "0" else f"{numbered[2]} of kind {int(numbered[1]) + 1}"
    for begin in ("setting.", "cgroup.", "vm.", "cpu.mitigation.", "numa."):
        if name.startswith(begin):
            return name.removeprefix(begin)
    return name.rpartition(".")[2] if name.count(".") else name


def shown(name: str, value: str | None) -> str:
    if value is None:
        return "none"
    if value.isdigit() and int(value) >= 1024 and name.endswith(("_bytes", "data.bytes")):
        return sized(int(value))
    if found := re.fullmatch(r"(\d+) (\d*)(B|kB|MB)", value):  # as servers count: 16384 8kB
        return whole_size(int(found[1]) * int(found[2] or 1) * {"B": 1, "kB": 1024, "MB": 1 << 20}[found[3]])
    return value or "empty"
