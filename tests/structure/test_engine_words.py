"""Words of one engine in general code: none, but where the table says why, and how many lines at most."""

from __future__ import annotations

import re
from pathlib import Path

import leadline
import pytest

PACKAGE = Path(leadline.__file__).parent
WORDS = re.compile(
    r"postgres|informix|postmaster|pgbouncer|\bpg_\w+|\bpgproc\b|xmin|\blwlock|walsender|\bvacuum|autovacuum|client backend"
    r"|in \(2, ?5\)|['\"]shm['\"]",
    re.IGNORECASE,
)
KINDS = (".py", ".toml", ".sql", ".j2")
GENERAL = ("capture", "doctor.py", "engines", "figures.py", "findings", "host", "lab", "output.py", "probes", "progress.py")
GENERAL += ("tables", "top", "views", "why")
OF_AN_ENGINE = ("engines/postgres", "engines/informix")
# Where: at most how many lines, and why. A path, or the folder of many.
REASONS = {
    "engines/__init__.py": (1, "names the engines that come with the package"),
    "capture": (8, "older captures and the manifest say what they are of"),
    "tables": (29, "columns of sessions as PostgreSQL has them; names of protocols"),
    "views": (7, "class LWLock, and the first lines of the report"),
    "top": (4, "age of the snapshot"),
    "findings/wire": (2, "names of protocols that packets have"),
    "host/facts.py": (3, "names of facts that captures and rules have"),
    "probes": (2, "names of tiers, and of the pooler of an option"),
    "why/causes": (3, "what programs print, and the advice for them"),
}


def hits() -> dict[str, list[str]]:
    """Lines with a word of an engine, by file."""
    found: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*")):
        name = path.relative_to(PACKAGE).as_posix()
        if path.suffix not in KINDS or not name.startswith(GENERAL) or name.startswith(OF_AN_ENGINE):
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        if said := [f"{name}:{n}: {line.strip()[:120]}" for n, line in enumerate(lines, 1) if WORDS.search(line)]:
            found[name] = said
    return found


def row_of(name: str) -> str | None:
    return next((row for row in REASONS if name == row or name.startswith(row + "/")), None)


def test_general_code_has_no_words_of_an_engine() -> None:
    wrong = [line for name, lines in hits().items() if row_of(name) is None for line in lines]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("row", REASONS)
def test_what_is_excused_does_not_grow(row: str) -> None:
    found = [line for name, lines in hits().items() if row_of(name) == row for line in lines]
    assert 0 < len(found) <= REASONS[row][0], "\n".join(found)


def test_reasons_are_few() -> None:
    assert len(REASONS) <= 10
