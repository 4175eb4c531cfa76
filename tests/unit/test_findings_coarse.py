"""Rules over coarse pieces: what a rule finds in the passes, it finds with the same sums in the rows of a second and of a minute.

A coarse capture has a row where there were many samples. A rule that counts rows then takes what it sees for too few samples, and says
nothing.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from findings_synthetic import SyntheticCapture
from leadline.capture.reader import open_capture
from leadline.findings import Evaluation, Finding, evaluate
from leadline.recorder.levels import coarsen

DATID, TABLE = 16384, 16400
# By load: how many sessions wait most of the time, each for something else; and what is found of them.
LOADS = {
    "mixed": ({"LWLock:LockManager": 2, "LWLock:BufferMapping": 2, "Client:ClientWrite": 2, "Extension:Extension": 2},
              {"LOCKMANAGER-CONTENTION", "BUFFERMAPPING", "SLOW-CLIENT", "EXTENSION-WAIT", "RELATION-EXTEND", "SLOW-LOADER",
               "CPU-STARVED"}),
    "reads": ({"IO:DataFileRead": 9}, {"READ-IO", "TOP-WAIT", "RELATION-EXTEND"}),
    "commits": ({"IO:WALSync": 7, "LWLock:WALInsert": 2}, {"WAL-CONTENTION", "RELATION-EXTEND"}),
}  # fmt: skip


def busy(folder: Path, load: str, seconds: int = 62) -> Path:
    cap = SyntheticCapture(folder, seconds=seconds, rate_hz=10)
    cap.background()
    for number, (wait, clients) in enumerate(LOADS[load][0].items()):
        for client in range(clients):
            session = cap.add_session(pid=5000 + 10 * number + client, application_name=f"app {number}")
            cap.cycle(session, [("active", wait, 8), ("active", None, 2)], 0, seconds, statement_id=100 + number)
            if load == "mixed":
                cap.delta(session, 0, seconds, cpu_run_ns=100_000_000, cpu_queue_ns=250_000_000)
        cap.add("statement", statement_id=100 + number, id_source="server", query=f"select {number}")
    holder = cap.add_session(pid=4711)
    cap.sample(holder, "active", None, 0, seconds)
    for client in range(2):
        waiter = cap.add_session(pid=4800 + client)
        for k in range(5 * seconds):
            cap.lock_wait(waiter, holder, k / 5, (k + 1) / 5, locktype="extend", datid=DATID, relid=TABLE if k % 4 else 999)
    loader = cap.add_session(pid=4900, application_name="loader")
    cap.cycle(loader, [("active", "Client:ClientRead", 9), ("active", None, 1)], 0, seconds, statement_id=7)
    cap.add("statement", statement_id=7, id_source="server", query="copy orders from stdin")
    cap.add("relation", datid=DATID, relid=TABLE, relfilenode=TABLE, nspname="public", relname="accounts", relkind="r")
    return cap.write()


def found(path: Path) -> tuple[dict[tuple[str, str], Finding], Evaluation]:
    with closing(open_capture(path, hold=True)) as capture:
        result = evaluate(capture)
    return {(finding.id, finding.subject): finding for finding in result.findings}, result


@pytest.fixture(scope="module", params=LOADS)
def levels(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> tuple[str, dict[int, Path]]:
    """The load, and its captures by span; 0: the passes. Minutes are made of seconds, as a recorder makes them."""
    folder = tmp_path_factory.mktemp("levels")
    paths = {0: busy(folder, request.param)}
    for span_s, finer in ((1, 0), (60, 1)):
        paths[span_s] = folder / f"every{span_s}"
        paths[span_s].mkdir()
        coarsen(paths[finer], paths[span_s], span_s)
    return request.param, paths


def test_what_is_found_in_coarse_pieces_is_what_is_found_in_the_passes(levels: tuple[str, dict[int, Path]]) -> None:
    load, paths = levels
    fine, _ = found(paths[0])
    assert {rule for rule, _ in fine} >= LOADS[load][1]
    for span_s in (1, 60):
        coarse, result = found(paths[span_s])
        not_evaluated = dict(result.not_evaluated)
        too_short = {rule for rule, why in not_evaluated.items() if "2 rows of tick" in why}  # they ask for so many: minutes here
        assert not_evaluated.keys() & LOADS[load][1] == too_short & LOADS[load][1]
        assert bool(too_short) == (span_s == 60)
        left = {key: finding for key, finding in fine.items() if key[0] not in not_evaluated}
        assert coarse.keys() == left.keys(), span_s
        for key, finding in left.items():
            told, sums = coarse[key], (finding.cost_s, finding.share_of_db_time)
            assert (told.cost_s, told.share_of_db_time) == tuple(s if s is None else pytest.approx(s) for s in sums), (span_s, key)
            assert (told.severity, told.confidence, told.samples) == (finding.severity, finding.confidence, finding.samples), (span_s, key)
        assert "relation public.accounts" in {subject for rule, subject in coarse if rule == "RELATION-EXTEND"}


def test_samples_of_each_level_are_as_many(levels: tuple[str, dict[int, Path]]) -> None:
    sums = []
    for path in levels[1].values():
        with closing(open_capture(path)) as capture:
            by_wait = capture.rows("select wait_class, wait_event, sum(samples)::bigint as n from session_sample group by all order by all")
            sums.append([tuple(row.values()) for row in by_wait if row["n"]])
            [timed] = capture.rows("select sum(samples)::bigint as n, sum(samples) filter (from_counter) as of_counters from db_time")
            assert timed["of_counters"] in (0, None) and timed["n"] > 5_000
    assert sums[0] == sums[1] == sums[2] and len(sums[0]) > 5
