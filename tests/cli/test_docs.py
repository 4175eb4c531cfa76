"""The reference pages say what the program says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from leadline import docs
from leadline.findings import all_findings
from leadline.tables import all_tables

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def test_the_reference_pages_are_up_to_date() -> None:
    """In a process of its own: help is made when a command is first asked for, here perhaps within another test's surroundings."""
    checked = subprocess.run([sys.executable, "-m", "leadline.docs", "--check"], cwd=REFERENCE.parents[1], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_drift_is_seen_and_written_back(tmp_path: Path) -> None:
    assert docs.write(tmp_path) == ["tables.md", "findings.md", "commands.md"]
    assert docs.stale(tmp_path) == []
    page = tmp_path / "tables.md"
    page.write_text(page.read_text().replace("`ts`", "`t`", 1))
    assert docs.stale(tmp_path) == ["tables.md"]
    assert docs.write(tmp_path) == ["tables.md"]
    assert docs.stale(tmp_path) == []


def test_every_table_column_and_rule_is_on_its_page() -> None:
    tables, findings, commands = docs.tables_page(), docs.findings_page(), docs.commands_page()
    for table in all_tables().values():
        assert f"\n### {table.name}\n" in tables
        assert all(f"| `{c.name}` |" in tables for c in table.columns if c.name != "...")
    for rule in all_findings():
        assert f"\n## {rule.id}\n" in findings
        assert rule.question in findings
    for name in ("show", "findings", "report", "sql", "tables"):
        assert f"\n## leadline {name}\n" in commands


def test_a_bar_in_a_text_does_not_break_a_table() -> None:
    for line in docs.tables_page().splitlines():
        if line.startswith("| `"):
            assert line.replace("\\|", "").count("|") == 6, line
