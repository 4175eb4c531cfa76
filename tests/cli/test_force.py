"""--force: the same option, with the same meaning and the same error, in every command that writes what -o names."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from bpf import needs_bpf
from conftest import Server, copy_folder, wait_until
from example_capture import example
from leadline._core.net import Echo
from leadline.book.place import find_place
from leadline.book.recorder import Recorder
from leadline.cli import force as force_option
from leadline.cli import group, run
from leadline.replacing import EXISTS
from leadline.storage import ready
from packets_made import a_login
from trace_synthetic import trace_of_semget

REPORTS = Path(__file__).parents[2] / "testdata/load"
ONSTAT = Path(__file__).parents[2] / "testdata/informix/listing/onstat_x.txt"
# What is typed, and the name of what it writes. SERVER: its pid; DATA: its data directory; the others are files made here.
WRITERS: dict[str, tuple[list[str], str]] = {
    "take": (["take", "--pid", "SERVER", "--for", "100ms"], "out.leadline"),
    "trace": (["trace", "-p", "SERVER", "--for", "100ms"], "out.leadline"),
    "report": (["report", "CAPTURE"], "out.html"),
    "flame": (["flame", "OF_SEMGET"], "out.svg"),
    "export": (["export", "CAPTURE", "--to", "pprof"], "out.pb.gz"),
    "rows": (["rows", "DATA", "written", "--database", "postgres"], "out.csv"),
    "rows to Parquet": (["rows", "DATA", "written", "--database", "postgres"], "out.parquet"),
    "page check": (["page", "check", "DATA/global/1262"], "out.leadline"),
    "page scan": (["page", "scan", "DATA/global/1262"], "out.leadline"),
    "wal export": (["wal", "export", "DATA", "--rmgr", "Transaction"], "out.leadline"),
    "wal page-at": (["wal", "page-at", "DATA", "OF_WRITTEN", "0", "LSN_NOW"], "page"),
    "wal apply": (["wal", "apply", "BACKUP/OF_WRITTEN", "--wal", "DATA", "--to", "LSN_NOW"], "table"),
    "recover": (["recover", "CRASHED"], "out.leadline"),
    "salvage": (["salvage", "DATA", "--database", "template1"], "saved"),
    "load import pgbench": (["load", "import", "pgbench", "PGBENCH_LOG"], "out.leadline"),
    "load import fio": (["load", "import", "fio", f"{REPORTS}/fio.json"], "out.leadline"),
    "load import sysbench": (["load", "import", "sysbench", f"{REPORTS}/sysbench.txt"], "out.leadline"),
    "load import hammerdb": (["load", "import", "hammerdb", "HAMMERDB_LOG"], "out.leadline"),
    "load run": (["load", "run", "DSN", "-f", "SCRIPT", "--for", "100ms"], "out.leadline"),
    "storage simulate": (["storage", "simulate", "READY/6xR1.toml", "--load", "READY/loads.toml", "--for", "1s"], "forecast.json"),
    "net rtt": (["net", "rtt", "ECHO", "--for", "100ms"], "out.leadline"),
    "net packets": (["net", "packets", "--pcap", "PCAP"], "out.leadline"),
    "import onstat": (["import", "onstat", "ONSTAT"], "out.leadline"),
    "book export": (["book", "export", "RUN"], "out.html"),
    "study report": (["study", "report", "STUDY"], "out.html"),
}
# demo replaces what an earlier demo left in a folder of its own name, and refuses a folder with anything else in it.
OWN_DIRECTORY = {"demo"}


def commands_with_output() -> dict[str, click.Command]:
    """Every command, at any depth, that has -o."""
    found: dict[str, click.Command] = {}

    def look(command: click.Command, line: str) -> None:
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                assert below is not None
                look(below, f"{line} {name}".strip())
        elif any("-o" in parameter.opts for parameter in command.params):
            found[line] = command

    look(group, "")
    return found


def test_every_command_with_an_output_is_in_the_table_and_has_the_option() -> None:
    found = commands_with_output()
    assert set(found) == {line.split(" to ")[0] for line in WRITERS} | OWN_DIRECTORY

    @click.command()
    @force_option
    def sample(force: bool) -> None:
        """Has the option as cli/__init__.py defines it."""

    [wanted] = sample.params
    for line in set(found) - OWN_DIRECTORY:
        [option] = [p for p in found[line].params if "--force" in p.opts]
        assert option.to_info_dict() == wanted.to_info_dict(), line


@pytest.fixture(scope="module")
def places(servers: Callable[[int], Server], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    echo = Echo("127.0.0.1", 0)
    host, port = echo.address()
    server = servers(16)
    server.sql("drop table if exists written")
    server.sql("create table written as select 1 as id")
    server.sql("checkpoint")
    [[path, lsn]] = server.sql("select pg_relation_filepath('written'), pg_current_wal_lsn()::text")
    folder = tmp_path_factory.mktemp("force")
    script = folder / "one.sql"
    script.write_text("select 1;\n")
    (log := folder / "pgbench_log.1").write_text("0 1 900 0 1795804911 600000\n")
    (hammerdb := folder / "hammerdb.log").write_text("Vuser 1:TEST RESULT : System achieved 14 NOPM from 33 PostgreSQL TPM\n")
    beside = server.private.base_dir  # where the owner of the files may go
    for copy in ("backup", "crashed"):  # as after a crash, while nothing is written
        (beside / copy).mkdir(mode=0o700)
        copy_folder(server.private.data_dir, beside / copy)
        (beside / copy / "postmaster.pid").unlink()
    yield {
        "BACKUP": str(beside / "backup"),
        "CRASHED": str(beside / "crashed"),
        "OF_WRITTEN": path,
        "LSN_NOW": lsn,
        "SERVER": str(server.pid),
        "DSN": server.dsn,
        "SCRIPT": str(script),
        "PGBENCH_LOG": str(log),
        "HAMMERDB_LOG": str(hammerdb),
        "DATA": str(server.private.data_dir),
        "CAPTURE": str(example(folder).write()),
        "OF_SEMGET": str(trace_of_semget(folder / "semget.leadline")),
        "ONSTAT": str(ONSTAT),
        "PCAP": a_login(folder / "login.pcap"),
        "ECHO": f"{host}:{port}",
        "RUN": a_run(),
        "STUDY": a_study(folder),
        "READY": str(ready.DIRECTORY),
    }
    echo.stop()


def a_study(folder: Path) -> str:
    """The id of a study in the book."""
    path = folder / "study.toml"
    factor = '[[factor]]\nname = "what"\ncommand = true\nlevels = ["true", "echo"]\n'
    path.write_text(f'question = "Is it faster?"\nrepetitions = 1\n{factor}[load]\ncommand = "{{what}}"\n')
    command = [sys.executable, "-m", "leadline", "study", "run", str(path), "--json"]
    return str(json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["run"])


def a_run() -> str:
    """The id of a run in the book."""
    recorder = Recorder(find_place())
    recorder.begin("command", "planted", ["true"])
    recorder.end(0)
    return recorder.uid


def contents(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return {str(file.relative_to(path.parent)): file.read_bytes() for file in files}


@pytest.mark.parametrize("line", [pytest.param(line, marks=needs_bpf) if line == "trace" else line for line in WRITERS])
def test_what_is_there_is_replaced_with_force_and_only_then(
    line: str, places: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, name = WRITERS[line]
    out = tmp_path / name
    command = [*words, "-o", str(out), "--json"]
    for word, place in places.items():
        command = [part.replace(word, place) for part in command]

    def error(*more: str) -> dict[str, str]:
        capsys.readouterr()
        assert run([*command, *more]) == 2
        told: dict[str, str] = json.loads(capsys.readouterr().out)["error"]
        return told

    assert run(command) == 0
    marker = out if out.is_file() else out / "left-over"
    marker.write_text("of the first")
    before = contents(out)
    told = error()
    assert (told["message"], told["hint"], told["where"]) == (EXISTS, "use --force to replace it, or -o to write elsewhere", str(out))
    assert contents(out) == before

    assert run([*command, "--force"]) == 0
    assert b"of the first" not in contents(out).values() and contents(out)

    # Anything of another kind stays, with --force too: a folder where a file is to be, a folder that is no capture.
    other = tmp_path / "other"
    out.rename(other)
    out.mkdir()
    (out / "mine.txt").write_text("keep me")
    for more in ((), ("--force",)):
        told = error(*more)
        assert (told["message"], told["hint"]) == (EXISTS, "write to another place with -o")
        assert "so --force does not replace it" in told["detail"]
    assert contents(out) == {f"{name}/mine.txt": b"keep me"}


def test_a_capture_that_is_being_written_is_never_replaced(
    places: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By any command that writes captures, with --force. The lock goes with the process that holds it, however that ends."""
    out = tmp_path / "out.leadline"
    taking = [sys.executable, "-m", "leadline", "take", "--host", "--for", "10m", "-o", str(out)]
    with subprocess.Popen(taking, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        wait_until(lambda: (out / "self_cost").exists(), what="the capture to be under way")
        (out / "marker").write_text("of the first")
        for line in (line for line, (_, name) in WRITERS.items() if name == out.name and line != "trace"):
            command = [*WRITERS[line][0], "-o", str(out), "--json", "--force"]
            for word, place in places.items():
                command = [part.replace(word, place) for part in command]
            capsys.readouterr()
            assert run(command) == 2, line
            told = json.loads(capsys.readouterr().out)["error"]
            assert (told["message"], told["where"]) == ("another command is writing this capture", str(out)), line
        first.send_signal(signal.SIGINT)
        assert first.wait(60) == 0
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["status"], (out / "marker").read_text()) == ("complete", "of the first")
    assert run(["take", "--pid", places["SERVER"], "--for", "100ms", "-o", str(out), "--force"]) == 0
    assert not (out / "marker").exists()
