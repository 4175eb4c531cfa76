"""leadline page on pages of Informix, which are told apart from others by --engine only."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from leadline._core.pages import informix_page_type, page_read
from leadline.cli import run
from leadline.errors import LeadlineError

PAGE = Path(__file__).resolve().parents[2] / "testdata" / "informix" / "page" / "chunk_free_list.page"


def said(capsys: pytest.CaptureFixture[str], *line: object) -> tuple[int, str]:
    code = run(["page", *(str(word) for word in line)])
    return code, capsys.readouterr().out


def answered(capsys: pytest.CaptureFixture[str], *line: object) -> tuple[int, Any]:
    code, out = said(capsys, *line, "--json")
    return code, json.loads(out)


def test_show_hex_and_diff_of_a_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, page = answered(capsys, "show", PAGE, "--engine", "informix")
    assert (code, page["engine"], page["kind"], page["problems"]) == (0, "informix", "chunk free list", [])
    assert page["parts"][0]["fields"]["pg_flags"] == {
        "value": 0x808,
        "offset": 10,
        "length": 2,
        "flags": ["800"],
        "words": "chunk free list, physical log",
    }
    code, text = said(capsys, "show", PAGE, "--engine", "informix")
    assert code == 0 and "2048 bytes; checksum 0x3691 is right\n" in text and "1    2438   268\n" in text
    assert max(len(line) for line in text.splitlines() if str(PAGE) not in line) <= 80
    _, rows = answered(capsys, "hex", f"{PAGE}:0", "--engine", "informix")
    assert bytes.fromhex("".join(row["bytes"] for row in rows)) == PAGE.read_bytes()
    torn = tmp_path / "two.pages"
    torn.write_bytes(PAGE.read_bytes() + PAGE.read_bytes()[:-1] + b"\x01")
    assert answered(capsys, "diff", f"{PAGE}:0", f"{torn}:0", "--engine", "informix") == (0, [])
    _, found = answered(capsys, "diff", f"{PAGE}:0", f"{torn}:1", "--engine", "informix")
    assert [row["field"] for row in found] == ["pg_stamp"]
    code, text = said(capsys, "show", f"{torn}:1", "--engine", "informix")
    assert code == 0 and "WRONG torn: pg_cksum" in text and "checksum 0x3691 is wrong, computed 0x3791\n" in text


def test_what_is_not_known_of_version_15_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = said(capsys, "show", PAGE, "--engine", "informix", "--version-15")
    assert code == 0 and "page format of version 15, not decoded" in text and "no checksum found" in text
    assert "pg_flags" not in text


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (["{page}:1", "--engine", "informix"], "invalid"),
        (["{page}", "--engine", "informix", "--block-size", "4096"], "invalid"),
        (["{page}", "--engine", "informix", "--block-size", "5000"], "usage"),
        (["{here}", "--engine", "informix"], "invalid"),
        (["{here}/none", "--engine", "informix"], "not_found"),
        (["{page}", "--row-size", "10"], "usage"),
        (["{page}"], "invalid"),
    ],
)
def test_errors_are_one_message(line: list[str], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = answered(capsys, "show", *(word.format(page=PAGE, here=tmp_path) for word in line))
    assert (code, answer["error"]["kind"]) == (2, kind)


def test_any_bytes_are_a_page(tmp_path: Path) -> None:
    for size in (2048, 6144):
        for fill in (b"\0", b"\xff", b"\x18"):
            (tmp_path / "chunk").write_bytes(fill * size)
            tiles = page_read(str(tmp_path / "chunk"), 0, size, engine="informix", row_size=7)["regions"]
            assert (tiles[0][0], tiles[-1][1]) == (0, size) and all(a[1] == b[0] for a, b in pairwise(tiles))
    assert informix_page_type(0x8890) == "B-tree leaf"
    with pytest.raises(LeadlineError, match="no pages of ingres are known"):
        page_read(str(tmp_path / "chunk"), 0, engine="ingres")
