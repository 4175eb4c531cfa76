"""Every class of problem that `page check` and `page show` can name is in the guide."""

from __future__ import annotations

import re
from pathlib import Path

from leadline.files.pages.directory import WORDS

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "pages.md"


def classes() -> set[str]:
    found = set(WORDS)
    for path in [*ROOT.glob("crates/page/src/**/*.rs"), *ROOT.glob("crates/pagescan/src/*.rs")]:
        found |= set(re.findall(r'\bclass: "([a-z_]+)"', path.read_text()))
    check = (ROOT / "crates/page/src/postgres/check.rs").read_text()
    found |= set(re.findall(r'\bwrong\(\s*"([a-z_]+)",\s*[^,]+,\s*(?:None|Some)', check))
    condition = (ROOT / "crates/postgres/datadir/src/condition.rs").read_text()
    found |= set(re.findall(r'\berror\(\s*"([a-z-]+)"', condition))
    for path in ROOT.glob("python/leadline/files/pages/*.py"):
        found |= set(re.findall(r'"class": "([a-z-]+)"', path.read_text()))
    return found


def test_the_guide_lists_every_class_of_problem() -> None:
    found = classes()
    assert {"checksum", "torn", "overlap", "missing", "control-crc", "dump", "posting_list"} <= found
    guide = GUIDE.read_text()
    assert [name for name in sorted(found) if f"`{name}`" not in guide] == []
