"""`take --with ssh:HOST` against a real sshd: the joined capture, what goes wrong at ssh and there, and that nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from commands import output_of
from conftest import Server, background, wait_until
from leadline.capture.manifest import read_manifest
from leadline.capture.reader import Capture, open_capture
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.probes.ssh import PROGRAM_VARIABLE
from leadline.probes.take import take
from leadline.version import version
from replicating import streaming, taken, writing
from ssh_server import NAME, SshServer, ssh_server
from standby import Standby

pytestmark = pytest.mark.live
HELLO = "leadline over ssh"
INSERT = "insert into w select generate_series(1, 400000)"


@pytest.fixture
def sshd(monkeypatch: pytest.MonkeyPatch) -> Iterator[SshServer]:
    with ssh_server() as server:
        monkeypatch.setenv("PATH", server.path)
        yield server


@pytest.fixture(params=[18])
def pair(request: pytest.FixtureRequest, fresh_server: Callable[..., Server]) -> Iterator[tuple[Server, Standby]]:
    with streaming(fresh_server(request.param)) as both:
        yield both


def place_of(standby: Standby) -> str:
    return f"ssh:{NAME}{standby.data_dir}"


def readings(capture: Capture, node: int) -> list[dict[str, Any]]:
    return capture.rows(f"select ts, answer_ns, replay_lsn, flush_lsn, tier from replication_position where node = {node} order by ts")


@pytest.mark.parametrize("pair", [13, 18], indirect=True)
def test_positions_from_there_are_those_that_are_read_here(pair: tuple[Server, Standby], sshd: SshServer, tmp_path: Path) -> None:
    """The same standby twice: asked from here (node 2), and captured by a leadline behind ssh (node 3). Both have one clock."""
    server, standby = pair
    server.sql("create table w (id int)")
    with writing(server.dsn):
        path = taken(
            tmp_path / "x.leadline", lambda: server.sql(INSERT), dsn=server.dsn, others=[standby.dsn, place_of(standby)], for_s=6.0
        )
    with closing(open_capture(path)) as capture:
        here, there = readings(capture, 2), readings(capture, 3)
        manifest = capture.manifest
        lag = capture.rows("select node, count(*) as n, max(lag_s) as s from replication_lag where is_standby group by node order by node")
        replayed = capture.rows("select node, count(*) as n from replay_sample where activity = 'apply' and rmgr is not null group by node")
        sections = json.loads(output_of("show", path, "--json"))
    name = f"{NAME}:{standby.port}"
    state = manifest.probe(f"standby {name}")
    clock = state.detail["clock"]
    assert (manifest.status, state.status, state.why) == ("complete", "ok", "")
    assert abs(clock["offset_ns"]) <= clock["error_ns"] < 50_000_000
    assert abs(clock["drift_ppm"]) <= clock["drift_error_ppm"]
    period = 10_000_000 if there[0]["tier"] == "shm" else 200_000_000
    assert {row["tier"] for row in there} == {row["tier"] for row in here}
    assert len(there) > 0.8 * len(here) > 0
    assert all(row["answer_ns"] >= 2 * clock["error_ns"] for row in there)
    for lsn in ("replay_lsn", "flush_lsn"):
        assert there[-1][lsn] > there[0][lsn]
        outside = [row for row in there if not _between(here, row, lsn, period + clock["error_ns"])]
        assert len(outside) <= 0.01 * len(there), outside[:3]
    assert [(row["node"], row["s"] < 2) for row in lag] == [(2, True), (3, True)]
    assert {row["node"] for row in replayed} == {2, 3}
    assert {row["standby"] for row in sections["replication"]} >= {name}
    home = path / state.detail["capture"]
    with closing(open_capture(home)) as capture:
        assert capture.manifest.status == "complete" and not [note for note in capture.manifest.notes if "stopped" in note]
        assert capture.scalar("select count(*) from session where backend_type = 'startup'") == 1
    assert name in output_of("show", path)
    assert "startup" in output_of("sql", home, "select backend_type from session")
    assert sshd.left_behind() == []


def _between(here: list[dict[str, Any]], row: dict[str, Any], lsn: str, slack_ns: int) -> bool:
    """Positions never go back: what was read there lies between what was read here one sample before and one after."""
    before = [one[lsn] for one in here if one["ts"] <= row["ts"] - slack_ns]
    after = [one[lsn] for one in here if one["ts"] >= row["ts"] + slack_ns]
    return (not before or before[-1] <= row[lsn]) and (not after or row[lsn] <= after[0])


def test_the_server_that_is_found_there_and_a_profile_that_talks(pair: tuple[Server, Standby], sshd: SshServer, tmp_path: Path) -> None:
    """Two servers run there: which one must be said, by a connection string with a secret in it, too. A shell's profile prints lines."""
    server, standby = pair
    sshd.script("leadline", "echo Welcome", "echo to the other host", sshd.run)
    with pytest.raises(LeadlineError, match="PostgreSQL servers run there, and one was looked for") as error:
        take(for_s=0.5, out=tmp_path / "x.leadline", dsn=server.dsn, others=[f"ssh:{NAME}"])
    assert str(standby.data_dir) in error.value.detail and error.value.where == f"ssh:{NAME}"
    dsn = f"{standby.dsn} password=s3cret"
    path = take(for_s=0.5, out=tmp_path / "y.leadline", dsn=server.dsn, others=[f"ssh:{NAME}/{dsn}"], probes=["sessions"])
    with closing(open_capture(path)) as capture:
        assert len(readings(capture, 2)) > 0
    told = [file for file in path.rglob("*.json") if "s3cret" in file.read_text()]
    assert told == [] and sshd.left_behind() == []


def refused(server: Server, folder: Path, place: str) -> LeadlineError:
    with pytest.raises(LeadlineError) as error:
        take(for_s=0.5, out=folder / "x.leadline", dsn=server.dsn, others=[place])
    assert not (folder / "x.leadline").exists()
    return error.value


def test_what_goes_wrong_before_the_capture(
    pair: tuple[Server, Standby], fresh_server: Callable[..., Server], sshd: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, standby = pair
    place = place_of(standby)
    found = refused(server, tmp_path, f"ssh:{NAME}/no/such/directory")
    assert (found.kind, found.message) == ("not_found", "no such data directory")
    other = fresh_server(15)
    found = refused(server, tmp_path, f"ssh:{NAME}{other.private.data_dir}")
    assert found.message == "the server found there does not replicate"
    with streaming(other) as (_, elsewhere):
        found = refused(server, tmp_path, place_of(elsewhere))
    assert found.message == "these servers are not of one cluster"

    with monkeypatch.context() as patch:
        patch.setenv(PROGRAM_VARIABLE, "/nowhere/leadline")
        found = refused(server, tmp_path, place)
        assert (found.kind, found.message) == ("not_found", f"ssh:{NAME} has no /nowhere/leadline") and "pipx install" in found.hint
        patch.setenv(PROGRAM_VARIABLE, "leadline;touch x")
        assert refused(server, tmp_path, place).kind == "usage"
        patch.setenv(PROGRAM_VARIABLE, "other")
        sshd.script("other", f'echo \'{HELLO} {{"version": "0.0.1"}}\'', "cat")
        found = refused(server, tmp_path, place)
        message = f"ssh:{NAME} has leadline 0.0.1, and this is leadline {version()}"
        assert (found.kind, found.message) == ("unsupported", message) and f"install leadline {version()} there" in found.hint
        sshd.script("other", 'test "$1" = --version && { echo leadline 0.0.1; exit; }', 'echo "error: No such option: $1" >&2', "exit 2")
        assert refused(server, tmp_path, place).message == message
        sshd.script("other", "echo It is broken >&2", "exit 3")
        found = refused(server, tmp_path, place)
        assert (found.kind, found.detail) == ("gone", "It is broken")
        sshd.script("other", "yes")
        assert refused(server, tmp_path, place).message == "no leadline answers there"
    assert sshd.left_behind() == []


def test_what_ssh_says(pair: tuple[Server, Standby], sshd: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, standby = pair
    place = place_of(standby)
    sshd.config(f"Host {NAME}", "UserKnownHostsFile /dev/null")
    found = refused(server, tmp_path, place)
    assert (found.kind, found.message) == ("rights", "ssh does not know the key of the other host") and f"ssh {NAME}" in found.hint
    sshd.config()
    known = (sshd.folder / "known").read_text()
    (sshd.folder / "known").write_text(f"{known.split()[0]} {(sshd.folder / 'id.pub').read_text()}")
    assert refused(server, tmp_path, place).message == "the key of the other host is not the one that ssh knows"
    (sshd.folder / "known").write_text(known)
    (sshd.folder / "authorized").write_text("")
    found = refused(server, tmp_path, place)
    assert (found.kind, found.message) == ("rights", "the other host does not let this user in") and "ssh-copy-id" in found.hint
    assert refused(server, tmp_path, "ssh:no-such-host.invalid").message == "unknown host name"
    assert refused(server, tmp_path, "ssh:127.0.0.1:1").message == "the sshd of the other host cannot be reached"
    monkeypatch.setenv("PATH", str(tmp_path))
    found = refused(server, tmp_path, place)
    assert (found.kind, found.message) == ("not_found", "ssh is not installed here")


def test_top_does_not_watch_over_ssh(fresh_server: Callable[..., Server], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["top", fresh_server(18).dsn, "--with", "ssh:db2", "--once", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["kind"], error["message"]) == ("unsupported", "top does not watch over ssh") and "--with ssh:db2" in error["hint"]


@pytest.mark.parametrize("whom", ["leadline", "ssh"])
def test_a_connection_that_ends_in_the_window(pair: tuple[Server, Standby], sshd: SshServer, tmp_path: Path, whom: str) -> None:
    """The leadline there is killed, or the ssh here: the capture goes on without it, and says so."""
    server, standby = pair

    def kill() -> None:
        [pid] = wait_until(sshd.processes)
        if whom == "ssh":
            pid = next(int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and _is_client(p, sshd))
        os.kill(pid, signal.SIGKILL)

    path = taken(tmp_path / "x.leadline", kill, dsn=server.dsn, others=[place_of(standby)], for_s=6.0)
    manifest = read_manifest(path)
    state = manifest.probe(f"standby {NAME}:{standby.port}")
    assert manifest.status == "complete" and state.status == "off" and "ended early" in state.why
    assert any(note.startswith(f"probe standby {NAME}:{standby.port} ended after") for note in manifest.notes)
    with closing(open_capture(path)) as capture:
        assert len(readings(capture, 1)) > 0 and readings(capture, 2) == []
    wait_until(lambda: sshd.left_behind() == [], what="the end of the temporary directory there")


def _is_client(entry: Path, sshd: SshServer) -> bool:
    try:
        return str(sshd.folder / "client" / "config").encode() in (entry / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_this_side_is_interrupted_or_killed(pair: tuple[Server, Standby], sshd: SshServer, tmp_path: Path, number: int) -> None:
    server, standby = pair
    path = tmp_path / "x.leadline"
    command = [sys.executable, "-m", "leadline", "take", server.dsn, "--with", place_of(standby), "--for", "10m", "-o", path]
    with background(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: (path / "replication_position").exists(), what="positions")
        os.killpg(process.pid, number)
        assert process.wait(60) == (0 if number == signal.SIGINT else -signal.SIGKILL)
    wait_until(lambda: not sshd.processes() and sshd.left_behind() == [], what="the end of the other side")
    with closing(open_capture(path)) as capture:
        assert (len(readings(capture, 2)) > 0) == (number == signal.SIGINT)


def test_a_capture_there_that_ends_early(pair: tuple[Server, Standby], sshd: SshServer, tmp_path: Path) -> None:
    """The standby stops: what was captured there until then comes home."""
    server, standby = pair
    server.sql("create table w (id int)")

    def stop() -> None:
        server.sql(INSERT)
        standby.stop()

    path = taken(tmp_path / "x.leadline", stop, dsn=server.dsn, others=[place_of(standby)], for_s=5.0)
    state = read_manifest(path).probe(f"standby {NAME}:{standby.port}")
    assert state.status == "partial" and "could not be read" in state.why
    with closing(open_capture(path)) as capture:
        assert len(readings(capture, 2)) > 0
    assert sshd.left_behind() == []
