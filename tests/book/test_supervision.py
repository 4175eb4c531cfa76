"""Runs are supervised by a process of their own: it outlives terminal and caller, ends whole trees, and may itself be killed."""

from __future__ import annotations

import functools
import os
import pty
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from books import Open, Run
from conftest import is_running, wait_until
from leadline.book.command import cancel, start
from leadline.book.place import Place
from leadline.book.query import Book
from leadline.book.supervisor import Masked, Request
from leadline.host import proc

MOMENTS = int(os.environ.get("LEADLINE_KILLS", "25"))
pytestmark = pytest.mark.timeout(300 + 10 * MOMENTS)
LINES = "".join(f"line {number} of what is printed\n" for number in range(400))
# A line is one write: print() makes two where PYTHONUNBUFFERED is set, and who is killed between them takes half a line along.
PRINTING = """
import os, time
for number in range(400):
    os.write(1, f"line {number} of what is printed\\n".encode())
    time.sleep(0.0005)
"""


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "leadline", "run", "--", *words]


def only(book: Book) -> dict[str, object]:
    book.refresh()
    [run] = book.runs()
    return run


def ended(place: Place) -> dict[str, object]:
    """The only run, when it is over."""
    book = Book(place)
    try:
        wait_until(lambda: only(book)["status"] != "running", what="the end of the run")
        return only(book)
    finally:
        book.close()


def script(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """What is tested here knows nothing of the store."""
    monkeypatch.setenv("LEADLINE_BOOK", str(tmp_path / "book"))
    return Place(tmp_path / "book")


def test_a_signal_is_passed_on_once(place: Place, tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT):
        counting = f"trap 'echo got; exit 9' {number.value}; echo ready; while :; do sleep 0.01; done"
        heard = functools.partial(signal.signal, number, signal.SIG_DFL)  # who runs the tests may ignore it
        with subprocess.Popen(command("sh", "-c", counting), stdout=subprocess.PIPE, text=True, preexec_fn=heard) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(number)
            assert (process.stdout.read(), process.wait(20)) == ("got\n", 9)


def in_terminal(words: list[str]) -> tuple[int, int]:
    """The command in a terminal of its own: its pid, and the terminal's other side."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(words[0], words)
    return pid, terminal


def read_until(terminal: int, text: bytes) -> bytes:
    got = b""
    while text not in got:
        got += os.read(terminal, 1000)
    return got


def test_ctrl_c_reaches_the_command_once(place: Place) -> None:
    counting = "import os, signal, time; n = 0\ndef got(*_):\n global n; n += 1; os.write(1, b'got\\n')\n"
    counting += "signal.signal(2, got); print('ready', flush=True)\nend = time.monotonic() + 1\n"
    counting += "while time.monotonic() < end: time.sleep(0.05)\n"
    pid, terminal = in_terminal(command(sys.executable, "-c", counting + "print('over', n, 'times', flush=True)"))
    read_until(terminal, b"ready")
    os.write(terminal, b"\x03")
    assert b"over 1 times" in read_until(terminal, b"times")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)


def is_mix_of(log: bytes, a: bytes, b: bytes) -> bool:
    """Whether `log` has each byte of `a` and of `b`, those of each in their order, and no other."""
    if not log or not a or not b:
        return log == a + b
    return (log[0] == a[0] and is_mix_of(log[1:], a[1:], b)) or (log[0] == b[0] and is_mix_of(log[1:], a, b[1:]))


COLOURS = "import os, sys; print(*(f.isatty() for f in (sys.stdout, sys.stderr)))\nprint('bad', file=sys.stderr)\nsys.exit(3)"


@pytest.mark.parametrize("options", [(), ("--pty",), ("--pty", "--detach")], ids=" ".join)
def test_outputs_are_terminals_where_asked_for(place: Place, options: tuple[str, ...]) -> None:
    """Each goes where it would go, and no byte of it is changed. What comes by two ways at once may be mixed in the log."""
    line = [*command()[:-1], *options, "--", sys.executable, "-c", COLOURS]
    done = subprocess.run(line, capture_output=True, timeout=60)
    said = b"True True\n" if options else b"False False\n"
    if "--detach" not in options:
        assert (done.returncode, done.stdout, done.stderr) == (3, said, b"bad\n")
    run = ended(place)
    assert (run["status"], run["rc"]) == ("failed", 3)
    assert is_mix_of(place.log_of(str(run["uid"])).read_bytes(), said, b"bad\n")


def test_a_terminal_is_as_wide_as_that_of_who_asked(place: Place) -> None:
    import fcntl
    import struct
    import termios

    asking = "import os; input(); print('width', os.get_terminal_size(1).columns, 'columns')"
    words = [*command()[:-1], "--pty", "--", sys.executable, "-c", asking]
    script = f"import os; os.read(0, 1); os.execv({words[0]!r}, {words!r})"
    pid, terminal = in_terminal([sys.executable, "-c", script])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 123, 0, 0))
    os.write(terminal, b"x\n\n")
    assert b"width 123 columns" in read_until(terminal, b"columns")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)


def test_a_closed_terminal_is_recorded_as_the_end_it_is(place: Place) -> None:
    pid, terminal = in_terminal(command("sh", "-c", "echo ready; exec sleep 600"))
    read_until(terminal, b"ready")
    os.close(terminal)
    os.waitpid(pid, 0)
    run = ended(place)
    assert (run["status"], run["signal"]) == ("failed", signal.SIGHUP)


def test_who_asked_may_be_killed(place: Place, tmp_path: Path) -> None:
    go = tmp_path / "go"
    waiting = f"echo ready; while [ ! -e {go} ]; do sleep 0.01; done; echo over; exit 4"
    with subprocess.Popen(command("sh", "-c", waiting), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.kill()
        process.wait()
        go.touch()
        assert process.stdout.read() == "over\n"
    run = ended(place)
    assert (run["status"], run["rc"]) == ("failed", 4)
    assert place.log_of(str(run["uid"])).read_text() == "ready\nover\n"


def test_what_a_command_leaves_behind_holds_nobody_up(place: Place) -> None:
    began = time.monotonic()
    leaving = command("sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!")
    done = subprocess.run(leaving, capture_output=True, text=True, timeout=60, check=True)
    assert time.monotonic() - began < 60
    assert is_running(int(done.stdout))
    os.kill(int(done.stdout), signal.SIGKILL)
    assert ended(place)["status"] == "ok"


def test_what_is_left_behind_goes_on_into_the_log(place: Place, tmp_path: Path) -> None:
    go = tmp_path / "go"
    later = f"(while [ ! -e {go} ]; do sleep 0.01; done; echo later) & echo now"
    with subprocess.Popen(command("sh", "-c", later), stdout=subprocess.PIPE, text=True) as process:
        assert process.wait(30) == 0
        run = ended(place)
        go.touch()
        wait_until(lambda: place.log_of(str(run["uid"])).read_text() == "now\nlater\n", what="the log")


TREE = """
trap '' TERM
setsid sh -c 'trap "" TERM; echo $$; exec sleep 600' &
(setsid sh -c 'echo $$; sleep 600; sleep 601' &)
sh -c 'cd /; exec env -i setsid sleep 602' & echo $!
wait; wait; wait
"""


def test_cancel_ends_the_whole_tree(place: Place, tmp_path: Path) -> None:
    uid = start(Request(["sh", script(tmp_path / "tree.sh", TREE)], name="tree"), place)
    log = place.log_of(uid)
    pids = [int(line) for line in wait_until(lambda: len(log.read_text().splitlines()) == 3 and log.read_text(), what="three").split()]
    book = Book(place)
    run = book.find(uid)
    everything = proc.descendants([int(run["pid"])])
    assert set(pids) < everything
    assert cancel(run) is True
    wait_until(lambda: only(book)["status"] == "cancelled", what="the end of the run")
    assert [pid for pid in everything if is_running(pid) and pid != run["pid"]] == []
    assert cancel(only(book)) is False
    book.close()


def test_cancel_lets_a_command_end_by_itself(place: Place, leadline: Run) -> None:
    tidy = "trap 'echo tidy; exit 3' TERM; echo ready; while :; do sleep 0.01; done"
    uid = leadline("run", "--detach", "--", "sh", "-c", tidy).stdout.strip()
    wait_until(lambda: place.log_of(uid).exists() and "ready" in place.log_of(uid).read_text(), what="the command")
    assert leadline("book", "cancel", uid[:6], "--wait").stdout == f"{uid[:5]} is cancelled\n"
    run = ended(place)
    assert (run["rc"], place.log_of(uid).read_text()) == (3, "ready\ntidy\n")
    assert "is not running on this host" in leadline("book", "cancel", uid).stderr


def test_cancel_ends_a_run_in_a_run(place: Place) -> None:
    uid = start(Request(command("sh", "-c", "echo $$; sleep 600"), name="outer"), place)
    wait_until(lambda: place.log_of(uid).read_text(), what="the command")
    inner = int(place.log_of(uid).read_text())
    book = Book(place)
    assert cancel(book.find(uid)) is True
    wait_until(lambda: book.refresh() + 1 and book.find(uid)["status"] == "cancelled", what="the end of the run")
    wait_until(lambda: not is_running(inner), what="the end of the inner command")
    wait_until(lambda: book.refresh() + 1 and all(run["status"] != "running" for run in book.runs()), what="the end of the inner run")
    book.close()


def test_a_detached_run_has_what_was_asked_for(place: Place, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k")
    asked = Request(
        ["sh", "-c", "echo $SECRET; printf '%s\\n' \"$SECRET\" >&2; echo $PLAIN; pwd; ps -o args= -p $PPID; cat; echo end"], name="asked",
        kind="template", labels={"a": "b"}, inputs={"n": 3, "pw": "hunter2"}, env={"SECRET": "hunter2", "PLAIN": "yes"}, cwd=str(tmp_path),
        parent="0" * 12, secrets=["hunter2"], remove=[str(tmp_path / "key")],
    )  # fmt: skip
    uid = start(asked, place)
    run = ended(place)
    log = place.log_of(uid).read_text()
    assert sorted(log.splitlines()) == sorted(["***", "***", "yes", str(tmp_path), f"{sys.executable} -m leadline.book.supervisor", "end"])
    assert (run["kind"], run["name"], run["status"], run["inputs"], run["parent"]) == (
        "template", "asked", "ok", {"n": 3, "pw": "***"}, "0" * 12
    )  # fmt: skip
    assert not (tmp_path / "key").exists()
    assert all(b"hunter2" not in path.read_bytes() for path in place.root.rglob("*") if path.is_file())


def test_secrets_are_hidden_wherever_a_stream_is_cut() -> None:
    text, secrets = b"a secret, a secretary, se", ["secret", "secretary"]
    for cut in range(len(text)):
        for other in range(cut, len(text)):
            mask = Masked(secrets)
            shown = mask(text[:cut]) + mask(text[cut:other]) + mask(text[other:]) + mask(b"", last=True)
            assert b"secret" not in shown
            assert shown.startswith(b"a ***, a ***")
            assert shown.endswith(b", se")


def test_a_detached_run_outlives_who_asked(place: Place, tmp_path: Path) -> None:
    go = tmp_path / "go"
    waiting = f"while [ ! -e {go} ]; do sleep 0.01; done; echo over"
    pid, terminal = in_terminal([sys.executable, "-m", "leadline", "run", "--detach", "--", "sh", "-c", waiting])
    uid = read_until(terminal, b"follow").decode().split()[0]
    os.close(terminal)
    os.waitpid(pid, 0)
    go.touch()
    run = ended(place)
    assert (run["status"], run["uid"], place.log_of(uid).read_text()) == ("ok", uid, "over\n")


def test_a_command_that_cannot_be_started_detached_is_an_error(place: Place, leadline: Run) -> None:
    done = leadline("run", "--detach", "--", "/no/such")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: the command cannot be started: No such file or directory\n")
    assert ended(place)["rc"] == 127


# -- killed ------------------------------------------------------------------------------------------------------------


def run_and_kill(printing: str, after_s: float) -> tuple[int, str]:
    """Exit code and output of a command whose supervisor is killed after this time, if it is there by then."""
    with subprocess.Popen(command(sys.executable, printing), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        supervisors: list[int] = []
        began = time.monotonic()
        while process.poll() is None and not supervisors:
            supervisors = [pid for pid in proc.descendants([process.pid]) if proc.parent_of(pid) == process.pid]
        while process.poll() is None and time.monotonic() < began + after_s:
            time.sleep(0.002)
        for pid in supervisors:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, signal.SIGKILL)
        assert process.stdout is not None
        return process.wait(60), process.stdout.read()


def test_a_supervisor_killed_at_any_moment(place: Place, tmp_path: Path) -> None:
    """The command does not notice: it ends as it would, and its output is whole but for what was in the supervisor's hands."""
    printing = script(tmp_path / "print.py", PRINTING)
    moment = random.Random(7)
    with ThreadPoolExecutor(8) as threads:
        done = list(threads.map(lambda after: run_and_kill(printing, after), [moment.uniform(0.0, 3.0) for _ in range(MOMENTS)]))
    all_lines = LINES.splitlines(keepends=True)
    for code, printed in done:
        lines = printed.splitlines(keepends=True)
        assert code in (0, 2)  # 2: killed before the command began
        assert set(lines) <= set(all_lines)
        assert len(lines) >= (len(all_lines) - 5 if code == 0 else 0)
    book = Book(place)
    runs = book.runs(limit=1000)
    statuses = Counter(str(run["status"]) for run in runs)
    assert statuses.keys() <= {"ok", "lost"}
    assert statuses["lost"] > MOMENTS / 10
    assert len(runs) >= sum(code == 0 for code, _ in done)
    printed_by_all = Counter(printed for code, printed in done if code == 0)
    logs = Counter(place.log_of(str(run["uid"])).read_text() for run in runs if run["status"] == "ok")
    assert logs.keys() <= {LINES}
    assert printed_by_all[LINES] >= logs[LINES]
    for run in runs:
        assert book.details(run)["argv"][1] == printing
    book.close()


def test_who_follows_a_log_gets_all_of_it_whenever_its_writer_is_killed(place: Place, leadline: Run, tmp_path: Path) -> None:
    printing = script(tmp_path / "print.py", PRINTING)
    moment = random.Random(8)
    for _ in range(max(10, MOMENTS // 5)):
        uid = start(Request([sys.executable, printing]), place)
        book = Book(place)
        run = book.find(uid)
        with subprocess.Popen([sys.executable, "-m", "leadline", "book", "log", uid, "--follow"], stdout=subprocess.PIPE) as process:
            time.sleep(moment.uniform(0.0, 0.5))
            try:
                os.kill(int(run["pid"]), signal.SIGKILL)
            except ProcessLookupError:
                assert proc.start_ticks(int(run["pid"])) is None
            received = process.communicate(timeout=30)[0]
        assert received == place.log_of(uid).read_bytes()
        book.refresh()
        assert str(book.find(uid)["status"]) in ("ok", "lost")
        book.close()


def test_a_recorder_killed_at_any_moment(place: Place) -> None:
    """A command of leadline itself that records: its run is whole, or lost, or did not begin."""
    moment, words = random.Random(9), [sys.executable, "-m", "leadline", "tables", "session"]
    began = time.monotonic()
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
    whole_s = time.monotonic() - began
    for _ in range(MOMENTS):
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
            time.sleep(moment.uniform(0.0, 2.0) * whole_s)
            process.kill()
    book = Book(place)
    runs = book.runs(limit=1000)
    assert {str(run["status"]) for run in runs} <= {"ok", "lost"}
    assert len(runs) > MOMENTS / 25  # how many had begun, a busy host decides
    assert all(book.details(run)["argv"] == ["leadline", "tables", "session"] for run in runs)
    assert [path for path in place.spool.iterdir() if path.stat().st_size] == []
    book.close()


def test_a_lost_run_is_seen_by_the_next_who_looks(place: Place, open_book: Open) -> None:
    uid = start(Request(["sleep", "600"]), place)
    book = Book(place)
    pid = int(book.find(uid)["pid"])
    everything = proc.descendants([pid])
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_running(pid), what="the end of the supervisor")
    book.refresh()
    assert book.find(uid)["status"] == "lost"
    book.close()
    for left in everything - {pid}:
        os.kill(left, signal.SIGKILL)
