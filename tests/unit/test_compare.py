"""leadline compare: where the time moved, over captures whose seconds are planted; and the classes of facts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from findings_synthetic import SyntheticCapture
from leadline.compare import compare
from leadline.compare.environment import of_capture, side
from leadline.compare.text import lines, said
from leadline.errors import LeadlineError
from leadline.host.facts import FACTS
from leadline.lab.comparable import CLASSES, UNKNOWN, VOLATILE, Difference, agree, differences, is_named, own_name, row_of, rows

KEPT = Path(__file__).parents[2] / "testdata" / "capture"


def capture(folder: Path, *, lock_s: float, cpu_s: float = 10, rate_hz: float = 100, seconds: float = 60, commits: int = 6000) -> Path:
    cap = SyntheticCapture(folder, rate_hz=rate_hz, seconds=seconds)
    waiter, worker = cap.add_session(), cap.add_session()
    cap.sample(waiter, "active", "Lock:transactionid", 0, lock_s, statement_id=1)
    cap.sample(worker, "active", None, 0, cpu_s, statement_id=2)
    cap.add("statement", statement_id=1, id_source="server", datid=5, query="update  t\nset n = $1", truncated=False)
    cap.add("statement", statement_id=2, id_source="server", datid=5, query="select 1", truncated=False)
    cap.stat("pg_stat_database", "xact_commit", 100, 100 + commits, "shop")
    cap.stat("pg_stat_database", "xact_rollback", 0, 0, "shop")
    cap.fact("storage.data.device.0.names", "sda")
    for second in range(1, int(seconds) + 1):
        cap.add("device_delta", ts=cap.ts(second), dt_ns=10**9, device="sda", reads=100, read_ns=int(lock_s) * 10**7,
                queue_ns=int(lock_s) * 10**7, writes=0, write_ns=0)  # fmt: skip
    return cap.write()


def tables(one: Path, other: Path) -> dict[str, list[dict[str, Any]]]:
    return compare(of_capture(one), of_capture(other)).as_dict()["tables"]


def test_the_part_of_each_wait_and_statement_in_the_change(tmp_path: Path) -> None:
    found = tables(capture(tmp_path / "a", lock_s=20), capture(tmp_path / "b", lock_s=50, cpu_s=5))
    # 6,000 transactions: 30 s and 55 s are 5 and 9.2 ms for each
    assert [(row["what"], row["one"], row["other"]) for row in found["totals"]] == [
        ("database time", pytest.approx(5.0, rel=0.01), pytest.approx(55 / 6, rel=0.01)),
        ("sessions active on average", pytest.approx(0.5, rel=0.01), pytest.approx(55 / 60, rel=0.01)),
        ("transactions a second", pytest.approx(100), pytest.approx(100)),
    ]
    waits = [(row["name"], row["share"]) for row in found["waits"]]
    assert waits == [("Lock: transactionid", pytest.approx(30 / 25, rel=0.02)), ("CPU", pytest.approx(-5 / 25, rel=0.05))]
    statements = [(row["name"], row["change"]) for row in found["statements"]]
    assert statements == [("update t set n = $1", pytest.approx(5.0, rel=0.02)), ("select 1", pytest.approx(-5 / 6, rel=0.05))]
    [device] = found["devices"]
    assert (device["name"], device["one_queue"], device["other_queue"]) == ("data", pytest.approx(0.2), pytest.approx(0.5))
    assert (device["one_read_ms"], device["other_read_ms"], device["share"]) == (pytest.approx(2.0), pytest.approx(5.0), pytest.approx(1.0))


def with_pressure(folder: Path, *, io_share: float, scanned: float, psi: bool = True) -> Path:
    cap = SyntheticCapture(folder)
    cap.sample(cap.add_session(), "active", None, 0, 10)
    if psi:
        cap.counter("pressure.io_some_ns", 10**12, per_s=io_share * 1e9)
        cap.counter("pressure.io_full_ns", 10**9)
    cap.counter("vmstat.pgscan_direct", 7000, per_s=scanned)
    cap.counter("vmstat.pgsteal_direct", 5000, per_s=scanned / 2)
    cap.counter("vmstat.pgsteal_kswapd", 5000, per_s=100)
    return cap.write()


def test_the_pressure_on_the_host_and_its_reclaim(tmp_path: Path) -> None:
    one, other = with_pressure(tmp_path / "a", io_share=0.1, scanned=0), with_pressure(tmp_path / "b", io_share=0.4, scanned=50)
    assert [(row["what"], row["one"], row["other"], row["ratio"]) for row in tables(one, other)["host"]] == [
        ("I/O pressure, some, % of the time", pytest.approx(10), pytest.approx(40), pytest.approx(4)),
        ("pgscand/s: pages scanned by who needed memory", 0, pytest.approx(50), None),
        ("pgsteal/s: pages reclaimed", pytest.approx(100), pytest.approx(125), pytest.approx(1.25)),
    ]
    without = with_pressure(tmp_path / "c", io_share=0, scanned=50, psi=False)
    assert [row["what"][:8] for row in tables(one, without)["host"]] == ["pgscand/", "pgsteal/"]


def test_twice_the_transactions_are_not_twice_the_time(tmp_path: Path) -> None:
    found = tables(capture(tmp_path / "a", lock_s=10), capture(tmp_path / "b", lock_s=20, cpu_s=20, commits=12000))
    [time, *_] = found["totals"]
    assert (time["what"], time["ratio"]) == ("database time", pytest.approx(1.0, rel=0.02))
    assert [row["share"] for row in found["waits"]] == [None, None]


def test_without_transactions_it_is_a_second(tmp_path: Path) -> None:
    sides = [of_capture(capture(tmp_path / name, lock_s=30, commits=0, seconds=length)) for name, length in (("a", 60), ("b", 40))]
    found = compare(*sides)
    assert "Database time, seconds a second" in [table.title for table in found.tables]
    [time, *_] = found.as_dict()["tables"]["totals"]
    assert (time["one"], time["other"]) == (pytest.approx(40 / 60, rel=0.02), pytest.approx(40 / 40, rel=0.02))
    assert [said for said in found.measured if said.startswith("length: 60 s against 40 s")] != []


def test_what_was_measured_in_another_way_stands_above_the_numbers(tmp_path: Path) -> None:
    other = capture(tmp_path / "b", lock_s=20, rate_hz=10)
    manifest = json.loads((other / "manifest.json").read_text())
    manifest["probes"]["locks"]["status"] = "off"
    manifest["probes"]["sessions"] |= {"rate_hz": 10, "tier": "sql"}
    (other / "manifest.json").write_text(json.dumps(manifest))
    found = compare(of_capture(capture(tmp_path / "a", lock_s=20)), of_capture(other))
    assert any(said.startswith("probe locks: ok") and "off" in said for said in found.measured)
    assert any(said.startswith("probe sessions: ok") and "(sql) at 10 Hz" in said for said in found.measured)
    text = "\n".join(lines(found))
    assert max(map(len, text.split("Database time")[0].splitlines())) <= 80
    assert max(len(line) for table in found.tables for line in table.grid.lines(80)) <= 80
    assert text.index("Measured differently") < text.index("probe locks") < text.index("Database time")


def test_a_capture_without_its_host_does_not_take_this_one_for_it(tmp_path: Path) -> None:
    """The manifest says where leadline ran. The server may be elsewhere."""
    cap = SyntheticCapture(tmp_path)
    cap.sample(cap.add_session(), "active", None, 0, 10)
    facts = of_capture(cap.write()).facts
    assert "kernel.release" not in facts and "host.name" not in facts


def load(folder: Path, slow_ms: int, done: int) -> Path:
    cap = SyntheticCapture(folder)
    cap.probes = {"load": {"status": "ok", "why": "", "hint": ""}}
    for second in range(1, 11):
        cap.add("load_second", ts=cap.ts(second), duration_ns=10**9, phase=0, due=done, begun=done, done=done)
        for low_ms, count in ((1, done - 2), (slow_ms, 2)):
            cap.add("load_bucket", ts=cap.ts(second), kind="latency", low_ns=low_ms * 10**6, high_ns=low_ms * 10**6, count=count)
    cap.add("load_statement", ts=cap.ts(10), script="s", command=1, line=1, text="select 1", count=10 * done, mean_ns=slow_ms * 1e6)
    return cap.write()


def test_a_load_is_compared_by_latency_and_statement(tmp_path: Path) -> None:
    found = tables(load(tmp_path / "a", 4, 100), load(tmp_path / "b", 8, 50))
    heads = {row["what"]: (row["one"], row["other"]) for row in found["load"]}
    assert heads["transactions a second"] == (100, 50)
    assert (heads["latency p50, ms"], heads["latency p99, ms"], heads["latency max, ms"]) == ((1, 1), (4, 8), (4, 8))
    [statement] = found["load_statements"]
    assert (statement["name"], statement["one"], statement["other"]) == ("select 1", pytest.approx(4.0), pytest.approx(8.0))


@pytest.mark.parametrize("one", ["format1", "format2"])
@pytest.mark.parametrize("other", ["format1", "format2"])
def test_captures_of_each_format_are_compared_and_what_they_lack_is_unknown(one: str, other: str) -> None:
    """Neither has the mitigations of its CPU, so not even the same capture is comparable with itself."""
    words = ["compare", str(KEPT / one), str(KEPT / other)]
    done = subprocess.run([sys.executable, "-m", "leadline", *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert "MITIGATION: all unknown against unknown" in done.stdout
    assert "Database time by wait" in done.stdout


def test_many_facts_that_could_not_be_read_are_one_sentence(tmp_path: Path) -> None:
    one, other = SyntheticCapture(tmp_path / "a"), SyntheticCapture(tmp_path / "b")
    for name in ("mds", "l1tf", "srbds", "tsa"):
        one.fact(f"cpu.mitigation.{name}", "Not affected")
    said = list(lines(compare(of_capture(one.write()), of_capture(other.write()))))
    assert "  MITIGATION: not known of B: l1tf, mds, srbds, tsa" in said


def test_facts_of_the_moment_are_said_once() -> None:
    some = [Difference(f"load.{name}", VOLATILE, "load", "1", UNKNOWN) for name in "abcd"]
    assert list(said(some)) == ["; ".join(f"load: {name} 1 against unknown" for name in "abcd")]


def test_older_captures_have_their_devices_as_tables() -> None:
    facts = side(str(KEPT / "format1")).facts
    assert (facts["storage.data.fstype"], facts["storage.data.devices"], facts["storage.data.device.0.names"]) == ("ext4", "1", "vda")
    assert facts["storage.wal.device.0.scheduler"] == "mq-deadline"


def test_what_is_neither_a_capture_nor_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LeadlineError, match="this is not a capture"):
        side(str(tmp_path))


def test_each_row_has_a_class_and_each_fact_of_the_host_a_row() -> None:
    assert {row.kind for row in rows()} == set(CLASSES)
    assert all(row.called for row in rows())
    assert [name for name, _ in FACTS if row_of(name).called == "fact"] == []
    reached = {row_of(row.name.replace("*", "x")) for row in rows()}
    assert [row.name for row in rows() if row not in reached] == [], "a row that an earlier one hides"


@pytest.mark.parametrize(
    ("name", "one", "other", "same"),
    [
        ("memory.total_bytes", "1000000", "1009000", True),
        ("memory.total_bytes", "1000000", "1020000", False),
        ("memory.total_bytes", "many", "many", True),
        ("memory.total_bytes", "1000000", None, False),
        ("cpu.model", "a", "a", True),
        ("cpu.model", "unknown", "unknown", False),
        ("data.bytes", "0", "0", True),
        ("data.bytes", "100", "200", False),
        ("something.new", "a", "b", False),
    ],
)
def test_when_two_values_agree(name: str, one: str, other: str | None, same: bool) -> None:
    assert agree(row_of(name), one, other) is same


def test_what_fits_no_row_must_agree() -> None:
    [found] = differences({"something.new": "a"}, {}, ())
    assert (found.kind, found.refuses, found.text) == ("identity", True, "FACT: new a against none")


def test_a_factor_may_be_named_as_people_do() -> None:
    assert is_named("setting.work_mem", "work_mem") and is_named("setting.work_mem", "setting.work_mem")
    assert is_named("storage.data.device.0.rotational", "storage.data") and is_named("storage.data.device.0.rotational", "data device")
    assert not is_named("setting.maintenance_work_mem", "work_mem")
    assert not is_named("storage.wal.fstype", "storage.data")


def test_what_follows_from_the_factor_is_not_refused() -> None:
    one = {"server.version": "16", "setting.server_version": "16.1", "setting.old": "on", "setting.both": "1"}
    other = {"server.version": "17", "setting.server_version": "17.1", "setting.new": "on", "setting.both": "2"}
    refused = [each.name for each in differences(one, other, (), ["server.version"]) if each.refuses]
    assert refused == ["setting.both"]


def test_numbers_of_devices_and_sizes_of_settings_are_for_people() -> None:
    assert own_name("storage.data.device.0.model") == "model"
    assert own_name("storage.data.device.2.model") == "model of kind 3"
    said = Difference("setting.shared_buffers", "identity", "setting", "16384 8kB", "128 8kB")
    assert said.text == "SETTING: shared_buffers 128 MB against 1 MB"
