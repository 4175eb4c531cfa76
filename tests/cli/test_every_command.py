"""What every command does where its output cannot be written or its input is odd: one error and exit code 2, and it ends.

A command that is new is in the table by itself (tests/support/commands.py), and fails until LINES has a line of real work for it.
"""

from __future__ import annotations

import csv
import ctypes
import io
import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pytest
from bpf import KERNEL_REFUSES
from commands import leaves
from conftest import Server, running
from leadline._core.net import Echo
from leadline.book.ansible.ara import TABLES as ARA_TABLES
from leadline.book.command import start
from leadline.book.place import Place
from leadline.book.query import Book
from leadline.book.supervisor import Request
from leadline.cli.recorded import UNRECORDED
from leadline.server.table import OPERATIONS
from leadline.storage import ready
from packets_made import a_login
from replicating import pair_of_servers
from trace_synthetic import trace_of_semget

TESTDATA = Path(__file__).resolve().parents[2] / "testdata"
APART = {"serve", "explore", "ansible run"}  # two do not end: tests/server, tests/web; the other needs Ansible: tests/ansible
# Commands that are made of the table of operations: one function runs and prints all of them, so some stand for all (LINES).
OPERATIONAL = {f"{operation.group} {operation.verb}" for operation in OPERATIONS if not operation.command}
SEGMENT = "000000010000000000000001"
PATIENCE_S = 10  # per process; what takes longer hangs
# Of each command a line that prints something. What FILES and FOLDERS name is what it reads,
# and is also tried as something odd. {new} is a place to write to, {dsn} a server.
LINES = {
    "demo": "--pg-bin {bin} --seconds 2 -o {new}",
    "take": "--data-dir {live} --for 500ms --json -o {new}.leadline",
    "record": "--status {recorded}",
    "trace": "-o {new}.leadline --json -- true",
    "threads": "{trace}",
    "flame": "{trace} --folded",
    "events": "{trace}",
    "calls": "{calls}",
    "why": "--json -- true",
    "top": "{live} --once --window 1s",
    "show": "{capture}",
    "compare": "{capture} {capture}",
    "findings": "{capture}",
    "report": "{capture} -o {new}.html",
    "replication forecast": "{pair}",
    "replication study": "commit-modes --plan",
    "sql": "{capture} from(session)",
    "tables": "",
    "export": "{capture} --to csv --table session",
    "doctor": "{live}",
    "page check": "{page}",
    "page diff": "{page}:0 {page}:1",
    "page hex": "{page}:0",
    "page scan": "{page} -o {new}.leadline",
    "page show": "{page}",
    "rows": "{data} t --database postgres",
    "alter pending": "{data}",
    "alter resolve": "{dsn} --table t --dry-run",
    "wal export": "{segment} -o {new}.leadline",
    "wal history": "{segment} 1663/5/1259 0",
    "wal inval": "{segment}",
    "wal show": "{segment} --limit 5",
    "wal stats": "{segment}",
    "wal page-at": "{data} {file_of_t} 0 {lsn} -o {new}",
    "wal apply": "{backup}/{file_of_t} --wal {data} --to {lsn} -o {new}",
    "recover": "{data} --plan",
    "salvage": "{data} -o {new}",
    "net echo": "--serve :0 --for 200ms",
    "net rtt": "{echo} --for 200ms",
    "net dbping": "{dsn} --connects 2 --count 10",
    "net compare": "{echo} --application none --count 2",
    "net connect": "{dsn} --logins 2",
    "net fetch": "{dsn} --query values(1),(2) --sizes 100,all --repeat 1",
    "net delay": "--listen :0 --to {echo} --rtt 1ms --for 200ms",
    "net packets": "--pcap {pcap}",
    "net budget": "{pcap}",
    "net auth": "--pcap {pcap}",
    "load init": "{dsn} --force",
    "load run": "{dsn} --script {script} --for 200ms",
    "load import pgbench": "{pgbench_log} -o {new}.leadline --force",
    "load import fio": "{fio} -o {new}.leadline --force",
    "load import sysbench": "{sysbench} -o {new}.leadline --force",
    "load import hammerdb": "{hammerdb} -o {new}.leadline --force",
    "load find-limit": "{dsn} --script {script} --p99 1s --for 100ms --warm-up 0s",
    "storage example": "6xR1",
    "storage score": "{forecast} {measured}",
    "storage simulate": "{layout} --load {loads} --for 1s --seeds 1",
    "import onstat": "{onstat} --oncheck {oncheck} -o {new}.leadline",
    "run": "-- echo done",
    "experiment": "--baseline true --variant true --pairs 1",
    "study list": "",
    "study plan": "{study}",
    "study run": "{study}",
    "study show": "{studied}",
    "study report": "{studied} -o {new}.html",
    "study calibrate": "{study} --repetitions 1",
    "study restore": "{studied}",
    "user projects": "",
    "user verify": "",
    "template metrics": "",
    "template history": "wall_s",
    "book list": "",
    "book days": "",
    "book show": "{run}",
    "book log": "{run}",
    "book search": "done",
    "book diff": "{run}",
    "book verify": "{run}",
    "book label": "{run} release=7.2",
    "book pin": "{run}",
    "book cancel": "{running}",
    "book export": "{run} -o {new}.html",
    "book compress": "--dry-run",
    "book prune": "--older 900d --dry-run",
    "book tasks": "{played}",
    "book results": "{played}",
    "book hosts": "{played}",
    "book host": "",
    "book import ara": "{ara}",
    "ansible env": "",
}
ALL = {" ".join(words): command for words, command in leaves()}
LEAVES = {name: command for name, command in ALL.items() if name in LINES or name not in OPERATIONAL | APART}
FILES = ("page", "segment", "onstat", "oncheck", "calls", "pcap", "ara", "script", "pgbench_log", "fio", "sysbench", "hammerdb", "layout",
         "loads", "forecast", "measured")  # fmt: skip
FOLDERS = ("capture", "pair", "trace", "data", "backup", "live", "bin", "recorded")
READ = {name: [kind for kind in FILES + FOLDERS if f"{{{kind}}}" in line] for name, line in LINES.items()}
# Zeros are pages that were never used.
FINE = {(f"page {verb}", "a sparse file") for verb in ("check", "diff", "hex", "show")}

# A row for each page is what it is asked for, and a row that stands for many would make every count of pages wrong. Files of a server
# have 1 GB at most; of so many pages as here it is at work for hours, and can be interrupted.
LONG = {("page scan", "a sparse file")}
# A pipe is read as a file is, and waits for who writes.
AWAITED = {(name, "a fifo") for name in ("net auth", "net budget", "net packets", "load run", "load find-limit")}
# What they print is another measurement each time.
MEASURED = {"doctor", "net compare", "net dbping", "net rtt", "load run", "load find-limit"}
# Their CSV has the rows of a table that is not in their JSON, or values as PostgreSQL writes them.
OF_THEIR_OWN = {"tables", "net connect", "net fetch", "rows", "sql"}
SLOW = {"demo"}  # its output is tried with the full device alone


ONCHECK = """
 Chunk Pathname                             Pagesize(k)  Size(p)  Used(p)  Free(p)
   124 /dev/informix/124                             16  4000000  3999000     1000

 Description                                                   Offset(p)  Size(p)
 ------------------------------------------------------------- -------- --------
 shop:'thompson'.order_line                                     3199651     1000
"""


def line_of(name: str) -> str:
    if name == "trace" and KERNEL_REFUSES:
        pytest.skip(KERNEL_REFUSES)
    if name not in LINES:
        pytest.fail(f"`leadline {name}` is new: add to LINES in tests/cli/test_every_command.py a line of it that prints something")
    return LINES[name]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(18, autovacuum=False) as server:
        server.sql("create table t as select i as n, md5(i::text) as word from generate_series(1, 1000) i")
        server.sql("alter table t add column later int")
        server.sql("checkpoint")
        yield server


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    server = Echo("127.0.0.1", 0)
    yield "{}:{}".format(*server.address())
    server.stop()


@pytest.fixture(scope="module")
def places(server: Server, echo: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What stands for the words in braces."""
    folder = tmp_path_factory.mktemp("places")
    data, backup = folder / "data", folder / "backup"
    server.private.stop()
    shutil.copytree(server.private.data_dir, backup)
    server.private.start()
    server.sql("insert into t values (0, 'zero')")
    [[path, lsn]] = server.sql("select pg_relation_filepath('t'), pg_current_wal_lsn()::text")
    server.private.stop()
    shutil.copytree(server.private.data_dir, data)
    server.private.start()
    (oncheck := folder / "oncheck.txt").write_text(ONCHECK)
    (hammerdb := folder / "hammerdb.log").write_text("Vuser 1:TEST RESULT : System achieved 14 NOPM from 33 PostgreSQL TPM\n")
    (pgbench_log := folder / "pgbench_log.1").write_text("".join(f"0 {n} {900 + n} 0 1795804911 {600000 + n}\n" for n in range(9)))
    (script := folder / "script.sql").write_text("select n from t where n = :client_id;\n")
    return {
        "bin": server.fetched.bin_dir,
        "live": str(server.private.data_dir),
        "data": str(data),
        "backup": str(backup),
        "capture": str(TESTDATA / "capture" / "format1"),
        "recorded": str(a_recorder(folder / "recorded")),
        "pair": str(pair_of_servers(folder)),
        "trace": str(trace_of_semget(folder / "trace.leadline")),
        "page": shutil.copy(data / path, folder / "16384"),
        "file_of_t": path,
        "lsn": lsn,
        "segment": shutil.copy(data / "pg_wal" / SEGMENT, folder),
        "onstat": str(TESTDATA / "informix" / "listing" / "onstat_x.txt"),
        "oncheck": str(oncheck),
        "calls": str(TESTDATA / "calls" / "ltrace.txt"),
        "script": str(script),
        "pgbench_log": str(pgbench_log),
        "fio": str(TESTDATA / "load/fio.json"),
        "sysbench": str(TESTDATA / "load/sysbench.txt"),
        "hammerdb": str(hammerdb),
        **storage_files(folder),
        "dsn": server.dsn,
        "echo": echo,
        "pcap": a_login(folder / "login.pcap"),
        "run": recorded_run(),
        "study": str(design_of_a_study(folder)),
        "studied": a_study(folder),
        "played": played_run(),
        "ara": empty_ara(folder / "ansible.sqlite"),
    }


def a_recorder(folder: Path) -> Path:
    """The directory of one, with one piece."""
    folder.mkdir()
    shutil.copytree(TESTDATA / "capture" / "format1", folder / "20261128T030000Z.leadline")
    return folder


def storage_files(folder: Path) -> dict[str, str]:
    """A layout, loads, a forecast of them and what was measured."""
    out = {name: str(folder / name) for name in ("layout", "loads", "forecast", "measured")}
    Path(out["layout"]).write_text(ready.text("6xR1"))
    Path(out["loads"]).write_text(ready.text("loads"))
    Path(out["measured"]).write_text('{"layout": "6xR1", "load": "oltp", "requests_per_s": 1000}\n')
    words = ["storage", "simulate", out["layout"], "--load", out["loads"], "--for", "1s", "--seeds", "1", "-o", out["forecast"]]
    subprocess.run([sys.executable, "-m", "leadline", *words], check=True, capture_output=True)
    return out


def recorded_run() -> str:
    """The id of a run in the book that has an output."""
    subprocess.run([sys.executable, "-m", "leadline", "run", "--name", "planted", "--", "echo", "done"], check=True, capture_output=True)
    listed = subprocess.run(
        [sys.executable, "-m", "leadline", "book", "list", "--name", "planted", "--json"], check=True, capture_output=True
    )  # fmt: skip
    return str(json.loads(listed.stdout)["runs"][0]["uid"])


def design_of_a_study(folder: Path) -> Path:
    """Of two commands that take no time."""
    path = folder / "study.toml"
    factor = '[[factor]]\nname = "what"\ncommand = true\nlevels = ["true", "echo"]\n'
    path.write_text(f'question = "Is it faster?"\nrepetitions = 1\n{factor}[load]\ncommand = "{{what}}"\n')
    return path


def a_study(folder: Path) -> str:
    """The id of a study in the book."""
    command = [sys.executable, "-m", "leadline", "study", "run", str(design_of_a_study(folder)), "--json"]
    return str(json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["run"])


def played_run() -> str:
    """The id of a run of Ansible in the book."""
    spool = next((TESTDATA / "ansible").glob("*.jsonl")).read_bytes()
    uid = str(json.loads(spool.splitlines()[0])["uid"])
    place = Place(Path(os.environ["LEADLINE_BOOK"]))
    place.make()
    place.spool_of(uid).write_bytes(spool)
    return uid


def empty_ara(path: Path) -> str:
    with closing(sqlite3.connect(path)) as db:
        for table in ARA_TABLES:
            db.execute(f"create table {table} (id integer)")
    return str(path)


@pytest.fixture
def new(tmp_path: Path) -> Iterator[str]:
    """A place to write to: gone at once, since a demo leaves much."""
    with tempfile.TemporaryDirectory(dir=tmp_path) as name:
        yield f"{name}/new"


def words_of(name: str, places: dict[str, str]) -> list[str]:
    if "{running}" in line_of(name):
        places = {**places, "running": start(Request(["sleep", "60"]))}
    return [*name.split(), *(word.replace("from(session)", "from session").format(**places) for word in line_of(name).split())]


NO_VALUE = re.compile(r"(?<!\S),|[ \t]$|\bNone\b")  # what a text has of a value that is empty, and should have left out


def takes(words: list[str]) -> bool:
    """Whether the command line is one that leadline would run: nothing is missing, and nothing empty."""
    for length in (3, 2, 1):
        if command := ALL.get(" ".join(words[:length])):
            try:
                command.make_context(command.name, list(words[length:]))
            except click.UsageError:
                return False
            return all(words)
    return False


def errors_of(stderr: str) -> list[str]:
    assert "Traceback" not in stderr, stderr
    return [line for line in stderr.splitlines() if line.startswith("error: ")]


# -- output ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "redirected"), [(name, to) for name in LEAVES for to in (">/dev/full", ">&-") if name not in SLOW or to == ">/dev/full"]
)
def test_output_that_cannot_be_written_is_one_error(name: str, redirected: str, places: dict[str, str], new: str) -> None:
    command = ["sh", "-c", f'exec "$@" {redirected}', "sh", sys.executable, "-m", "leadline", *words_of(name, {**places, "new": new})]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr
    assert len(errors_of(done.stderr)) == 1 and done.stderr.endswith("\n  at: stdout\n"), done.stderr


@pytest.mark.parametrize("name", [name for name in LEAVES if name not in SLOW])
def test_a_reader_that_has_seen_enough_is_no_error(name: str, places: dict[str, str], new: str) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "leadline", *words_of(name, {**places, "new": new})]
    try:
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    finally:
        os.close(write)
    assert (done.returncode, errors_of(done.stderr)) == (0, []), done.stderr


@pytest.mark.parametrize("name", [name for name in LEAVES if name not in SLOW and name.split()[0] not in UNRECORDED])
def test_each_command_is_a_run_of_the_logbook(name: str, places: dict[str, str], new: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "leadline", *words_of(name, {**places, "new": new})]
    environment = os.environ | {"LEADLINE_BOOK": str(tmp_path / "book")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    book = Book(Place(tmp_path / "book"))
    [found] = book.runs()
    details = book.details(found)
    book.close()
    assert (found["name"], found["argv"][1:], found["rc"], found["status"]) == (name, command[3:], done.returncode, "ok")
    assert details["metrics"].keys() >= {"wall_s", "cpu_s", "max_rss_bytes", "record_s"}
    assert "…" not in done.stdout  # no value is cut in a pipe
    if "json" not in line_of(name) and name != "top":  # a screen is filled up
        assert [line for line in done.stdout.splitlines() if NO_VALUE.search(line)] == []
    for hint in re.findall(r"^(?:next|logbook): (leadline .*?)(?: to query the tables)?$", done.stdout + done.stderr, re.MULTILINE):
        assert takes(shlex.split(hint)[1:]), hint  # it has the arguments that it needs
    made = [a["path"] for a in details["artifacts"]]
    assert made == [str(path) for path in sorted(Path(new).parent.iterdir())]


# -- rows --------------------------------------------------------------------------------------------------------------


def lists_of(whole: Any) -> list[list[dict[str, Any]]]:
    """What may be the rows of a JSON answer: the list that it is, or a list of objects in it."""
    return [whole] if isinstance(whole, list) else [v for v in whole.values() if isinstance(v, list) and v and isinstance(v[0], dict)]


def in_csv(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"'{text}" if isinstance(value, str) and text.startswith(("=", "+", "-", "@")) else text


@pytest.mark.parametrize(
    "name", [name for name, command in LEAVES.items() if name not in OF_THEIR_OWN and any("--csv" in p.opts for p in command.params)]
)
def test_rows_are_the_same_as_csv_and_as_json(name: str, places: dict[str, str], new: str) -> None:
    words = [word for word in words_of(name, {**places, "new": new}) if word != "--folded"]
    as_json, as_csv = (
        subprocess.run([sys.executable, "-m", "leadline", *words, form], capture_output=True, timeout=60, check=False)
        for form in ("--json", "--csv")
    )
    assert (as_csv.returncode, errors_of(as_csv.stderr.decode())) == (as_json.returncode, [])
    rows = list(csv.DictReader(io.StringIO(as_csv.stdout.decode(), newline="")))
    columns, lists = set(rows[0] if rows else ()), lists_of(json.loads(as_json.stdout))
    expected = next((found for found in lists if found and {column for row in found for column in row} == columns), [])
    assert bool(expected) == any(lists), (columns, lists)
    if name not in MEASURED:
        assert rows == [{column: in_csv(row.get(column)) for column in columns} for row in expected]


def test_rows_of_a_table_are_as_in_a_file(places: dict[str, str], new: str) -> None:
    words = [sys.executable, "-m", "leadline", *words_of("rows", places)]
    printed = subprocess.run([*words, "--csv"], capture_output=True, check=True).stdout
    subprocess.run([*words, "-o", f"{new}.csv"], capture_output=True, check=True)
    assert printed == Path(f"{new}.csv").read_bytes() and printed.count(b"\n") > 1
    first = subprocess.run([*words, "--csv", "--limit", "1"], capture_output=True, check=True).stdout
    assert first == b"".join(printed.splitlines(keepends=True)[:2])


# -- input -------------------------------------------------------------------------------------------------------------


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 << 40)


def of_the_wrong_kind(path: Path, kind: str) -> None:
    if kind in FOLDERS:
        path.write_text("hello\n")
    else:
        path.mkdir()


def unreadable(path: Path, kind: str) -> None:
    if kind in FOLDERS:
        path.mkdir(mode=0)
    else:
        path.touch(mode=0)


ODD: dict[str, Callable[[Path, str], None]] = {
    "a fifo": lambda path, _: os.mkfifo(path),
    "of the wrong kind": of_the_wrong_kind,
    "a link loop": lambda path, _: path.symlink_to(path.name),
    "unreadable": unreadable,
    "a sparse file": lambda path, _: sparse(path),
}
LIBC = ctypes.CDLL(None)
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2


def as_anyone() -> None:
    """Root may read everything; a program that it starts with these rights gone may not. No other user need be able to read ours."""
    for right in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        LIBC.prctl(PR_CAPBSET_DROP, right, 0, 0, 0)


CASES = [(name, kind, odd) for name in LEAVES for kind in READ.get(name, []) for odd in ODD if (name, odd) not in LONG | AWAITED]


@pytest.mark.parametrize(("name", "kind", "odd"), CASES)
def test_odd_input_is_one_error(name: str, kind: str, odd: str, places: dict[str, str], new: str) -> None:
    path = Path(new).parent / Path(places[kind]).name
    ODD[odd](path, kind)
    words = [word for word in words_of(name, {**places, "new": new, kind: str(path)}) if word != "--json"]  # errors as text
    command = [sys.executable, "-m", "leadline", *words]
    first = as_anyone if odd == "unreadable" else None
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, preexec_fn=first, check=False)
    if (name, odd) in FINE:
        assert (done.returncode, errors_of(done.stderr)) == (0, []), done.stderr
    else:
        assert (done.returncode, len(errors_of(done.stderr)), done.stdout) == (2, 1, ""), done.stderr


WRITTEN = {"output", "out"}
SAME = {("top", "data_dir")}  # as its argument
# Of another thing than the line does: a base backup, or --verify. tests/differential/test_restore.py and test_recover_told.py try them.
# `book show --file` names a path that was recorded; it is not read. `storage simulate --trace` takes the place of --load: tests/storage.
# The design of a study is a name or a file: tests/study.
ELSEWHERE = {(f"study {verb}", what) for verb in ("calibrate", "plan", "run") for what in ("name", "pg_bin")}
ELSEWHERE |= {("replication study", "pg_bin"), ("book show", "file"), ("storage simulate", "capture")}
ELSEWHERE |= {("recover", what) for what in ("archive", "pg_bin", "scratch")}
# A recorder runs until it is stopped: tests/live/test_record.py. Its directory as it should not be: tests/unit/test_recorder_run.py, and
# the file of its token: tests/unit/test_metrics_served.py; one whose service is removed: tests/unit/test_recorder_install.py. Who asks a
# running one: tests/unit/test_recorder_detail.py.
ELSEWHERE |= {("record", what) for what in ("to", "data_dir", "metrics_token", "detail", "uninstall")} | {("take", "from_recorder")}
# What is read beside the backups or the data directory: tests/unit/test_odd_files.py, and for --template test_salvage_lost_catalog.py.
ELSEWHERE |= {("page check", "state"), ("salvage", "columns_of")} | {(name, "key_file") for name in LEAVES}
ELSEWHERE |= {("salvage", "template")}
ELSEWHERE |= {("rows", "bases"), ("salvage", "bases")}  # tests/differential/test_backup_chain.py
ELSEWHERE |= {("recorder register", "directory")}  # of the host of the server: tests/server/test_recorders_served.py


def names_a_path(parameter: click.Parameter) -> bool:
    """Also one that is declared as text, such as FILE:BLOCK."""
    return isinstance(parameter.type, click.Path) or re.search("FILE|PATH|DIR", parameter.metavar or "") is not None


def test_each_path_that_a_command_reads_is_tried_as_something_odd() -> None:
    """Where an argument is a path and the line names no input, or leaves out an option that takes a path, it would not be."""
    for name, command in LEAVES.items():
        words = line_of(name).split()
        for parameter in filter(names_a_path, command.params):
            if isinstance(parameter, click.Argument) and (name, parameter.name) not in ELSEWHERE:
                assert READ[name], f"the line of `leadline {name}` reads none of {', '.join(FILES + FOLDERS)}"
            elif isinstance(parameter, click.Option) and parameter.name not in WRITTEN and (name, parameter.name) not in SAME | ELSEWHERE:
                assert set(parameter.opts) & set(words), f"the line of `leadline {name}` has no {parameter.opts[0]}"
    assert LINES.keys() <= LEAVES.keys()
