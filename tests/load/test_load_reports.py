"""`leadline load import fio|sysbench|hammerdb`: every figure is kept, the sums are those of the output, and what is none is refused.

The outputs of fio and sysbench are real (testdata/load/PROVENANCE.toml); those of HammerDB are by the format of its documentation.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from leadline.api import open_capture
from leadline.cli import run

DATA = Path(__file__).resolve().parents[2] / "testdata" / "load"
RESULT = """Vuser 1:Beginning rampup time of 2 minutes
Vuser 1:Timing test period of 5 in minutes
Vuser 1:4 Active Virtual Users configured
Vuser 1:TEST RESULT : System achieved 14651 NOPM from 33703 PostgreSQL TPM
Vuser 3:FINISHED FAILED
"""
PROFILE = """>>>>> SUMMARY OF 4 ACTIVE VIRTUAL USERS : MEDIAN ELAPSED TIME : 422391ms
>>>>> PROC: NEWORD
CALLS: 6112\tMIN: 0.812ms\tAVG: 4.500ms\tMAX: 120.250ms\tTOTAL: 27504.000ms
P99: 20.100ms\tP95: 12.300ms\tP50: 3.900ms\tSD: 5044.440\tRATIO: 45.100%
>>>>> PROC: PAYMENT
CALLS: 6000\tMIN: 0.300ms\tAVG: 2.000ms\tMAX: 90.000ms\tTOTAL: 12000.000ms
P99: 9.000ms\tP95: 6.000ms\tP50: 1.500ms\tSD: 2000.000\tRATIO: 20.000%
>>>>> VIRTUAL USER 2 : ELAPSED TIME : 422391ms
>>>>> PROC: NEWORD
CALLS: 1500\tMIN: 0.812ms\tAVG: 4.400ms\tMAX: 100.000ms\tTOTAL: 6600.000ms
"""


def imported(capsys: pytest.CaptureFixture[str], tool: str, file: Path, output: Path, code: int = 0) -> dict[str, Any]:
    assert run(["load", "import", tool, str(file), "-o", str(output), "--json"]) == code
    return dict(json.loads(capsys.readouterr().out))


def rows(capture: str, query: str) -> list[tuple[Any, ...]]:
    with open_capture(capture) as opened:
        return [tuple(row.values()) for row in opened.sql(query).rows()]


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "output"
    file.write_text(text)
    return file


def test_a_result_of_fio_with_its_histogram(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read = json.loads((DATA / "fio.json").read_text())["jobs"][0]["read"]
    found = imported(capsys, "fio", DATA / "fio.json", tmp_path / "x")
    assert (found["tool"], found["transactions"], found["lines_not_read"]) == ("fio 3.33", read["total_ios"], 0)
    query = "select script, text, count, mean_ns, p50_ns, p99_ns, max_ns from load_statement"
    of = read["clat_ns"]
    assert rows(found["capture"], query) == [
        ("reader", "read 8k (completion)", read["total_ios"], of["mean"], *(of["percentile"][f"{at}.000000"] for at in (50, 99)), of["max"])
    ]  # fmt: skip
    assert rows(found["capture"], "select kind, sum(count) from load_bucket group by 1 order by 1") == [
        ("latency", read["total_ios"]), ("statement", read["total_ios"]),
    ]  # fmt: skip
    [(low, high)] = rows(found["capture"], "select max(low_ns), max(high_ns) from load_bucket")
    assert low <= of["max"] <= high
    [(value, text)] = rows(found["capture"], "select value, text from load_reported where name = '0.read.iops'")
    assert value == read["iops"] and text == str(read["iops"])


def test_what_fio_says_beside_the_json_is_counted_and_names_that_stand_twice_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    """fio writes warnings into the same stream; some versions wrote a percentile twice."""
    text = '{"fio version": "fio-3.1", "jobs": [{"jobname": "a", "write": {"total_ios": 8, "runtime": 2000, '
    text += '"clat_ns": {"mean": 5.5, "max": 9, "percentile": {"0.00": 1, "0.00": 2}}}}]}'
    found = imported(capsys, "fio", written(tmp_path, f"fio: native_fallocate call failed {{}}\n{text}\nfio: end\n"), tmp_path / "x")
    assert (found["lines_not_read"], found["transactions"], found["seconds"]) == (2, 8, 2.0)
    twice = rows(found["capture"], "select name, value from load_reported where name like '%percentile%' order by name")
    assert twice == [("0.write.clat_ns.percentile.0.00", 1.0), ("0.write.clat_ns.percentile.0.00'", 2.0)]


def test_an_output_of_sysbench_with_its_intervals_and_histogram(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = imported(capsys, "sysbench", DATA / "sysbench.txt", tmp_path / "x")
    assert (found["tool"], found["transactions"], found["lines_not_read"]) == ("sysbench 1.0.20", 3304, 0)
    seconds = rows(found["capture"], "select duration_ns / 1e9, done from load_second order by ts")
    assert seconds == [(1.0, 932), (1.0, 1189), (pytest.approx(1.1464), 1183)]
    assert rows(found["capture"], "select sum(count) from load_bucket") == [(3304,)]
    [(low, high)] = rows(found["capture"], "select max(low_ns), max(high_ns) from load_bucket")
    assert low <= 314_870_000 <= high
    query = "select part, name, text, value from load_reported where part = 'interval' and name <> 'thds' order by ts, name desc limit 2"
    assert rows(found["capture"], query) == [("interval", "tps", "932.35", 932.35), ("interval", "lat (ms,95%)", "0.04", 0.04)]


@pytest.mark.parametrize(
    ("quantile", "most", "said"),
    [("100000.00", "270178.25", True), ("260.00", "241.47", True), ("0.00", "0.26", True), ("240.02", "241.47", False),
     ("243.0", "241.47", False)],
)  # fmt: skip
def test_a_quantile_of_sysbench_that_is_none_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], quantile: str, most: str, said: bool
) -> None:  # fmt: skip
    """Its histogram ends at 100 s and has buckets of 1.8 %; on some builds it is empty."""
    text = (DATA / "sysbench.txt").read_text().replace("percentile:                        0.04", f"percentile: {quantile}")
    text = text.replace("314.87", most)
    found = imported(capsys, "sysbench", written(tmp_path, text), tmp_path / "x")
    assert any("is no quantile of these times" in note for note in found["notes"]) == said


@pytest.mark.parametrize(
    "line", ["System achieved 14651 NOPM from 33703 PostgreSQL TPM", "System achieved 33703 PostgreSQL TPM at 14651 NOPM"]
)
def test_a_result_of_hammerdb_in_either_order(tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str) -> None:
    file = written(tmp_path, RESULT.replace("System achieved 14651 NOPM from 33703 PostgreSQL TPM", line))
    found = imported(capsys, "hammerdb", file, tmp_path / "x")
    assert (found["transactions"], found["seconds"]) == (5 * 33703, 300)
    query = "select name, value from load_reported where part = 'result' order by name"
    assert rows(found["capture"], query) == [("NOPM", 14651.0), ("TPM", 33703.0)]
    assert rows(found["capture"], "select sqlstate, message from load_error") == [("script", "finished failed")]


def test_the_time_profile_of_hammerdb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = imported(capsys, "hammerdb", written(tmp_path, PROFILE), tmp_path / "x")
    statements = rows(found["capture"], "select text, count, mean_ns, p50_ns, p99_ns, max_ns from load_statement order by command")
    assert statements == [
        ("NEWORD", 6112, 4_500_000, 3_900_000, 20_100_000, 120_250_000), ("PAYMENT", 6000, 2_000_000, 1_500_000, 9_000_000, 90_000_000),
    ]  # fmt: skip
    assert rows(found["capture"], "select value from load_reported where part = 'virtual user 2: NEWORD' and name = 'CALLS'") == [(1500.0,)]


@pytest.mark.parametrize(
    ("tool", "text", "message"),
    [
        ("fio", "", "there is no JSON of fio in the file"), ("fio", "{" * 5000, "there is no JSON of fio in the file"),
        ("fio", '{"jobs": 3}', "this is no result of fio"), ("sysbench", "x", "this is no output of sysbench"),
        ("sysbench", "sysbench 1.0.20 (x)\nThreads started!\n", "the output has no summary: the run did not end"),
        ("hammerdb", "x", "there is no result of HammerDB in the file"), ("hammerdb", RESULT * 2, "the log has the results of 2 runs"),
    ],
)  # fmt: skip
def test_what_is_no_output_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], tool: str, text: str, message: str) -> None:
    found = imported(capsys, tool, written(tmp_path, text), tmp_path / "x", code=2)
    assert found["error"]["message"] == message
    assert not (tmp_path / "x.leadline").exists()
