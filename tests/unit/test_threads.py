"""threads and events of a trace whose numbers are known."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from leadline.capture.reader import open_capture
from leadline.errors import LeadlineError
from leadline.figures import quantity, seconds
from leadline.findings import evaluate
from leadline.views.threads import report
from trace_synthetic import BEGIN, OTHER, PID, trace_of_semget, write_trace

END_OF_CALL = BEGIN + 1_000


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trace_of_semget(tmp_path_factory.mktemp("trace") / "semget.leadline")


def leadline(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "leadline", *map(str, words)], capture_output=True, text=True, check=False)


def test_the_report_of_a_process(trace: Path) -> None:
    done = leadline("threads", trace, PID)
    assert done.returncode == 0, done.stderr
    assert done.stdout == """\
PID 1026 dw.work: 1 thread, traced 3.970 s

SCHEDULER ACTIVITY                  seconds   share
  user                             2.000000  50.37%
  system                           0.010500   0.26%
  run queue, preempted             0.000000   0.00%
  run queue, woken                 0.060000   1.51%
  sleep                            1.900000  47.85%
  1,100 sleeps, 0 preemptions, 1,100 calls, 1,000 failed; last on CPU 0
  7 moves to another CPU, 2 of them to another NUMA node
  scheduled as fifo, priority 50
  40 page faults, 2 more with I/O
  0.003000 s of user and system were interrupts

SYSTEM CALLS                 count    total s   avg us   p99 us    max us errors
read                           100   1.000500  10005.0  10005.0   10005.0
  25 a second, 8B each, 201B/s
  sleep                        100   1.000000  10000.0
    wait_woken                 100   1.000000  10000.0            10000.0
  run queue                          0.000000
  CPU                                0.000500
semget                        1000   0.970000    970.0    970.0     970.0   1000
  252 a second
  sleep                       1000   0.900000    900.0
    rwsem_down_write_slowpath     1000   0.900000    900.0              900.0
  run queue                          0.060000
  CPU                                0.010000
  ENOENT                      1000

FAILED CALLS, AND WHERE MOST WERE MADE
semget ENOENT, 1,000 in 0.970000 s (16 of 17 stacks taken)
  semget
  libtrace.so+0x1af3
  libtrace.so+0x1b07
  main (dw.c:12)

SLEPT IN
function                   sleeps  total s  share  avg us  max us
-------------------------  ------  -------  -----  ------  ------
wait_woken                    100      1.0  52.6%   10000   10000
rwsem_down_write_slowpath    1000      0.9  47.4%     900     900

WOKEN BY
 tid  comm       wakings  after s
----  ---------  -------  -------
   0  interrupt      100      1.0
1027  dw.other      1000      0.9

FILES AND SOCKETS
file                                 calls  read  written  total s  p99 us  max us
-----------------------------------  -----  ----  -------  -------  ------  ------
tcp 10.0.0.1:5432 to 10.0.0.2:41000    100  800B             1.000   10005   10005

DISKS
device  operation  count  bytes  queue us  device us  p99 us  max us
------  ---------  -----  -----  --------  ---------  ------  ------
vda     read          10  80kB         20       85.5     110     110

check: the parts differ from the traced time by 0 ns
check: the scheduler counted 2.011000 s on a CPU
       the trace differs by -0.500 ms, within the 30.010 ms that are allowed
check: the scheduler counted 0.050000 s in the run queue
       the trace differs by +10.000 ms, within the 17.400 ms that are allowed
"""


def test_the_report_as_json_has_the_same_numbers(trace: Path) -> None:
    found = json.loads(leadline("threads", trace, PID, "--json").stdout)
    semget = next(call for call in found["calls"] if call["call"] == "semget")
    assert semget["errors"] == {"ENOENT": 1000}
    assert (semget["sleep_ns"], semget["runq_ns"], semget["cpu_ns"]) == (900_000_000, 60_000_000, 10_000_000)
    assert semget["elapsed_ns"] == semget["sleep_ns"] + semget["runq_ns"] + semget["cpu_ns"]
    assert semget["unknown_ns"] == 0


def test_terminal_html_json_and_sql_have_the_same_numbers(trace: Path, tmp_path: Path) -> None:
    """Of the one process that makes calls: its report, the section of `show`, the page of the report, and the view."""
    summed = json.loads(
        leadline(
            "sql", "--json", trace,
            "select call, sum(calls)::bigint as calls, coalesce(sum(calls) filter (errno is not null), 0)::bigint as failed, "
            "sum(duration_ns)::bigint as elapsed, sum(sleep_ns)::bigint as sleep, sum(runq_ns)::bigint as runq, "
            "sum(cpu_ns)::bigint as cpu from call_sum group by call order by elapsed desc",
        ).stdout
    )  # fmt: skip
    names = ("call", "calls", "failed", "elapsed", "sleep", "runq", "cpu")
    expected = [tuple(row[name] for name in names) for row in summed]
    assert [row[0] for row in expected] == ["read", "semget"]
    told = json.loads(leadline("threads", trace, PID, "--json").stdout)["calls"]
    of_report = ("call", "count", "failed", "elapsed_ns", "sleep_ns", "runq_ns", "cpu_ns")
    assert [tuple(call[name] for name in of_report) for call in told] == expected
    shown = json.loads(leadline("show", "--json", trace).stdout)["calls"]
    of_section = ("call", "calls", "failed", "elapsed_s", "sleep_s", "runq_s", "cpu_s")
    as_s = [(*row[:3], *(pytest.approx(ns / 1e9) for ns in row[3:])) for row in expected]
    assert [tuple(row[name] for name in of_section) for row in shown] == as_s
    threads, show = leadline("threads", trace, PID).stdout, leadline("show", trace).stdout
    done = leadline("report", trace, "-o", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    text = re.sub(r"<[^>]*>", " ", (tmp_path / "page.html").read_text())
    for call, calls, failed, elapsed, *_ in expected:
        words = rf"\b{call}\s+{quantity(calls)}\s+{quantity(failed)}\s+{seconds(elapsed / 1e9)}\s"
        assert re.search(words, show), (words, show)
        assert re.search(words, text), words
        assert re.search(rf"^{call}\s+{calls}\s+{elapsed / 1e9:.6f}\b", threads, re.M)


def test_who_woke_whom(trace: Path) -> None:
    capture = open_capture(trace)
    try:
        assert report(capture, OTHER).woken == [{"tid": PID, "comm": "dw.work", "wakings": 1000, "sleep_ns": 900_000_000}]
        with pytest.raises(LeadlineError, match="no process or thread 5 in this trace"):
            report(capture, 5)
    finally:
        capture.close()


@pytest.mark.parametrize(
    ("order", "first"), [("time", "read"), ("count", "semget"), ("failed", "semget"), ("runq", "semget"), ("max", "read")]
)
def test_calls_are_sorted_as_asked(order: str, first: str, trace: Path) -> None:
    for words in ((), (PID,)):
        lines = leadline("threads", trace, *words, "--sort", order).stdout.splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith("SYSTEM CALLS"))
        assert next(line.split()[0] for line in lines[at + 1 :] if line.startswith(("read", "semget"))) == first


def test_all_threads(trace: Path) -> None:
    done = leadline("threads", trace)
    assert done.stdout == """\
 pid   tid  comm      policy   user ms  sys ms  runq ms  sleep ms  calls  failed
----  ----  --------  -------  -------  ------  -------  --------  -----  ------
1026  1026  dw.work   fifo 50     2000    10.5       60    1900.0   1100    1000
1027  1027  dw.other  other 0        0     0.0        0    3970.5      0       0

SYSTEM CALLS
call    count  per s  failed  total s  sleep s  runq s  CPU s  max ms
------  -----  -----  ------  -------  -------  ------  -----  ------
read      100   25.2       0     1.00      1.0    0.00  0.001      10
semget   1000  251.9    1000     0.97      0.9    0.06  0.010       1
"""


def test_events_one_by_one(trace: Path) -> None:
    done = leadline("events", trace, "--pid", PID, "--limit", 2)
    assert done.stdout == """\
    0.002000    1026 dw.work         semget(0x10cabb74, 1, 0, 0, 0, 0) = ENOENT  970.0 us, sleep 900.0, run queue 60.0
    0.002005    1026 dw.work         sleep in rwsem_down_write_slowpath, woken by 1027 dw.other  960.0 us, sleep 900.0, run queue 60.0
"""
    assert leadline("events", trace, "--call", "read", "--limit", 500).stdout.count("read(3<tcp 10.0.0.1:5432 to 10.0.0.2:41000>, ") == 100
    assert leadline("events", trace, "--failed", "--from", 0, "--to", 0.0297, "--json").stdout.count("ENOENT") == 10


def test_a_capture_without_a_trace_says_so(tmp_path: Path) -> None:
    done = leadline("threads", "testdata/capture/format1")
    assert (done.returncode, "no trace of threads" in done.stderr) == (2, True)


def test_a_call_that_fails_over_and_over_is_found(trace: Path) -> None:
    capture = open_capture(trace)
    try:
        found = evaluate(capture)
        assert [f.id for f in found.findings] == ["FAILING-CALL-STORM", "KERNEL-LOCK-CONTENTION"]
        finding, locks = found.findings
        assert locks.subject == "semget of dw.work in ipcget" and locks.cost_s == 0.9
        assert finding.subject == "semget of dw.work" and finding.cost_s == 0.97
        assert finding.statement == (
            "semget of dw.work (pid 1026) failed 1000 times with ENOENT (252 a second), always with the arguments 0x10cabb74, 0x1: "
            "0.970 s in all, 970.0 us each, 0.960 s of it waiting in rwsem_down_write_slowpath. "
            "Called from semget < libtrace.so+0x1af3 < libtrace.so+0x1b07 < main (dw.c:12)"
        )
        assert evaluate(capture, only=["FAILING-CALL-STORM"], thresholds={"storm_min": 1001}).findings == []
    finally:
        capture.close()


def test_a_call_without_a_name_is_in_every_view_of_calls(tmp_path: Path) -> None:
    """The views find the rows of a call by its name: a number that has none must not lose its rows."""
    call = (END_OF_CALL, 10, 1, 9999, -2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    rows: dict[str, list[tuple[object, ...]]] = {
        "thread": [(1, BEGIN, PID, PID, 1, BEGIN, "one")],
        "syscall": [call, (*call[:3], 0, 8, *call[5:]), (*call[:3], 15, -2, *call[5:]), (*call[:4], -513, *call[5:])],
        "syscall_name": [(0, "read"), (15, "rt_sigreturn")],
    }
    with closing(open_capture(write_trace(tmp_path / "one.leadline", rows, END_OF_CALL), hold=True)) as capture:
        known = [("read", None, 1), ("rt_sigreturn", None, 1), ("syscall_9999", "ENOENT", 1), ("syscall_9999", None, 1)]
        for query in ("select call, error, count(*)::int as n from call group by all", "select call, error, calls::int as n from call_sum"):
            found = capture.rows(f"{query} order by call, error nulls last")
            assert [tuple(row.values()) for row in found] == known, query
        assert capture.scalar("select count(*) from call where call = 'syscall_9999'") == 2
