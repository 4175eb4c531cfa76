"""What a command does whose output cannot be written: one line on stderr and exit code 2, which no command uses for anything else;
nothing where the reader has seen enough."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import leaves

TESTDATA = Path(__file__).resolve().parents[2] / "testdata"
PAGE = str(TESTDATA / "postgres/9.6/heap_4_rows.page")
# The help of one of each group of commands, since what prints it is theirs together, and each line is a process; and what some print as
# they go. What each command prints: test_every_command.py.
HELP = {words[0]: [*words, "--help"] for words, _ in leaves()}
OTHERS = [["--version"], [], ["page", "check", PAGE], ["page", "check", PAGE, "--json"], ["page", "hex", f"{PAGE}:0"], ["tables"]]
LINES = [*HELP.values(), *OTHERS]


def named(words: list[str]) -> str:
    return " ".join(words).replace(PAGE, "PAGE")


CASES = [pytest.param(words, to, id=f"{named(words)} {to}") for words in LINES for to in (">/dev/full", ">&-")]


def leadline(words: list[str], redirected: str) -> subprocess.CompletedProcess[str]:
    """A command of a shell, since only there stdout can be closed."""
    command = ["sh", "-c", f'exec "$@" {redirected}', "sh", sys.executable, "-m", "leadline", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def piped(words: list[str]) -> tuple[int, str]:
    """Into a pipe whose reader is gone."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "leadline", *words], stdout=write, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    finally:
        os.close(write)
    return done.returncode, done.stderr


@pytest.mark.parametrize(("words", "redirected"), CASES)
def test_output_that_cannot_be_written_is_one_error(words: list[str], redirected: str) -> None:
    done = leadline(words, redirected)
    if words == []:  # what there is to say goes to stderr
        assert done.returncode == 2 and done.stderr.startswith("Usage:")
        return
    why = {">/dev/full": "No space left on device", ">&-": "it is closed"}[redirected]
    assert (done.returncode, done.stderr) == (2, f"error: cannot write the output: {why}\n  at: stdout\n")


@pytest.mark.parametrize("words", LINES, ids=named)
def test_a_reader_that_has_seen_enough_is_no_error(words: list[str]) -> None:
    code, errors = piped(words)
    if words == []:
        assert code == 2 and errors.startswith("Usage:")
    else:
        assert (code, errors) == (0, "")


def test_an_error_that_cannot_be_written_as_json_is_written_as_text() -> None:
    words = ["page", "check", "none there"]
    usual = leadline(words, "").stderr
    assert usual.startswith("error: ")
    for redirected in (">/dev/full", ">&-"):
        done = leadline([*words, "--json"], redirected)
        assert (done.returncode, done.stderr) == (2, usual)
    assert piped([*words, "--json"]) == (2, usual)


@pytest.mark.parametrize("redirected", ["2>/dev/full", "2>&-", "2>&- <&-"])
@pytest.mark.parametrize("words", [["tables"], ["page", "check", PAGE], ["page", "check", "none there"]], ids=["tables", "page", "error"])
def test_talk_that_cannot_be_written_changes_nothing(words: list[str], redirected: str) -> None:
    done, usual = leadline(words, redirected), leadline(words, "2>/dev/null")
    assert (done.returncode, done.stdout[:20], done.stderr) == (usual.returncode, usual.stdout[:20], "")
