"""`leadline load import pgbench`: what pgbench has logged is what the capture has, and what is no log is refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Server, find_pgbench
from leadline.api import open_capture
from leadline.cli import run

SECOND = 1795804911


def imported(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    assert run(["load", "import", "pgbench", *map(str, words), "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def rows(capture: str, query: str) -> list[dict[str, Any]]:
    with open_capture(capture) as opened:
        return list(opened.sql(query).rows())


def log(tmp_path: Path, *lines: str, name: str = "pgbench_log.1") -> Path:
    file = tmp_path / name
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


def test_each_second_has_what_ended_in_it_also_if_nothing_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = log(tmp_path, f"0 1 1000 0 {SECOND} 1000", f"0 2 400000 0 {SECOND} 500000", f"0 3 2500000 0 {SECOND + 3} 600000")
    other = log(tmp_path, f"1 1 300000 1 {SECOND} 300000", name="pgbench_log.1.1")
    found = imported(capsys, one, other, "-o", tmp_path / "x")
    assert (found["transactions"], found["outcomes"], found["seconds"]) == (4, {"done": 4}, 3.6)
    query = "select (duration_ns / 1e6)::int as ms, done, latency_max_ns, rows, client_cpu_ns from load_second order by ts"
    seconds = rows(found["capture"], query)
    assert [tuple(row.values()) for row in seconds] == [
        (1000, 3, 400_000_000, None, None), (1000, 0, None, None, None), (1000, 0, None, None, None), (600, 1, 2_500_000_000, None, None),
    ]  # fmt: skip
    buckets = rows(found["capture"], "select kind, low_ns, high_ns, count from load_bucket order by low_ns")
    assert [tuple(row.values()) for row in buckets] == [
        ("latency", 1_000_000, 1_009_999, 1), ("latency", 300_000_000, 300_999_999, 1), ("latency", 400_000_000, 400_999_999, 1),
        ("latency", 2_500_000_000, 2_509_999_999, 1),
    ]  # fmt: skip
    query = "select client, number, script, latency_us, lag_us, retries, file from load_transaction order by ts limit 2"
    each = rows(found["capture"], query)
    assert [tuple(row.values()) for row in each] == [
        (0, 1, 0, 1000, None, None, "pgbench_log.1"), (1, 1, 1, 300_000, None, None, "pgbench_log.1.1"),
    ]  # fmt: skip


def test_what_did_not_end_well_is_counted_by_its_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"0 {n} {word} 0 {SECOND} {n} 5 0" for n, word in enumerate(("skipped", "failed", "serialization", "deadlock", "700"))]
    found = imported(capsys, log(tmp_path, *words, "0 9 70", "torn"), "-o", tmp_path / "x")
    assert (found["transactions"], found["lines_not_read"]) == (5, 2)
    assert rows(found["capture"], "select due, begun, done, failed, skipped from load_second") == [
        {"due": 5, "begun": 4, "done": 1, "failed": 3, "skipped": 1}
    ]
    errors = rows(found["capture"], "select sqlstate, count from load_error order by 1")
    assert [tuple(row.values()) for row in errors] == [("40001", 1), ("40P01", 1), ("script", 1)]
    assert rows(found["capture"], "select lag_us, retries from load_transaction where outcome = 'done'") == [{"lag_us": 5, "retries": 0}]


def test_a_seventh_column_is_not_guessed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = log(tmp_path, f"0 1 1000 0 {SECOND} 1000 40")
    assert run(["load", "import", "pgbench", str(file), "-o", str(tmp_path / "x")]) == 2
    assert "either the schedule lag or the retries" in capsys.readouterr().err
    assert not (tmp_path / "x.leadline").exists()
    for seventh, column in (("lag", "lag_us"), ("retries", "retries")):
        found = imported(capsys, file, "--seventh", seventh, "-o", tmp_path / seventh)
        assert rows(found["capture"], f"select {column} as n from load_transaction") == [{"n": 40}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{SECOND} 370 2004716 49773381320 173 71663 0 0\n", "sums of intervals"),
        ("", "no log of transactions"),
        ("select 1;\n", "no log of transactions"),
        ("0 1 -5 0 1795804911 1\n", "no log of transactions"),
        ("99999999999999999999 1 5 0 1795804911 1\n", "no log of transactions"),
        ("\x00\xff\x00" * 500, "no log of transactions"),
    ],
)
def test_what_is_no_log_is_refused(text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "log"
    file.write_bytes(text.encode("latin-1"))
    assert run(["load", "import", "pgbench", str(file), "-o", str(tmp_path / "x")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "x.leadline").exists()


@pytest.mark.parametrize("name", ["nothing", "folder", "pipe", "log[1]"])
def test_what_cannot_be_read_as_a_file_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    log(tmp_path, f"0 1 5 0 {SECOND} 1", name="log[1]")
    assert run(["load", "import", "pgbench", str(tmp_path / name), "-o", str(tmp_path / "x")]) == 2
    assert name in capsys.readouterr().err
    assert not (tmp_path / "x.leadline").exists()


@pytest.mark.parametrize("options", [(), ("--rate", "200", "--latency-limit", "20"), ("--max-tries", "3")], ids="+".join)
def test_it_is_what_pgbench_says_itself(
    options: tuple[str, ...], servers: Callable[[int], Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = servers(17)
    server.pgbench_init()
    words = [find_pgbench(), "-n", "-c", "3", "-j", "2", "-t", "100", "-l", *options, server.dsn]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    logs = sorted(tmp_path.glob("pgbench_log.*"))
    assert len(logs) == 2
    seventh = {"--rate": ("--seventh", "lag"), "--max-tries": ("--seventh", "retries")}.get(options[0] if options else "", ())
    found = imported(capsys, *logs, *seventh, "-o", tmp_path / "x")
    processed = re.findall(r"actually processed: (\d+)", done.stdout)[0]
    [sums] = rows(found["capture"], "select sum(done) as done, sum(skipped) as skipped from load_second")
    assert sums["done"] == float(processed)
    assert sums["done"] + sums["skipped"] == 300
    if "--rate" in options:  # without a rate pgbench divides the time of the run, with what is between the transactions
        average = float(re.findall(r"latency average = ([0-9.]+) ms", done.stdout)[0])
        [mean] = rows(found["capture"], "select avg(latency_us) / 1000 as ms from load_transaction")
        assert mean["ms"] == pytest.approx(average, rel=0.01)
