"""leadline page on files, without a server: what it prints, what it finds, how it fails."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import duckdb
import pytest
from crc import crc32c
from leadline._core.pages import PageRun, page_read
from leadline.capture.reader import open_capture
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.files.pages import Place, parse_place
from leadline.files.pages.hexdump import hex_lines
from leadline.files.pages.run import Pages
from leadline.files.pages.text import _typed
from leadline.progress import TerminalLine

TESTDATA = Path(__file__).resolve().parents[2] / "testdata"
PAGES = TESTDATA / "postgres" / "9.6"
HEAP, BTREE = PAGES / "heap_4_rows.page", PAGES / "btree_4_keys.page"
BLOCK = 8192


def said(capsys: pytest.CaptureFixture[str], *line: str) -> tuple[int, str]:
    code = run(["page", *line])
    out, err = capsys.readouterr()
    return code, out + err


def answered(capsys: pytest.CaptureFixture[str], *line: str) -> Any:
    code = run(["page", *line, "--json"])
    return code, json.loads(capsys.readouterr().out)


def changed(page: bytes, at: int, value: bytes) -> bytes:
    return page[:at] + value + page[at + len(value) :]


def with_checksum(page: bytes, folder: Path) -> bytes:
    """The page as block 0 of a server with data checksums writes it. The algorithm is compared with the server's elsewhere."""
    path = folder / "checksum.page"
    path.write_bytes(page)
    return changed(page, 8, struct.pack("<H", page_read(str(path), 0)["computed_checksum"]))


@pytest.fixture
def data_dir(tmp_path: Path) -> Callable[..., Path]:
    """Makes a data directory with a pg_control and one relation file of the pages given."""

    def make(*pages: bytes, checksums: bool = False, name: str = "16384", segment_blocks: int = 131072) -> Path:
        root = tmp_path / "data"
        (root / "base" / "5").mkdir(parents=True, exist_ok=True)
        (root / "global").mkdir(exist_ok=True)
        (root / "PG_VERSION").write_text("18\n")
        control = bytearray(BLOCK)
        struct.pack_into("<I", control, 8, 1800)
        struct.pack_into("<I", control, 16, 1)  # shut down
        struct.pack_into("<II", control, 216, BLOCK, segment_blocks)
        struct.pack_into("<I", control, 252, int(checksums))
        struct.pack_into("<I", control, 292, crc32c(control[:292]))
        (root / "global" / "pg_control").write_bytes(control)
        (root / "base" / "5" / name).write_bytes(b"".join(pages))
        return root

    return make


# -- the pages under testdata ------------------------------------------------------------------------------------------


def test_every_page_has_a_provenance_and_is_the_one_it_speaks_of() -> None:
    kept = TESTDATA / "capture"  # captures say in their manifest what they are
    folders = {path.parent for path in TESTDATA.rglob("*") if path.is_file() and kept not in path.parents}
    assert PAGES in folders
    for folder in folders:
        entries = tomllib.loads((folder / "PROVENANCE.toml").read_text())
        files = {path.name for path in folder.iterdir()} - {"PROVENANCE.toml"}
        assert files == {entry["file"] for entry in entries.values()}
        for entry in entries.values():
            assert hashlib.sha256((folder / entry["file"]).read_bytes()).hexdigest() == entry["sha256"]
            assert all(entry[key] for key in ("server", "made_by", "oracle", "why"))


# -- show, hex, diff ---------------------------------------------------------------------------------------------------


def test_show_says_all_of_a_page_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = said(capsys, "show", str(HEAP))
    assert code == 0
    assert f"{HEAP} block 0: heap" in text
    for word in ("pd_lower             40", "1    8152         1      39  normal", "t_ctid (0,4)", "has values of variable width"):
        assert word in text
    assert max(len(line) for line in text.splitlines() if str(HEAP) not in line) <= 80


def test_values_do_nothing_to_a_terminal() -> None:
    assert _typed({"a": "it's", "b": None, "c": "red\x1b[31m\n"}) == r"a = 'it''s', b = NULL, c = E'red\x1b[31m\n'"
    assert _typed({"a": "\t\\" + "x" * 50}) == r"a = E'\t\\" + "x" * 50 + "'"


@pytest.mark.usefixtures("terminal")
def test_a_long_value_is_cut_on_a_terminal_alone() -> None:
    assert _typed({"a": "\t\\" + "x" * 50}) == r"a = E'\t\\" + "x" * 46 + "…' 52 characters"


def test_show_json_has_every_field_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    code, page = answered(capsys, "show", f"{BTREE}:0")
    assert (code, page["kind"], page["problems"]) == (0, "btree leaf", [])
    items = [part for part in page["parts"] if part["part"] == "item"]
    assert [item["fields"]["htid"]["value"] for item in items] == ["(0,1)", "(0,2)", "(0,3)", "(0,4)"]
    assert items[0]["fields"]["t_tid"] == {"value": "(0,1)", "offset": 8160, "length": 6}
    special = page["parts"][-1]
    assert (special["part"], special["fields"]["btpo_flags"]["flags"]) == ("special", ["BTP_LEAF", "BTP_ROOT"])


def test_hex_prints_every_byte_once_under_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = said(capsys, "hex", f"{HEAP}:0")
    assert code == 0 and "\x1b" not in text
    assert " 8032  e0 06 00 00                                      tuple 4 t_xmin\n" in text
    _, rows = answered(capsys, "hex", f"{HEAP}:0")
    assert bytes.fromhex("".join(row["bytes"] for row in rows)) == HEAP.read_bytes()
    assert [row["end"] for row in rows[:-1]] == [row["start"] for row in rows[1:]]


def test_colour_is_added_on_a_terminal_and_takes_nothing_away() -> None:
    page = page_read(str(HEAP), 0)
    plain, coloured = (list(hex_lines(page, colour=colour)) for colour in (False, True))
    assert [click.unstyle(line) for line in coloured] == plain
    assert coloured[0] != plain[0] and not any("\x1b" in line for line in plain)


def test_the_bar_is_drawn_on_a_terminal_only(data_dir: Callable[..., Path]) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream in (Terminal(), io.StringIO()):
        progress = TerminalLine(stream)
        progress.live = progress.live or stream.isatty()  # whatever TERM says here
        pages = Pages([data_dir(*[HEAP.read_bytes()] * 100)], progress=progress)
        progress.share(1, 2, "half")
        assert list(pages) == []
        drawn = stream.getvalue()
        if stream.isatty():
            assert "###############               ]  50%  half" in drawn and drawn.endswith("\r")
        else:
            assert drawn == ""


def test_diff_names_the_fields_that_differ(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = HEAP.read_bytes()
    other = tmp_path / "other.page"
    other.write_bytes(changed(page, 8152 + 4, struct.pack("<I", 1761)))
    code, rows = answered(capsys, "diff", f"{HEAP}:0", f"{other}:0")
    assert (code, rows) == (0, [{"part": "tuple 1", "field": "t_xmax", "a": 0, "b": 1761}])
    _, added = answered(capsys, "diff", f"{BTREE}:0", f"{PAGES / 'btree_key_6_added.page'}:0")
    assert {"part": "item 5", "field": "", "a": None, "b": "16 bytes at 8096"} in added
    assert said(capsys, "diff", f"{HEAP}:0", f"{HEAP}:0") == (0, "the pages are identical\n")
    other.write_bytes(changed(page, 100, b"x"))
    assert said(capsys, "diff", f"{HEAP}:0", f"{other}:0") == (0, "the pages differ only in unused bytes\n")


def test_a_block_of_oracle_is_taken_apart_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    block = TESTDATA / "oracle" / "12.1" / "one_row.block"
    code, page = answered(capsys, "show", str(block))
    assert (code, page["engine"], page["kind"], page["problems"]) == (0, "oracle", "trans data", [])
    [row] = [part for part in page["parts"] if part["part"] == "row"]
    assert bytes.fromhex(row["fields"]["column"]["value"]) == b"AAAAAAAAAA"
    encrypted = tmp_path / "encrypted.block"
    encrypted.write_bytes(changed(block.read_bytes(), 15, b"\x16"))
    _, page = answered(capsys, "show", str(encrypted))
    assert page["kind"] == "trans data, encrypted"
    assert page["parts"][0]["fields"]["flg_kcbh"]["flags"] == ["KCBHFDLC", "KCBHFCKV", "encrypted"]
    code, text = said(capsys, "show", str(block))
    assert code == 0 and "checksum 0x46dd is right" in text and "file 0, block 907" in text
    code, answer = answered(capsys, "check", str(block))
    assert code == 2 and "Oracle blocks" in answer["error"]["detail"]


def test_a_place_is_a_file_and_a_block(tmp_path: Path) -> None:
    assert parse_place("base/5/1259:7") == Place(Path("base/5/1259"), 7)
    assert parse_place("base/5/1259") == Place(Path("base/5/1259"), 0)
    odd = tmp_path / "name:3"
    odd.touch()
    assert parse_place(str(odd)) == Place(odd, 0)
    with pytest.raises(LeadlineError, match="block 4294967295 is out of range"):
        parse_place("f:4294967295")


# -- check -------------------------------------------------------------------------------------------------------------


def test_check_of_sound_pages(capsys: pytest.CaptureFixture[str], data_dir: Callable[..., Path], tmp_path: Path) -> None:
    page = with_checksum(HEAP.read_bytes(), tmp_path)
    root = data_dir(page, bytes(BLOCK), checksums=True)
    code, answer = answered(capsys, "check", str(root))
    assert (code, answer["problems"]) == (0, [])
    summary = answer["summary"]
    assert (summary["pages"], summary["items"], summary["checksums"]) == (2, 4, 1)
    assert summary["kinds"] == {"heap": 1, "new": 1}
    code, text = said(capsys, "check", str(root / "base" / "5" / "16384"))
    assert code == 0 and text.endswith("checksums verified on 1 page\nno problems\n")


NOISE = b"".join(hashlib.sha256(struct.pack("<I", i)).digest() for i in range(BLOCK // 32))


@pytest.mark.parametrize(
    ("damage", "classes"),
    [
        (lambda page: changed(page, 5000, b"x"), ["checksum"]),
        (lambda page: page[:4096] + bytes(4096), ["torn", *["tuple"] * 4]),
        (lambda page: NOISE, ["encrypted"]),
        (lambda page: changed(page, 14, struct.pack("<H", 9000)), ["header"]),
        (lambda page: changed(page, 28, page[24:28]), ["checksum", "overlap"]),
        (lambda page: changed(page, 8152 + 22, b"\x50"), ["checksum", "tuple"]),
        (lambda page: page[:8000], ["short"]),
        (lambda page: bytes(100) + page[100:], ["header"]),
    ],
    ids=["one byte", "second half zero", "noise", "pd_upper", "same tuple twice", "t_hoff", "cut off", "header zero"],
)
def test_check_names_what_is_wrong(
    damage: Callable[[bytes], bytes],
    classes: list[str],
    capsys: pytest.CaptureFixture[str],
    data_dir: Callable[..., Path],
    tmp_path: Path,
) -> None:
    page = with_checksum(HEAP.read_bytes(), tmp_path)
    root = data_dir(damage(page), checksums=True)
    code, answer = answered(capsys, "check", str(root))
    assert code == 1
    assert [problem["class"] for problem in answer["problems"]] == classes
    for problem in answer["problems"]:
        assert problem["path"].endswith("base/5/16384") and problem["block"] == 0
        assert problem["offset"] <= BLOCK and problem["wanted"] and problem["found"]
    assert sum(answer["summary"]["classes"].values()) == len(classes)


def test_checksums_count_blocks_over_segments(data_dir: Callable[..., Path], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """With files of one block, block 0 of file N.1 is block 1 of the relation: the checksum of block 0 is wrong there."""
    page = with_checksum(HEAP.read_bytes(), tmp_path)
    root = data_dir(page, checksums=True, name="16384.1", segment_blocks=1)
    (root / "base" / "5" / "16384").write_bytes(page)
    code, answer = answered(capsys, "check", str(root))
    assert (code, [problem["class"] for problem in answer["problems"]]) == (1, ["checksum"])
    path = root / "base" / "5" / "16384.1"
    computed = page_read(str(path), 0)["computed_checksum"]
    path.write_bytes(changed(page, 8, struct.pack("<H", computed)))
    assert answered(capsys, "check", str(root))[0] == 0


def test_without_data_checksums_what_is_stored_does_not_count(data_dir: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    page = changed(HEAP.read_bytes(), 8, b"\x01\x02")
    assert answered(capsys, "check", str(data_dir(page)))[0] == 0
    assert answered(capsys, "check", str(data_dir(page, checksums=True)))[0] == 1


def test_problems_are_many_and_memory_is_not(data_dir: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    """More problems than wait for their reader at once, over several pieces and all threads: each is told once."""
    root = data_dir(*[HEAP.read_bytes()] * 3000, checksums=True)
    code, answer = answered(capsys, "check", str(root))
    assert code == 1
    assert sorted(problem["block"] for problem in answer["problems"]) == list(range(3000))


def test_a_run_that_nobody_reads_can_be_stopped(data_dir: Callable[..., Path]) -> None:
    run_ = PageRun([str(data_dir(*[HEAP.read_bytes()] * 3000, checksums=True))])
    run_.stop()
    summary = run_.finish()
    assert summary["pages"] <= 3000
    with pytest.raises(LeadlineError, match="is closed"):
        run_.status()


# -- scan --------------------------------------------------------------------------------------------------------------


def test_scan_writes_tables_that_sql_reads(
    capsys: pytest.CaptureFixture[str], data_dir: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    redirect = changed(HEAP.read_bytes(), 24, struct.pack("<I", 2 | 2 << 15))
    root = data_dir(redirect, BTREE.read_bytes(), bytes(BLOCK))
    out = tmp_path / "out.leadline"
    code, summary = answered(capsys, "scan", str(root), "-o", str(out))
    assert (code, summary["rows"]) == (0, {"heap_tuple": 4, "index_item": 4, "page": 3})
    capture = open_capture(out)
    assert capture.manifest.status == "complete"
    written = capture.manifest.tables
    assert {name: about["rows"] for name, about in written.items()} == {"page_file": 1, "page": 3, "heap_tuple": 4, "index_item": 4}
    segments = [path.stat().st_size for path in out.glob("*/*.parquet")]
    assert sum(about["bytes"] for about in written.values()) == sum(segments)
    assert sum(about["segments"] for about in written.values()) == len(segments) >= 4
    tuples = capture.rows("select * exclude (file_id, block) from heap_tuple order by lp")
    head = {"lp": 2, "lp_off": 8112, "lp_flags": 1, "lp_len": 39, "t_xmin": 1760, "t_xmax": 0, "t_field3": 0}
    rest = {"t_ctid_block": 0, "t_ctid_posid": 2, "t_infomask2": 2, "t_infomask": 2050, "t_hoff": 24}
    assert tuples[1] == head | rest
    assert tuples[0] == dict.fromkeys(tuples[0], 0) | {"lp": 1, "lp_off": 2, "lp_flags": 2}
    items = capture.rows("select block, lp, t_tid_posid, t_info, spgist_bits from index_item order by lp")
    assert [tuple(row.values()) for row in items] == [(1, n, n, 16, 0) for n in (1, 2, 3, 4)]
    pages = capture.rows("select block, kind, pd_lower, lp_normal, lp_redirect from page join page_file using (file_id) order by block")
    assert [tuple(row.values()) for row in pages] == [(0, "heap", 40, 3, 1), (1, "btree leaf", 40, 4, 0), (2, "new", 0, 0, 0)]
    [about] = capture.rows("select * from page_file")
    assert (about["dbnode"], about["relfilenode"], about["fork"], about["checksums"]) == (5, 16384, "main", False)
    capture.close()
    monkeypatch.chdir(out)
    assert duckdb.connect().execute(Path("views.sql").read_text() + "select count(*) from heap_tuple").fetchall() == [(4,)]
    assert run(["show", str(out)]) == 0
    text = capsys.readouterr().out
    assert "Kinds of pages" in text and "heap_tuple 4, index_item 4, page 3, page_file 1" in text and "None" not in text


def test_scan_of_many_pages_loses_none(capsys: pytest.CaptureFixture[str], data_dir: Callable[..., Path], tmp_path: Path) -> None:
    root = data_dir(*[HEAP.read_bytes()] * 9000)
    out = tmp_path / "out.leadline"
    assert answered(capsys, "scan", str(root), "-o", str(out))[0] == 0
    capture = open_capture(out)
    counts = "select count(*), count(distinct (block, lp)), sum(lp_off), max(block) from heap_tuple"
    assert list(capture.rows(counts)[0].values()) == [36000, 36000, 9000 * (8152 + 8112 + 8072 + 8032), 8999]
    assert capture.scalar("select count(distinct block) from page") == 9000
    capture.close()
    code, answer = answered(capsys, "scan", str(root), "-o", str(out))
    assert (code, answer["error"]["message"]) == (2, "the output already exists")


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (["show", "{here}/none"], "not_found"),
        (["show", "{here}"], "invalid"),
        (["show", "{here}/text"], "invalid"),
        (["show", "{heap}:9"], "invalid"),
        (["show", "{heap}", "--block-size", "5000"], "usage"),
        (["hex", "{here}/empty:0"], "invalid"),
        (["check", "{here}"], "invalid"),
        (["check", "{here}/text"], "invalid"),
        (["check", "{here}/none"], "not_found"),
        (["check"], "usage"),
        (["scan", "{heap}"], "usage"),
        (["scan", "{heap}", "-o", "{here}/text"], "usage"),
        (["nonsense"], "usage"),
    ],
)
def test_errors_are_one_message(line: list[str], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_text("root:x:0:0\n" * 2000)
    (tmp_path / "empty").touch()
    arguments = [part.format(here=tmp_path, heap=HEAP) for part in line]
    code, answer = answered(capsys, *arguments)
    assert (code, answer["error"]["kind"]) == (2, kind)


def test_the_data_directory_of_an_old_server_is_read(data_dir: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    root = data_dir(HEAP.read_bytes())
    control = bytearray(BLOCK)
    struct.pack_into("<I", control, 8, 960)
    (root / "global" / "pg_control").write_bytes(control)
    (root / "PG_VERSION").write_text("9.6\n")
    code, answer = answered(capsys, "check", str(root))
    assert (code, answer["summary"]["kinds"]) == (0, {"heap": 1})


def test_files_that_a_running_server_drops_or_cuts_off(data_dir: Callable[..., Path]) -> None:
    """They are counted, and the others are read: a run is started, then the files change before it gets to them."""
    root = data_dir(*[HEAP.read_bytes()] * 6000)
    folder = root / "base" / "5"
    (folder / "16385").write_bytes(HEAP.read_bytes() * 300)
    (folder / "16386").write_bytes(HEAP.read_bytes() * 300)
    damaged = folder / "16383"
    # More problems than wait for a reader: the threads stop until somebody takes them, which is after the files changed.
    damaged.write_bytes((NOISE + HEAP.read_bytes()) * 2000)
    started = PageRun([str(root)], threads=1)
    first = started.take(1, 10.0)
    assert first
    (folder / "16385").unlink()
    with open(folder / "16386", "r+b") as cut:
        cut.truncate(100 * BLOCK)
    summary = started.finish()
    assert summary["vanished"] == 1 and summary["shrunk"] > 0
    assert summary["pages"] == 4000 + 6000 + 100


def test_the_last_page_is_being_added_while_the_file_is_found(data_dir: Callable[..., Path]) -> None:
    """The server's write makes the file longer bit by bit: what was half a page when the files were looked for is whole when it is read."""
    root = data_dir((NOISE + HEAP.read_bytes()) * 2000)
    grows = root / "base" / "5" / "16385"
    grows.write_bytes(HEAP.read_bytes()[:4096])
    started = PageRun([str(root)], threads=1)
    assert started.take(1, 10.0)  # it waits for a reader of all these problems, and has not come to the other file
    grows.write_bytes(HEAP.read_bytes())
    summary = started.finish()
    assert (summary["pages"], summary["classes"]) == (4001, {"encrypted": 2000})


def test_a_file_that_is_missing_before_another_is_found(data_dir: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Files of two blocks each: of 16384 the second is missing, of 16385 it is not full, 16386 was dropped, 16387 is whole."""
    root = data_dir(HEAP.read_bytes() * 2, segment_blocks=2)
    sizes = {"16384.2": 1, "16385": 2, "16385.1": 1, "16385.2": 1, "16386": 0, "16386.1": 0, "16386.2": 2, "16387": 2, "16387.1": 1}
    for name, blocks in sizes.items():
        (root / "base" / "5" / name).write_bytes(HEAP.read_bytes() * blocks)
    code, answer = answered(capsys, "check", str(root))
    found = {(Path(problem["path"]).name, problem["class"], problem["found"]) for problem in answer["problems"]}
    assert (code, found) == (1, {("16384.1", "segment", "no file"), ("16385.1", "segment", "8192 bytes")})
    (root / "postmaster.pid").touch()  # of a running server that may be dropping a database
    assert answered(capsys, "check", str(root))[0] == 0


def test_tablespaces_are_read_through_their_links(
    data_dir: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the checksums and sizes of the data directory around the link; what another server has in the same place is left out."""
    root = data_dir(with_checksum(HEAP.read_bytes(), tmp_path), checksums=True)
    for version in ("PG_17_202406281", "PG_18_202506291"):
        (tmp_path / "space" / version / "5").mkdir(parents=True)
        (tmp_path / "space" / version / "5" / "16390").write_bytes(HEAP.read_bytes())
    (root / "pg_tblspc").mkdir()
    (root / "pg_tblspc" / "77").symlink_to(tmp_path / "space")
    file = root / "pg_tblspc" / "77" / "PG_18_202506291" / "5" / "16390"
    code, answer = answered(capsys, "check", str(root))
    assert (code, answer["summary"]["pages"], answer["summary"]["absent"]) == (1, 2, [])
    assert [(problem["path"], problem["class"]) for problem in answer["problems"]] == [(str(file), "checksum")]
    assert page_read(str(file), 0)["checksums"] is True  # the same file on its own
    (root / "pg_tblspc" / "77").unlink()
    (root / "pg_tblspc" / "77").symlink_to(tmp_path / "nowhere")
    code, text = said(capsys, "check", str(root))
    assert code == 1 and f"not scanned: {root}/pg_tblspc/77 points to a missing tablespace" in text


def test_temporary_relations_have_forks_too(data_dir: Callable[..., Path]) -> None:
    path = data_dir(HEAP.read_bytes(), name="t3_16384_fsm") / "base" / "5" / "t3_16384_fsm"
    page = page_read(str(path), 0)
    assert (page["fork"], page["kind"]) == ("fsm", "free space map")


def test_a_damaged_pg_control_is_said(data_dir: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    root = data_dir(HEAP.read_bytes())
    (root / "global" / "pg_control").write_bytes(b"\xff" * BLOCK)
    code, answer = answered(capsys, "check", str(root))
    [problem] = answer["problems"]
    assert (code, problem["class"], answer["summary"]["kinds"]) == (1, "control", {"heap": 1})
    assert "pg_control_version" in problem["message"]
