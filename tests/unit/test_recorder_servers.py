"""Several servers in one recorder: which directories and shares they have, and that one whose process ends leaves the others alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import background, is_running, wait_until
from leadline.cli import run
from leadline.cli.record import _named
from leadline.errors import LeadlineError
from leadline.recorder.state import State, check_one, servers_below, write_state
from leadline.units import MB
from recorded_pieces import WALL_0, small_piece

# What stands for the process of one server: it says which it is and with what, and lives as long as its stdin.
RECORDS = """
import json, os, sys
told = json.loads(sys.stdin.buffer.readline())
place = os.path.join(sys.argv[1], told["name"] + "." + str(os.getpid()))
open(place + ".new", "w").write(json.dumps(told))
os.rename(place + ".new", place)
sys.stdin.buffer.read()
os.rename(place, place + ".ended")
"""
SUPERVISES = """
import sys
from pathlib import Path
from leadline.probes.options import Options
from leadline.recorder.detail import Bounds
from leadline.recorder.retention import Level, Limits
from leadline.recorder.servers import Servers, Wanted

wanted = Wanted(Options(for_s=60), Limits(3600, 90_000_000, 7, (Level(1, 600),)), 60, Bounds(30, 300, 600), True)
dsns = {"one-1": "host=one password=geheim", "two-2": "host=two"}
Servers(Path(sys.argv[1]), dsns, wanted, lambda text: print(text, flush=True), (sys.executable, "-c", sys.argv[3], sys.argv[2])).run()
"""


class Supervised:
    """A recorder of two servers, in a process; of each server, only what its process was told."""

    def __init__(self, folder: Path, process: subprocess.Popen[Any]) -> None:
        self.folder, self.process = folder, process

    def there(self, name: str, *, but: int = 0) -> int:
        """The pid of the process of this server, when there is one other than `but`."""
        return int(wait_until(lambda: [pid for pid in self._pids(name) if pid != but], what=f"the process of {name}")[0])

    def told(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / f"{name}.{self.there(name)}").read_text())
        return found

    def _pids(self, name: str) -> list[int]:
        return [int(path.suffix[1:]) for path in self.folder.glob(f"{name}.*") if path.suffix[1:].isdecimal()]


@contextmanager
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    folder = tmp_path / "told"
    folder.mkdir()
    with background([sys.executable, "-c", SUPERVISES, str(tmp_path / "all"), str(folder), RECORDS]) as process:
        yield Supervised(folder, process)


def test_each_server_has_its_directory_and_its_share_and_no_secret_in_its_arguments(tmp_path: Path) -> None:
    with supervised(tmp_path) as of:
        told = of.told("one-1")
        assert (told["directory"], told["options"]["dsn"]) == (str(tmp_path / "all" / "one-1"), "host=one password=geheim")
        assert told["limits"] == {
            "keep_s": 3600, "max_bytes": 45_000_000, "free_bytes": 7, "levels": [{"span_s": 1, "after_s": 600}],
        }  # fmt: skip
        assert told["detail"] == {"for_s": 30, "budget_s": 300, "max_bytes": 300}
        assert of.told("two-2")["options"]["dsn"] == "host=two"
        assert sorted(path.name for path in (tmp_path / "all").iterdir() if path.is_dir()) == ["one-1", "two-2"]
        for pid in (of.there("one-1"), of.there("two-2")):
            assert b"geheim" not in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_process_that_is_killed_is_begun_again_and_the_other_goes_on(tmp_path: Path) -> None:
    with supervised(tmp_path) as of:
        first, second = of.there("one-1"), of.there("two-2")
        os.kill(first, signal.SIGKILL)
        again = of.there("one-1", but=first)
        assert is_running(again) and is_running(second)
        of.process.send_signal(signal.SIGTERM)
        assert of.process.wait(30) == 0
        assert not is_running(again) and not is_running(second)
        assert (of.folder / f"one-1.{again}.ended").exists() and (of.folder / f"two-2.{second}.ended").exists(), "they ended by themselves"


def test_nobody_records_on_when_the_first_process_is_killed(tmp_path: Path) -> None:
    with supervised(tmp_path) as of:
        pids = of.there("one-1"), of.there("two-2")
        of.process.kill()
        wait_until(lambda: not any(map(is_running, pids)), what="the processes of the servers have ended")


def test_the_process_of_a_server_ends_with_its_stdin(tmp_path: Path) -> None:
    """The real one, of a server that is not there."""
    told = {
        "name": "one-1", "directory": str(tmp_path / "one"), "options": {"dsn": f"host={tmp_path} port=1", "for_s": 60}, "findings_s": 0,
        "limits": {"keep_s": 3600, "max_bytes": 64 * MB, "free_bytes": 0, "levels": []}, "baseline": False,
        "detail": {"for_s": 30, "budget_s": 0, "max_bytes": 64 * MB},
    }  # fmt: skip
    command = [sys.executable, "-m", "leadline.recorder.one"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(json.dumps(told).encode() + b"\n")
    process.stdin.flush()
    assert process.stderr.readline().startswith(b"one-1: note: ")
    process.stdin.close()
    assert process.wait(30) == 0
    assert json.loads((tmp_path / "one" / "recorder.json").read_text())["doing"] == "ended"


@pytest.mark.parametrize(
    ("dsn", "name"),
    [
        ("postgres:///shop", "local-5432"),
        ("port=5433 dbname=bank", "local-5433"),
        ("host=/run/postgresql", "run-postgresql-5432"),
        ("postgresql://u:geheim@db1.example:6000/x", "db1.example-6000"),
        ("host=../../etc port=1", "etc-1"),
        ("host=a,b port=1,2", "a-b-1-2"),
    ],
)
def test_a_directory_is_called_after_host_and_port(dsn: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("PGHOST", "PGPORT"):
        monkeypatch.delenv(variable, raising=False)
    assert _named([dsn]) == {name: dsn}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["port=1", "port=1 dbname=x"], "two of the servers are local-1"),
        (["port=1", "port=2", "--data-dir", "."], "connection strings alone"),
        (["port=1", "port=2", "--pid", "1"], "connection strings alone"),
        (["port=1", "port=2", "--metrics", ":9187"], "metrics are those of one server"),
        (["port=1", "port=2", "--otlp", "http://localhost:4318"], "metrics are those of one server"),
        (["port=1", "port=2", "--max-size", "40MB"], "too little for the recorders of 2 servers"),
        (["port=1", "port=2", "--detail-max-size", "100MB"], "too little for detail captures"),
        (["port=1", "host=x password=geheim", "--unit"], "no place for a password"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGHOST", raising=False)
    assert run(["record", *arguments, "--to", str(tmp_path)]) == 2
    told = capsys.readouterr()
    assert says in told.err and "geheim" not in told.err and told.out == ""


def test_the_unit_has_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["record", "port=1", "host=db2 port=2", "--to", "/var/lib/leadline/all", "--unit"]) == 0
    lines = capsys.readouterr().out.splitlines()
    [command] = [line for line in lines if line.startswith("ExecStart=")]
    assert command.endswith('record port=1 "host=db2 port=2" --to=/var/lib/leadline/all')
    assert "Description=leadline recorder of port=1, host=db2 port=2" in lines
    assert "MemoryMax=1024M" in lines and not any(line.startswith("IPAddressDeny") for line in lines)


def test_a_directory_with_the_pieces_of_one_server_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_piece(tmp_path, 1, WALL_0)
    assert run(["record", "port=1", "port=2", "--to", str(tmp_path)]) == 2
    assert "has the pieces of one server" in capsys.readouterr().err


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Of two servers: one has a piece, one was not there."""
    for number, name in enumerate(("local-1", "local-2")):
        (tmp_path / name).mkdir()
        write_state(tmp_path / name, State(server={"name": f"server {number + 1}"}))
    small_piece(tmp_path / "local-1", 1, WALL_0)
    return tmp_path


def test_status_shows_each(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["record", "--status", str(directory)]) == 0
    text = capsys.readouterr().out
    assert [line for line in text.splitlines() if not line.startswith(" ")] == [
        f"{directory}/local-1: not running", f"{directory}/local-2: not running",
    ]  # fmt: skip
    assert "server 1" in text and "server 2" in text
    assert run(["record", "--status", str(directory), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["directory"] == str(directory)
    assert [(of["directory"], len(of["pieces"])) for of in found["servers"]] == [
        (f"{directory}/local-1", 1), (f"{directory}/local-2", 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [["explore", "{}", "--no-browser"], ["take", "--from-recorder", "{}", "--between", "now-1m", "now"], ["record", "--detail", "{}"]],
)
def test_what_looks_at_one_server_names_them(words: list[str], directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([word.format(directory) for word in words]) == 2
    told = capsys.readouterr().err
    assert "recorders of several servers" in told and f"{directory}/local-2" in told.replace("\n", "")


def test_the_directory_of_one_server_is_no_directory_of_several(directory: Path) -> None:
    check_one(directory / "local-1")
    assert servers_below(directory / "local-1") == [] == servers_below(directory / "nowhere")
    with pytest.raises(LeadlineError, match="several servers"):
        check_one(directory)
