"""A pair of servers of a study: its design, what lies between its servers, what replay may use, and that nothing is left of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import Server, fetched_or_skip, in_memory, is_running, wait_until
from leadline.errors import LeadlineError
from leadline.study import design, pair
from leadline.study.conflict import conflict
from leadline.study.keep_up import keep_up
from leadline.study.limit import Tried, bounds_of, limit
from leadline.study.load_beside import LoadBeside
from leadline.study.named_pair import check
from leadline.study.outage import outage
from leadline.study.servers import PrivateServers
from standby import Standby

PAIR = """question = "What does a commit cost?"
[[factor]]
round_trip = true
levels = ["0", "30ms"]
[server]
standby = true
settings = { synchronous_standby_names = "*", synchronous_commit = "remote_write", fsync = "off" }
standby_settings = { wal_retrieve_retry_interval = "100ms" }
[load]
script = "select 1"
[[metric]]
value = "p50_ms"
[[metric]]
value = "added_rtt_ms"
proves = "round_trip"
"""
CPU = '[[factor]]\nreplay_cpu = true\nlevels = ["40%", "2.5%"]\n'
held = pytest.mark.skipif(not os.access(pair.GROUPS, os.W_OK), reason="no control group of the cpu controller (cgroup v1) can be made here")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("standby = true\n", "", "round_trip is for a server with a standby"),
        ("standby = true\n", "standby = 1\n", "standby is true or false"),
        ('"30ms"', '"30 miles"', "is not a duration"),
        ("standby_settings = {", "standby_settings = { a = [1], ", "names with values"),
        ("[[factor]]\nround_trip = true", "[[factor]]\nsetting = 'work_mem'", "added_rtt_ms needs a factor with a round trip"),
        ("standby = true\n", "standby = true\nreplay_cpu = 'half'\n", "is not a margin"),
        ("[server]", CPU.replace("40%", "much") + "[server]", "is not a margin"),
        ("[server]", "[[factor]]\nlayout = true\nlevels = { one = '/a', two = '/b' }\n[server]", "has no layouts"),
    ],
)
def test_a_pair_that_cannot_be_is_refused(old: str, new: str, says: str) -> None:
    text = PAIR.replace(old, new)
    if "work_mem" in new:
        text = text.replace('proves = "round_trip"', 'better = "less"')
    with pytest.raises(LeadlineError, match=says) as refused:
        design.parse(text, "x")
    assert refused.value.kind == "usage"


def test_round_trips_are_narrowed_and_a_named_server_has_none() -> None:
    study = design.parse(PAIR, "x")
    assert design.with_round_trips(study, "1ms, 2ms").factors[0].labels == ["1ms", "2ms"]
    with pytest.raises(LeadlineError, match="has no factor that is a round trip"):
        design.with_round_trips(design.read("settings"), "0,1ms")
    with pytest.raises(LeadlineError, match="this study needs a private pair"):
        design.on_named(study)
    named = design.on_named(design.read("commit-modes"))
    assert (named.names, [metric.name for metric in named.metrics], named.server) == (["synchronous_commit"], ["p50 ms", "p99 ms"], {})
    assert design.of_text(study.as_text()).has_pair


def servers(text: str) -> PrivateServers:
    return PrivateServers(design.parse(text, "x"), lambda _: None, lambda _: None, str(fetched_or_skip(18).bin_dir))


def ask(dsn: str, query: str) -> Any:
    with psycopg.connect(dsn, autocommit=True) as db:
        found = db.execute(query.encode())
        row = found.fetchone() if found.description else None
        return row and row[0]


def test_a_pair_has_its_round_trip_and_nothing_is_left_of_it() -> None:
    with in_memory():
        of = servers(PAIR)
        try:
            for label, rtt in (("30ms", 30.0), ("0", 0.0)):
                dsn, _ = of.set_up((label,))
                assert ask(of.standby, "select pg_is_in_recovery()") is True
                for _ in range(20):
                    ask(dsn, "select txid_current()")
                link = of.pairs[of.version].link
                assert link is not None
                process = link._process
                for user in ("postgres", "leadline_standby"):  # who reaches the port reaches nothing
                    with pytest.raises(psycopg.OperationalError, match=r"no pg_hba\.conf entry"):
                        psycopg.connect(f"{link.conninfo} user={user} dbname=postgres password=guessed")
                added = of.added_rtt_ms()
                assert added is not None and added >= rtt
                assert process.returncode == 0 and of.added_rtt_ms() is None
            folders = [server.base_dir for server in (of.servers[of.version], of.pairs[of.version].standby)]
        finally:
            of.close()
    assert not any(folder.exists() for folder in folders)


@held
def test_replay_has_a_share_of_a_cpu() -> None:
    with in_memory():
        of = servers(PAIR.replace("[server]", CPU + "[server]"))
        try:
            groups = set[Path]()
            for label, share in (("40%", 0.4), ("2.5%", 0.025)):
                of.set_up(("0", label))
                pid = of.pairs[of.version].standby.startup_pid
                [group] = {group for group in pair.GROUPS.rglob("leadline-*") if str(pid) in (group / "cgroup.procs").read_text().split()}
                quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
                assert int(quota) / int(period) == share
                assert int((group / "cpu.shares").read_text()) == pair.MOST_SHARES, "its quota limits it, and not the work of others"
                groups.add(group)
                of.set_up(("0", label))
            assert len(groups) == 2 and [group.exists() for group in groups].count(True) == 1
        finally:
            of.close()
    wait_until(lambda: not any(group.exists() for group in groups), what="the end of the groups")


@held
def test_nothing_is_left_of_a_pair_whose_study_is_killed(tmp_path: Path) -> None:
    text = PAIR.replace("[server]", CPU + "[server]")
    (tmp_path / "s.py").write_text(
        "import sys\nfrom test_study_pair import *\nof = servers(sys.argv[1])\nof.set_up(('30ms', '2.5%'))\np = of.pairs[of.version]\n"
        "print(p.link._process.pid, p.standby.pid, p.primary.pid, p.quota._group, p.standby.base_dir, flush=True)\nsys.stdin.read()\n"
    )
    paths = os.pathsep.join([*sys.path, str(Path(__file__).parent)])
    child = subprocess.Popen(
        [sys.executable, tmp_path / "s.py", text], env=os.environ | {"PYTHONPATH": paths, "TMPDIR": "/dev/shm"}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    *pids, group, folder = child.stdout.readline().split()
    assert all(is_running(int(pid)) for pid in pids) and len(pids) == 3
    child.send_signal(signal.SIGKILL)
    child.communicate()
    for pid in pids:
        wait_until(lambda pid=pid: not is_running(int(pid)), what=f"the end of process {pid}")
    wait_until(lambda: not Path(group).exists() and not Path(folder).exists(), what="the end of the group and the folder")


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command whose logbook is of this folder alone, and whose stdin is no terminal."""
    environment = {name: value for name, value in os.environ.items() if name != "LEADLINE_RUN"} | {"LEADLINE_BOOK": str(folder / "book")}
    command = [sys.executable, "-m", "leadline", *words]
    return subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180, check=False, cwd=folder
    )


def printed(folder: Path, *words: str) -> str:
    done = run(folder, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_commit_that_waits_for_the_standby_has_the_round_trip(tmp_path: Path) -> None:
    """From the command to the report, with two modes and one block."""
    words = ["replication", "study", "commit-modes", "--setting", "synchronous_commit=local,on", "--round-trip", "0,30ms", "--for", "300ms",
             "--repetitions", "1", "--pg-bin", str(fetched_or_skip(18).bin_dir), "--json"]  # fmt: skip

    def leadline(*words: str) -> str:
        return printed(tmp_path, *words)

    found = json.loads(leadline(*words))["study"]
    modes = {mode["name"]: mode for mode in found["round_trips"] if mode["metric"] == "p50 ms"}
    assert list(modes) == ["synchronous_commit=local", "synchronous_commit=on"]
    assert [(mode["waits"], mode["verdict"]) for mode in modes.values()] == [(False, "not known"), (True, "not known")]
    least, most = modes["synchronous_commit=on"]["points"]
    assert (least["asked"], most["asked"]) == ("0", "30ms") and min(most["value"], most["added_ms"]) >= 30
    assert most["predicted"] == pytest.approx(least["value"] + most["added_ms"] - least["added_ms"])
    text = leadline("study", "show", "last")
    assert "a private pair on this host (a loopback pair)" in text and "Latency against the round trip" in text
    leadline("study", "report", "last", "-o", "r.html")
    assert "p99 ms, loopback pair" in (tmp_path / "r.html").read_text()


def test_an_outage_ends_with_all_replayed_and_the_connection_as_it_was() -> None:
    with in_memory():
        of = servers(PAIR.replace('synchronous_standby_names = "*", ', 'wal_keep_size = "1GB", '))
        try:
            dsn, _ = of.set_up(("0",))
            was = ask(of.standby, "show primary_conninfo")
            ask(dsn, "create table line (n int)")
            script = "insert into line select generate_series(1, 100);"
            given = Namespace(primary=dsn, standby=of.standby, cut=1.0, before=0.5, most=60.0, rate=50.0, script=script)
            found = outage(given)
            assert found["outage_s"] >= 1.0 and found["lag_bytes"] > 0 and found["made_per_s"] > 0
            assert found["reached_s"] is not None and found["caught_up_s"] is not None
            assert ask(of.standby, "show primary_conninfo") == was
            with pytest.raises(LeadlineError, match="the load ended too early"):
                outage(Namespace(**vars(given) | {"script": f"{script} select 1 / 0;"}))
        finally:
            of.close()


def test_a_load_beside_ends_with_its_trial_also_where_interrupts_are_ignored(fresh_server: Callable[..., Server]) -> None:
    """As in a job in the background of a shell script."""
    server = fresh_server(18)
    was = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with LoadBeside(server.dsn, "select 'beside';", 50.0, 90.0) as load:
            wait_until(lambda: server.sql("select 1 from pg_stat_activity where query ~ '^select .beside'"))
            begun = time.monotonic()
        assert time.monotonic() - begun < 45 and load.found["phases"], "it was asked for 90 s"
    finally:
        signal.signal(signal.SIGINT, was)


LINE = "insert into line select n, 'the same words' from generate_series(1, 500) n;"


@held
def test_a_standby_keeps_up_with_little_and_falls_behind_at_more_than_its_cpu_replays() -> None:
    with in_memory():
        of = servers(PAIR.replace("standby = true", 'standby = true\nreplay_cpu = "2.5%"'))
        try:
            dsn, _ = of.set_up(("0",))
            ask(dsn, "create table line (n int, body text)")
            given = Namespace(primary=dsn, standby=of.standby, script=LINE, for_s=3.0, most_s=60.0)
            little = keep_up(Namespace(**vars(given), rate=20.0))  # a third of what a slow host replays in the 2.5 %
            assert little["verdict"] == "keeps up" and little["replayed_mb_s"] == pytest.approx(little["made_mb_s"], rel=0.03)
            much = keep_up(Namespace(**vars(given), rate=500.0))
            assert much["verdict"] == "falls behind" and much["at_most_mb_s"] < 0.9 * much["made_mb_s"]
            assert much["drained_mb_s"] > 0 and much["growth_low"] <= much["growth"] <= much["growth_high"]
            assert ask(of.standby, "select pg_last_wal_replay_lsn() = pg_last_wal_receive_lsn()") is True
        finally:
            of.close()


CONFLICT = """question = "Who pays?"
[[factor]]
standby_setting = "max_standby_streaming_delay"
levels = ["30s", "0"]
[[factor]]
standby_setting = "hot_standby_feedback"
levels = ["off", "on"]
[server]
standby = true
settings = { fsync = "off", autovacuum = "off", synchronous_commit = "off" }
standby_settings = { wal_receiver_status_interval = "1s" }
[load]
script = "select 1"
"""


def test_a_snapshot_of_a_standby_holds_replay_or_is_cancelled_or_is_kept_by_the_primary() -> None:
    with in_memory():
        of = servers(CONFLICT)
        try:
            found = {}
            for cell in (("30s", "off"), ("0", "off"), ("30s", "on")):
                dsn, effects = of.set_up(cell)
                shown = {name: effect.shown for name, effect in effects.items()}
                assert shown == {"standby max_standby_streaming_delay": cell[0], "standby hot_standby_feedback": cell[1]}
                assert ask(dsn, "show hot_standby_feedback") == "off", "of the standby alone"
                rows = "select n, 0, repeat('x', 500) from generate_series(1, 2000) n"
                ask(dsn, "drop table if exists seen")
                ask(dsn, f"create table seen (id, n, pad) as {rows}")
                ask(dsn, "alter table seen add primary key (id)")
                given = Namespace(primary=dsn, standby=of.standby, rate=200.0, for_s=5.0, hold_s=2.0, most_s=60.0)
                found[cell] = conflict(given)
            waits, cancels, keeps = found.values()
            assert waits["cancelled"] == 0 and waits["stalled_s"] > 1.2 and waits["behind_s"] > 1.2, waits
            assert waits["held_xids"] == cancels["held_xids"] == 0
            assert cancels["cancelled"] > 0, cancels
            assert keeps["cancelled"] == 0 and keeps["finished"] > 0 and keeps["held_xids"] > 100, keeps
            assert keeps["dead_rows"] > 300 > cancels["dead_rows"], "what the snapshot still sees is not removed"
        finally:
            of.close()


@held
def test_a_setting_that_restarts_the_standby_leaves_it_its_share_of_a_cpu() -> None:
    text = CONFLICT.replace('"max_standby_streaming_delay"', '"shared_buffers"').replace('["30s", "0"]', '["16MB", "24MB"]')
    with in_memory():
        of = servers(text.replace("standby = true", 'standby = true\nreplay_cpu = "40%"'))
        try:
            pids = set()
            for label in ("16MB", "24MB"):
                dsn, effects = of.set_up((label, "off"))
                assert effects["standby shared_buffers"].shown == ask(of.standby, "show shared_buffers") == label
                assert ask(dsn, "show shared_buffers") == "128MB"
                pid = of.pairs[of.version].standby.startup_pid
                pids.add(pid)
                groups = {group for group in pair.GROUPS.rglob("leadline-*") if str(pid) in (group / "cgroup.procs").read_text().split()}
                assert len(groups) == 1
            assert len(pids) == 2
            of.set_up(("24MB", "on"))
            assert of.pairs[of.version].standby.startup_pid == pid, "no restart without need"
        finally:
            of.close()


def test_settings_of_a_standby_need_one_and_are_what_setting_compares() -> None:
    with pytest.raises(LeadlineError, match="standby_setting is for a server with a standby"):
        design.parse(CONFLICT.replace("standby = true\n", ""), "x")
    study = design.with_setting(design.read("conflict"), ["max_standby_streaming_delay=30s,0"])
    [factor] = study.factors
    assert (factor.kind, factor.target, factor.labels) == ("standby_setting", "max_standby_streaming_delay", ["30s", "0"])
    with pytest.raises(LeadlineError, match="this study needs a private pair"):
        design.on_named(design.read("parameters"))
    assert design.read("catch-up") == design.read("outage") and design.of_replication() == sorted([*design.ready_pairs(), "recovery"])


@held
def test_the_limit_of_a_standby_lies_between_a_rate_that_it_keeps_up_with_and_one_that_it_does_not() -> None:
    with in_memory():
        of = servers(PAIR.replace("standby = true", 'standby = true\nreplay_cpu = "5%"'))
        try:
            dsn, _ = of.set_up(("0",))
            ask(dsn, "create table line (n int, body text)")
            given = Namespace(primary=dsn, standby=of.standby, script=LINE, clear="truncate line", for_s=2.0, most_s=60.0)
            found = limit(Namespace(**vars(given), start=150.0, width=1.0))
            times = Counter(one["rate"] for one in found["tried"])
            low, high = bounds_of([Tried(**one) for one in found["tried"]])
            assert times[low] >= 2 and times[high] >= 2, "the bounds; on a host that wavers, rates that were one before, too"
            assert found["low_mb_s"] < found["limit_mb_s"] < found["high_mb_s"]
            assert 0 < found["low_cpu_percent"] < found["high_cpu_percent"] < 10
            assert 0.5 < found["limit_by_backlog"] < 2 and 2 < found["backlog_cpu_percent"] < 10
            assert ask(of.standby, "select pg_is_wal_replay_paused()") is False
        finally:
            of.close()


SMALL = {
    "keep-up": ["--for", "1s", "--levels", "rate=20,40", "--levels", "replay_cpu=20%,5%"],
    "overload": ["--for", "2s", "--levels", "replay_cpu=6%,5%"],
    "conflict": ["--for", "2s", "--setting", "max_standby_streaming_delay=30s,0"],
    "page-images": ["--for", "1s"],
    "parameters": ["--setting", "recovery_prefetch=try,off,maybe"],
}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=held if name in ("keep-up", "overload", "page-images") else ())
    for name in design.ready_pairs() if name not in ("commit-modes", "limit", "outage")
])  # fmt: skip
def test_a_ready_study_of_a_pair_runs_and_measures(tmp_path: Path, name: str) -> None:
    """In small, from the command to the report."""
    words = [*SMALL[name], "--repetitions", "1", "--pg-bin", str(fetched_or_skip(18).bin_dir), "--json"]
    found = json.loads(printed(tmp_path, "replication", "study", name, *words))["study"]
    assert {trial["problem"] for trial in found["legs"]} == {""}
    assert all(row["blocks"] for row in found["judged"]["effects"])
    text = printed(tmp_path, "study", "show", "last")
    assert "a private pair on this host (a loopback pair)" in text
    printed(tmp_path, "study", "report", "last", "-o", "r.html")
    if name == "keep-up":
        assert [(one["name"], len(one["rates"])) for one in found["knees"]] == [("replay_cpu=20%", 2), ("replay_cpu=5%", 2)]
        assert "MB/s replayed, loopback pair" in (tmp_path / "r.html").read_text()
    if name == "overload":
        printed(tmp_path, "study", "report", "last", "-o", "r.svg")
        assert [one["name"] for one in found["shares"]] == ["replay_cpu=5%", "replay_cpu=6%"]
        picture = (tmp_path / "r.svg").read_text()
        assert "CPU that replay may use, %" in picture and "PostgreSQL 18." in picture and "replay held to 6% or 5% of a CPU" in picture
    if name == "conflict":
        assert [one["name"] for one in found["conflicts"]] == ["max_standby_streaming_delay=30s", "max_standby_streaming_delay=0"]
        assert "Who pays for the snapshots of the standby's reader (a loopback pair)" in text
    if name == "parameters":
        assert dict(found["design"]["dropped"])["recovery_prefetch=maybe"].startswith("the server refuses recovery_prefetch = maybe")


def test_a_study_that_makes_its_own_server_takes_none(tmp_path: Path) -> None:
    refused = run(tmp_path, "replication", "study", "recovery", "--primary", "host=/nowhere")
    assert refused.returncode == 2 and "this study makes a private server of its own" in refused.stderr
    refused = run(tmp_path, "replication", "study", "settings")
    names = "commit-modes, conflict, keep-up, limit, outage, overload, page-images, parameters, recovery"
    assert refused.returncode == 2 and f"one of {names}" in refused.stderr


@pytest.fixture
def named(fresh_server: Callable[..., Server]) -> Iterator[tuple[Server, Standby]]:
    server = fresh_server(18)
    with Standby(server.private) as standby:
        standby.until_streaming()
        yield server, standby


def test_a_named_pair_is_one_and_waits(named: tuple[Server, Standby], fresh_server: Callable[..., Server]) -> None:
    server, standby = named
    for given, says in (
        ((server.dsn, standby.dsn), "no synchronous standby of this server is seen"),
        ((standby.dsn, standby.dsn), "this server is a standby"),
        ((server.dsn, server.dsn), "this server is no standby"),
        ((server.dsn, "host=/nowhere"), "a server of the pair cannot be asked"),
    ):
        with pytest.raises(LeadlineError, match=says):
            check(*given)
    other = fresh_server(15)  # of its own: those of one major are copies of one cluster
    with pytest.raises(LeadlineError, match="this server is a standby of another cluster"):
        check(other.dsn, standby.dsn)
    server.sql("alter system set synchronous_standby_names = '*'")
    server.sql("select pg_reload_conf()")
    wait_until(lambda: server.sql("select 1 from pg_stat_replication where sync_state = 'sync'"), what="the synchronous standby")
    check(server.dsn, standby.dsn)


SET = "select name, setting, sourcefile, pending_restart from pg_settings where source <> 'default' or sourcefile is not null order by name"
BASES = "select datname from pg_database order by datname"


def state(server: Server, standby: Standby) -> list[Any]:
    """What a study could leave behind."""
    with psycopg.connect(standby.dsn, autocommit=True) as db:
        of_standby = [db.execute(query).fetchall() for query in (SET, BASES)]
    files = [(of.data_dir / "postgresql.auto.conf").read_text() for of in (server.private, standby)]
    return [[server.sql(SET), server.sql(BASES)], of_standby, files]


@contextmanager
def wal_flows(dsn: str) -> Iterator[None]:
    """A commit 20 times a second: without others, a walsender of 18 was seen to send the last flushed record only after 10 s."""
    ending = threading.Event()

    def commit() -> None:
        with psycopg.connect(dsn, autocommit=True, options="-c synchronous_commit=local") as db:
            while not ending.wait(0.05):
                db.execute("select pg_logical_emit_message(true, 'test', '')")

    thread = threading.Thread(target=commit)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def test_a_study_of_a_named_pair_asks_and_leaves_it_as_it_was(named: tuple[Server, Standby], tmp_path: Path) -> None:
    server, standby = named
    with server.connect() as db:
        db.execute("alter system set synchronous_standby_names = '*'")
        db.execute("alter system set synchronous_commit = 'remote_write'")  # no level of the study is the server's own
        db.execute("select pg_reload_conf()")
    wait_until(lambda: server.sql("select 1 from pg_stat_replication where sync_state = 'sync'"), what="the synchronous standby")
    was = state(server, standby)
    words = ["replication", "study", "commit-modes", "--primary", server.dsn, "--standby", standby.dsn, "--for", "300ms",
             "--setting", "synchronous_commit=local,on", "--repetitions", "1", "--json"]  # fmt: skip

    refused = run(tmp_path, *words)
    assert refused.returncode == 2 and "nobody is there to ask whether to change this server" in refused.stdout + refused.stderr
    assert "synchronous_commit becomes local, on in turn, with a reload each time; it has remote_write" in refused.stderr
    assert state(server, standby) == was

    with wal_flows(server.dsn):
        found = json.loads(printed(tmp_path, *words, "--yes"))["study"]
    assert [cell[0] for cell in found["design"]["cells"]] == ["local", "on"]
    assert all(0 < row["synchronous_commit=local"] < 1e3 and 0 < row["synchronous_commit=on"] < 1e3 for row in found["rows"])
    made = server.sql("select pg_current_wal_flush_lsn()::text")[0][0]
    wait_until(lambda: ask(standby.dsn, f"select pg_last_wal_replay_lsn() >= '{made}'"), what="replay")
    assert state(server, standby) == was
