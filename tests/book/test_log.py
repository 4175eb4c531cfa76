"""Logs: by bytes, by lines, while they grow, searched, and on a terminal."""

from __future__ import annotations

import os
import pty
import random
import sys
from pathlib import Path

import pytest
from books import Run
from leadline.book.log import EVERY, Log, LogWriter
from leadline.book.place import Place
from leadline.book.shown import Tame


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("LEADLINE_BOOK", str(tmp_path / "book"))
    return Place(tmp_path / "book")


def written(place: Place, body: bytes, cuts: random.Random | None = None, uid: str = "0" * 12) -> Log:
    """A log of these bytes, which came in pieces."""
    writer = LogWriter(place, uid)
    at = 0
    while at < len(body):
        size = cuts.randrange(1, 5000) if cuts else 64 << 10
        writer.add(body[at : at + size])
        at += size
    writer.close()
    return Log(place, uid)


def some_lines(number: int, seed: int) -> bytes:
    made = random.Random(seed)
    return b"".join(b"%d %s\n" % (line, b"x" * made.randrange(0, 120)) for line in range(number))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("index", ["whole", "cut", "none"])
def test_pages_are_the_lines_of_the_file(place: Place, seed: int, index: str) -> None:
    body = some_lines(EVERY * 7 + seed, seed) + (b"no end" if seed % 2 else b"")
    log = written(place, body, random.Random(seed))
    file = place.index_of("0" * 12)
    assert file.stat().st_size == 24 * 7
    if index == "cut":
        file.write_bytes(file.read_bytes()[: 24 * 3 + 11])
    elif index == "none":
        file.unlink()
    log = Log(place, "0" * 12)
    lines = body.splitlines(keepends=True)
    assert log.line_count() == len(lines)
    for first in (0, 1, EVERY - 1, EVERY, EVERY + 1, EVERY * 5 + 100, len(lines) - 3, len(lines), len(lines) + 1000):
        page = log.page(first, 10)
        assert page.lines == lines[first : first + 10]
        assert body[page.offset : page.end] == b"".join(page.lines)
    assert log.page(-5, 3).lines == lines[-5:-2]
    for line in (0, EVERY, EVERY * 3 + 17):
        assert log.line_at(len(b"".join(lines[:line]))) == line
    log.close()


def test_pieces_end_at_lines(place: Place) -> None:
    body = some_lines(2000, 3)
    log, offset, got = written(place, body), 0, b""
    while piece := log.read(offset, 1000):
        assert piece.endswith(b"\n")
        offset, got = offset + len(piece), got + piece
    assert got == body
    assert b"".join(log.pieces(17, 99)) == body[17:116]
    log.close()


def test_lines_with_a_text_are_found_in_parts(place: Place) -> None:
    body = b"".join(b"line %d%s\n" % (n, b" needle" if n % 1000 == 7 else b"") for n in range(10_000))
    log, found, offset = written(place, body), list[tuple[int, bytes]](), 0
    while True:
        lines, more = log.grep(b"needle", offset, most=3)
        found += lines
        if more is None:
            break
        offset = more
    assert [text for _, text in found] == [b"line %d needle" % n for n in range(7, 10_000, 1000)]
    assert all(body[at : at + len(text)] == text for at, text in found)
    assert log.grep(b"nowhere") == ([], None)
    assert log.grep(b"needle", budget_s=-1.0, most=1)[1] is not None
    log.close()


def test_a_search_without_time_says_where_to_go_on(place: Place) -> None:
    log = written(place, b"x" * 70 + b"\n" + some_lines(60_000, 1) + b"needle\n")
    assert log.size > 2 << 20
    lines, more = log.grep(b"needle", budget_s=-1.0)
    assert lines == []
    assert more is not None
    assert 0 < more < log.size
    assert log.grep(b"needle", more) == ([(log.size - 7, b"needle")], None)
    log.close()


def test_the_command_prints_bytes_and_lines(place: Place, leadline: Run) -> None:
    uid = leadline("run", "--detach", "--", "sh", "-c", "seq 1000").stdout.strip()
    assert leadline("book", "log", uid, "--follow").stdout == "".join(f"{n}\n" for n in range(1, 1001))
    assert leadline("book", "log", uid[:6], "--from", "4", "--bytes", "3").stdout == "3\n4"
    assert leadline("book", "log", "--from", "-5").stdout == "1000\n"
    assert leadline("book", "log", "--line", "500", "--lines", "2").stdout == "500\n501\n"
    assert leadline("book", "log", "--line", "-2", "--lines", "1").stdout == "999\n"
    assert leadline("book", "log", "--grep", "77").stdout.startswith("219: 77\n")
    assert leadline("book", "log", "--grep", "never").stderr == "not found\n"
    assert leadline("book", "log", "nosuch").returncode == 2


ODD = b"\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J \x1b]8;;http://x\x1b\\ \xe2\x80\xae \xff\xfe tab\t \x1b[31\n"
SHOWN = "\x1b[31mred\x1b[0m \ufffd]0;title\ufffd \ufffd[2J \ufffd]8;;http://x\ufffd\\ \ufffd \ufffd\ufffd tab\t \ufffd[31\n"


def test_what_could_steer_a_terminal_is_replaced_wherever_it_is_cut() -> None:
    for cut in range(len(ODD) + 1):
        tame = Tame()
        assert tame(ODD[:cut]) + tame(ODD[cut:]) + tame(b"", last=True) == SHOWN, cut


@pytest.mark.parametrize("raw", [True, False])
def test_on_a_terminal_output_is_tame_unless_raw_is_asked_for(place: Place, leadline: Run, raw: bool, tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(ODD)
    leadline("run", "--", "cat", tmp_path / "odd", text=False)
    assert leadline("book", "log", text=False).stdout == ODD
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "leadline", "book", "log", *(["--raw"] if raw else [])])
    got = b""
    try:
        while piece := os.read(terminal, 1000):
            got += piece
    except OSError:  # the other side is closed
        os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    got = got.replace(b"\r\n", b"\n")
    assert got == (ODD if raw else SHOWN.encode() + b"\x1b[0m")


def test_a_log_has_an_end_that_can_be_seen(place: Place) -> None:
    writer = LogWriter(place, "e" * 12, most=100_000)
    line = b"x" * 999 + b"\n"
    for _ in range(150):
        writer.add(line)
    writer.close()
    log = Log(place, "e" * 12)
    whole = log.read(0)
    assert whole.startswith(line * 100)
    assert whole[100_000:] == b"\n[leadline: the log ends here, at 100000 bytes; the command printed more]\n"
    assert (writer.lost_bytes, writer.size) == (50_000, len(whole))
    assert log.page(-1, 5).lines == [b"[leadline: the log ends here, at 100000 bytes; the command printed more]\n"]
    log.close()


@pytest.mark.parametrize(("said", "kept"), [("5kB", 5120), ("200", 200), ("0", 0)])
def test_the_limit_of_a_log_is_the_user_s(place: Place, leadline: Run, said: str, kept: int) -> None:
    done = leadline("run", "--", "seq", "20000", env={"LEADLINE_BOOK_LOG": said})
    assert (done.returncode, done.stdout) == (0, "".join(f"{n}\n" for n in range(1, 20_001)))
    [log] = place.logs.glob("*.log")
    assert log.read_text()[:kept] == done.stdout[:kept]
    assert f"[leadline: the log ends here, at {kept} bytes; the command printed more]" in log.read_text()[kept:]
    assert f"{len(done.stdout) - kept:,} bytes of output" in leadline("book", "show").stdout


def test_a_limit_that_is_none_is_none(place: Place, leadline: Run) -> None:
    assert leadline("run", "--", "seq", "3", env={"LEADLINE_BOOK_LOG": "much"}).stdout == "1\n2\n3\n"
    [log] = place.logs.glob("*.log")
    assert log.read_text() == "1\n2\n3\n"
