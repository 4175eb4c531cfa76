"""A head of the book: whatever is changed in records since it was printed is found, also where record and evidence were changed alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from books import Open, Run
from leadline.book.head import COLUMNS, TABLES, against, print_head
from leadline.book.place import Place
from leadline.book.query import Book
from leadline.book.recorder import Recorder
from leadline.errors import LeadlineError


def made(place: Place, name: str) -> str:
    recorder = Recorder(place)
    recorder.begin("command", name, ["true", name])
    recorder.end(0)
    return recorder.uid


@pytest.fixture
def three(place: Place, open_book: Open) -> tuple[Book, list[str]]:
    return open_book(), [made(place, name) for name in ("one", "two", "three")]


def found(book: Book, head: str) -> dict[str, tuple[str, str]]:
    book.refresh()
    return {check.run: (check.what, check.state) for check in against(book, head)[0]}


def test_a_record_that_was_changed_or_removed_is_named(place: Place, three: tuple[Book, list[str]]) -> None:
    book, uids = three
    book.refresh()
    head, covered = print_head(book)
    assert (covered, found(book, head)) == (3, {})
    assert print_head(book) == (head, 3)
    later = made(place, "later")
    book.label(book.find(uids[0]), [("release", "7")])
    book.pin(book.find(uids[1]), True)
    assert found(book, head) == {}
    with book.store.writing() as db:
        db.execute("update run set rc = 0, summary = 'it went well' where uid = ?", (uids[0],))
        db.execute("update metric set value = value / 2 where name = 'wall_s' and run = (select id from run where uid = ?)", (uids[1],))
        db.execute("delete from run where uid = ?", (uids[2],))
    assert found(book, head) == {uids[0]: ("record", "changed"), uids[1]: ("record", "changed"), uids[2]: ("record", "missing")}
    assert later not in found(book, head)


def test_heads_cover_what_those_before_did_and_lists_cannot_be_changed(place: Place, three: tuple[Book, list[str]]) -> None:
    book, uids = three
    book.refresh()
    first, _ = print_head(book)
    made(place, "four")
    book.refresh()
    second, covered = print_head(book)
    assert covered == 4 and second != first
    lists = {path.name: path.read_text() for path in (place.root / "heads").iterdir() if path.name != "last"}
    assert set(lists) == {first, second} and lists[second].count("\nrun ") == 1
    with book.store.writing() as db:
        db.execute("update run set name = 'other' where uid = ?", (uids[0],))
    assert found(book, first) == found(book, second) == {uids[0]: ("record", "changed")}
    (place.root / "heads" / first).write_text(lists[first].replace(uids[0], uids[0][::-1]))
    assert found(book, second) == {"": ("head", "changed")}
    (place.root / "heads" / first).unlink()
    assert found(book, second) == {"": ("head", "missing")}
    third, covered = print_head(book)
    assert covered == 4 and found(book, third) == {}


def test_the_command_prints_a_head_and_checks_against_it(place: Place, three: tuple[Book, list[str]], leadline: Run) -> None:
    book, uids = three
    printed = leadline("book", "verify", "--head")
    head = printed.stdout.strip()
    assert (printed.returncode, len(head), "covers 3 runs" in printed.stderr) == (0, 64, True)
    fine = leadline("book", "verify", "--against", head)
    assert (fine.returncode, fine.stdout.strip()) == (0, "0 of 0 pieces of evidence of 3 runs as recorded; 3 records as in the head")
    assert "a head kept elsewhere" in leadline("book", "verify").stderr
    with book.store.writing() as db:
        db.execute("update run set status = 'ok', rc = 5 where uid = ?", (uids[1],))
    odd = leadline("book", "verify", "--against", head)
    assert odd.returncode == 1
    assert odd.stdout.splitlines()[0] == f"{uids[1][:5]}  changed   record: it is not what it was when the head was printed"
    told = json.loads(leadline("book", "verify", "--against", head, "--json").stdout)
    assert (told["differing"], told["records"], told["checks"][0]["state"]) == (1, 3, "changed")
    assert leadline("book", "verify", uids[0], "--against", head).returncode == 0
    assert leadline("book", "verify", uids[1], "--against", head).returncode == 1
    assert leadline("book", "verify", "--against", "0" * 64).returncode == 1
    for wrong in (("--against", "5ea1"), ("--head", "--against", head), ("--head", "last")):
        assert leadline("book", "verify", *wrong).returncode == 2


def test_a_head_is_64_digits(open_book: Open) -> None:
    for wrong in ("", "last", "../../etc/passwd", "A" * 64):
        with pytest.raises(LeadlineError, match="is no head"):
            against(open_book(), wrong)


def test_every_table_of_runs_is_covered(open_book: Open) -> None:
    """What a new step of the schema adds is covered, or may change after the end of a run."""
    schema = Path(__file__).resolve().parents[2] / "python/leadline/book/schema"
    text = "\n".join(path.read_text() for path in schema.glob("*.sql"))
    tables = {part.split()[0] for part in text.split("create table ")[1:] if "references run (id)" in part.partition("\n);")[0]}
    assert tables - set(TABLES) == {"label", "run_words"}
    assert set(COLUMNS) >= {"argv_json", "rc", "status", "log_hash", "started", "ended"}
