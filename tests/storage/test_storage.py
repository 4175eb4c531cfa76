"""`leadline storage`: forecasts of the same files are the same, they are sealed by the logbook, and scored against what was measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from leadline._core import storage as core
from leadline.storage import ready
from trace_synthetic import BEGIN, write_trace

SESSIONS = Path(__file__).resolve().parents[2] / "testdata" / "capture" / "format1"
LAYOUTS = [name for name in ready.names() if name != "loads"]
LIMITED = """name = "{name}"
[drive]
kind = "limited"
capacity_gb = 1
requests_per_s = 100
latency_ms = {latency}
[[group]]
name = "g"
raid = {raid}
drives = {drives}
luns = ["l"]
[place]
data = ["l"]
"""
LOADS = """
[[load]]
name = "mixed"
threads = 200
rows = 10
step = [{ op = "read", object = "data", count = 7 }, { op = "write", object = "data", count = 3 }]
"""


def run(*words: Any, book: Path, rc: int = 0) -> str:
    command = [sys.executable, "-m", "leadline", *map(str, words)]
    done = subprocess.run(command, env={"LEADLINE_BOOK": str(book), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=120)
    assert done.returncode == rc, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if rc == 0 else done.stderr


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    out = {}
    for name, raid, drives in (("ten", 10, 12), ("six", 6, 12)):
        (path := tmp_path / f"{name}.toml").write_text(LIMITED.format(name=name, raid=raid, drives=drives, latency=0))
        out[name] = path
    (loads := tmp_path / "loads.toml").write_text(LOADS)
    out["loads"] = loads
    return out


def test_ready_layouts_and_loads_fit_each_other(tmp_path: Path) -> None:
    """Twelve drives each, and the shape that a calculation on paper gives: two parities cost three times two copies for small writes."""
    per_s = {}
    for name in LAYOUTS:
        assert core.layout(ready.text(name), name) == name
        text, _ = core.simulate((ready.text(name), name), (ready.text("loads"), "loads"), 0, seed=1, for_s=10.0, warm_up_s=5.0)
        found = json.loads(text)
        assert len(found["drives"]) == 12
        per_s[name] = found["transactions_per_s"]
    assert max(per_s["1x12R6"], per_s["2x6R6"]) < min(per_s[name] for name in LAYOUTS if "R6" not in name)
    listed = run("storage", "example", book=tmp_path / "book")
    assert all(name in listed for name in ready.names())
    assert run("storage", "example", "6xR1", book=tmp_path / "book") == ready.text("6xR1")


def test_the_same_files_and_seeds_give_the_same_forecast(files: dict[str, Path], tmp_path: Path) -> None:
    words = ["storage", "simulate", files["ten"], files["six"], "--load", files["loads"], "--for", "20s", "--warm-up", "2s"]
    first, second = (json.loads(run(*words, "--json", book=tmp_path / "book")) for _ in range(2))
    assert first["results"] == second["results"]
    other = json.loads(run(*words, "--json", "--seed", "7", book=tmp_path / "book"))
    assert other["results"][0]["latency_ms"] != first["results"][0]["latency_ms"]
    for row, penalty in zip(first["results"], (2, 6)):
        low, high = row["interval"]["requests_per_s"]
        assert low <= row["requests_per_s"] <= high
        assert row["requests_per_s"] == pytest.approx(1200 / (0.7 + 0.3 * penalty), rel=0.05)
        assert row["rows_per_s"] == pytest.approx(10 * row["transactions_per_s"], rel=0.01)
        assert row["limit"]["is_limit"]
    text = run(*words, "--drives", book=tmp_path / "book")
    assert max(map(len, text.splitlines())) <= 80
    assert "Drives of six, load mixed" in text


def forecast(files: dict[str, Path], out: Path, book: Path) -> None:
    words = ["--load", files["loads"], "--for", "5s", "--warm-up", "1s", "--seeds", "1", "-o", out]
    run("storage", "simulate", files["ten"], files["six"], *words, book=book)


def scored(*words: Any, book: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("storage", "score", *words, "--json", book=book))
    return found


def test_a_forecast_is_sealed_before_and_scored_after(files: dict[str, Path], tmp_path: Path) -> None:
    book, out = tmp_path / "book", tmp_path / "forecast.json"
    early = ["run", "--name", "early", "--", "echo", '{"layout": "ten", "load": "mixed", "requests_per_s": 1000}']
    run(*early, book=book)
    [before] = json.loads(run("book", "list", "--name", "early", "--json", book=book))["runs"]
    forecast(files, out, book)
    expected = json.loads(out.read_text())["results"][0]["requests_per_s"]
    latency = '"latency_ms": {"read": {"p50": 1.5, "p99": 9, "max": 1}, "write": 3, "commit": {"p50": "x"}}'
    latency = '"latency_ms": {"read": {"p50": 1.5, "p99": 9, "max": 1}, "write": 3, "commit": {"p50": "x"}}'
    measured = f'{{"layout": "ten", "load": "mixed", "requests_per_s": {expected / 1.25}, {latency}}}'
    printed = f'noise\n{measured}\n{{"layout": "x"}}\n[1]'
    run("run", "--name", "late", "--", "echo", printed, book=book)
    [after] = json.loads(run("book", "list", "--name", "late", "--json", book=book))["runs"]

    found = scored(out, after["uid"], book=book)
    assert found["sealed"] and "before the first measurement" in found["seal"]
    [ten, six] = found["scores"]
    assert (ten["figure"], ten["measured"]) == ("requests_per_s", pytest.approx(expected / 1.25))
    assert ten["error"] == pytest.approx(0.25)
    assert [(of["of"], of["quantile"], of["measured"]) for of in ten["latency_ms"]] == [("read", "p50", 1.5), ("read", "p99", 9.0)]
    assert (six["layout"], six["error"]) == ("six", None)
    assert "not measured" in run("storage", "score", out, after["uid"], book=book)

    found = scored(out, before["uid"], book=book)
    assert not found["sealed"] and "a measurement began at" in found["seal"]
    out.write_text(out.read_text().replace("mixed", "mixed "))
    found = scored(out, after["uid"], book=book)
    assert not found["sealed"] and "made another file" in found["seal"]


def test_a_forecast_that_no_logbook_has_is_not_sealed(files: dict[str, Path], tmp_path: Path) -> None:
    out, lines = tmp_path / "forecast.json", tmp_path / "measured.jsonl"
    forecast(files, out, tmp_path / "book")
    lines.write_text('{"layout": "ten", "load": "mixed", "transactions_per_s": 80, "requests_per_s": 1, "rows_per_s": -1}\n')
    found = scored(out, lines, book=tmp_path / "other")
    assert not found["sealed"] and "has no run" in found["seal"]
    assert found["scores"][0]["figure"] == "transactions_per_s"
    assert "does not say when" in scored(out, lines, book=tmp_path / "book")["seal"]


def traced(folder: Path, rows: list[tuple[Any, ...]]) -> Path:
    return write_trace(folder, {"block_io": rows}, BEGIN + 10_000_000_000)


def test_a_trace_comes_again_on_a_layout(tmp_path: Path) -> None:
    """Two threads that each wait for their request of 2 ms and 1 ms more; the simulated device takes 4 ms."""
    ms = 1_000_000
    rows: list[tuple[Any, ...]] = [
        (BEGIN + 3 * n * ms + 2 * ms, 0, 2 * ms, "sda", "read", 8, 16 * n, 8192, 0, 1, tid, "x") for n in range(100) for tid in (1, 2)
    ]
    rows.append((BEGIN + 5 * ms, 0, ms, "sda", "flush", 0, 0, 0, 0, 0, 0, "x"))
    rows.append((BEGIN + 5 * ms, 0, ms, "sdb", "write", 0, 8, 4096, 5, 0, 0, "x"))
    capture = traced(tmp_path / "trace.leadline", rows)
    (layout := tmp_path / "fast.toml").write_text(LIMITED.format(name="fast", raid=0, drives=1, latency=4).replace("= 100", "= 1000000"))
    words = ["storage", "simulate", layout, "--trace", capture]
    found = json.loads(run(*words, "--json", book=tmp_path / "book"))
    assert found["trace"] == {"capture": str(capture), "requests": 200, "devices": ["sda"], "left_out": {"failed": 1, "flush": 1}}
    assert found["results"][0]["seconds"] == pytest.approx(0.301, rel=0.01)
    closed = json.loads(run(*words, "--closed", "--json", book=tmp_path / "book"))
    assert closed["results"][0]["seconds"] == pytest.approx(0.5, rel=0.01)
    assert "Left out: 1 failed, 1 flush" in run(*words, book=tmp_path / "book")
    out = tmp_path / "forecast.json"
    run(*words, "-o", out, book=tmp_path / "book")
    [row] = scored(out, f"fast={capture}", book=tmp_path / "book")["scores"]
    assert row["of_drives"] and row["measured"] == pytest.approx(200 / 0.297, rel=0.01)


def test_what_a_user_gets_wrong_is_one_error(files: dict[str, Path], tmp_path: Path) -> None:
    book, out = tmp_path / "book", tmp_path / "forecast.json"
    (broken := tmp_path / "broken.toml").write_text('name = "b"\n[[group]]\nname = "g"\nraid = 4\ndrives = 3\nluns = ["l"]\n')
    (binary := tmp_path / "binary.toml").write_bytes(b"\xff\xfe\0")

    def said(*words: Any) -> str:
        return run("storage", *words, book=book, rc=2)

    load = ["--load", files["loads"]]
    assert "raid is 0, 1, 5, 6 or 10" in said("simulate", broken, *load)
    assert "no UTF-8" in said("simulate", binary, *load)
    assert "no such file" in said("simulate", tmp_path / "none.toml", *load)
    assert "give --load FILE or --trace CAPTURE" in said("simulate", files["ten"])
    assert "two layouts are called ten" in said("simulate", files["ten"], files["ten"], *load)
    assert "this is no layout" in said("simulate", files["loads"], *load)
    assert "this is no load" in said("simulate", files["ten"], "--load", files["ten"])
    assert "there is no example x" in said("example", "x")
    assert "no block trace" in said("simulate", files["ten"], "--trace", SESSIONS)
    os.mkfifo(tmp_path / "fifo")
    for odd in (tmp_path, files["ten"], tmp_path / "none", tmp_path / "fifo", Path("/dev/null")):
        assert said("simulate", files["ten"], "--trace", odd).startswith("error: ")
    forecast(files, out, book)
    assert "the output already exists" in said("simulate", files["ten"], *load, "-o", out)
    assert "the forecast has no ten/x" in said("score", out, f"ten/x={SESSIONS}")
    assert "this is no forecast" in said("score", files["ten"], "last")
    assert "there is no run zzz" in said("score", out, "zzz")
    assert "no measurement in it" in said("score", out, "last")
