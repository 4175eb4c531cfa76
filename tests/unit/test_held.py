"""A capture held in memory answers as its segments do, whatever was done to answer sooner."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import leadline.capture.hold
import pyarrow.parquet as pq
import pytest
from findings_synthetic import SyntheticCapture
from leadline.capture.reader import Capture, open_capture
from leadline.findings import all_findings, evaluate, shared_thresholds
from leadline.tables import all_tables, duckdb_type


@pytest.fixture
def busy(tmp_path: Path) -> SyntheticCapture:
    """A client that waits, and an open transaction before which another session waits."""
    cap = SyntheticCapture(tmp_path, seconds=10)
    cap.background()
    client, holder = cap.add_session(application_name="slow"), cap.add_session()
    cap.sample(client, "active", "Client:ClientWrite", 0, 10)
    cap.sample(holder, "idle in transaction", "Client:ClientRead", 0, 10, backend_xid=7)
    cap.lock_wait(cap.add_session(), holder, 2, 8)
    return cap


def samples(capture: Capture) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in capture.rows("from session_sample order by ts, session_id")]


@pytest.mark.parametrize("changes", [False, True])
def test_samples_have_the_description_that_held(busy: SyntheticCapture, changes: bool) -> None:
    if changes:
        busy.add("session", ts=busy.ts(4.5), session_id=1, pid=busy.pids[1], backend_start=busy.wall_us(-3600),
                 backend_type="client backend", application_name="renamed", client_addr="local")  # fmt: skip
    with busy.open(hold=False) as whole, closing(open_capture(busy.path, hold=True)) as held:
        assert samples(held) == samples(whole)
        assert whole.scalar("select count(*) from session_sample") == whole.scalar("select count(*) from session_tick")
        renamed = held.rows("select min(ts) as ts from session_sample where application_name = 'renamed'")
    assert renamed == [{"ts": busy.ts(4.5) if changes else None}]


def test_a_rule_finds_the_same_with_all_steps_of_the_optimizer(busy: SyntheticCapture, monkeypatch: pytest.MonkeyPatch) -> None:
    with busy.open(hold=False) as capture:
        left_out = evaluate(capture)
        monkeypatch.setattr(leadline.capture.hold, "FOR_MANY_ROWS", ("a step that no version has",))
        assert evaluate(capture) == left_out
    assert {"SLOW-CLIENT", "IDLE-IN-XACT"} <= {f.id for f in left_out.findings}


def test_segments_of_other_columns_are_read_too(busy: SyntheticCapture) -> None:
    with busy.open(hold=False):
        pass
    (segment,) = (busy.path / "tick").glob("*.parquet")
    rows = pq.read_table(segment)
    pq.write_table(rows.drop_columns(["next_xid"]), segment)
    pq.write_table(rows.slice(0, 1), busy.path / "tick" / "000002.parquet")
    with closing(open_capture(busy.path, hold=True)) as held:
        columns = dict(held.db.execute("select column_name, column_type from (describe tick)").fetchall())
        seen = held.rows("select count(*) as rows, count(next_xid) as with_xid from tick")
        assert held.scalar("select count(*) from duckdb_tables() where table_name = 'tick'") == 1  # read once, not for each query
    assert columns == {c.name: duckdb_type(c.type) for c in all_tables()["tick"].all_columns}
    assert seen == [{"rows": rows.num_rows + 1, "with_xid": 1}]


def test_a_threshold_of_a_rule_is_none_of_a_view_or_macro() -> None:
    """They are written into the query of the rule alone."""
    assert not {t.name for rule in all_findings() for t in rule.thresholds} & {t.name for t in shared_thresholds()}
