"""leadline export: every format of every kind of capture, to a file or a pipe; what a user can do wrong; no file that is not whole."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from commands import leaves
from example_capture import example
from export_read import read_perfetto, read_pprof
from findings_synthetic import SyntheticCapture
from host_synthetic import HostCapture
from leadline.cli.export import BINARY, PROFILES, ROWS, TRACES
from leadline.replacing import write_parts
from packets_made import a_login
from pyarrow import ipc
from replicating import pair_of_servers
from trace_synthetic import trace_of_semget

ROOT = Path(__file__).resolve().parents[2]
FORMATS = (*PROFILES, *TRACES, *ROWS)
LATE = "select case when range = 100000 then error('too late') else range::varchar end as n from range(200000)"


def export(*words: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "leadline", "export", *map(str, words)], capture_output=True, check=False)


def refused(*words: object) -> str:
    """What is said of a call that cannot be: one error, exit code 2, nothing on stdout."""
    done = export(*words)
    said = done.stderr.decode()
    assert (done.returncode, done.stdout, said.count("error: ")) == (2, b"", 1), said
    return said


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return example(tmp_path_factory.mktemp("example")).write()


def options_of(form: str) -> list[str]:
    return ["--to", form, *(["--sql", "from session order by session_id, ts"] if form in ROWS else [])]


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_and_a_pipe_get_the_same(capture: Path, tmp_path: Path, form: str) -> None:
    piped = export(capture, *options_of(form))
    assert piped.returncode == 0 and piped.stderr == b"" and piped.stdout
    out = tmp_path / ("a.arrows" if form == "arrow" else "a")
    written = export(capture, *options_of(form), "-o", out)
    assert (written.returncode, written.stdout.decode()) == (0, f"{out}\n")
    assert out.read_bytes() == piped.stdout and list(tmp_path.iterdir()) == [out]
    note, *rest = written.stderr.decode().splitlines()
    assert re.fullmatch(r"note: .* [\d,]+ bytes", note) and [line[:6] for line in rest] == ["next: "] * (form not in ROWS)
    assert f"{len(piped.stdout):,} bytes" in note
    assert "already exists" in refused(capture, *options_of(form), "-o", out)
    assert export(capture, *options_of(form), "-o", out, "--force").returncode == 0


@pytest.mark.parametrize("form", FORMATS)
def test_json_says_what_was_written(capture: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / "a"
    said = json.loads(export(capture, *options_of(form), "-o", out, "--json").stdout)
    data = out.read_bytes()
    assert (said.pop("format"), said.pop("file"), said.pop("bytes")) == (form, str(out), len(data))
    if form == "pprof":
        read = read_pprof(data)
        assert [said["samples"], said["sum"]] == [sum(values[i] for _, values in read.stacks) for i in (0, 1)] == [61_560, 615_600_000_000]
        assert said | {"value": "database_time", "unit": "nanoseconds", "stacks": len(read.stacks)} == said
    elif form == "speedscope":
        assert said["sum"] == sum(json.loads(data)["profiles"][0]["weights"]) == 615_600_000_000
    elif form == "perfetto":
        tracks = read_perfetto(data).tracks
        events = sum(len(track.slices) + len(track.values) for track in tracks)
        assert said == {"events": events, "tracks": sum(bool(t.slices or t.values) for t in tracks), "cut": 0}
    else:
        rows = len(ipc.open_file(data).read_all()) if form == "arrow" else data.count(b"\n") - (form == "csv")
        assert said == {"rows": rows} and rows == 20
    alone = export(capture, *options_of(form), "--json")
    assert alone.returncode == 2 and "it needs -o" in json.loads(alone.stdout)["error"]["message"]


@pytest.mark.parametrize("form", FORMATS)
def test_a_terminal_gets_no_binary(capture: Path, form: str) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "leadline", "export", str(capture), *options_of(form)]
    process = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    os.close(theirs)
    seen = b""
    try:
        while part := os.read(ours, 1 << 16):
            seen += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    _, said = process.communicate(timeout=60)
    if form in BINARY:
        assert (process.returncode, seen) == (2, b"")
        assert said.decode() == f"error: {form} is binary, and not for a terminal\n  hint: add -o FILE, or send it into a pipe\n"
    else:
        assert (process.returncode, said) == (0, b"") and seen


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "csv"], "csv needs either a table or a query"),
        (["--to", "csv", "--table", "tick", "--sql", "from tick"], "csv needs either a table or a query"),
        (["--to", "csv", "--table", "sessoin"], "did you mean session"),
        (["--to", "csv", "--table", "thread"], "this capture has no table thread"),
        (["--to", "csv", "--sql", "drop table tick"], "drop is not allowed"),
        (["--to", "csv", "--sql", "from nowhere"], "the query failed"),
        (["--to", "csv", "--sql", "from read_csv('/etc/passwd')"], "the query failed"),
        (["--to", "csv", "--sql", "select 1 as a, 2 as a"], "two columns of the query are called a"),
        (["--to", "jsonl", "--sql", ""], "expected one statement, got 0"),
        (["--to", "csv", "--table", "tick", "--since", "1"], "--since is not for csv"),
        (["--to", "arrow", "--table", "tick", "--off-cpu"], "--off-cpu is not for arrow"),
        (["--to", "pprof", "--table", "tick"], "--table is not for pprof"),
        (["--to", "pprof", "--sql", "from tick"], "--sql is not for pprof"),
        (["--to", "speedscope", "--max-events", "5"], "--max-events is not for speedscope"),
        (["--to", "perfetto", "--by", "user"], "--by is not for perfetto"),
        (["--to", "pprof", "--by", "user", "--off-cpu"], "--by is for database time, not for --off-cpu"),
        (["--to", "pprof", "--by", "user,colour"], "there is no frame 'colour'"),
        (["--to", "pprof", "--by", ""], "there is no frame ''"),
        (["--to", "pprof", "--off-cpu"], "this capture has no stacks"),
        (["--to", "pprof", "--pid", "1"], "no database time in this capture"),
        (["--to", "pprof", "--since", "5", "--until", "5"], "--since and --until leave nothing to export"),
        (["--to", "perfetto", "--max-events", "10"], "more than 10"),
        (["--to", "svg"], "'svg' is not one of"),
        ([], "Missing option '--to'"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_error(capture: Path, tmp_path: Path, words: list[str], said: str) -> None:
    assert said in refused(capture, *words, "-o", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ROWS)
def test_a_query_that_fails_late_leaves_the_old_file(capture: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / "out"
    assert "error: the query failed\n" in refused(capture, "--to", form, "--sql", LATE, "-o", out) and not out.exists()
    out.write_text("before")
    refused(capture, "--to", form, "--sql", LATE, "-o", out, "--force")
    assert out.read_text() == "before" and list(tmp_path.iterdir()) == [out]


def test_an_interrupted_export_leaves_no_file(tmp_path: Path) -> None:
    def parts() -> object:
        yield b"a"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_parts(tmp_path / "out", parts(), "the export", overwrite=False)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    assert write_parts(tmp_path / "out", iter([b"ab", b"", b"c"]), "the export", overwrite=False) == 3
    assert (tmp_path / "out").read_bytes() == b"abc"


def test_frames_and_kinds(capture: Path, tmp_path: Path) -> None:
    by = read_pprof(export(capture, "--to", "pprof", "--by", "user, wait_class").stdout)
    assert {len(path) for path, _ in by.stacks} == {2} and {path[0] for path, _ in by.stacks} == {"postgres"}
    trace = trace_of_semget(tmp_path / "t.leadline")
    for kind, weight in (("on-cpu", 2_000_000_000), ("off-cpu", 1_900_000_000), ("waker", 1_900_000_000), ("failed", 17)):
        read = read_pprof(export(trace, "--to", "pprof", f"--{kind}").stdout)
        assert sum(values[1] for _, values in read.stacks) == weight, kind
    assert "hint: --on-cpu exports the functions of the trace" in refused(trace, "--to", "pprof")


def test_a_query_from_stdin(capture: Path) -> None:
    command = [sys.executable, "-m", "leadline", "export", str(capture), "--to", "csv", "--sql", "-"]
    done = subprocess.run(command, input=b"select count(*) as n from session_sample", capture_output=True, check=True)
    assert done.stdout == b"n\n99300\n"


def wire_only(folder: Path) -> Path:
    words = ["net", "packets", "--pcap", a_login(folder / "login.pcap"), "-o", str(folder / "wire.leadline")]
    subprocess.run([sys.executable, "-m", "leadline", *words], check=True, capture_output=True)
    return folder / "wire.leadline"


def host_only(folder: Path) -> Path:
    cap = HostCapture(folder)
    cap.quiet()
    cap.counter("stat.cpu_user_ns", 0, 10**9)
    return cap.write()


def no_rows(folder: Path) -> Path:
    return SyntheticCapture(folder, seconds=0).write()


STRANGE = {
    "a pair of servers": pair_of_servers,
    "a host": host_only,
    "packets": wire_only,
    "nothing": no_rows,
    "a trace": lambda folder: trace_of_semget(folder / "t.leadline"),
    "an old format": lambda _: ROOT / "testdata/capture/format1",
}


@pytest.mark.parametrize("kind", STRANGE)
def test_every_kind_of_capture(tmp_path: Path, kind: str) -> None:
    """It has what a format shows, or says so in one error."""
    path = STRANGE[kind](tmp_path)
    there = {"perfetto": {"a host", "a trace", "an old format", "a pair of servers"}, "pprof": {"an old format"}}
    there["speedscope"] = there["pprof"]
    for form in FORMATS:
        done = export(path, "--to", form, *(["--sql", "from session_sample"] if form in ROWS else []))
        said = done.stderr.decode()
        if form in ROWS or kind in there[form]:
            assert (done.returncode, said) == (0, ""), (form, said)
        else:
            assert (done.returncode, done.stdout, said.count("error: ")) == (2, b"", 1), (form, said)


def test_options_name_the_formats_that_have_them() -> None:
    [command] = [command for words, command in leaves() if words == ["export"]]
    assert {o for p in command.params if isinstance(p, click.Option) for o in p.opts} >= {"--on-cpu", "--off-cpu", "--waker", "--failed"}
    flame = next(command for words, command in leaves() if words == ["flame"])
    of_flame = {p.opts[0] for p in flame.params if isinstance(p, click.Option) and p.name == "kind"}
    assert {p.opts[0] for p in command.params if p.name == "kind"} == of_flame
