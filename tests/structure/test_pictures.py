"""Pictures of the documentation: each that a page shows is there, each that is there is shown, and all are drawings of their own."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")


def shown() -> dict[Path, str]:
    """By file: what it says to who does not see it."""
    return {(page.parent / where).resolve(): said for page in DOCS.rglob("*.md") for said, where in SHOWN.findall(page.read_text("utf-8"))}


def test_each_picture_is_there_and_shown_with_words_for_who_does_not_see_it() -> None:
    assert set(shown()) == set(DOCS.rglob("*.svg"))
    assert all(len(said) > 10 for said in shown().values())


def test_each_picture_stands_alone_and_says_on_what_it_was_measured() -> None:
    for path in DOCS.rglob("*.svg"):
        root = ET.fromstring(path.read_text("utf-8"))
        below = " ".join(text.text or "" for text in root.findall("{http://www.w3.org/2000/svg}text"))
        assert "PostgreSQL" in below and re.search(r"20\d\d-\d\d-\d\d", below), path
        assert not re.search(r"(href|src|url)\b", path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")), path
