"""Captures of each format version that there ever was: the commands say what was planted in them. testdata/capture/README.md."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from leadline.capture.manifest import FORMAT_VERSION

KEPT = Path(__file__).parents[2] / "testdata" / "capture"
VERSIONS = range(1, FORMAT_VERSION + 1)
# The waiter with the most seconds and its class, the root of the locks, and whom it blocks: as the load of each capture made them.
TOLD = {
    1: {"most": ("payment", "Lock"), "seconds": 6.0, "root": (13167, "checkout"), "victims": 4},
    2: {"most": ("till", "Lock"), "seconds": 2.2, "root": (18285, "stocktake"), "victims": 2},
}
MOST = """select application_name, wait_class, sum(weight_s) as seconds from session_sample
          where in_db_time and backend_type = 'client backend' group by all order by seconds desc limit 1"""


def leadline(*words: object, code: int = 0) -> str:
    done = subprocess.run([sys.executable, "-m", "leadline", *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_there_is_one_of_each_version() -> None:
    kept = {int(folder.name.removeprefix("format")): folder for folder in KEPT.iterdir() if folder.is_dir()}
    assert sorted(kept) == sorted(TOLD) == list(VERSIONS)
    for version, folder in kept.items():
        assert json.loads((folder / "manifest.json").read_text())["format_version"] == version


@pytest.mark.parametrize("version", VERSIONS)
def test_show_findings_and_sql_read_it(version: int) -> None:
    capture, told = KEPT / f"format{version}", TOLD[version]
    shown = json.loads(leadline("show", capture, "--json"))
    assert shown["status"] == "complete" and shown["window"]["db_time_s"] > 0
    root = shown["lock_trees"][0]
    assert ((root["pid"], root["who"]), root["victims"]) == (told["root"], told["victims"])
    assert "Database time" in leadline("show", capture)
    found = json.loads(leadline("findings", capture, "--json", code=1))
    assert {"BLOCK-CHAIN", "IDLE-IN-XACT"} <= {finding["id"] for finding in found if finding["subject"] == f"pid {told['root'][0]}"}
    assert [finding["subject"] for finding in found if '"".""' in finding["subject"]] == [], "a table without its name"
    [row] = json.loads(leadline("sql", capture, MOST, "--json"))
    assert ((row["application_name"], row["wait_class"]), row["seconds"]) == (told["most"], pytest.approx(told["seconds"]))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_table_and_view_of_today_is_there(version: int) -> None:
    """What was not recorded then is empty; nothing fails."""
    names = [table["name"] for table in json.loads(leadline("tables", "--json"))]
    counts = " union all ".join(f"select '{name}' as name, count(*) as rows from \"{name}\"" for name in names)
    rows = {row["name"]: row["rows"] for row in json.loads(leadline("sql", KEPT / f"format{version}", counts, "--json"))}
    assert rows.keys() == {*names}
    assert min(rows[name] for name in ("session_run", "session_sample", "db_time", "lock_wait", "lock_chain", "relation")) > 0
