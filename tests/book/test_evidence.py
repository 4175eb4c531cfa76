"""`leadline book verify`: what was changed, added or removed since a run made it is found and named, down to one byte."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from books import Open, Run
from leadline.book import facts
from leadline.book.evidence import verify
from leadline.book.place import Place
from leadline.book.query import Book
from leadline.book.recorder import Recorder

CAPTURE = Path(__file__).resolve().parents[2] / "testdata" / "capture" / "format1"
LARGE = 5 << 20  # more than is read of a file that a run was given


def made(place: Place, *paths: Path) -> str:
    """The id of a run that made these."""
    recorder = Recorder(place)
    recorder.begin("leadline", "take", ["leadline", "take"])
    for path in paths:
        recorder.artifact("capture" if path.is_dir() else "file", path)
    recorder.end(0)
    return recorder.uid


def states(book: Book, uid: str) -> dict[str, tuple[str, str]]:
    """State and detail by name."""
    return {check.name: (check.state, check.detail) for check in verify(book, book.details(book.find(uid)))}


def flip(path: Path, at: int = 0) -> None:
    """One bit of one byte."""
    body = bytearray(path.read_bytes())
    body[at] ^= 1
    path.write_bytes(body)


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CAPTURE, tmp_path / "kept.leadline"))


def test_one_changed_byte_in_a_capture_is_found_and_named(place: Place, open_book: Open, leadline: Run, capture: Path) -> None:
    uid = made(place, capture)
    book = open_book()
    assert states(book, uid) == {str(capture): ("ok", "")}
    file = sorted(capture.rglob("*.parquet"))[3]
    flip(file, 100)
    assert states(book, uid) == {str(file): ("changed", "")}
    done = leadline("book", "verify", uid)
    assert (done.returncode, str(file) in done.stdout, "1 differs" in done.stdout) == (1, True, True)
    twin = leadline("book", "verify", uid, "--json")
    said = {"run": uid, "what": "capture", "name": str(file), "state": "changed", "detail": ""}
    assert (twin.returncode, json.loads(twin.stdout)["checks"]) == (1, [said])
    flip(file, 100)
    assert leadline("book", "verify", uid).returncode == 0


def test_what_is_missing_and_what_was_added_is_named(place: Place, open_book: Open, capture: Path) -> None:
    uid = made(place, capture)
    file, more = sorted(capture.rglob("*.parquet"))[0], capture / "more"
    file.unlink()
    more.write_text("")
    assert states(open_book(), uid) == {str(file): ("missing", ""), str(more): ("added", "")}


def test_large_files_are_hashed_and_one_byte_is_found(place: Place, open_book: Open, tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(b"x" * LARGE)
    uid = made(place, file)
    book = open_book()
    assert states(book, uid)[str(file)] == ("ok", "")
    flip(file, LARGE - 1)
    assert states(book, uid)[str(file)] == ("changed", "as many bytes as before, but others")
    file.unlink()
    assert states(book, uid)[str(file)] == ("missing", "")


def test_of_what_is_too_large_the_size_is_compared(
    place: Place, open_book: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(facts, "HASHED_AT_MOST", 10)
    file = tmp_path / "large"
    file.write_bytes(b"x" * 20)
    uid = made(place, file)
    book = open_book()
    assert states(book, uid)[str(file)] == ("ok", "by its size: it was not read")
    file.write_bytes(b"x" * 21)
    assert states(book, uid)[str(file)] == ("changed", "21 bytes, were 20")


def test_who_interrupts_the_hashing_has_a_run_that_ended(
    place: Place, open_book: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    def interrupted(_path: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(facts, "file_hash", interrupted)
    (tmp_path / "made").write_text("x")
    uid = made(place, tmp_path / "made")
    book = open_book()
    assert book.find(uid)["status"] == "ok"
    assert states(book, uid) == {str(tmp_path / "made"): ("ok", "by its size: it was not read")}


def test_names_of_files_stay_when_other_runs_are_pruned(place: Place, open_book: Open, leadline: Run, capture: Path) -> None:
    made(place)
    uid = made(place, capture)
    leadline("book", "prune", "--keep", "1")
    flip(capture / "manifest.json")
    assert states(open_book(), uid) == {str(capture / "manifest.json"): ("changed", "")}


def test_a_changed_byte_of_an_output_is_found(place: Place, open_book: Open, leadline: Run) -> None:
    leadline("run", "--", "seq", "1", "5000")
    book = open_book()
    uid = book.find("last")["uid"]
    log = place.log_of(uid)
    assert states(book, uid) == {str(log): ("ok", "")}
    with log.open("ab") as file:
        file.write(b"of what was left running\n")
    assert states(book, uid) == {str(log): ("ok", "")}
    flip(log, 23_000)
    assert states(book, uid) == {str(log): ("changed", "other bytes than were printed")}
    flip(log, 23_000)
    assert leadline("book", "compress", "--older", "0s").returncode == 0
    assert place.packed_log_of(uid).exists()
    assert states(book, uid) == {str(log): ("ok", "")}
    place.packed_log_of(uid).unlink()
    assert states(book, uid) == {str(log): ("missing", "")}


def an_experiment(leadline: Run, book: Book) -> dict[str, Any]:
    more = ("--metric", "v=(.*)", "--better", "more", "--pairs", "6", "--seed", "1", "--hypothesis", "four is more")
    assert leadline("experiment", "--baseline", "echo v=3", "--variant", "echo v=4", *more).returncode == 0
    book.refresh()
    return book.details(book.find("last"))


def test_a_forged_design_trial_or_verdict_is_found(open_book: Open, leadline: Run) -> None:
    book = open_book()
    run = an_experiment(leadline, book)
    found = states(book, run["uid"])
    seal = next(iter(book.store.rows("select seal from experiment")))["seal"]
    assert found.pop(str(book.place.log_of(run["uid"]))) == ("ok", "")
    assert found == {seal[:16]: ("ok", ""), "more": ("ok", "")}

    def forged(sql: str, *values: Any) -> dict[str, tuple[str, str]]:
        """What differs when this was done; it is undone again."""
        with book.store.writing() as db:
            kept = [db.execute(f"select * from {table}").fetchall() for table in ("experiment", "experiment_leg")]
            db.execute(sql, values)
        out = {name: said for name, said in states(book, run["uid"]).items() if said[0] != "ok"}
        with book.store.writing() as db:
            for table, rows in zip(("experiment", "experiment_leg"), kept):
                db.execute(f"delete from {table}")
                for row in rows:
                    db.execute(f"insert into {table} ({', '.join(row)}) values ({', '.join('?' * len(row))})", list(row.values()))
        return out

    design = book.store.rows("select design_json from experiment")[0]["design_json"]
    other = design.replace("four is more", "four is less")
    assert forged("update experiment set design_json = ?", other) == {seal[:16]: ("changed", "it does not have its seal")}
    from leadline.book.experiments.design import seal as sealed

    registered = book.store.rows("select registered from experiment")[0]["registered"]
    fresh = sealed(run["uid"], registered, other)
    [(_, (state, detail))] = forged("update experiment set design_json = ?, seal = ?", other, fresh).items()
    assert (state, detail[:29]) == ("changed", "the seal is not that of trial")
    late = sealed(run["uid"], registered + 10**9, design)
    assert [said[0] for said in forged("update experiment set registered = ?, seal = ?", registered + 10**9, late).values()] == ["changed"]
    with book.store.writing() as db:  # the trials are forged as well
        db.execute("update run set inputs_json = replace(inputs_json, ?, ?)", (seal, late))
    found = forged("update experiment set registered = ?, seal = ?", registered + 10**9, late)
    assert found == {late[:16]: ("changed", "it was registered after a trial had begun")}
    with book.store.writing() as db:
        db.execute("update run set inputs_json = replace(inputs_json, ?, ?)", (late, seal))
    found = forged("update experiment_leg set value = 3.5 where n = 4")
    assert {(name[:5], said[0]) for name, said in found.items()} == {("trial", "changed"), ("more", "changed")}
    assert list(forged("update experiment set ratio = 1.5")) == ["more"]
    assert list(forged("delete from experiment_leg where n = 0")) == ["more"]
    assert list(forged("delete from experiment")) == [""]


def test_an_order_that_was_drawn_in_blocks_is_still_that_of_its_seed(open_book: Open, leadline: Run) -> None:
    """Designs that were sealed before a coin was tossed for each pair do not say how they were drawn."""
    from leadline.book.experiments.design import seal as sealed

    book = open_book()
    run = an_experiment(leadline, book)
    row = book.store.rows("select registered, seal, design_json from experiment")[0]
    design = json.loads(row["design_json"])
    assert (design.pop("drawn"), design["seed"]) == ("a coin for each pair", 1)

    def with_order(order: str) -> dict[str, tuple[str, str]]:
        """What is said of the design when it was sealed with this order and says not how it was drawn."""
        text = json.dumps(design | {"order": order})
        seal = sealed(run["uid"], row["registered"], text)
        with book.store.writing() as db:
            db.execute("update experiment set design_json = ?, seal = ?", (text, seal))
            db.execute("update run set inputs_json = replace(inputs_json, ?, ?)", (row["seal"], seal))
        found = {name: said for name, said in states(book, run["uid"]).items() if name == seal[:16]}
        with book.store.writing() as db:
            db.execute("update run set inputs_json = replace(inputs_json, ?, ?)", (seal, row["seal"]))
        return found

    assert list(with_order("VBBVBVVBBVVB").values()) == [("ok", "")]  # as it was drawn from the seed 1 then
    assert list(with_order(design["order"]).values()) == [("changed", "its order is not that of its seed")]


def test_a_run_that_was_killed_says_that_it_cannot_be_known(place: Place, open_book: Open, capture: Path) -> None:
    recorder = Recorder(place)
    recorder.begin("leadline", "take", ["leadline", "take"])
    recorder.artifact("capture", capture)
    book = open_book()
    assert states(book, recorder.uid) == {}
    with book.store.writing() as db:
        db.execute("update run set status = 'lost' where uid = ?", (recorder.uid,))
    assert states(book, recorder.uid) == {str(capture): ("not known", "the run ended before it was whole")}


def test_all_runs_are_checked_when_none_is_named(place: Place, leadline: Run, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("one", "two", "three")]
    for file in files:
        file.write_text(file.name)
        made(place, file)
    assert leadline("book", "verify").stdout == "3 of 3 pieces of evidence of 3 runs as recorded\n"
    flip(files[1])
    done = leadline("book", "verify")
    assert (done.returncode, str(files[1]) in done.stdout, str(files[0]) in done.stdout) == (1, True, False)
