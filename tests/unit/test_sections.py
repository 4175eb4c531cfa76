"""Views of captures that are not of a server: each has its own sections, in text of 80 columns, in JSON and in the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from leadline._core.capture import TableWriter
from leadline.capture.making import Making
from leadline.capture.manifest import ProbeState, Target
from leadline.cli import run
from leadline.views.grid import Column, Grid
from leadline.views.report import write_report
from leadline.views.sections import all_sections, host

INFORMIX = Path(__file__).resolve().parents[2] / "testdata" / "informix" / "listing" / "onstat_x.txt"
HEAP = Path(__file__).resolve().parents[2] / "testdata" / "postgres" / "9.6" / "heap_4_rows.page"
RECORDS = [  # start, end, prev, xid, top_xid, origin, type, length, main data, images, blocks
    (1000, 1100, 0, 7, 0, 0, 2561, 100, 20, 0, 1),
    (1100, 9400, 1000, 7, 0, 0, 2561, 8300, 20, 8200, 1),
    (9400, 17700, 1100, 8, 7, 0, 2561, 8300, 20, 8200, 1),
    (17700, 17750, 9400, 9, 0, 0, 256, 50, 50, 0, 0),
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of four records: two images of one page, of which the first is superseded; 8 is a subtransaction of 7."""
    path = tmp_path / "log.leadline"
    path.mkdir()
    making = Making(path, Target("wal", "/archive", version="17", detail={"timeline": 3, "system_id": 5}), {})
    making.manifest.probes["wal"] = ProbeState(tier="files")
    with making.from_files() as manifest:
        tables = {
            "wal_record_raw": RECORDS,
            "wal_record_type": [(2561, "Heap", "INSERT"), (256, "Transaction", "COMMIT")],
            "wal_block_raw": [
                (1000, 0, 7, 2561, 1663, 5, 16385, 0, 3, 2, 80, 0, 0, 0, 0),
                (1100, 0, 7, 2561, 1663, 5, 16385, 0, 3, 3, 80, 8200, 2, 0, 0),
                (9400, 0, 8, 2561, 1663, 5, 16385, 0, 3, 3, 80, 8200, 2, 0, 0),
            ],
        }
        for name, rows in tables.items():
            writer = TableWriter(str(path), name)
            writer.append(rows)
            manifest.tables[name] = writer.close()
    return path


def shown(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert run(["show", str(path), *options]) == 0
    return capsys.readouterr().out


def test_a_log_says_what_its_bytes_are(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(log, capsys)
    assert text.startswith("log       PostgreSQL 17, timeline 3, system 5\n")
    assert max(len(line) for line in text.splitlines() if str(log) not in line) <= 80
    assert "Database time" not in text and "AAS" not in text
    answer = json.loads(shown(log, capsys, "--json"))
    assert answer["wal_kinds"] == [
        {"record_type": "Heap INSERT", "records": 3, "bytes": 16700, "image_bytes": 16400, "share": 16700 / 16750},
        {"record_type": "Transaction COMMIT", "records": 1, "bytes": 50, "image_bytes": 0, "share": 50 / 16750},
    ]
    [relation] = answer["wal_relations"]
    assert (relation["relation"], relation["records"], relation["blocks"]) == ("1663/5/16385", 3, 1)
    assert (relation["bytes"], relation["image_bytes"]) == (16640, 16400)
    [images] = answer["wal_images"]
    assert (images["images"], images["superseded"], images["superseded_bytes"]) == (2, 1, 8200)
    first, second = answer["wal_transactions"]
    assert (first["xid"], first["records"], first["bytes"], first["spans"]) == (7, 3, 16700, 16700)
    assert (second["xid"], second["bytes"]) == (9, 50)
    assert not {"db_time", "window", "sessions"} & answer.keys()


def test_each_kind_of_capture_has_a_report_of_its_own(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pages, informix = tmp_path / "pages.leadline", tmp_path / "informix.leadline"
    assert run(["page", "scan", str(HEAP), "-o", str(pages)]) == 0
    assert run(["import", "onstat", str(INFORMIX), "-o", str(informix)]) == 0
    capsys.readouterr()
    wanted = {
        log: ("What is in the WAL of PostgreSQL 17", "Along the WAL", "Largest transactions", "Heap INSERT"),
        pages: ("What is in the pages of these files", "Kinds of pages", "Relations and files", "heap"),
        informix: ("Which buffers of Informix were waited for", "Contended objects", "chunk 124, not listed"),
    }
    for path, texts in wanted.items():
        html = write_report(path, tmp_path / f"{path.stem}.html").read_text()
        page = html[: html.index('<script type="application/json"')] if '<script type="application/json"' in html else html
        for text in texts:
            assert text in page, (path.stem, text)
        for alien in ("Database time", "Wait classes", "Lock trees", "Where the time of PostgreSQL", "None"):
            assert alien not in page, (path.stem, alien)


def test_pages_are_counted_by_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["page", "scan", str(HEAP), "-o", str(tmp_path / "c.leadline")]) == 0
    capsys.readouterr()
    answer = json.loads(shown(tmp_path / "c.leadline", capsys, "--json"))
    [kind] = answer["page_kinds"]
    assert (kind["kind"], kind["pages"], kind["bytes"]) == ("heap", 1, 8192)
    assert 0 < kind["fill"] < 1 and kind["items"] > 0
    assert [f["pages"] for f in answer["page_files"]] == [1]


def test_keys_of_sections_are_unique_in_a_capture() -> None:
    by_need: dict[tuple[str, ...], list[str]] = {}
    for section in (s for s in all_sections() if s not in host.BESIDE):  # these are of other targets than their twins
        by_need.setdefault(section.needs, []).append(section.key)
    common = by_need.pop(())
    for keys in by_need.values():
        assert len({*keys, *common}) == len(keys) + len(common)


def test_a_grid_gives_way_in_its_widest_text() -> None:
    grid = Grid((Column("a", "object", "text"), Column("n", "rows"), Column("m", "bytes", "bytes", minor=True)), [("x" * 100, 1234, 5e6)])
    assert max(map(len, grid.lines(40))) <= 40 and grid.lines(40)[0].split() == ["object", "rows", "bytes"]
    narrow = grid.lines(26)
    assert max(map(len, narrow)) <= 26 and "bytes" not in narrow[0]
    assert grid.as_dicts() == [{"a": "x" * 100, "n": 1234, "m": 5e6}]
