"""What commands that read files say of files that are not what they should be: one error each, exit code 2, nothing half done
that looks whole."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Server, running
from example_capture import example
from leadline._core.rows import RowScan
from leadline.capture.making import RESERVE_BYTES, Making
from leadline.capture.manifest import Target
from leadline.capture.views import VIEWS_FILE, write_views
from leadline.cli import run
from leadline.engines.postgres.server.user import server_user
from leadline.errors import KINDS

ROOT = os.geteuid() == 0
TESTDATA = Path(__file__).resolve().parents[2] / "testdata"
SEGMENT = "000000010000000000000001"
# What follows the name of the file; OUT stands for a place to write to.
COMMANDS: dict[str, list[str]] = {
    "page show": ["page", "show", "PATH"],
    "page hex": ["page", "hex", "PATH:0"],
    "page diff": ["page", "diff", "PATH:0", "PATH:0"],
    "page check": ["page", "check", "PATH"],
    "page scan": ["page", "scan", "PATH", "-o", "OUT.leadline"],
    "page show informix": ["page", "show", "PATH", "--engine", "informix"],
    "wal show": ["wal", "show", "PATH"],
    "wal stats": ["wal", "stats", "PATH"],
    "wal export": ["wal", "export", "PATH", "-o", "OUT.leadline"],
    "wal history": ["wal", "history", "PATH", "1663/5/16384", "0"],
    "wal inval": ["wal", "inval", "PATH"],
    "rows": ["rows", "PATH", "t"],
    "rows -o": ["rows", "PATH", "t", "-o", "OUT.csv"],
    "rows FILE": ["rows", "PATH"],
    "import onstat": ["import", "onstat", "PATH", "-o", "OUT.leadline"],
}


def oracle_block() -> bytes:
    return next(iter(sorted(TESTDATA.glob("oracle/**/*.block")))).read_bytes()


def informix_page() -> bytes:
    """Not one of PostgreSQL, whose sizes at 18 would have to make sense."""
    page = bytearray(2048)
    struct.pack_into("<IHHHHHH", page, 0, 7, 1, 6, 1, 1, 64, 1976)
    return bytes(page)


def unknown_segment() -> bytes:
    return struct.pack("<HHIQIIQII", 0xD199, 2, 1, 1 << 24, 0, 0, 7, 1 << 24, 8192).ljust(1 << 20, b"\0")


def put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


# Name of the case: what it makes in a folder.
INPUTS: dict[str, Callable[[Path], Path]] = {
    "nothing there": lambda folder: folder / "none",
    "an empty folder": lambda folder: folder,
    "a folder of something else": lambda folder: put(folder / "notes.txt", b"hello\n").parent,
    "a data directory without pg_control": lambda folder: put(folder / "PG_VERSION", b"18\n").parent,
    "an empty file": lambda folder: put(folder / "16384", b""),
    "text": lambda folder: put(folder / "16384", b"all work and no play\n" * 500),
    "a block of Oracle": lambda folder: put(folder / "users01.dbf", oracle_block() * 2),
    "a page of Informix": lambda folder: put(folder / "rootchunk", informix_page() * 4),
    "a page of zeros": lambda folder: put(folder / "16384", b"\0" * 8192),
    "a log of zeros": lambda folder: put(folder / SEGMENT, b"\0" * (1 << 20)),
    "a log of an unknown major": lambda folder: put(folder / SEGMENT, unknown_segment()),
    "a pg_control of zeros": lambda folder: put(folder / "pg_control", b"\0" * 8192),
    "a device": lambda folder: Path("/dev/null"),
    "a fifo": lambda folder: fifo(folder / "16384"),
    "a fifo called a segment": lambda folder: fifo(folder / SEGMENT),
    "a fifo called pg_control": lambda folder: fifo(folder / "pg_control"),
}


def fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


# A page of zeros is a page that was never used, a block of Oracle can be shown, pg_control with what is wrong in it.
FINE = {("page show", "a page of zeros"), ("page hex", "a page of zeros"), ("page diff", "a page of zeros")}
FINE |= {("page check", "a page of zeros"), ("page scan", "a page of zeros")}
FINE |= {("page check", "an empty file"), ("page scan", "an empty file")}  # as that of an empty table
FINE |= {(f"page {verb}", "a block of Oracle") for verb in ("show", "hex", "diff")}
FINE |= {(f"page {verb}", "a pg_control of zeros") for verb in ("show", "hex", "diff")}
FINE |= {(f"page {verb}", "a log of zeros") for verb in ("show", "hex", "diff", "check", "scan")}
# Nothing in a page says that it is none of Informix; all is shown, with what cannot be.
FINE |= {("page show informix", name) for name in ("text", "a block of Oracle", "a page of Informix", "a page of zeros", "a log of zeros")}
FINE |= {("page show informix", name) for name in ("a log of an unknown major", "a pg_control of zeros")}


def said(command: str, path: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    line = [word.replace("PATH", str(path)).replace("OUT", str(out)) for word in COMMANDS[command]]
    code = run([*line, "--json"])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def is_one_error(output: str) -> dict[str, Any]:
    """The error that stands alone on stdout."""
    answer: dict[str, Any] = json.loads(output)
    assert list(answer) == ["error"]
    error: dict[str, Any] = answer["error"]
    assert error["kind"] in KINDS and error["message"] and "\n" not in error["message"] + error["detail"]
    assert "Traceback" not in output and error["kind"] != "gone"
    return error


def leaves_nothing_that_looks_whole(out: Path) -> None:
    assert not out.with_suffix(".csv").exists() and not out.with_suffix(".parquet").exists()
    manifest = out.with_suffix(".leadline") / "manifest.json"
    if manifest.exists():
        assert json.loads(manifest.read_text())["status"] == "failed"


@pytest.mark.parametrize("input_", INPUTS)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.timeout(60)
def test_bad_input_is_one_error(command: str, input_: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    path = INPUTS[input_](folder)
    code, output, errors = said(command, path, tmp_path / "out", capsys)
    assert "Traceback" not in errors
    if (command, input_) in FINE:
        assert code == 0, output
        return
    assert code == 2, output + errors
    error = is_one_error(output)
    assert str(path if path.is_char_device() else folder) in error["where"], error
    leaves_nothing_that_looks_whole(tmp_path / "out")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server whose table `t` has several blocks on disk."""
    with running(18, autovacuum=False) as server:
        server.sql("create table t as select i as n, md5(i::text) as word from generate_series(1, 20000) i")
        server.sql("checkpoint")
        yield server


@pytest.fixture
def data_dir(server: Server, tmp_path: Path) -> Path:
    """A copy of the server's files, whose database is called postgres."""
    copied = tmp_path / "data"
    shutil.copytree(server.private.data_dir, copied, ignore=shutil.ignore_patterns("postmaster.*", "*.sock*"))
    return copied


def table_file(server: Server, data_dir: Path) -> Path:
    [[name]] = server.sql("select pg_relation_filepath('t')")
    return data_dir / str(name)


def test_a_block_beyond_the_end_is_one_error(server: Server, data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table_file(server, data_dir)
    blocks = path.stat().st_size // 8192
    for command in (["page", "show"], ["page", "hex"]):
        assert run([*command, f"{path}:{blocks}", "--json"]) == 2
        assert f"blocks 0 to {blocks - 1}" in is_one_error(capsys.readouterr().out)["detail"]


def test_rows_of_a_table_that_shrinks_are_counted_as_gone(server: Server, data_dir: Path) -> None:
    path = table_file(server, data_dir)
    blocks = path.stat().st_size // 8192
    scan = RowScan(str(data_dir), relation="t", database="postgres")
    os.truncate(path, 3 * 8192 + 100)
    count = 0
    while (rows := scan.rows(100)) is not None:
        count += len(rows)
    status = scan.status()
    assert (status["gone_blocks"], status["block"]) == (blocks - 3, blocks)
    assert 0 < count < 20000
    after = RowScan(str(data_dir), relation="t", database="postgres")  # what is left of a block is told, too
    assert after.status()["unread_pages"] == 1


def test_a_table_that_shrinks_is_told(
    server: Server, data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table_file(server, data_dir)
    opened = RowScan

    def open_and_cut(*arguments: Any, **more: Any) -> Any:
        scan = opened(*arguments, **more)
        os.truncate(path, 8192)
        return scan

    monkeypatch.setattr("leadline._core.rows.RowScan", open_and_cut)
    out = tmp_path / "t.csv"
    assert run(["rows", str(data_dir), "t", "--database", "postgres", "-o", str(out), "--json"]) == 1
    printed = capsys.readouterr()
    assert "the file was truncated while it was being read" in printed.err
    made = json.loads(printed.out)
    assert made["gone_blocks"] > 100 and made["rows"] == len(out.read_text().splitlines()) - 1


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with 12 kB of room beside what a capture sets aside and the views it begins with."""
    if not ROOT:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    try:
        write_views(tmp_path, set())
        room = (tmp_path / VIEWS_FILE).stat().st_size + (12 << 10)
        (folder / "ballast").write_bytes(b"\0" * (shutil.disk_usage(folder).free - RESERVE_BYTES - room))
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize(
    "line",
    [
        ["page", "scan", "DATA/base", "-o", "OUT.leadline"],
        ["wal", "export", "DATA", "-o", "OUT.leadline"],
        ["rows", "DATA", "t", "--database", "postgres", "-o", "OUT.csv"],
        ["rows", "DATA", "t", "--database", "postgres", "-o", "OUT.parquet"],
        ["import", "onstat", "ONSTAT", "-o", "OUT.leadline"],
    ],
    ids=lambda line: " ".join(line[:2]) + line[-1][3:],
)
def test_a_full_disk_is_one_error_and_what_is_there_says_that_it_is_not_all(
    line: list[str], server: Server, full_disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = server.private.data_dir
    onstat = tmp_path / "onstat.txt"
    out = full_disk / "out"
    words = {"DATA/base": f"{data}/base/5", "DATA": str(data), "ONSTAT": str(onstat)}
    if "ONSTAT" in line:
        seed = (TESTDATA / "informix" / "listing" / "onstat_x.txt").read_text()
        onstat.write_text(seed * 3000)
    assert run([words.get(word, word.replace("OUT", str(out))) for word in line] + ["--json"]) == 2
    error = is_one_error(capsys.readouterr().out)
    assert error["kind"] == "storage" and "space" in error["message"], error
    leaves_nothing_that_looks_whole(out)
    if line[-1].endswith(".leadline"):
        assert (out.with_suffix(".leadline") / "manifest.json").exists()
    if line[0] == "rows":
        assert [path.name for path in full_disk.iterdir()] == ["ballast"]


@pytest.mark.parametrize("line", [["page", "scan", "FILE"], ["import", "onstat", "FILE"]], ids=" ".join)
def test_a_disk_without_room_for_a_capture_is_told_before_it_is_begun(
    line: list[str], full_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (full_disk / "ballast 2").write_bytes(b"\0" * (shutil.disk_usage(full_disk).free - (40 << 10)))
    file = {"page": "postgres/9.6/heap_4_rows.page", "import": "informix/listing/onstat_x.txt"}[line[0]]
    out = full_disk / "out.leadline"
    assert run([word.replace("FILE", str(TESTDATA / file)) for word in line] + ["-o", str(out), "--json"]) == 2
    error = is_one_error(capsys.readouterr().out)
    assert error["kind"] == "storage" and "space" in error["message"], error
    assert not out.exists()


def test_a_report_that_finds_no_room_leaves_nothing(full_disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (full_disk / "ballast 2").write_bytes(b"\0" * (shutil.disk_usage(full_disk).free - (8 << 10)))
    assert run(["report", str(example(tmp_path / "c.leadline").write()), "-o", str(full_disk / "out.html")]) == 2
    assert "error: no space left to write the report" in capsys.readouterr().err
    assert sorted(path.name for path in full_disk.iterdir()) == ["ballast", "ballast 2"]


def test_the_end_of_a_capture_is_written_when_not_a_byte_is_left(full_disk: Path) -> None:
    making = Making(full_disk, Target("files"), {})
    with pytest.raises(OSError, match="No space left"), making.from_files(), (full_disk / "segment").open("wb", buffering=0) as out:
        while out.write(b"\0" * 4096):
            pass
    said = json.loads((full_disk / "manifest.json").read_text())
    assert said["status"] == "failed" and said["error"]["message"]
    assert "create or replace view" in (full_disk / "views.sql").read_text()


@pytest.mark.skipif(not ROOT, reason="only root can become another user")
@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "rows -o"])
def test_a_file_that_may_not_be_read_is_one_error(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        path = folder / (SEGMENT if command.startswith("wal") else "16384")
        path.write_bytes(b"\0" * 8192)
        path.chmod(0o600)
        if command == "rows":
            path = folder / "data"
            (path / "global").mkdir(parents=True)
            (path / "PG_VERSION").write_text("18\n")
            (path / "PG_VERSION").chmod(0o600)
        os.seteuid(server_user().uid)  # root may read everything
        try:
            code, output, _ = said(command, path, folder / "out", capsys)
        finally:
            os.seteuid(0)
        assert code == 2
        error = is_one_error(output)
        if command != "rows FILE":  # there is no data directory around it, which is told first
            assert error["kind"] == "rights" and error["hint"], error
        leaves_nothing_that_looks_whole(folder / "out")
