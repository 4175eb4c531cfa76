"""A pair of servers of a study: its design, what lies between its servers, what replay may use, and that nothing is left of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import Server, fetched_or_skip, in_memory, is_running, wait_until
from leadline.errors import LeadlineError
from leadline.study import design, pair
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
CPU = '[[factor]]\nreplay_cpu = true\nlevels = ["40%", "10%"]\n'
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
            for label, share in (("40%", 0.4), ("10%", 0.1)):
                of.set_up(("0", label))
                pid = of.pairs[of.version].standby.startup_pid
                [group] = {group for group in pair.GROUPS.rglob("leadline-*") if str(pid) in (group / "cgroup.procs").read_text().split()}
                quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
                assert int(quota) / int(period) == share
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
        "import sys\nfrom test_study_pair import *\nof = servers(sys.argv[1])\nof.set_up(('30ms', '10%'))\np = of.pairs[of.version]\n"
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

    found = json.loads(printed(tmp_path, *words, "--yes"))["study"]
    assert [cell[0] for cell in found["design"]["cells"]] == ["local", "on"]
    assert all(0 < row["synchronous_commit=local"] < 1e3 and 0 < row["synchronous_commit=on"] < 1e3 for row in found["rows"])
    made = server.sql("select pg_current_wal_flush_lsn()::text")[0][0]
    wait_until(lambda: ask(standby.dsn, f"select pg_last_wal_replay_lsn() >= '{made}'"), what="replay")
    assert state(server, standby) == was
