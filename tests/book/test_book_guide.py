"""docs/guides/logbook.md says what the commands do."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import click
from books import Run
from commands import leaves
from leadline.book.place import Place

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "logbook.md").read_text(encoding="utf-8")
LEAVES = {" ".join(words): command for words, command in leaves()}


def lines() -> list[str]:
    """Every command line of leadline in the guide."""
    blocks = re.findall(r"^```\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    found = [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.removeprefix("$ ").startswith("leadline ")]
    return [*found, *(text for text in re.findall(r"`(leadline [^`]+)`", GUIDE))]


def test_each_command_line_is_one_that_there_is() -> None:
    looked_at = 0
    for line in lines():
        words = shlex.split(line.partition("#")[0])[1:]
        name = " ".join(words[:2]) if " ".join(words[:2]) in LEAVES else words[0]
        if name not in LEAVES:
            assert line in ("leadline book", "leadline user")
            continue
        options = {option for parameter in LEAVES[name].params if isinstance(parameter, click.Option) for option in parameter.opts}
        own = words[: words.index("--")] if "--" in words else words
        assert {word for word in own if word.startswith("--")} <= options, line
        looked_at += 1
    assert looked_at > 15


def test_its_first_example_prints_what_it_says(place: Place, leadline: Run) -> None:
    first = next(line for line in lines() if line.startswith("leadline run --name load"))
    done = leadline(*shlex.split(first)[1:])
    assert (done.returncode, done.stdout, done.stderr) == (3, "loading\n", "could not extend file\n")
    row = leadline("book", "list").stdout.splitlines()[-1]
    assert re.fullmatch(r"\w{5}  \S+ \S+  load  failed \(3\)  \d\.\d{3} s", row)
    assert "load" in leadline("book", "search", "could not extend").stdout
    for line in ("show last", "log last", "label last ticket=4711", "pin last", "prune --older 90d --dry-run"):
        assert leadline("book", *line.split()).returncode == 0, line


MENTIONED = {"leadline run", "leadline experiment", "leadline book", "leadline user"}  # by their names alone


def test_all_of_it_is_run(place: Place, leadline: Run, tmp_path: Path) -> None:
    """In the order of the page: each line ends well but for the first, which says that it does not."""
    (script := tmp_path / "nightly_load.sh").write_text("#!/bin/sh\necho loading\nexec sleep 600\n")
    script.chmod(0o755)
    named, expected = {"NAME": os.uname().nodename, "COMMAND": "true"}, 3
    ran = 0
    for line in dict.fromkeys(lines()):
        if line in MENTIONED:
            continue
        words = [named.get(word, word) for word in shlex.split(line, comments=True)[1:]]
        if words[:2] == ["book", "cancel"]:
            words[2:] = [named["detached"], "--wait"]
        if "--file" in words:
            words[2:] = [named["detached"], "--file", str(script)]
        done = leadline(*words, cwd=tmp_path)
        assert done.returncode == expected, f"$ {line}\n{done.stdout}{done.stderr}"
        ran, expected = ran + 1, 0
        if ran == 1:
            [row] = re.findall(r"^(\w{5})  .*  load  ", leadline("book", "list").stdout, re.MULTILINE)
            named |= {"RUN": row, "4k7q2": row}
        if "--detach" in words:
            named["detached"] = done.stdout.strip()
    assert ran > 20
    assert len(list(tmp_path.glob("*.html"))) == len(list(tmp_path.glob("*.zip"))) == 1
