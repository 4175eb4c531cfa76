"""Packed logs are read as they were: pages, pieces, lines, searches; and nothing is lost on the way."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest
from books import Open, Run
from leadline.book import packed
from leadline.book.log import Log, LogWriter
from leadline.book.packed import log_size, open_log, pack
from leadline.book.place import Place
from leadline.book.recorder import Recorder
from leadline.book.retention import Retention, pack_logs, prune

UID = "0123456789ab"


@pytest.fixture
def plain(tmp_path: Path) -> Place:
    return Place(tmp_path / "book")


def written(place: Place, seed: int) -> bytes:
    """A log of short and very long lines, some empty, the last without an end."""
    drawn = random.Random(seed)
    body = b"".join(b"%d %s\n" % (n, b"abc" * drawn.choice([0, 1, 10, 10, 5000])) for n in range(drawn.choice([300, 3000]))) + b"the end"
    log = LogWriter(place, UID)
    log.add(body)
    log.close()
    return body


@pytest.mark.parametrize("seed", range(4))
def test_what_is_read_is_what_was_written(plain: Place, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "MEMBER", 10_000)
    body = written(plain, seed)
    before, drawn = Log(plain, UID), random.Random(seed)
    saved = pack(plain, UID)
    assert saved > 0 and not plain.log_of(UID).exists()
    assert gzip.decompress(plain.packed_log_of(UID).read_bytes()) == body
    assert plain.packed_log_of(UID).stat().st_mode & 0o777 == 0o600
    after = Log(plain, UID)
    assert (after.size, log_size(plain, UID), b"".join(after.pieces())) == (len(body), len(body), body)
    assert after.line_count() == before.line_count()
    for _ in range(50):
        offset, count = drawn.randrange(len(body)), drawn.randrange(1, 40)
        assert after.read(offset, 5000) == before.read(offset, 5000)
        assert b"".join(after.pieces(offset, 30_000)) == body[offset : offset + 30_000]
        assert after.page(line := drawn.randrange(-50, 3100), count) == before.page(line, count)
        assert after.line_at(offset) == before.line_at(offset)
        assert after.grep(b"7 abc", offset, most=5) == before.grep(b"7 abc", offset, most=5)
    with open_log(plain, UID, buffered=False) as file:
        file.seek(len(body) - 3)
        assert (file.read(100), file.read(100)) == (b"end", b"")


def test_what_would_not_be_smaller_or_is_not_equal_stays(plain: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogWriter(plain, UID)
    log.add(body := random.Random(1).randbytes(20_000))
    log.close()
    assert (pack(plain, UID), plain.log_of(UID).read_bytes()) == (0, body)
    plain.log_of(UID).write_bytes(b"a\n" * 9000)
    monkeypatch.setattr(packed, "_equal", lambda *_: False)
    assert (pack(plain, UID), plain.log_of(UID).stat().st_size) == (0, 18_000)
    assert {path.suffix for path in plain.logs.iterdir()} == {".log", ".lines"}


@pytest.mark.parametrize("damage", ["head", "body", "short"])
def test_a_damaged_one_is_an_error(plain: Place, damage: str) -> None:
    written(plain, 0)
    pack(plain, UID)
    whole = bytearray(plain.packed_log_of(UID).read_bytes())
    if damage == "head":
        whole[0] ^= 1
    elif damage == "body":
        whole[28:60] = bytes(32)
    plain.packed_log_of(UID).write_bytes(whole[: -len(whole) // 2] if damage == "short" else whole)
    with pytest.raises(OSError, match="damaged"):
        b"".join(Log(plain, UID).pieces())


def recorded(place: Place, text: bytes, *, ended: bool = True) -> str:
    recorder = Recorder(place)
    recorder.begin("command", "talks", ["talks"])
    log = LogWriter(place, recorder.uid)
    log.add(text)
    log.close()
    if ended:
        recorder.end(0)
    return recorder.uid


def test_old_outputs_are_packed_and_found(place: Place, leadline: Run, open_book: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    long = recorded(place, b"a needle\n" + b"hay\n" * 9000)
    short, running = recorded(place, b"short\n"), recorded(place, b"hay\n" * 9000, ended=False)
    book, future = open_book(), 1 << 60
    assert pack_logs(book, future, really=True).runs == 0  # we, who write them, still run
    monkeypatch.setattr("leadline.book.retention.lives", lambda *_: False)
    assert pack_logs(book, 0, really=True).runs == 0  # they are new
    would = pack_logs(book, future, really=False)
    assert (would.runs, would.log_bytes, place.packed_log_of(long).exists()) == (1, 36_009, False)
    done = pack_logs(book, future, really=True)
    assert (done.runs, done.log_bytes, done.freed_bytes > 30_000) == (1, 36_009, True)
    assert [place.log_of(uid).exists() for uid in (long, short, running)] == [False, True, True]
    assert pack_logs(book, future, really=True).runs == 0
    assert [run["uid"] for run in book.search("a needle")[0]] == [long]
    assert leadline("book", "log", long).stdout.startswith("a needle\nhay\n")
    assert leadline("book", "log", long, "--grep", "needle").stdout == "0: a needle\n"
    assert json.loads(leadline("book", "log", long, "--line", "-1", "--json").stdout)["size"] == 36_009
    prune(book, Retention(most_bytes=36_000 + 10), really=True)
    assert place.packed_log_of(long).exists()  # it takes much less now
    prune(book, Retention(most_runs=0), really=True)
    assert sorted(path.name for path in place.logs.iterdir() if long in path.name) == []


def test_the_command_says_what_it_did(place: Place, leadline: Run) -> None:
    leadline("run", "--", "sh", "-c", "yes | head -n 5000")
    assert json.loads(leadline("book", "compress", "--older", "1h", "--json").stdout)["compressed"] == 0
    done = leadline("book", "compress", "--older", "0s")
    assert done.stdout.startswith("1 output of "), done.stdout + done.stderr
    assert leadline("book", "log", "last").stdout == "y\n" * 5000
