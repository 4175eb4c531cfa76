"""Pages from printed text: what gdb, od, hexdump, xxd and Oracle print of a page is that page; what is left out is not invented."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import no_oracle
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.files.pages import Place, read_page

TESTDATA = Path(__file__).resolve().parents[2] / "testdata"
ORACLE = TESTDATA / "oracle" / "12.1"
HEAP = TESTDATA / "postgres" / "9.6" / "heap_4_rows.page"
BLOCK = ORACLE / "one_row.block"


def read(tmp_path: Path, text: str, name: str = "page.txt") -> dict[str, Any]:
    path = tmp_path / name
    path.write_text(text)
    return read_page(Place(path))


@pytest.mark.parametrize("file", [HEAP, BLOCK], ids=["postgres", "oracle"])
@pytest.mark.parametrize("command", ["od -A d -t x1", "od -A x -t x1", "od -A x -t x1 -v", "hexdump -C", "xxd", "xxd -g 1"])
def test_what_a_dump_tool_prints_is_the_page(tmp_path: Path, command: str, file: Path) -> None:
    if shutil.which(command.split()[0]) is None:
        no_oracle(f"{command.split()[0]} is not installed")
    text = subprocess.run([*command.split(), file], capture_output=True, text=True, check=True).stdout
    found = read(tmp_path, f"$ {command} page\n{text}and words after it\n")
    assert found["raw"] == file.read_bytes()
    assert found["dump"] == {"tool": found["dump"]["tool"], "missing_bytes": 0} and found["dump"]["tool"].split()[0] in command
    assert found["parts"] == read_page(Place(file))["parts"]


def gdb(page: bytes, unit: str = "bx") -> Iterator[str]:
    """As gdb's x command prints it: with tabs, a symbol behind the address, words as numbers."""
    size = {"bx": 1, "wx": 4, "gx": 8}[unit]
    per_line = 8 if size == 1 else 16
    for at in range(0, len(page), per_line):
        words = [int.from_bytes(page[a : a + size], "little") for a in range(at, at + per_line, size)]
        yield f"0x{0x1A5576000 + at:x} <buffer+{at}>:" + "".join(f"\t0x{word:0{2 * size}x}" for word in words)


def oracle_memory(page: bytes) -> Iterator[str]:
    yield "Dump of memory from 0x00007F140F335360 to 0x00007F140F337360"
    for at in range(0, len(page), 16):
        words = " ".join(f"{int.from_bytes(page[a : a + 4], 'little'):08X}" for a in range(at, at + 16, 4))
        yield f"{0x7F140F335360 + at:09X} {words}  [....]"


@pytest.mark.parametrize("unit", ["bx", "wx", "gx"])
def test_words_of_a_debugger_are_turned_to_bytes(tmp_path: Path, unit: str) -> None:
    assert read(tmp_path, "\n".join(gdb(BLOCK.read_bytes(), unit)))["raw"] == BLOCK.read_bytes()


def test_memory_that_oracle_dumps(tmp_path: Path) -> None:
    found = read(tmp_path, "\n".join(oracle_memory(BLOCK.read_bytes())))
    assert found["raw"] == BLOCK.read_bytes() and found["kind"] == "trans data"


def test_only_the_first_dump_of_a_text_counts(tmp_path: Path) -> None:
    first, second = BLOCK.read_bytes(), bytes(range(256)) * 32
    assert read(tmp_path, "\n".join([*gdb(first), "", *gdb(second)]))["raw"] == first


def test_what_a_dump_leaves_out_is_zeros_only_if_the_checksum_agrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = BLOCK.read_bytes()
    lines = list(gdb(page))
    blank = [n for n, line in enumerate(lines) if set(re.findall(r"\t0x(..)", line)) == {"00"} and 0 < n < len(lines) - 1]
    shorter = "\n".join(line for n, line in enumerate(lines) if n not in blank)
    found = read(tmp_path, shorter)
    assert found["raw"] == page and found["dump"]["missing_bytes"] == 8 * len(blank) > 7000
    assert run(["page", "show", str(tmp_path / "page.txt")]) == 0
    assert f"without {8 * len(blank)} bytes; zeros there make the checksum right" in capsys.readouterr().out
    rows = [n for n, line in enumerate(lines) if "0x41" in line]
    with pytest.raises(LeadlineError, match="8 bytes of the page are missing") as caught:
        read(tmp_path, "\n".join(line for n, line in enumerate(lines) if n != rows[0]))
    assert f"the first missing byte is at {8 * rows[0]}" in caught.value.detail and "is wrong" in caught.value.detail
    with pytest.raises(LeadlineError, match="are missing from the dump"):  # no checksum of PostgreSQL 9.6 vouches for zeros
        read(tmp_path, "\n".join(line for n, line in enumerate(gdb(HEAP.read_bytes())) if n != 40))


def fields(page: dict[str, Any], part: str) -> dict[str, Any]:
    [found] = [p for p in page["parts"] if p["part"] == part and not p["number"]]
    return {name: field["value"] for name, field in found["fields"].items()}


def test_a_block_dump_of_oracle_says_what_the_block_says() -> None:
    dump, block = read_page(Place(ORACLE / "one_row.trc")), read_page(Place(BLOCK))
    assert dump["problems"] == [] and dump["raw"] is None
    assert fields(dump, "transaction header")["seg/obj"] == fields(block, "transaction header")["ktbbhsid"]
    said, there = fields(dump, "row directory"), fields(block, "row directory")
    for name in ("ntab", "nrow", "frre", "fsbo", "fseo", "avsp", "tosp"):
        assert said[name] == there[f"kdbh{name}"], name
    assert [fields(dump, "row")["at"]] == there["offsets"]
    assert fields(dump, "row")["col 0"] == fields(block, "row")["column"] == b"AAAAAAAAAA".hex()
    [first, second] = [p["fields"] for p in dump["parts"] if p["part"] == "itl"]
    [of_block, _] = [p["fields"] for p in block["parts"] if p["part"] == "itl"]
    xid = [of_block[f"xid {name}"]["value"] for name in ("usn", "slot", "sqn")]
    assert [int(n, 16) for n in first["xid"]["value"].removeprefix("0x").split(".")] == xid
    assert first["flag"]["value"] == "--U-" and first["fsc"]["value"] == "0x0000.004e9af4" and second["lck"]["value"] == 0


def test_an_encrypted_block_is_said_to_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    dump = read_page(Place(ORACLE / "encrypted_header.trc"))
    assert (dump["kind"], dump["block"]) == ("trans data, encrypted", 907)
    assert fields(dump, "header") | {"flg": 0x16, "chkval": 0xF23A, "tail": 0x9AF40601} == fields(dump, "header")
    assert run(["page", "hex", str(ORACLE / "encrypted_header.trc")]) == 2
    assert "this dump has no bytes" in capsys.readouterr().err


def test_a_value_of_several_lines_is_whole_or_said_not_to_be(tmp_path: Path) -> None:
    dump = read_page(Place(ORACLE / "encrypted_column.trc"))
    row = fields(dump, "row")
    assert row["col 0"] == "c102" and len(row["col 1"]) == 104 and row["col 1"].endswith("e901") and dump["problems"] == []
    text = (ORACLE / "encrypted_column.trc").read_text().replace("\n e9 01\n", "\n")
    [problem] = read(tmp_path, text)["problems"]
    assert problem["message"] == "row 0 col 1 has 50 bytes in the dump, expected 52"


def test_show_of_a_block_dump_fits_and_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(ORACLE / "one_row.trc")
    assert run(["page", "show", path]) == 0
    shown = capsys.readouterr().out
    assert "no bytes: read from a formatted dump" in shown and "41414141414141414141" in shown
    assert max(map(len, shown.splitlines()[1:])) <= 80
    assert run(["page", "show", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dump"]["tool"] == "Oracle block dump"
    assert run(["page", "diff", path, path]) == 0
    assert capsys.readouterr().out == "the pages are identical\n"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: "a letter\nto nobody\n", "the text is not a page dump"),
        (lambda: "Block header dump: \n", "contains no block"),
        (lambda: "\n".join(gdb(bytes(64))), "960 bytes of the page are missing"),
    ],
    ids=["letter", "empty", "short"],
)
def test_text_that_is_no_page(tmp_path: Path, make: Callable[[], str], says: str) -> None:
    with pytest.raises(LeadlineError, match=says):
        read(tmp_path, make())


def test_damaged_dumps_end_in_a_page_or_one_error(tmp_path: Path) -> None:
    chance = random.Random(7)
    texts = ["\n".join(gdb(BLOCK.read_bytes())), (ORACLE / "one_row.trc").read_text(), (ORACLE / "encrypted_column.trc").read_text()]
    pages = errors = 0
    for _ in range(150):
        text = bytearray(chance.choice(texts).encode())
        for _ in range(chance.randint(1, 8)):
            at = chance.randrange(len(text))
            text[at : at + chance.choice((0, 1, 40))] = bytes(chance.choices(b"0123456789abcdefx:[] \t\n*-ktl", k=chance.randint(0, 3)))
        try:
            read(tmp_path, text.decode())
            pages += 1
        except LeadlineError:
            errors += 1
    assert pages > 20 and errors > 20
