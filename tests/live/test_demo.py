"""The demo: its load shows four troubles to plain SQL, its files are its own, and it leaves nothing running."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import leadline
import psycopg
import pytest
from conftest import CopiedServer, background, is_running, wait_until
from leadline.capture.reader import open_capture
from leadline.demo import run
from leadline.demo.load import CLIENTS
from leadline.demo.load_process import LoadProcess
from leadline.demo.schema import load_schema
from leadline.errors import LeadlineError
from leadline.postgres.server import PrivateServer, find_binaries

Rows = list[tuple[Any, ...]]


class Shop:
    """The demo's server under its load, asked by SQL only."""

    def __init__(self, server: PrivateServer, load: LoadProcess, connection: psycopg.Connection[Any]) -> None:
        self.server, self.load, self.connection = server, load, connection

    def rows(self, query: str) -> Rows:
        return self.connection.execute(query).fetchall()


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    binaries = find_binaries()
    with CopiedServer(binaries.bin_dir, settings=run.SETTINGS | {"fsync": False}) as server:
        load_schema(server.dsn)
        with LoadProcess(server.dsn) as load, psycopg.connect(server.dsn, autocommit=True, application_name="test") as connection:
            yield Shop(server, load, connection)


@pytest.mark.live
def test_there_are_many_clients_and_their_names_tell_no_trouble(shop: Shop) -> None:
    counted = dict(shop.rows("select application_name, count(*) from pg_stat_activity where backend_type = 'client backend' group by 1"))
    assert counted.pop("test") == 1
    assert counted == {client.name: client.count for client in CLIENTS}
    assert sum(counted.values()) >= 8


@pytest.mark.live
@pytest.mark.parametrize("name", ["order-entry", "invoice-batch"])
def test_clients_fight_for_one_page(shop: Shop, name: str) -> None:
    query = f"""
        select count(*) from pg_stat_activity
        where application_name = '{name}' and (wait_event_type, wait_event) = ('LWLock', 'BufferContent')"""
    seen: list[int] = []

    def often() -> bool:
        seen.append(shop.rows(query)[0][0])
        return sum(seen) >= 20 and max(seen) >= 2

    wait_until(often, 20, f"several {name} clients at once waiting for the content of a buffer")


@pytest.mark.live
def test_a_chain_of_locks_hangs_on_a_client_that_is_idle_in_transaction(shop: Shop) -> None:
    chain = """
        with recursive up as (
            select pid, array[application_name] as path from pg_stat_activity where application_name = 'campaign'
            union all
            select a.pid, up.path || a.application_name
            from up, unnest(pg_blocking_pids(up.pid)) as blocker join pg_stat_activity a on a.pid = blocker
            where cardinality(up.path) < 9
        )
        select path, state, wait_event from up join pg_stat_activity using (pid)
        where cardinality(pg_blocking_pids(pid)) = 0 and cardinality(path) >= 3"""
    found = wait_until(lambda: shop.rows(chain), 15, "a chain of depth two")
    path, state, wait_event = found[0]
    assert (path[0], path[1], path[-1]) == ("campaign", "refund", "checkout")
    assert (state, wait_event) == ("idle in transaction", "ClientRead")
    waiting = "select count(distinct pid) from pg_locks where not granted and locktype in ('transactionid', 'tuple')"
    wait_until(lambda: shop.rows(waiting)[0][0] >= 4, 15, "four sessions in the queue")


@pytest.mark.live
def test_the_root_holds_its_locks_again_and_again(shop: Shop) -> None:
    root = "select xact_start from pg_stat_activity where application_name = 'checkout' and state = 'idle in transaction'"
    seen: set[Any] = set()

    def three() -> bool:
        seen.update(row[0] for row in shop.rows(root) if row[0])
        return len(seen) >= 3

    wait_until(three, 20, "three transactions of the same root")


@pytest.mark.live
def test_a_client_reads_slowly(shop: Shop) -> None:
    state = "select state, wait_event_type, wait_event from pg_stat_activity where application_name = 'report-export'"
    wait_until(lambda: shop.rows(state) == [("active", "Client", "ClientWrite")], 10, "a server waiting for its client to read")


@pytest.mark.live
def test_a_client_fetches_few_rows_at_a_time(shop: Shop) -> None:
    state = """
        select query_start from pg_stat_activity
        where application_name = 'stock-sync' and state = 'idle in transaction' and query like 'fetch forward 5%'"""
    seen: set[Any] = set()

    def many() -> bool:
        seen.update(row[0] for row in shop.rows(state))
        return len(seen) >= 10

    wait_until(many, 10, "ten different fetches, the client away after each")


@pytest.mark.live
def test_the_load_is_alive_to_the_end(shop: Shop) -> None:
    """The last test of this load: a client that could not go on would have ended it."""
    shop.load.run_for(0)
    assert shop.rows("select count(*) from pg_stat_activity where application_name = 'checkout'") == [(1,)]


@pytest.mark.live
def test_a_client_that_cannot_go_on_is_told() -> None:
    with CopiedServer(find_binaries().bin_dir) as server:
        load_schema(server.dsn)
        with LoadProcess(server.dsn) as load, psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("alter table customer rename to gone")
            with pytest.raises(LeadlineError, match="ended early") as told:
                load.run_for(20)
            assert 'relation "customer" does not exist' in told.value.detail
            assert not is_running(load.pid)


@pytest.mark.live
def test_clients_that_cannot_connect_are_told() -> None:
    """The server has room for all of them in its queue of connections to accept, twice max_connections, and a slot for none."""
    settings = {"max_connections": 30}
    with CopiedServer(find_binaries().bin_dir, settings=settings) as server, ExitStack() as held:
        load_schema(server.dsn)
        for _ in range(settings["max_connections"]):
            try:
                held.enter_context(psycopg.connect(server.dsn))
            except psycopg.OperationalError:
                break
        with pytest.raises(LeadlineError, match="did not start") as told, LoadProcess(server.dsn):
            pytest.fail("it started")
        assert re.search("too many clients|reserved", told.value.detail)


def test_the_load_ends_when_its_parent_is_gone(tmp_path: Path) -> None:
    """Without a server: the process reads its stdin to the end also when it never got to work."""
    command = [sys.executable, "-m", "leadline.demo.load", f"host={tmp_path} user=nobody"]
    with background(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out) == (1, b"")
        assert b"connection" in err


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A TMPDIR of its own, with a short path, open to the server's user: what the demo leaves behind stays visible in it."""
    folder = Path(tempfile.mkdtemp(prefix="leadline-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def demo(temporary: Path, out: Path, *options: str, prefix: Sequence[str] = ()) -> Any:
    """`leadline demo` as a child for a `with` block."""
    command = [*prefix, sys.executable, "-m", "leadline", "demo", "-o", out, *options]
    environment = os.environ | {"TMPDIR": str(temporary), "LEADLINE_BOOK": str(out / "book")}
    return background(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def read_until(process: Any, text: str) -> str:
    """What the process told on stderr up to the first line with `text`."""
    told = ""
    for line in process.stderr:
        told += line
        if text in line:
            return told
    pytest.fail(f"the demo ended before it said {text!r}: {told}")


def is_gone(told: str, temporary: Path) -> bool:
    """No postmaster, and nothing in the temporary folder."""
    match = re.search(r"postmaster (\d+)", told)
    assert match is not None
    return not is_running(int(match[1])) and list(temporary.iterdir()) == []


@pytest.mark.live
@pytest.mark.parametrize("rights", ["as they are", "of an ordinary user"])
def test_the_demo_finds_its_troubles_by_measurement(rights: str, temporary: Path, tmp_path: Path) -> None:
    """An ordinary user's own server is copied from instead of mapped, and the sampler has no priority over the load."""
    privileges = "-sys_admin,-checkpoint_restore,-sys_nice"
    ordinary = rights == "of an ordinary user" and os.geteuid() == 0
    prefix = ["setpriv", f"--bounding-set={privileges}", f"--inh-caps={privileges}"] if ordinary else []
    with demo(temporary, tmp_path, "--json", prefix=prefix) as process:
        stdout, stderr = process.communicate(timeout=240)
    assert process.returncode == 0, stderr
    assert is_gone(stderr, temporary)
    result = json.loads(stdout)
    [shown] = re.findall(r"^logbook: (LEADLINE_BOOK=\S+ )leadline (book show \w{5})$", stderr, re.MULTILINE)
    look = f"{shown[0]} {sys.executable} -m leadline {shown[1]}"
    said = subprocess.run(look, shell=True, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^(?:name|status) +(\w+)$", said, re.MULTILINE) == ["demo", "ok"]
    folder = tmp_path / "leadline-demo"
    assert (result["capture"], result["report"]) == (str(folder / "capture.leadline"), str(folder / "report.html"))
    assert (folder / "report.html").stat().st_size > 10_000
    assert sorted(path.name for path in folder.iterdir()) == ["capture.leadline", "report.html"]
    if ordinary:
        access = json.loads((folder / "capture.leadline" / "manifest.json").read_text())["probes"]["sessions"]["access"]
        assert (access["shared_memory"], result["window"]["tier"]) == ("process_vm_readv", "shm")
    found = {(f["id"], f["subject"]): f for f in result["findings"]}

    def one(name: str, subject: str) -> str:
        """The statement of the finding of that id about that subject."""
        matches = [f["statement"] for (found_id, about), f in found.items() if found_id == name and subject in about]
        assert matches, f"no {name} about {subject} among {sorted(found)}"
        return str(matches[0])

    blockers = [tree for tree in result["lock_trees"] if "checkout" in tree["who"]]
    assert blockers
    root = one("BLOCK-CHAIN", f"pid {blockers[0]['pid']}")
    assert "idle in transaction" in root
    assert re.search(r"\b[4-9] ", root), "the number of victims"
    one("SLOW-CLIENT", "report-export")
    assert any("stock-sync" in subject for _, subject in found)
    if result["window"]["tier"] == "shm":
        assert "right-most leaf" in one("RIGHT-EDGE-INDEX", "order_event_pkey")
        one("SEQUENCE-PAGE", "invoice_number")
        assert_the_sequence_costs_what_its_clients_wait(folder / "capture.leadline")


def assert_the_sequence_costs_what_its_clients_wait(path: Path) -> None:
    """They wait for the content of no other page, and no one else draws these numbers."""
    with closing(open_capture(path)) as capture:
        page = capture.rows("select sum(wait_s) as s from page_wait where object = 'public.invoice_number'")[0]["s"]
        clients = capture.rows(
            """select sum(weight_s) as s from session_sample
            where application_name = 'invoice-batch' and wait_event = 'BufferContent' and in_db_time"""
        )[0]["s"]
    assert page == pytest.approx(clients, rel=0.05)


@pytest.mark.live
def test_ctrl_c_before_the_capture_clears_up(temporary: Path, tmp_path: Path) -> None:
    with demo(temporary, tmp_path) as process:
        told = read_until(process, "postmaster")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
        stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stdout) == (130, ""), stderr
    assert "Traceback" not in stderr
    wait_until(lambda: is_gone(told, temporary), what="the end of the server and the removal of its folder")


@pytest.mark.live
def test_ctrl_c_during_the_capture_shows_what_there_is(temporary: Path, tmp_path: Path) -> None:
    with demo(temporary, tmp_path, "--seconds", "60") as process:
        told = read_until(process, "taking a capture")
        segments = tmp_path / "leadline-demo" / "capture.leadline"
        wait_until(lambda: list(segments.glob("tick/*.parquet")), 20, "the first segment of the capture")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
        stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert is_gone(told, temporary)
    assert "Database time" in stdout
    assert "stopped by the user" in stdout


@pytest.mark.live
def test_a_demo_that_is_killed_leaves_no_server(temporary: Path, tmp_path: Path) -> None:
    with demo(temporary, tmp_path) as process:
        told = read_until(process, "clients are running")
        process.kill()
        process.communicate(timeout=120)
    wait_until(lambda: is_gone(told, temporary), what="the end of the server and the removal of its folder")


def test_a_foreign_folder_is_one_error_on_the_command_line(temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "leadline-demo").mkdir()
    (tmp_path / "leadline-demo" / "thesis.txt").touch()
    with demo(temporary, tmp_path) as process:
        stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stdout) == (2, "")
    assert stderr.startswith("error: the folder contains files")
    assert "hint: " in stderr


def test_only_an_earlier_demo_is_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "x" / run.FOLDER
    result = run.prepare_folder(folder)
    assert (result.capture, result.report) == (folder / "capture.leadline", folder / "report.html")
    (result.capture / "tick").mkdir(parents=True)
    (result.capture / "manifest.json").write_text("{}")
    result.report.write_text("<html>")
    run.prepare_folder(folder)
    assert list(folder.iterdir()) == []

    (folder / "thesis.txt").write_text("mine")
    with pytest.raises(LeadlineError, match="not from an earlier demo") as told:
        run.prepare_folder(folder)
    assert (told.value.kind, told.value.detail, told.value.where) == ("usage", "thesis.txt", str(folder))
    assert (folder / "thesis.txt").read_text() == "mine"


def test_a_capture_folder_that_is_no_capture_is_kept(tmp_path: Path) -> None:
    (tmp_path / "capture.leadline").mkdir()
    (tmp_path / "capture.leadline" / "notes.txt").write_text("mine")
    with pytest.raises(LeadlineError, match="not from an earlier demo"):
        run.prepare_folder(tmp_path)
    assert (tmp_path / "capture.leadline" / "notes.txt").exists()


def test_a_folder_that_cannot_be_made_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LeadlineError) as told:
        run.prepare_folder(tmp_path / "file" / run.FOLDER)
    assert told.value.kind == "storage"


def test_too_little_room_is_told_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(0, 0, 3 * 1024**3))
    run.check_room(20)
    with pytest.raises(LeadlineError) as told:
        run.check_room(60)
    assert (told.value.kind, "TMPDIR" in told.value.hint) == ("storage", True)


def test_nothing_that_measures_or_judges_knows_the_demo() -> None:
    """Only the command and the demo itself import the demo; no other file names its clients or its tables."""
    root = Path(leadline.__file__).parent
    names = {client.name for client in CLIENTS} - {"payment", "refund", "campaign", "checkout"} | {"order_event", "invoice_number"}
    for path in root.rglob("*.py"):
        if path.is_relative_to(root / "demo") or path == root / "cli" / "demo.py":
            continue
        text = path.read_text(encoding="utf-8")
        imported = {n.module or "" for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom)}
        assert not any(module.startswith("leadline.demo") for module in imported), path
        assert not [name for name in names if name in text], path
    for path in (root / "findings").glob("*.sql"):
        assert not [name for name in names if name in path.read_text(encoding="utf-8")], path
