"""leadline import onstat: what is read from text, which page belongs to which extent, how it fails."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from leadline.capture.reader import open_capture
from leadline.cli import run
from leadline.engines.informix.oncheck import Chunk, Extent, Report
from leadline.engines.informix.onstat import Buffer, Listing, Sample
from leadline.errors import LeadlineError

SEED = Path(__file__).resolve().parents[2] / "testdata" / "informix" / "listing" / "onstat_x.txt"
COLUMNS = "address owner flags pagenum memaddr nslots pgflgs scount waiter"
BANNER = "IBM Informix Dynamic Server Version 12.10.FC8 -- On-Line -- Up 3 days 06:07:15 -- 286648 Kbytes"

# Chunk 124 in pages of 16 kB, 162 likewise, 25 in pages of 4 kB; 47 is not listed.
# Pages of the seed in pages of the dbspace: 124:25597160 is 3199645, ...176 is ...647, ...208 is ...651, ...240 is ...655.
ONCHECK = """
DBspace Usage Report: orders_dbs          Owner: informix  Created: 04/01/2016


 Chunk Pathname                             Pagesize(k)  Size(p)  Used(p)  Free(p)
   124 /dev/informix/a chunk with blanks             16  4000000  3999000     1000

 Description                                                   Offset(p)  Size(p)
 ------------------------------------------------------------- -------- --------
 RESERVED PAGES                                                       0        2
 CHUNK FREELIST PAGE                                                  2        1
 orders_dbs:'informix'.TBLSpace                                       3       50
 shop:'thompson'.order_line_ix1                                 3199640        7
 shop:'thompson'.orders                                         3199647        4
 shop:'thompson'.order_line                                     3199651     1000
 FREE                                                           3200651     1000

 Total Used:  3999000
 Total Free:     1000

 Chunk Pathname                             Pagesize(k)  Size(p)  Used(p)  Free(p)
   162 /dev/informix/162                             16  4000000 see below see below

 Description                                                   Offset(p)  Size(p)
 ------------------------------------------------------------- -------- --------
 shop:'thompson'.voucher_ix                                           0  4000000

DBspace Usage Report: small_dbs           Owner: informix  Created: 04/01/2016

 Chunk Pathname                             Pagesize(k)  Size(p)  Used(p)  Free(p)
    25 /dev/informix/25                               4  1000000  1000000        0

 Description                                                   Offset(p)  Size(p)
 ------------------------------------------------------------- -------- --------
 shop:'thompson'.stock                                           761743        1
"""


def said(capsys: pytest.CaptureFixture[str], *line: object) -> tuple[int, str, str]:
    code = run([str(word) for word in line])
    out, err = capsys.readouterr()
    return code, out, err


def answered(capsys: pytest.CaptureFixture[str], *line: object) -> tuple[int, Any]:
    code, out, _ = said(capsys, *line, "--json")
    return code, json.loads(out)


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def listing(*pages: str, header: str = COLUMNS, size: int = 2048) -> str:
    rows = "".join(f"2443cd7e8 0 80 {page} cce17b000 101 801 0 0\n" for page in pages)
    head = f"Buffers (Access)\n{header}\n\nBuffer pool page size: {size}\n"
    return f"{head}{rows}1 modified, 9 total, 9 hash buckets, {size} buffer size\n"


def extents(page_kb: int, *rows: tuple[str, int, int], chunk: int = 7) -> str:
    text = f" Chunk Pathname Pagesize(k) Size(p) Used(p) Free(p)\n {chunk} /dev/x {page_kb} 9 9 0\n"
    text += "\n Description Offset(p) Size(p)\n ---- --- ---\n"
    return text + "".join(f" {name} {offset} {size}\n" for name, offset, size in rows)


# -- the listing of the article ----------------------------------------------------------------------------------------


def test_the_listing_of_the_article_decodes_to_every_line_of_it() -> None:
    found = Listing(SEED)
    sample, *buffers = list(found)
    assert sample == Sample(str(SEED), "X", None, None)
    assert (len(buffers), found.unknown.count) == (19, 0)
    assert all(isinstance(b, Buffer) for b in buffers)
    assert [b.pool_page_size for b in buffers] == [4096] * 2 + [16384] * 17
    assert [(b.chunk, b.page, b.waiter) for b in buffers if b.waiter != "0"] == [
        (124, 25597176, "595236d428"),
        (162, 13196672, "624d39d668"),
    ]
    assert buffers[1] == Buffer(4096, "267ca4628", None, "0", None, 0, 47, 1570054, "105c3c5000", 122, 0x2890, 1, "0")
    assert buffers[-1].owner == "58cc3c7eb8"


def test_objects_are_named_and_counted(capsys: pytest.CaptureFixture[str], written: Callable[[str, str], Path], tmp_path: Path) -> None:
    capture = tmp_path / "waits.leadline"
    code, found = answered(capsys, "import", "onstat", SEED, "--oncheck", written("pe.txt", ONCHECK), "-o", capture)
    assert code == 0
    objects = {row["object"]: row for row in found["objects"]}
    counts = {name: (row["waiters"], row["pages"], row["exclusive"], row["shared"]) for name, row in objects.items()}
    assert counts == {
        "shop:'thompson'.orders": (1, 1, 1, 0),  # 124:25597176, its very first page
        "shop:'thompson'.voucher_ix": (1, 5, 5, 0),
        "shop:'thompson'.order_line": (0, 5, 5, 0),  # 124:25597208, its first page, and those behind
        "shop:'thompson'.order_line_ix1": (0, 1, 0, 1),
        "shop:'thompson'.stock": (0, 1, 1, 0),
        "chunk 47, not listed": (0, 1, 0, 0),
        "chunk 144, not listed": (0, 1, 1, 0),
        "chunk 166, not listed": (0, 1, 1, 0),
        "chunk 168, not listed": (0, 2, 2, 0),
        "chunk 264, not listed": (0, 1, 1, 0),
    }
    assert [row["object"] for row in found["objects"][:2]] == ["shop:'thompson'.voucher_ix", "shop:'thompson'.orders"]
    assert objects["shop:'thompson'.voucher_ix"]["page_types"] == "B-tree leaf, data"
    assert objects["shop:'thompson'.stock"]["dbspace"] == "small_dbs"
    assert found["rows"] == {"informix_sample": 1, "informix_buffer": 19, "informix_chunk": 3, "informix_extent": 9}
    assert sum(row["buffers"] for row in found["objects"]) == 19
    assert all(unknown["count"] == 0 for unknown in found["unknown_lines"].values())


@pytest.mark.usefixtures("terminal")
def test_text_fits_80_columns_and_show_sql_and_tables_read_the_capture(
    capsys: pytest.CaptureFixture[str], written: Callable[[str, str], Path], tmp_path: Path
) -> None:
    capture = tmp_path / "waits.leadline"
    code, text, _ = said(capsys, "import", "onstat", SEED, "--oncheck", written("pe.txt", ONCHECK), "-o", capture)
    assert code == 0 and "Contended objects\n1 sample of onstat with 19 buffers; 9 extents in 3 chunks\n" in text
    assert max(len(line) for line in text.splitlines() ) <= 80
    assert ["shop:voucher_ix", "1", "5", "5", "0", "B-tree", "leaf,", "data"] in [line.split() for line in text.splitlines()]
    assert said(capsys, "show", capture)[1] == text
    query = "select chunk, page, waiter from informix_hot_buffer where waiters > 0 order by chunk"
    rows = [{"chunk": 124, "page": 25597176, "waiter": "595236d428"}, {"chunk": 162, "page": 13196672, "waiter": "624d39d668"}]
    assert answered(capsys, "sql", capture, query) == (0, rows)
    assert said(capsys, "tables", "informix_extent")[0] == 0
    assert said(capsys, "findings", capture)[0] == 0


# -- which page belongs to which extent --------------------------------------------------------------------------------


@pytest.mark.parametrize(("page_kb", "system"), [(2, 2048), (4, 2048), (4, 4096), (16, 2048)])
def test_first_and_last_page_of_each_extent(
    page_kb: int, system: int, capsys: pytest.CaptureFixture[str], written: Callable[[str, str], Path], tmp_path: Path
) -> None:
    """Where the published script said "a": it took the first page of "b" for one of the extent before."""
    pe = extents(page_kb, ("d:'o'.a", 10, 4), ("d:'o'.b", 14, 1), ("d:'o'.empty", 15, 0), ("d:'o'.c", 20, 2))
    ratio = page_kb * 1024 // system
    wanted = {9: None, 10: "a", 13: "a", 14: "b", 15: None, 19: None, 20: "c", 21: "c", 22: None}
    pages = {page * ratio: name for page, name in wanted.items()}
    pages |= {(page + 1) * ratio - 1: name for page, name in wanted.items()}  # within a page of the dbspace: its last part
    x = written("x.txt", listing(*(f"7:{page}" for page in pages), size=system))
    capture = tmp_path / "c.leadline"
    assert said(capsys, "import", "onstat", x, "--oncheck", written("pe", pe), "-o", capture, "--system-page-size", system)[0] == 0
    opened = open_capture(capture)
    found = {row["page"]: row["relname"] for row in opened.rows("select page, relname from informix_hot_buffer")}
    opened.close()
    assert found == pages


def test_many_extents_against_a_slow_search(
    capsys: pytest.CaptureFixture[str], written: Callable[[str, str], Path], tmp_path: Path
) -> None:
    chance = random.Random(5)
    at, rows = 0, []
    for i in range(3000):
        at += chance.choice([0, 0, 1, 5])
        rows.append((f"d:'o'.t{i}", at, chance.randrange(1, 6)))
        at += rows[-1][2]
    pages = [chance.randrange(at + 10) for _ in range(500)] + [row[1] for row in rows[::50]] + [row[1] + row[2] for row in rows[::50]]
    chance.shuffle(rows)
    capture = tmp_path / "c.leadline"
    x, pe = written("x", listing(*(f"7:{page}" for page in pages))), written("pe", extents(2, *rows))
    assert said(capsys, "import", "onstat", x, "--oncheck", pe, "-o", capture)[0] == 0
    opened = open_capture(capture)
    found = {row["page"]: row["relname"] for row in opened.rows("select page, relname from informix_hot_buffer")}
    assert len(opened.rows("from informix_hot_buffer")) == len(pages)
    assert not [note for note in opened.manifest.notes if "extents overlap" in note]
    opened.close()
    for page in pages:
        names = [name.rpartition(".")[2] for name, offset, size in rows if offset <= page < offset + size]
        assert [found[page]] == (names or [None])


def test_what_makes_names_doubtful_is_noted(
    capsys: pytest.CaptureFixture[str], written: Callable[[str, str], Path], tmp_path: Path
) -> None:
    pe = written("pe", extents(16, ("d:'o'.a", 10, 9), ("d:'o'.b", 11, 1)))
    x = written("x", listing("7:84", "7:88", size=4096).replace("7:84", "7:85"))
    _, found = answered(capsys, "import", "onstat", x, "--oncheck", pe, "-o", tmp_path / "c")
    notes = " ".join(found["notes"])
    assert "1 extents overlap others" in notes
    assert "1 buffers do not start on a page boundary of their pool: check --system-page-size 2048" in notes
    assert "2 buffers are in chunks whose page size differs from their pool" in notes


def test_a_listing_without_page_sizes_takes_them_from_the_call(
    capsys: pytest.CaptureFixture[str], written: Callable[[str, str], Path], tmp_path: Path
) -> None:
    old = "DBSpace Usage Report:  rootdbs  Owner: informix  Created: 08/08/2006\n"
    old += "Chunk  Pathname  Size  Used  Free\n 1 /root 75000 19420 55580\n"
    old += "Description  Offset  Size\n------- ---------\nLOGICAL LOG: Log file 2  100  10\n"
    pe, x = written("pe", old), written("x", listing("1:399", "1:400", "1:439", "1:440"))
    for given, names in ((None, [None] * 4), (8192, [None, "LOGICAL LOG: Log file 2", "LOGICAL LOG: Log file 2", None])):
        capture = tmp_path / f"c{given}"
        more = ["--page-size", given] if given else []
        assert said(capsys, "import", "onstat", x, "--oncheck", pe, "-o", capture, *more)[0] == 0
        opened = open_capture(capture)
        found = opened.rows("select object from informix_hot_buffer order by page")
        opened.close()
        assert [row["object"] for row in found] == [name or "chunk 1, in no extent" for name in names]


# -- forms of text -----------------------------------------------------------------------------------------------------


def test_several_listings_are_several_samples(
    capsys: pytest.CaptureFixture[str], written: Callable[[str, str], Path], tmp_path: Path
) -> None:
    twice = f"{BANNER}\n{listing('7:1')}\n{BANNER.replace('3 days 06:07:15', '00:00:20')}\n{listing('7:2')}"
    code, found = answered(capsys, "import", "onstat", written("x", twice), SEED, "-o", tmp_path / "c")
    assert code == 0
    assert [(s["sample"], s["version"], s["uptime_s"]) for s in found["samples"]] == [
        (1, "12.10.FC8", 3 * 86400 + 6 * 3600 + 7 * 60 + 15),
        (2, "12.10.FC8", 20),
        (3, None, None),
    ]
    assert found["unknown_lines"][str(tmp_path / "x")]["count"] == 0
    _, rows = answered(capsys, "sql", tmp_path / "c", "select sample, count(*) as n from informix_buffer group by 1 order by 1")
    assert rows == [{"sample": 1, "n": 1}, {"sample": 2, "n": 1}, {"sample": 3, "n": 19}]


def test_onstat_b_is_read_by_the_names_of_its_columns(
    capsys: pytest.CaptureFixture[str], written: Callable[[str, str], Path], tmp_path: Path
) -> None:
    text = "Buffers\naddress  userthread flgs pagenum          memaddr  nslots pgflgs xflgs owner    waitlist\n"
    text += "\nBuffer pool page size: 2048\n"
    text += "a1 b2 6 1:40 c3 12 890 80 d4 e5\na2 0 0 1:41 c4 12 1 0 0 0\n 97 modified, 40000 total, 65536 hash buckets, 2048 buffer size\n"
    x = written("x", text)
    sample, first, second = list(Listing(x))
    assert isinstance(sample, Sample) and sample.listing == "B"
    assert first == Buffer(2048, "a1", "b2", "d4", 6, 0x80, 1, 40, "c3", 12, 0x890, None, "e5")
    assert isinstance(second, Buffer) and second.waiter == "0"
    _, found = answered(capsys, "import", "onstat", x, "-o", tmp_path / "c")
    assert [(row["buffers"], row["waiters"]) for row in found["objects"]] == [(1, 1)]  # the second is neither held nor waited for


@pytest.mark.parametrize(
    "line",
    [
        "2443cd7e8 0 80 7:1 cce17b000 101 801 0",
        "2443cd7e8 0 80 7:1 cce17b000 101 801 0 0 0",
        "2443cd7e8 0 80 7-1 cce17b000 101 801 0 0",
        "2443cd7e8 0 80 7:1 cce17b000 101 801 -1 0",
        "2443cd7e8 0 80 7:1 cce17b000 1_1 801 0 0",
        "2443cd7e8 0 80 99999999999:1 cce17b000 101 801 0 0",
        "2443cd7e8 0 80 7:99999999999999999999 cce17b000 101 801 0 0",
        "2443cd7e8 zero 80 7:1 cce17b000 101 801 0 0",
        "2443cd7e8 0 80 7:1 cce17b000 101 80100 0 0",
        "2443cd7e8 0 80 7:\N{ARABIC-INDIC DIGIT ONE} cce17b000 101 801 0 0",
        "Segmentation fault",
    ],
)
def test_a_line_of_unknown_form_is_counted(line: str, written: Callable[[str, str], Path]) -> None:
    found = Listing(written("x", listing("7:1") + line + "\n"))
    assert len(list(found)) == 2
    assert (found.unknown.count, found.unknown.first) == (1, [f"line 7: {line}"])


def test_lines_of_unknown_form_are_shown(capsys: pytest.CaptureFixture[str], written: Callable[[str, str], Path], tmp_path: Path) -> None:
    x = written("x", listing("7:1") + "Segmentation fault\n" * 9)
    code, out, _ = said(capsys, "import", "onstat", x, "-o", tmp_path / "c")
    assert code == 0
    assert "9 lines in an unknown format skipped, the first\n  line 7: Segmentation fault\n" in out
    assert said(capsys, "show", tmp_path / "c")[1] == out


def test_forms_of_oncheck(written: Callable[[str, str], Path]) -> None:
    report = Report(written("pe", ONCHECK + " what is this\n Total SBLOBSpace FREE META DATA: 60\n x:'y'.z 5 99999999999999999999\n"))
    found = list(report)
    chunks = [row for row in found if isinstance(row, Chunk)]
    assert chunks[0] == Chunk(124, "orders_dbs", "/dev/informix/a chunk with blanks", 16384, 4000000, 3999000, 1000)
    assert (chunks[1].used, chunks[1].free, chunks[2].dbspace) == (None, None, "small_dbs")
    parts = [row for row in found if isinstance(row, Extent)]
    assert (parts[0].description, parts[0].relname) == ("RESERVED PAGES", None)
    assert (parts[3].datname, parts[3].owner, parts[3].relname) == ("shop", "thompson", "order_line_ix1")
    assert (report.unknown.count, len(parts)) == (2, 9)


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (["{here}/none"], "not_found"),
        (["{here}"], "usage"),
        (["{here}/text"], "invalid"),
        (["{here}/empty"], "invalid"),
        ([str(SEED), "--oncheck", str(SEED)], "invalid"),
        ([str(SEED), "--oncheck", "{here}/none"], "not_found"),
        ([str(SEED), "--oncheck", "{here}/odd"], "usage"),
        ([str(SEED), "-o", "{here}"], "usage"),
        ([str(SEED), "-o", "{here}/text/c"], "storage"),
        ([str(SEED), "--system-page-size", "3000"], "usage"),
        ([], "usage"),
    ],
)
def test_errors_are_one_message(line: list[str], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_text("root:x:0:0\n" * 100)
    (tmp_path / "empty").touch()
    (tmp_path / "odd").write_text(extents(3, ("d:'o'.a", 1, 1)))
    words = [word.format(here=tmp_path) for word in line]
    if "-o" not in words:
        words += ["-o", str(tmp_path / "c")]
    code, answer = answered(capsys, "import", "onstat", *words)
    assert (code, answer["error"]["kind"]) == (2, kind)
    if line and line[-1] != "{here}/odd":
        assert not (tmp_path / "c").exists(), "nothing is left behind where nothing could be read"


def test_what_a_failure_leaves_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "odd").write_text(extents(3, ("d:'o'.a", 1, 1)))
    assert answered(capsys, "import", "onstat", SEED, "--oncheck", tmp_path / "odd", "-o", tmp_path / "c")[0] == 2
    manifest = json.loads((tmp_path / "c" / "manifest.json").read_text())
    assert (manifest["status"], manifest["error"]["kind"]) == ("failed", "usage")


def test_any_text_ends_in_rows_or_in_one_error(tmp_path: Path) -> None:
    """Lines of the real listings with random changes, and plain noise."""
    chance = random.Random(11)
    seeds = (SEED.read_text() + BANNER + "\n" + ONCHECK).splitlines()
    path, rows, errors = tmp_path / "noise", 0, 0
    for _ in range(200):
        lines = [chance.choice(seeds) for _ in range(chance.randrange(40))]
        if chance.random() < 0.8:
            lines = [COLUMNS, *seeds[-20:-8], *lines]
        text = list("\n".join(lines))
        for _ in range(chance.randrange(30)):
            text.insert(chance.randrange(len(text) + 1), chance.choice(string.printable + "\0\N{SUPERSCRIPT TWO}\N{SNOWMAN}"))
        data = "".join(text).encode()
        path.write_bytes(data if chance.random() < 0.9 else data + chance.randbytes(300))
        for reader in (Listing(path), Report(path)):
            try:
                rows += len(list(reader))
            except LeadlineError as e:
                assert e.kind == "invalid"
                errors += 1
    assert rows > 500 and errors > 10


def test_a_line_without_an_end_takes_no_memory_nor_time(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes((listing("7:1") + extents(2, ("d:'o'.a", 1, 1))).encode() + b"a " * 200_000 + b"9 " * 200_000)
    found = Listing(path)
    assert len(list(found)) == 2
    assert found.unknown.count > 190
    assert sum(isinstance(row, Extent) for row in Report(path)) >= 1
