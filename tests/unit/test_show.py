"""The sums behind the views, and the terminal view."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from example_capture import NASTY, example
from findings_synthetic import SyntheticCapture
from leadline.capture.reader import Capture, open_capture
from leadline.cli import run
from leadline.figures import count, figure, fit, one_line, percent, quantity, seconds
from leadline.findings import all_findings, evaluate
from leadline.views import lock_tree, spenders, where
from leadline.views.show import print_capture
from leadline.views.text import WIDTH, finding_lines
from rich.console import Console


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return example(tmp_path_factory.mktemp("show")).write()


@pytest.fixture(scope="module")
def capture(path: Path) -> Iterator[Capture]:
    opened = open_capture(path, hold=True)
    yield opened
    opened.close()


def shown(path: Path, *, colour: bool = False) -> str:
    capture = open_capture(path, hold=True)
    out = io.StringIO()
    console = Console(file=out, width=WIDTH, highlight=False, force_terminal=colour, color_system="truecolor" if colour else None)
    print_capture(capture, evaluate(capture), console)
    capture.close()
    return out.getvalue()


# -- sums --------------------------------------------------------------------------------------------------------------


def test_database_time_adds_up(capture: Capture) -> None:
    of = where.window(capture)
    assert of.window_s == of.observed_s == 60
    assert of.aas == pytest.approx(of.db_time_s / 60)
    classes = where.by_class(capture)
    assert sum(c.seconds for c in classes) == pytest.approx(of.db_time_s)
    by_name = {c.wait_class: c for c in classes}
    assert by_name["Lock"].seconds == pytest.approx(28 + 25 + 25)
    assert [(e.event, pytest.approx(e.seconds)) for e in by_name["Lock"].events] == [("tuple", 50), ("transactionid", 28)]
    split = where.cpu_split(capture)
    assert split.run_s + split.queue_s + split.unknown_s == pytest.approx(by_name["CPU"].seconds)
    assert split.queue_s > 0


def test_idle_time_is_shown_apart(capture: Capture) -> None:
    rows = {o.what: o for o in where.outside(capture)}
    assert rows["idle in transaction"].seconds == pytest.approx(30 + 4 * 6)
    assert rows["server processes, waiting for work"].seconds == pytest.approx(180)
    assert "CheckpointerMain" in rows["server processes, waiting for work"].events


def test_the_time_line_has_the_same_sum(capture: Capture) -> None:
    of = where.window(capture)
    slices = where.over_time(capture, of)
    assert len({s.from_s for s in slices}) <= 120
    assert sum(s.aas * (s.to_s - s.from_s) for s in slices) == pytest.approx(of.db_time_s)


def test_missed_passes_leave_a_gap_and_do_not_lower_the_average(tmp_path: Path) -> None:
    """One session active all the time; the passes of the seconds 4 to 6 were not made."""
    cap = SyntheticCapture(tmp_path, seconds=10)
    cap.sample(cap.add_session(), "active", "IO:DataFileRead", 0, 10)
    path = cap.write()
    from_ts, to_ts = cap.ts(4), cap.ts(6)
    db = duckdb.connect()
    segment = path / "tick" / "000001.parquet"
    counted = f"* replace (case when ts = {to_ts} then 200 else 0 end::int as missed)"
    db.execute(f"create table tick as select {counted} from '{segment}' where ts < {from_ts} or ts >= {to_ts}")
    db.execute(f"copy tick to '{segment}' (format parquet)")
    db.close()
    opened = open_capture(path, hold=True)
    of = where.window(opened)
    assert (of.observed_s, of.unknown_s, of.missed) == (8, 2, 200)
    assert of.aas == pytest.approx(1)
    covered = {s.from_s for s in where.over_time(opened, of)}
    assert 3.9 in covered and 6.0 in covered
    assert not any(4 <= start < 6 for start in covered)
    assert any("200 of 1000 passes" in n.why for n in where.not_measured(opened))
    opened.close()
    assert "200 missed (2.00 s unknown)" in shown(path)


@pytest.mark.parametrize(("more_s", "last_from_s", "in_last"), [(0.01, 10.9, 11), (0.04, 10.9, 14), (0.05, 11.0, 5), (0.09, 11.0, 9)])
def test_a_last_step_of_less_than_half_is_a_part_of_the_one_before(tmp_path: Path, more_s: float, last_from_s: float, in_last: int) -> None:
    """11 s and a little, in steps of 0.1 s: one session is active, and sixteen more in the last pass only."""
    cap = SyntheticCapture(tmp_path, seconds=11 + more_s)
    cap.sample(cap.add_session(), "active", "IO:DataFileRead", 0, 11 + more_s)
    for _ in range(16):
        cap.sample(cap.add_session(), "active", "Lock:tuple", 11 + more_s - 0.01, 11 + more_s)
    opened = open_capture(cap.write(), hold=True)
    of = where.window(opened)
    slices = where.over_time(opened, of)
    assert max(s.from_s for s in slices) == pytest.approx(last_from_s)
    assert max(s.to_s for s in slices) == pytest.approx(of.window_s)
    assert sum(s.aas * (s.to_s - s.from_s) for s in slices) == pytest.approx(of.db_time_s)
    assert next(s.aas for s in slices if s.wait_class == "Lock") == pytest.approx(16 / in_last)
    lanes = where.lanes(opened, of)
    assert max(x.to_s for x in lanes) == pytest.approx(of.window_s) and max(x.from_s for x in lanes) == pytest.approx(last_from_s)
    assert max(x.part for x in lanes if x.wait_class == "Lock") == pytest.approx(1 / in_last)
    opened.close()


def test_time_steps_are_round_and_few() -> None:
    for window_s, period_s in ((0.5, 0.001), (20, 0.01), (60, 0.01), (60, 1), (3600, 0.1), (86400, 0.1)):
        step = where.time_step(window_s, period_s)
        assert window_s / step <= 120
        assert step >= 10 * period_s - 1e-9
        assert f"{step:.0e}"[0] in "125"


def test_statements_and_sessions(capture: Capture) -> None:
    top = spenders.statements(capture, 3)
    assert [s.key for s in top] == [11, 902, 12]
    assert top[0].label.startswith("insert into orders")
    assert top[0].sessions == 4
    assert top[2].by_class == {"Lock": pytest.approx(78)}
    found = {s.pid: s for s in spenders.sessions(capture, 100)}
    assert found[7001].seconds == 0 and found[7001].idle_in_xact_s == pytest.approx(30)
    assert found[7002].top_event == "transactionid"
    reporting = next(s for s in found.values() if s.application_name == NASTY and s.pid != 7004)
    assert (reporting.cpu_run_s, reporting.blocks_read) == (pytest.approx(12), 80_000)


def test_objects_and_blocks_cost_what_the_findings_say(capture: Capture) -> None:
    costs = {f.id: f.cost_s for f in evaluate(capture).findings}
    blocks = {b.object: b for b in spenders.hot_blocks(capture)}
    leaf, sequence = blocks["public.orders_pkey"], blocks["public.orders_id_seq"]
    assert (leaf.block, leaf.blocks, leaf.page_kind, leaf.most_waiters, leaf.holder) == (117, 1, "btree right-most leaf", 2, "CPU")
    assert leaf.seconds == pytest.approx(costs["RIGHT-EDGE-INDEX"])
    assert sequence.seconds == pytest.approx(costs["SEQUENCE-PAGE"])
    assert leaf.seconds + sequence.seconds == pytest.approx(102)
    objects = {o.object: o for o in spenders.objects(capture)}
    assert objects["public." + NASTY].lock_s == pytest.approx(50)
    assert objects["public.orders_pkey"].buffer_s == pytest.approx(leaf.seconds)
    assert objects["rows (waits for transactions)"].lock_s == pytest.approx(28)


# -- lock trees --------------------------------------------------------------------------------------------------------


def test_a_lock_chain_is_one_tree(capture: Capture) -> None:
    (tree,) = lock_tree.lock_trees(capture)
    assert (tree.pid, tree.state, tree.victims) == (7001, "idle in transaction", 3)
    assert tree.seconds == pytest.approx(78)
    assert tree.xact_age_s == pytest.approx(36, abs=0.1)
    assert tree.statement.startswith("update accounts")
    (first,) = tree.waiters
    assert (first.pid, first.object, first.mode, first.blocker_mode) == (7002, "transaction 900", "ShareLock", "ExclusiveLock")
    assert [w.pid for w in first.waiters] == [7003, 7004]
    assert first.waiters[0].object == f"row (3,7) of public.{NASTY}"
    assert first.seconds + sum(w.seconds for w in first.waiters) == pytest.approx(tree.seconds)


def test_sessions_that_block_each_other_in_turn_stand_once_in_a_tree(tmp_path: Path) -> None:
    """Ten sessions on one row: each second another one heads the line of the rest. The tree must stay small."""
    cap = SyntheticCapture(tmp_path, seconds=30)
    root = cap.add_session(pid=5000)
    cap.sample(root, "idle in transaction", "Client:ClientRead", 0, 30)
    line = [cap.add_session(pid=5001 + i) for i in range(10)]
    for second in range(30):
        head, *rest = line[second % 10 :] + line[: second % 10]
        cap.lock_wait(head, root, second, second + 1, transactionid=1)
        for session in rest:
            cap.lock_wait(session, head, second, second + 1, locktype="tuple", page=0, tuple=1)
    with cap.open() as opened:
        (tree,) = lock_tree.lock_trees(opened)

    def flat(waiters: list[lock_tree.Waiter]) -> list[int]:
        return [pid for w in waiters for pid in [w.pid, *flat(w.waiters)]]

    assert sorted(flat(tree.waiters)) == list(range(5001, 5011))
    assert tree.seconds == pytest.approx(300)


def test_who_only_stands_ahead_in_the_queue_is_no_holder(tmp_path: Path) -> None:
    """DDL waits for a reader; another reader waits in the queue behind the DDL, and holds nothing against it."""
    cap = SyntheticCapture(tmp_path, seconds=10)
    reader, ddl, late = (cap.add_session(pid=pid) for pid in (6001, 6002, 6003))
    cap.sample(reader, "idle in transaction", "Client:ClientRead", 0, 10)
    lock = {"locktype": "relation", "datid": 16384, "relid": 777}
    cap.lock_wait(ddl, reader, 1, 9, mode="AccessExclusiveLock", blocker_mode="AccessShareLock", **lock)
    cap.lock_wait(late, ddl, 2, 9, mode="AccessShareLock", blocker_mode="AccessExclusiveLock", blocker_kind="queue", **lock)
    with cap.open() as opened:
        (tree,) = lock_tree.lock_trees(opened)
    (first,) = tree.waiters
    (second,) = first.waiters
    assert (first.pid, first.queued, first.object) == (6002, False, "relation 777")
    assert (second.pid, second.queued) == (6003, True)


def test_a_prepared_transaction_can_be_the_root(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, seconds=10)
    victim = cap.add_session(pid=6100)
    cap.lock_wait(victim, -1, 1, 9, transactionid=4)
    with cap.open() as opened:
        (tree,) = lock_tree.lock_trees(opened)
    assert (tree.pid, tree.who, [w.pid for w in tree.waiters]) == (0, "a prepared transaction", [6100])


# -- the terminal view -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("terminal")
def test_show_fits_80_columns_and_says_what_matters(path: Path) -> None:
    text = shown(path)
    assert max(map(len, text.splitlines())) <= 80
    for expected in (
        "PostgreSQL 16.14, 2 CPUs, max_connections 100",
        "shared memory at 100 Hz: 6,000 passes taken, none missed",
        "10.26 sessions active on average",
        "waiting to run",
        "LWLock:BufferContent",
        "idle in transaction",
        "BLOCK-CHAIN",
        "pid 7001 batch: idle in transaction",
        "btree right-most leaf",
        "block devices are not visible",
        "leadline itself used 0.17% of one CPU",
    ):
        assert expected in text, expected


def test_colour_only_where_there_is_a_terminal(path: Path) -> None:
    assert "\x1b[" in shown(path, colour=True)
    line = [sys.executable, "-m", "leadline", "show", str(path)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=True)
    assert "\x1b" not in done.stdout
    assert "Database time" in done.stdout


def test_no_color_is_respected_on_a_terminal(path: Path) -> None:
    import pty

    def on_terminal(**more: str) -> bytes:
        leader, follower = pty.openpty()
        environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm-256color"} | more
        line = [sys.executable, "-m", "leadline", "show", str(path)]
        with subprocess.Popen(line, stdout=follower, stderr=follower, env=environment) as process:
            os.close(follower)
            out = b""
            while True:
                try:
                    part = os.read(leader, 65536)
                except OSError:  # the terminal is gone with its last writer
                    break
                if not part:
                    break
                out += part
            assert process.wait(60) == 0
        os.close(leader)
        return out

    assert b"\x1b[3" in on_terminal()
    plain = on_terminal(NO_COLOR="1")
    assert b"\x1b[3" not in plain and b"Database time" in plain


def test_show_json(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["window"]["db_time_s"] == pytest.approx(615.6)
    assert answer["lock_trees"][0]["waiters"][0]["pid"] == 7002
    assert {f["id"] for f in answer["findings"]} >= {"BLOCK-CHAIN", "RIGHT-EDGE-INDEX"}


def interrupt(path: Path) -> None:
    """As a killed recorder leaves the manifest."""
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["status"] = "recording"
    manifest["clock"]["ts_to"] = None
    manifest["cost"] = {}
    (path / "manifest.json").write_text(json.dumps(manifest))


def test_an_interrupted_capture_shows_what_it_has(tmp_path: Path) -> None:
    path = example(tmp_path).write()
    interrupt(path)
    text = shown(path)
    assert "This capture was interrupted" in text
    assert "10.26 sessions active on average" in text


def test_a_capture_without_any_pass_is_shown_as_such(tmp_path: Path) -> None:
    path = SyntheticCapture(tmp_path, seconds=0).write()
    interrupt(path)
    assert "no passes were recorded" in shown(path)


def test_a_failed_capture_says_why(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, seconds=5)
    cap.background()
    path = cap.write()
    manifest = json.loads((path / "manifest.json").read_text())
    manifest |= {"status": "failed", "error": {"kind": "gone", "message": "the server went away", "detail": "", "hint": "", "where": ""}}
    (path / "manifest.json").write_text(json.dumps(manifest))
    assert "It ended early: the server went away" in shown(path)


# -- figures -----------------------------------------------------------------------------------------------------------


def test_figures() -> None:
    assert [seconds(v) for v in (0, 0.0042, 0.42, 7.314, 82.12, 1234.5)] == ["0", "0.0042", "0.420", "7.31", "82.1", "1,234"]
    assert [percent(v) for v in (None, 0.0, 0.0001, 0.123, 1.0)] == ["", "0.0%", "<0.1%", "12.3%", "100.0%"]
    assert [quantity(v) for v in (None, 0, 999, 1500, 17_200_000)] == ["", "0", "999", "1.5k", "17.2M"]
    assert (count(1, "row"), count(1234, "row")) == ("1 row", "1,234 rows")
    assert fit("abcdef", 4) == "abc…"
    assert one_line("a\n\tb\x1b[0m") == "a b\N{REPLACEMENT CHARACTER}[0m"


def test_advice_is_filled_again_for_the_terminal(tmp_path: Path) -> None:
    """Lines of the rule's text are joined and broken at the terminal's width; items hang, code stays as it is."""
    cap = SyntheticCapture(tmp_path / "advice")
    holder, request, reader = cap.add_session(), cap.add_session(), cap.add_session()
    cap.sample(holder, "idle in transaction", "Client:ClientRead", 5, 25)
    lock = {"locktype": "relation", "datid": 16384, "relid": 999}
    cap.lock_wait(request, holder, 10, 20, mode="AccessExclusiveLock", blocker_mode="AccessShareLock", **lock)
    cap.lock_wait(reader, request, 10, 20, mode="AccessShareLock", blocker_mode="AccessExclusiveLock", blocker_kind="queue", **lock)
    capture = open_capture(cap.write())
    (queue,) = evaluate(capture, ["DDL-QUEUE"]).findings
    lines = [line.plain for line in finding_lines(queue)]
    capture.close()
    assert all(len(line) <= WIDTH for line in lines)
    advice = lines[lines.index("  What to do") + 1 :]
    assert "      SET lock_timeout = '100ms';" in advice
    assert not any("```" in line for line in advice)
    assert {line[:6] for line in advice if line and not line.startswith("      ")} == {"    - "}
    words = " ".join(advice).split()
    assert words == [word for word in queue.action.split() if not word.startswith("```")]


def test_code_of_the_advice_fits_the_terminal() -> None:
    for rule in all_findings():
        in_code = False
        for line in rule.sections["What to do"].splitlines():
            in_code ^= line.startswith("```")
            if in_code:
                assert len(line) <= WIDTH - 6, f"{rule.id}: {line}"


def test_a_statement_whose_id_is_known_late_is_one_row(tmp_path: Path) -> None:
    """The server computes its id while it parses: waits before that have the id of the text. By database, and never a guess."""
    cap = SyntheticCapture(tmp_path, seconds=20)
    for datid, name in ((5, "shop"), (6, "copy")):
        cap.add("database", datid=datid, datname=name)
    texts = {901: ("server", 5, "select a"), 902: ("server", 6, "select a"), 77: ("text", 5, "select a")}
    texts |= {903: ("server", 5, "begin"), 78: ("text", 6, "begin")}  # an id that does not depend on the database
    texts |= {904: ("server", 5, "select b"), 905: ("server", 5, "select b"), 79: ("text", 5, "select b")}  # two search paths
    for key, (source, datid, query) in texts.items():
        cap.add("statement", statement_id=key, id_source=source, datid=datid, query=query)
    expected = {}
    for n, (datid, late, joined) in enumerate([(5, 77, 901), (6, 77, 902), (6, 78, 903), (5, 79, 79)]):
        session = cap.add_session(datid=datid)
        cap.sample(session, "active", "Lock:relation", 0, 5 + n, statement_id=late)
        cap.sample(session, "active", None, 10, 12, statement_id=joined)
        expected[joined] = 7.0 + n
    with closing(open_capture(cap.write(), hold=True)) as opened:
        rows = opened.rows("select statement_id, sum(weight_s) as s from db_time group by 1")
        assert {row["statement_id"]: pytest.approx(row["s"], abs=0.02) for row in rows} == expected
        assert [spender.label for spender in spenders.statements(opened)] == ["select b", "begin", "select a", "select a"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (0, "0"), (0.26139, "0.2614"), (63, "63"), (999.94, "999.9"), (999.97, "1,000"), (-12460.3, "-12,460"), (3855.2, "3,855"),
     (2.5e9, "2,500,000,000")],
)  # fmt: skip
def test_a_measured_figure_has_four_digits_or_all_before_the_point(value: float | None, text: str) -> None:
    assert figure(value) == text
