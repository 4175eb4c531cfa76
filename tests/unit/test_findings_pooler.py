"""The console of a pooler: what is kept of it, and POOLER-QUEUE by hand computation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from findings_synthetic import SyntheticCapture
from leadline.capture.manifest import Manifest, Target
from leadline.capture.reader import Capture
from leadline.capture.store import Store
from leadline.engines.postgres.probes import pooler
from leadline.engines.postgres.probes.pooler import PoolerProbe
from leadline.findings import Finding, evaluate


@pytest.fixture
def cap(tmp_path: Path) -> SyntheticCapture:
    made = SyntheticCapture(tmp_path)
    made.background()
    made.probes["pooler"] = {"status": "ok", "why": "", "hint": ""}
    return made


def console(
    cap: SyntheticCapture, waiting: float, total_wait_s: float | None = None, mode: float = 2, pool: str = "shop/app", **more: float
) -> None:
    """A pool of two connections, read each half second; clients wait from 10 s to 30 s."""
    row = {"cl_active": 2, "sv_active": 2, "sv_idle": 0, "sv_login": 0, "pool_mode": mode, "maxwait": 3, "maxwait_us": 250_000} | more
    for reading in range(120):
        ts = cap.ts(reading / 2)
        for metric, value in (row | {"cl_waiting": waiting if 20 <= reading < 60 else 0}).items():
            cap.add("server_stat", ts=ts, phase="during", view="pooler_pools", object=pool, metric=metric, value=value)
        if total_wait_s is not None:
            waited = 7e6 + total_wait_s * 1e6 * reading / 119
            cap.add("server_stat", ts=ts, phase="during", view="pooler_stats", object="shop", metric="total_wait_time", value=waited)


def setting(cap: SyntheticCapture, view: str, obj: str, **values: float) -> None:
    for metric, value in values.items():
        cap.add("server_stat", phase="before", view=f"pooler_{view}", object=obj, metric=metric, value=value)


def servers(cap: SyntheticCapture, state: str, wait: str | None) -> None:
    for pid in (51, 52):
        session = cap.add_session(pid=pid, application_name="app")
        cap.sample(session, state, wait, 0, 60)
        cap.add("server_stat", phase="during", view="pooler_servers", object="shop/app", metric="remote_pid", value=pid)


def found(cap: SyntheticCapture) -> list[Finding]:
    with cap.open() as capture:
        result = evaluate(capture, only=["POOLER-QUEUE"])
    assert result.not_evaluated == result.not_applicable == []
    return result.findings


def test_transactions_that_idle_clients_hold(cap: SyntheticCapture) -> None:
    console(cap, 4, total_wait_s=77.5)
    setting(cap, "config", "", default_pool_size=2)
    servers(cap, "idle in transaction", "Client:ClientRead")
    (finding,) = found(cap)
    assert (finding.subject, finding.severity, finding.confidence) == ("pool shop/app", "high", "high")
    assert finding.cost_s == pytest.approx(77.5) and finding.share_of_db_time is None
    assert finding.statement == (
        "Clients of pool shop/app waited 77.5 s for a connection to the server, up to 4 of 6 at once, 3.25 s at the longest; "
        "in 40 of 120 readings somebody waited. The pool is full: 2.0 of 2 connections were open, and transactions held them: "
        "for 100 % of the time they were idle in transaction"
    )
    assert "IDLE-IN-XACT and CHATTY-APP" in finding.action and "Raise" not in finding.action


def test_a_server_that_is_busy(cap: SyntheticCapture) -> None:
    console(cap, 4)  # before version 1.8 nobody counts the waits
    setting(cap, "databases", "shop", pool_size=2, max_connections=0, current_connections=2)
    servers(cap, "active", "IO:DataFileRead")
    (finding,) = found(cap)
    assert finding.cost_s == pytest.approx(80) and finding.confidence == "medium"
    assert "waited about 80.0 s" in finding.statement
    assert "the server was busy with them: 100 % of the time active, mostly IO:DataFileRead" in finding.statement
    assert "before you raise `default_pool_size` from 2" in finding.action


@pytest.mark.parametrize(
    ("case", "said", "advice"),
    [
        ("session mode", "in pool_mode session: for 100 % of the time their clients asked nothing", "Use `pool_mode = transaction`"),
        ("max_db_connections", "max_db_connections is reached: 10 of 10", "Raise it, or let fewer pools"),
        ("max_user_connections", "max_user_connections = 2 is reached", "Raise it, or let fewer pools"),
        ("paused", "The database is paused in the pooler", "`RESUME` ends it"),
        ("login", "The server lets nobody in", "Look into the pooler's log"),
        ("cancels", "30 requests to cancel a statement waited", "Clients cancel many statements"),
        ("full", "2.0 of 2 connections were open; what they did on the server is not known", "Raise `default_pool_size` (or"),
    ],
)
def test_why_clients_wait(cap: SyntheticCapture, case: str, said: str, advice: str) -> None:
    more = {"login": {"sv_active": 0, "sv_login": 1}, "cancels": {"cl_waiting_cancel_req": 30}}.get(case, {})
    console(cap, 4, mode=1 if case == "session mode" else 2, **more)
    small = case in ("session mode", "full")
    setting(cap, "config", "", default_pool_size=2 if small else 20, max_user_connections=2 * (case == "max_user_connections"))
    if case == "session mode":
        servers(cap, "idle", "Client:ClientRead")
    if case in ("max_db_connections", "paused"):
        limit = 10 * (case == "max_db_connections")
        setting(cap, "databases", "shop", pool_size=20, max_connections=limit, current_connections=10, paused=not limit)
    (finding,) = found(cap)
    assert said in finding.statement and advice in finding.action
    assert finding.action.count("\n- ") == 0


def test_waits_that_have_not_ended_are_not_counted_by_the_pooler(cap: SyntheticCapture) -> None:
    console(cap, 4, total_wait_s=0.5)
    (finding,) = found(cap)
    assert finding.cost_s == pytest.approx(80) and "about" in finding.statement


def test_a_pooler_that_was_restarted_counts_from_the_beginning(cap: SyntheticCapture) -> None:
    console(cap, 4, total_wait_s=-6)
    assert found(cap)[0].cost_s == pytest.approx(80)


def test_two_pools_of_a_database_share_its_time(cap: SyntheticCapture) -> None:
    console(cap, 3, total_wait_s=100)
    console(cap, 1, pool="shop/batch")
    assert [(f.subject, f.cost_s) for f in found(cap)] == [("pool shop/app", pytest.approx(75)), ("pool shop/batch", pytest.approx(25))]


@pytest.mark.parametrize("waiting", [0, 0.04])
def test_a_pool_without_a_queue(cap: SyntheticCapture, waiting: float) -> None:
    console(cap, waiting, total_wait_s=20 * waiting)
    assert found(cap) == []


# -- the probe ----------------------------------------------------------------------------------------------------------------

ROWS = {
    "1.5": {"pools": [{"database": "shop", "user": "app", "cl_active": "3", "cl_waiting": 2, "maxwait": 1}]},
    "1.24": {
        "pools": [{"user": "app", "new": None, "database": "shop", "cl_waiting": 2, "maxwait_us": 5, "pool_mode": "transaction"}],
        "stats": [{"database": "shop", "total_wait_time": 9}],
        "databases": [{"name": "shop", "host": "10.0.0.1", "database": "shop_db", "pool_size": 4, "reserve_pool_size": 0}],
        "config": [{"key": "auth_query", "value": "select 'secret'"}, {"key": "default_pool_size", "value": "20", "default": "20"}],
        "lists": [{"list": "pools", "items": 3}],
        "servers": [{"database": "shop", "user": "app", "remote_pid": 51}, {"database": "shop", "user": "app", "remote_pid": 0}],
    },
}  # fmt: skip


def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any]) -> tuple[set[tuple[str, str, str, float]], Manifest]:
    """What a probe keeps of a console that answers so; what is not there is refused."""

    class Console:
        closed = False

        def close(self) -> None: ...

    def show(self: PoolerProbe, view: str) -> list[dict[str, Any]]:
        if view not in answers:
            raise psycopg.ProgrammingError(f"unknown: {view}")
        return list(answers[view])

    monkeypatch.setattr(pooler, "connect", lambda *_, **__: Console())
    monkeypatch.setattr(PoolerProbe, "_show", show)
    made = SyntheticCapture(tmp_path)
    probe = PoolerProbe("host=h user=u password=secret")
    manifest = Manifest(Target("postgres", "x"))
    store = Store(str(made.write()))
    probe.before(store, manifest)
    probe.start()
    probe.stop()
    probe.after(store, manifest)
    store.close()
    probe.describe(manifest)
    with made.open() as capture:
        return kept(capture), manifest


def kept(capture: Capture) -> set[tuple[str, str, str, float]]:
    return {(row["view"].removeprefix("pooler_"), row["object"], row["metric"], row["value"]) for row in capture.rows("from server_stat")}


def test_columns_of_an_old_pooler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, manifest = recorded(tmp_path, monkeypatch, ROWS["1.5"])
    assert rows == {("pools", "shop/app", name, value) for name, value in (("cl_active", 3.0), ("cl_waiting", 2.0), ("maxwait", 1.0))}
    state = manifest.probes["pooler"]
    assert state.status == "partial" and "SHOW STATS: unknown: stats" in state.why and "SHOW CONFIG: unknown: config" in state.why


def test_columns_of_a_new_pooler_and_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, manifest = recorded(tmp_path, monkeypatch, ROWS["1.24"])
    assert {("pools", "shop/app", "pool_mode", 2.0), ("stats", "shop", "total_wait_time", 9.0)} <= rows
    assert ("databases", "shop", "pool_size", 4.0) in rows
    assert {("config", "", "default_pool_size", 20.0), ("lists", "", "pools", 3.0), ("servers", "shop/app", "remote_pid", 51.0)} <= rows
    assert len(rows) == 9
    state = manifest.probes["pooler"]
    assert state.status == "ok" and "secret" not in json.dumps(manifest.as_dict())


def test_of_very_many_pools_those_with_a_queue_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pools = [{"database": "d", "user": f"u{n}", "cl_waiting": int(n % 100 == 0)} for n in range(1000)]
    rows, manifest = recorded(tmp_path, monkeypatch, {"pools": pools})
    assert sum(value for _, _, _, value in rows) == 10 and len(rows) == pooler.MOST_POOLS
    assert "800 pools where nobody waited were left out" in manifest.probes["pooler"].why
