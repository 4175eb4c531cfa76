"""An option that a text names exists: in whole command lines everywhere, and in hints for each command that can print them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from commands import leaves

ROOT = Path(__file__).resolve().parents[2]
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
LINE = re.compile(r"(?<![\w/.-])leadline((?: [a-z][a-z-]*)+)([^\n`]*(?:\\\\?\n[^\n`]*)*)")
RUST_HINT = re.compile(r'\.(?:hint|detail)\(\s*(?:format!\(\s*)?"((?:[^"\\]|\\.)*)"', re.DOTALL)
SAID = ("hint", "detail")
OF_OTHER_PROGRAMS = {"--cap-add", "--system", "--no-create-home"}

COMMANDS = {" ".join(words): command for words, command in leaves()}

# The commands that can print what a file of the library says. Each of them has the options that are named there.
PRINTED_BY = {
    "crates/calltrace/src/lib.rs": ["calls"],
    "crates/backup/src/pgbackrest.rs": [
        *("page check", "page scan", "rows", "salvage", "recover"),
        *("wal show", "wal stats", "wal export", "wal history", "wal inval", "wal apply"),
    ],
    "crates/pagescan/src/extract.rs": ["rows", "salvage"],
    "crates/pagescan/src/error.rs": ["page show", "page hex", "page diff", "page check", "page scan"],
    "crates/pagescan/src/one.rs": ["page show", "page hex", "page diff"],
    "crates/postgres/replay/src/preflight.rs": ["recover"],
    "crates/postgres/rows/src/find.rs": ["rows"],
    "python/leadline/engines/live.py": ["top"],
    "python/leadline/engines/postgres/probes/pooler.py": ["take"],
    "crates/postgres/replay/src/restore.rs": ["recover"],
    "crates/wire/src/live/ring.rs": ["net packets", "net auth"],
    "python/leadline/demo/run.py": ["demo"],
    "python/leadline/export/perfetto.py": ["export"],
    "python/leadline/export/profile.py": ["export"],
    "python/leadline/export/window.py": ["export"],
    "python/leadline/explore/app.py": ["explore"],
    "python/leadline/files/pages/all_backups.py": ["page check"],
    "python/leadline/replacing.py": [n for n, c in COMMANDS.items() if n != "demo" and any("-o" in p.opts for p in c.params)],
    "python/leadline/recorder/install.py": ["record"],
    "python/leadline/recorder/run.py": ["record"],
    "python/leadline/recorder/servers.py": ["record"],
    "python/leadline/top/host.py": ["top"],
    "python/leadline/server/accounts/users.py": ["token revoke-all"],
    "python/leadline/server/web/serving.py": ["serve"],
    "python/leadline/metrics/collector.py": ["record"],
    "python/leadline/metrics/publish.py": ["record"],
    "python/leadline/metrics/server.py": ["record"],
    "python/leadline/server/launch/schedules.py": ["schedule save"],
    "python/leadline/server/accounts/links.py": ["user disable"],
    "python/leadline/net/budget.py": ["net budget"],
    "python/leadline/book/experiments/design.py": ["experiment"],
    "python/leadline/study/experiment.py": ["experiment"],
    "python/leadline/engines/postgres/server/settings.py": ["study run"],
    "python/leadline/study/design.py": ["study plan", "study run", "study calibrate"],
    "python/leadline/study/named_pair.py": ["replication study"],
    "python/leadline/study/places.py": ["study plan", "study run", "study calibrate"],
    "python/leadline/study/servers.py": ["study run"],
    "python/leadline/engines/postgres/server/private.py": ["demo", "recover"],
    "python/leadline/engines/postgres/server/binaries.py": ["demo", "recover"],
    "python/leadline/engines/postgres/catalog/collect.py": ["take"],
    "python/leadline/engines/postgres/probes/replication.py": ["take"],
    "python/leadline/load/imported.py": ["load import pgbench"],
    "python/leadline/load/purge.py": ["load run"],
    "python/leadline/load/tpcc/tables.py": ["load init"],
    "python/leadline/probes/options.py": ["take"],
    "python/leadline/probes/kernel.py": ["take", "trace"],
    "python/leadline/engines/informix/capture.py": ["import onstat"],
    "python/leadline/files/verify.py": ["recover"],
    "python/leadline/files/recovery_target.py": ["recover"],
    "python/leadline/files/salvage/as_of.py": ["salvage"],
    "python/leadline/files/salvage/salvage.py": ["salvage"],
}


def options(command: click.Command) -> set[str]:
    found = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("--")}
    return found | {"--help", "--version"}


def texts() -> Iterator[tuple[str, str]]:
    """All that is written for people, with its place."""
    python = ("python/leadline/**/*.py", "python/leadline/**/*.md")
    for pattern in ("*.md", "docs/**/*.md", "bench/README.md", *python, "crates/**/src/**/*.rs"):
        for path in sorted(ROOT.glob(pattern)):
            if "target" not in path.parts:
                yield str(path.relative_to(ROOT)), path.read_text()


def line_faults(text: str) -> Iterator[str]:
    """Options of whole command lines that the command does not have."""
    for found in LINE.finditer(text):
        words = found[1].split()
        name = next((" ".join(words[:n]) for n in range(len(words), 0, -1) if " ".join(words[:n]) in COMMANDS), None)
        if name is None or "and" in words[len(name.split()) :]:
            continue
        # What follows belongs to the line as far as it is one: not what comes after it in a sentence, nor what another program gets.
        rest = re.split(r"""\s--\s|["'`|;>()#]|, |: | and |\. |\\n| leadline """, found[2] + " ")[0]
        missing = [option for option in OPTION.findall(rest) if option not in options(COMMANDS[name])]
        yield from (f"leadline {name} has no {option}" for option in missing)


def hints(path: Path) -> Iterator[str]:
    """What errors of a file say beside the message."""
    text = path.read_text()
    if path.suffix == ".rs":
        yield from RUST_HINT.findall(text)
        return
    for node in ast.walk(ast.parse(text)):
        said = [keyword.value for keyword in node.keywords if keyword.arg in SAID] if isinstance(node, ast.Call) else []
        if isinstance(node, ast.Assign) and any(getattr(target, "attr", getattr(target, "id", "")) in SAID for target in node.targets):
            said.append(node.value)
        yield from (str(part.value) for value in said for part in ast.walk(value) if isinstance(part, ast.Constant))


def test_command_lines_in_texts_have_the_options_that_there_are() -> None:
    assert list(line_faults("see `leadline wal show X --nothing`, or leadline page check --json")) == ["leadline wal show has no --nothing"]
    faults = [f"{place}: {fault}" for place, text in texts() for fault in line_faults(text)]
    assert faults == []


def bare(path: Path) -> set[str]:
    """Options in hints outside a whole command line."""
    return {option for hint in hints(path) for option in OPTION.findall(re.sub(r"leadline [a-z].*", "", hint))} - OF_OTHER_PROGRAMS


@pytest.mark.parametrize("name", sorted(PRINTED_BY))
def test_options_in_hints_are_those_of_the_commands_that_print_them(name: str) -> None:
    named = bare(ROOT / name)
    assert named, f"{name} names no option any more: take it out of the table"
    for command in PRINTED_BY[name]:
        assert named <= options(COMMANDS[command]), f"{name} names {sorted(named - options(COMMANDS[command]))} to users of {command}"


def test_every_file_with_options_in_its_hints_says_who_prints_them() -> None:
    paths = [*ROOT.glob("crates/**/src/**/*.rs"), *ROOT.glob("python/leadline/**/*.py")]
    library = [path for path in paths if "cli" not in path.parts and "ansible" not in path.parts]
    found = {str(path.relative_to(ROOT)) for path in library if bare(path)}
    assert found - set(PRINTED_BY) == set()


def test_options_in_hints_of_commands_are_their_own() -> None:
    """A module of the command line may have several commands: one of them has the option."""
    faults = []
    for path in sorted(ROOT.glob("python/leadline/cli/**/*.py")):
        own = {option for command in COMMANDS.values() if _module(command) == path for option in options(command)}
        if own:
            faults += [f"{path.name}: {option}" for option in bare(path) - own]
    assert faults == []


def _module(command: click.Command) -> Path | None:
    function = getattr(command.callback, "__wrapped__", command.callback)
    code = getattr(function, "__code__", None)
    return Path(code.co_filename) if code else None
