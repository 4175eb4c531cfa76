"""Whatever happens to the book, what is recorded prints the same and ends the same."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from books import Open, Run
from leadline.book.place import Place, find_place
from leadline.book.query import Book
from leadline.book.spool import as_json

COMMAND = ["run", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]
OWN = ["tables", "session", "--json"]


@contextmanager
def full_disk(folder: Path) -> Iterator[Path]:
    """A file system of 4 MB without a byte left."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "none", str(folder)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        for part in ("spool", "logs"):
            (folder / part).mkdir(mode=0o700)
        with pytest.raises(OSError, match="No space left"):
            (folder / "rest").write_bytes(b"x" * 5_000_000)
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def a_file(folder: Path) -> Iterator[Path]:
    folder.write_text("in the way")
    yield folder


@contextmanager
def below_a_file(folder: Path) -> Iterator[Path]:
    folder.write_text("in the way")
    yield folder / "book"


@contextmanager
def in_proc(folder: Path) -> Iterator[Path]:
    yield Path("/proc/1/book")


@contextmanager
def a_link_loop(folder: Path) -> Iterator[Path]:
    folder.symlink_to(folder)
    yield folder


@contextmanager
def a_damaged_store(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    (folder / "book.sqlite").write_bytes(b"this is no database " * 1000)
    yield folder


@contextmanager
def a_locked_store(folder: Path) -> Iterator[Path]:
    Book(Place(folder)).close()
    other = sqlite3.connect(folder / "book.sqlite", isolation_level=None)
    other.execute("begin exclusive")
    yield folder
    other.close()


@contextmanager
def a_name_too_long(folder: Path) -> Iterator[Path]:
    yield folder / ("x" * 300)


@contextmanager
def a_dead_database(folder: Path) -> Iterator[str]:
    yield f"postgresql://nobody@/none?host={folder}"


TROUBLE = [full_disk, a_file, below_a_file, in_proc, a_link_loop, a_damaged_store, a_locked_store, a_name_too_long, a_dead_database]


def run(words: list[str], book: object, **more: str) -> tuple[int, str, str]:
    environment = {name: value for name, value in os.environ.items() if name != "LEADLINE_RUN"} | {"LEADLINE_BOOK": str(book)} | more
    done = subprocess.run(
        [sys.executable, "-m", "leadline", *words], env=environment, capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("trouble", TROUBLE, ids=[function.__name__ for function in TROUBLE])
def test_a_book_in_trouble_changes_nothing(trouble: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    own = run(OWN, "off")
    with trouble(tmp_path / "book") as book:  # type: ignore[attr-defined]
        assert run(COMMAND, book) == (7, "out\n", "err\n")
        assert run(OWN, book) == own
        assert run(["tables", "no_such"], book) == run(["tables", "no_such"], "off")


def test_without_a_home_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEADLINE_BOOK")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", "nowhere")
    assert find_place() is None


def test_from_a_folder_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    script = f'mkdir {gone} && cd {gone} && rmdir {gone} && exec "$@"'
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "leadline", *COMMAND]
    done = subprocess.run(command, env=os.environ | {"LEADLINE_BOOK": "book"}, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:], done.stderr.splitlines()[-1:]) == (7, ["out"], ["err"])


def test_what_is_lost_is_counted(tmp_path: Path) -> None:
    """Its beginning and end are written once there is room again, and say how much is missing."""
    with full_disk(tmp_path / "book") as folder:
        command = ["run", "--", "sh", "-c", f"seq 200000; rm {folder}/rest; sync; echo end"]
        code, out, _ = run(command, folder)
        assert (code, out.splitlines()[-1]) == (0, "end")
        book = Book(Place(folder))
        [found] = book.runs()
        log = book.place.log_of(found["uid"])
        kept = log.stat().st_size if log.exists() else 0
        book.close()
    assert (found["status"], found["log_lost_bytes"]) == ("ok", len(out) - kept)
    assert kept < len(out)


@pytest.mark.parametrize("book", ["off", "a folder"])
def test_names_in_any_bytes(book: str, tmp_path: Path) -> None:
    odd = os.fsdecode(b"a\xff\xfe\x1b]0;x\x07")
    place = str(tmp_path / "book") if book == "a folder" else book
    words = ["run", "--label", "odd=" + odd, "--name", odd, "--", "printf", "%s", odd]
    command = [sys.executable, "-m", "leadline", *words]
    done = subprocess.run(command, env=os.environ | {"LEADLINE_BOOK": place}, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"a\xff\xfe\x1b]0;x\x07", b"")
    if book == "a folder":
        shown = subprocess.run(
            [sys.executable, "-m", "leadline", "book", "show"], env=os.environ | {"LEADLINE_BOOK": place}, capture_output=True, check=True
        )  # fmt: skip
        assert b"\x1b" not in shown.stdout


def test_a_closed_output(tmp_path: Path) -> None:
    for redirected in (">&-", "2>&-", ">&- 2>&-", "<&-"):
        command = f"{sys.executable} -m leadline run -- sh -c 'exit 7' {redirected}"
        environment = os.environ | {"LEADLINE_BOOK": str(tmp_path / "book")}
        done = subprocess.run(command, shell=True, env=environment, capture_output=True, timeout=60, check=False)
        assert done.returncode == 7, redirected


def test_a_reader_that_has_seen_enough_ends_the_command_as_without(tmp_path: Path) -> None:
    command = f"{sys.executable} -m leadline run -- sh -c 'while echo y; do :; done; echo over >&2' | head -n 3"
    environment = os.environ | {"LEADLINE_BOOK": str(tmp_path / "book")}
    done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "y\ny\ny\n")
    assert "Traceback" not in done.stderr


def test_an_old_store_is_not_written_by_who_does_not_know_it(leadline: Run, open_book: Open) -> None:
    book = open_book()
    with book.store.writing() as db:
        db.set_version(9999)
    done = leadline("book", "list")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: the book has schema 9999; this leadline knows up to ")
    assert leadline(*OWN).returncode == 0


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, -7, 2**70, 1.5, 1e300, "", 'a"b\\c\n\x00\x7f', "é☃𝄞", "\udcff", [], [1, [2, "x"]], {}, {"a": {"b": [None]}},
    ],
)  # fmt: skip
def test_events_are_json(value: object) -> None:
    assert json.loads(as_json({"value": value})) == {"value": value}


def test_events_have_what_json_has_not_as_text() -> None:
    assert json.loads(as_json([Path("/a"), b"x", float("nan"), float("inf"), (1,)])) == ["/a", "b'x'", None, None, [1]]


def others_may_write(folder: Path) -> Path:
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def its_group_may_write(folder: Path) -> Path:
    folder.mkdir()
    folder.chmod(0o770)
    return folder


def of_somebody_else(folder: Path) -> Path:
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)
    return folder


def with_a_spool_of_somebody_else(folder: Path) -> Path:
    (folder / "spool").mkdir(mode=0o700, parents=True)
    os.chown(folder / "spool", 65534, 65534)
    return folder


def a_link_of_somebody_else(folder: Path) -> Path:
    (folder.parent / "real").mkdir(mode=0o700)
    folder.symlink_to(folder.parent / "real")
    os.lchown(folder, 65534, 65534)
    return folder


UNSAFE = {
    others_may_write: "everybody may write to it (mode 0777)", its_group_may_write: "its group may write to it (mode 0770)",
    of_somebody_else: "it belongs to nobody, not to root", with_a_spool_of_somebody_else: "it belongs to nobody, not to root",
    a_link_of_somebody_else: "it is a link of nobody",
}  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("made", UNSAFE, ids=[function.__name__ for function in UNSAFE])
def test_a_book_that_somebody_else_could_change_is_refused_and_nothing_goes_there(made: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = made(tmp_path / "book")
    code, out, err = run(COMMAND, folder)
    assert (code, out) == (7, "out\n")
    warned, said = err.splitlines()
    assert said == "err" and warned.startswith("warning: nothing is recorded, as the directory of the book is not safe: ")
    assert UNSAFE[made] in warned
    code, out, err = run(["book", "list"], folder)
    assert (code, out) == (2, "") and UNSAFE[made] in err and "error: the directory of the book is not safe" in err
    assert run(["serve", "--listen", "127.0.0.1:0"], folder)[0] == 2
    assert [path for path in folder.rglob("*") if path.is_file()] == []
