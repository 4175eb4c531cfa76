"""The table of LinuxKI's warnings: complete, and every finding that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

from leadline.findings import all_findings

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "linuxki.md"
NAME = re.compile(r"\b[A-Z]{2,}(?:-[A-Z]+)+\b|\bTHP\b")


def test_each_warning_is_covered_or_said_to_have_no_meaning() -> None:
    rows = [line.strip("|").split("|") for line in PAGE.read_text().splitlines() if re.match(r"\| \d+ \|", line)]
    assert [int(number) for number, *_ in rows] == list(range(38))
    known = {finding.id for finding in all_findings()}
    for number, _, covered in rows:
        named = set(NAME.findall(covered))
        assert named <= known, (number, named - known)
        if not named:
            assert re.search("no meaning|no finding|the same|leadline flame", covered), (number, covered)
