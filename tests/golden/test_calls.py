"""Traces that real tools wrote of a known program, folded: the counts are those of its source."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from leadline._core.calltrace import FORMATS
from leadline.cli import run
from leadline.cli.calls import FORMATS as NAMED

TESTDATA = Path(__file__).resolve().parents[2] / "testdata" / "calls"


def folded(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run(["calls", *words, "--json"]) == 0
    read: dict[str, Any] = json.loads(capsys.readouterr().out)
    return read


def counts(read: dict[str, Any]) -> dict[tuple[int, str], int]:
    return {(row["depth"], row["function"]): row["count"] for row in read["calls"]}


def test_formats_are_those_of_the_reader() -> None:
    assert set(NAMED) == set(FORMATS)


@pytest.mark.parametrize(("file", "form"), [("uftrace.txt", "uftrace"), ("uftrace_dump.txt", "uftrace-dump")])
def test_uftrace(file: str, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    read = folded(capsys, str(TESTDATA / file))
    found = counts(read)
    assert (read["format"], read["unknown_lines"], read["threads"]) == (form, 0, 1)
    assert (found[0, "main"], found[1, "middle"], found[2, "leaf"]) == (1, 5, 15)
    times = {row["function"]: row["total_ns"] for row in read["calls"]}
    assert times["main"] > times["middle"] > times["leaf"] > 0


def test_ltrace(capsys: pytest.CaptureFixture[str]) -> None:
    read = folded(capsys, str(TESTDATA / "ltrace.txt"))
    assert (read["format"], read["unknown_lines"], read["threads"]) == ("ltrace", 0, 1)
    found = counts(read)
    assert (found[0, "qsort"], found[0, "write"], found[1, "SYS_write"]) == (1, 1, 1)


def test_text_depth_and_unknown_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "u.txt"
    file.write_bytes((TESTDATA / "uftrace.txt").read_bytes() + b"\xff\x00 what is this\n")
    assert run(["calls", str(file), "--depth", "2"]) == 0
    told = capsys.readouterr()
    assert any(line.split()[0] == "5" and line.endswith("| middle") for line in told.out.splitlines())
    assert "leaf" not in told.out
    assert "1 lines are not of this format" in told.err


def test_what_is_no_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"\x00" * 5000)
    assert run(["calls", str(file)]) == 2
    assert "no function-call trace of a known format" in capsys.readouterr().err


def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    """A trace of 40 MB of the same calls takes less than 20 MB more than one of 2 kB."""
    file, piece = tmp_path / "long.txt", (TESTDATA / "uftrace.txt").read_bytes()
    file.write_bytes(piece * (40_000_000 // len(piece)))
    code = (
        "import resource, sys; from leadline._core.calltrace import fold\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "fold(sys.argv[1]); before = peak(); fold(sys.argv[2]); print(peak() - before)"
    )
    words = [sys.executable, "-c", code, str(TESTDATA / "uftrace.txt"), str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 20_000, "kB"
