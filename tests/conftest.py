"""Fixtures for tests against real servers: lazily started, one per major for the whole session, stopped and removed at its end.

    def test_x(pg): ...                    once per major 13-18: all of them, or some (support/majors.py)
    def test_x(servers): servers(18)       a shared server of one major
    def test_x(fresh_server): fresh_server(16, max_connections=20)    a server of its own, stopped after the test

What tests compare with (a server of each major, pg_waldump, Chromium, ...) and cannot be had here is a skip with its reason
(`no_oracle`). With CI=true, which continuous integration sets, it is a failure: there, nothing may go untested unseen. With
LEADLINE_FORBID_SKIPS=1 every skip of the run is a failure, also one for lack of a right or of a feature of the kernel.
Which exact builds were used: the last lines of the run, and .pytest_cache/v/leadline/servers (JSON).

With pytest -n 3, as `make test` has it, the files are shared out between processes, and each has servers of its own. One process runs
all files of tests/live, one after another. First are those of tests/live/host, which measure a host: meanwhile only one other process
has work.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import majors
import psycopg
import pytest
from leadline.engines.postgres.server.binaries import host_dirs, wheel_dirs
from leadline.engines.postgres.server.private import PrivateServer
from locked import locked
from servers import MAJORS, Fetched, Unavailable, server

SETTINGS = {
    "shared_buffers": "32MB",
    "fsync": False,
    "autovacuum": True,
    "max_connections": 60,
    "max_prepared_transactions": 5,
    "max_wal_size": "256MB",
}
FORBID_SKIPS = os.environ.get("LEADLINE_FORBID_SKIPS") == "1"
IN_CI = os.environ.get("CI", "").lower() in ("true", "1")
LIVE, HOST = "tests/live/", "tests/live/host/"
"""What one process runs, one after another, and what of that measures a host."""
LONGEST = (
    "tests/study/test_study_run.py",
    "tests/unit/test_invariants.py",
    "tests/differential/test_recover.py",
    "tests/ansible/test_live_runs.py",
)
"""What takes minutes in one file is begun first: begun last, it would run alone."""
LONG = os.environ.get("LEADLINE_LONG_TESTS") == "1"
"""Whether to try all that takes minutes: see CONTRIBUTING.md."""
used: dict[int, Fetched] = {}
pytest_plugins = ["books"]


@pytest.fixture(autouse=True)
def passed_over_rules_run_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that its header calls silent is run in tests all the same, and must find nothing."""
    from leadline import findings

    answer = findings._answer

    def checked(capture: Any, db: Any, definition: Any, values: Any, told: Any) -> Any:
        given = answer(capture, db, definition, values, told)
        if not given.rows and not given.reason and not told.get(definition.silent(values), True):
            found, _ = findings._run(capture, db, definition, values)
            assert found == [], f"{definition.file} is not silent unless {definition.silent_unless}"
        return given

    monkeypatch.setattr(findings, "_answer", checked)


@pytest.fixture(scope="module", autouse=True)
def limits_of_databases_end_with_their_file() -> Iterator[None]:
    """What a process of the recorder or a server sets for itself alone, a test of it sets for all that follow."""
    from leadline.capture import reader

    before = [*reader._settings]
    yield
    reader._settings[:] = before


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """stdout counts as a terminal of 80 columns, also where pytest keeps what is printed."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("leadline.output._columns", lambda: 80)


def wait_until(condition: Callable[[], Any], timeout_s: float = 30.0, what: str = "the condition") -> Any:
    """The first true value of `condition`; fails when there is none by the deadline."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not come true within {timeout_s:g} s")
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def background(command: list[Any], **arguments: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A child process for the time of a block: killed and waited for at its end, whatever happens."""
    process = subprocess.Popen([str(part) for part in command], start_new_session=True, **arguments)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(3)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()


def no_oracle(what: str) -> NoReturn:
    """Ends a test for want of what it compares with: a skip, and in CI a failure."""
    if IN_CI:
        pytest.fail(f"an oracle is missing, and CI must have it (CI=true): {what}", pytrace=False)
    pytest.skip(what)


@dataclass
class Server:
    """A running test server with the ways tests talk to it."""

    private: PrivateServer
    fetched: Fetched

    @property
    def major(self) -> int:
        return self.fetched.major

    @property
    def pid(self) -> int:
        return self.private.pid

    @property
    def dsn(self) -> str:
        return self.private.dsn

    def connect(self, **arguments: Any) -> psycopg.Connection[Any]:
        """A connection in autocommit mode unless told otherwise; closed by its `with` block."""
        return psycopg.connect(self.dsn, **{"autocommit": True, "connect_timeout": 10, **arguments})

    def sql(self, query: str, parameters: Any = None) -> list[Any]:
        """The rows of one statement, on a connection of its own; an empty list when it returns none."""
        with self.connect(application_name="test") as connection:
            cursor = connection.execute(query, parameters)
            return cursor.fetchall() if cursor.description else []

    def pgbench(self, *options: Any) -> Any:
        """pgbench in the background, e.g. pgbench("-c", 4, "-T", 30, "-S"): for a `with` block, ended with it."""
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return background([find_pgbench(), *options, "-n", self.dsn], **quiet)

    def pgbench_init(self, scale: int = 1) -> None:
        subprocess.run([find_pgbench(), "-i", "-q", "-s", str(scale), self.dsn], check=True, capture_output=True, timeout=120)


def find_client(program: str) -> str:
    """pgbench or psql: the host's, else the wheel's. Either drives all majors."""
    for found in [*reversed(host_dirs()), *wheel_dirs()]:
        if (found.bin_dir / program).is_file():
            return str(found.bin_dir / program)
    on_path = shutil.which(program)
    if on_path is None:
        no_oracle(f"{program} is not installed")
    return on_path


def find_pgbench() -> str:
    return find_client("pgbench")


def fetched_or_skip(major: int) -> Fetched:
    try:
        return server(major)
    except Unavailable as e:
        no_oracle(str(e))


MEMORY = "/dev/shm"


def has_room() -> bool:
    """Whether clusters may lie in memory."""
    try:
        about = os.statvfs(MEMORY)
    except OSError:
        return False
    return about.f_bavail * about.f_frsize > 6 << 30 and not about.f_flag & os.ST_NOEXEC and not LONG


@contextmanager
def in_memory() -> Iterator[None]:
    """Servers that are made meanwhile have their folders in memory where it has room: tests copy clusters thousands of times, which
    takes four times as long on a disk.
    """
    usual = tempfile.tempdir
    if has_room():
        tempfile.tempdir = MEMORY
    try:
        yield
    finally:
        tempfile.tempdir = usual


class CopiedServer(PrivateServer):
    """A private server whose cluster is a copy of the first one that initdb made with the same binaries: that takes half as long or less.

    Clusters of one session so have the same system identifier.
    """

    def _initdb(self) -> None:
        if self.loopback or self._given_data_dir is not None:
            super()._initdb()
            return
        made = CLUSTERS / f"{type(self).__name__}{str(self.bin_dir).replace('/', '-')}"
        with locked(CLUSTERS, made.name):
            if not made.exists():
                super()._initdb()
                part = Path(f"{made}.part")
                part.mkdir(exist_ok=True)
                copy_folder(self.data_dir, part)
                part.rename(made)
                return
        copy_folder(made, self.data_dir)

    def close(self) -> None:
        """What is removed at once need not be written before."""
        if self._process is not None and self._process.poll() is None and self._given_data_dir is None:
            self._process.send_signal(signal.SIGQUIT)
        super().close()


def copy_folder(source: Path, target: Path) -> None:
    """What is in a folder, with its owners and modes."""
    subprocess.run(["cp", "-a", f"{source}/.", str(target)], check=True, timeout=60)


@contextmanager
def running(major: int, **settings: Any) -> Iterator[Server]:
    fetched = fetched_or_skip(major)
    used[major] = fetched
    settings = {**SETTINGS, **settings}
    with ExitStack() as stack:
        # What is never synced needs no disk.
        with nullcontext() if settings["fsync"] else in_memory():
            private = stack.enter_context(CopiedServer(fetched.bin_dir, settings=settings))
        yield Server(private, fetched)


@pytest.fixture(scope="session")
def servers() -> Iterator[Callable[[int], Server]]:
    """servers(major): the shared server of a major, started at its first use."""
    started: dict[int, Server] = {}
    with ExitStack() as stack:

        def get(major: int) -> Server:
            if major not in started:
                started[major] = stack.enter_context(running(major))
            return started[major]

        yield get


@pytest.fixture(params=MAJORS, ids=[f"pg{major}" for major in MAJORS])
def pg(request: pytest.FixtureRequest, servers: Callable[[int], Server]) -> Server:
    """The shared server of each major in turn."""
    return servers(request.param)


@pytest.fixture
def fresh_server() -> Iterator[Callable[..., Server]]:
    """fresh_server(major, **settings): a server for this test alone."""
    with ExitStack() as stack:
        yield lambda major, **settings: stack.enter_context(running(major, **settings))


_book = tempfile.TemporaryDirectory(prefix="leadline-book-", ignore_cleanup_errors=True)
os.environ["XDG_DATA_HOME"] = f"{_book.name}/data"  # where `leadline ansible env` puts its plugin
os.environ["LEADLINE_BOOK"] = _book.name  # what tests run is recorded there, and not in the book of who tests


if "LEADLINE_TEST_CLUSTERS" not in os.environ:  # the processes that share the tests out are children of the first, and have it from there
    _clusters = tempfile.TemporaryDirectory(prefix="leadline-clusters-")
    os.environ["LEADLINE_TEST_CLUSTERS"] = _clusters.name
CLUSTERS = Path(os.environ["LEADLINE_TEST_CLUSTERS"])
"""What initdb made, by class of the server and binaries."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not majors.ALL and not any("[" in arg for arg in config.args):
        items[:], left_out = majors.split(items)
        config.hook.pytest_deselected(items=left_out)
    if hasattr(config.option, "loadscopereorder"):  # of xdist, by the number of tests of a file alone
        config.option.loadscopereorder = False
        sizes = Counter(_file(item) for item in items)

        def place(item: pytest.Item) -> tuple[Any, ...]:
            file = _file(item)
            return not file.startswith(HOST), not file.startswith(LIVE), file not in LONGEST, -sizes[file], file

        items.sort(key=place)


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def pytest_collection_finish() -> None:
    """What was collected lives to the end: nothing of it is garbage, and to look through it again and again takes time."""
    gc.collect()
    gc.freeze()


def pytest_configure() -> None:
    """A shell starts what runs in its background with SIGINT ignored, nohup with SIGHUP, and so would be all that a test ends by them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    if FORBID_SKIPS and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"skips are forbidden (LEADLINE_FORBID_SKIPS=1): {reason}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """What runs in one process with others, and how many run at once: see above."""
    from xdist.scheduler import LoadFileScheduling

    class LiveTogether(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return LIVE if nodeid.startswith(LIVE) else super()._split_scope(nodeid)

        def _is_measured(self) -> bool:
            live = (work.get(LIVE, {}) for work in (self.workqueue, *self.assigned_work.values()))
            return any(nodeid.startswith(HOST) and not is_done for tests in live for nodeid, is_done in tests.items())

        def _assign_work_unit(self, node: Any) -> None:
            others = (work for other, work in self.assigned_work.items() if other is not node)
            if not self._is_measured() or sum(self._pending_of(work) > 0 for work in others) < 2:
                super()._assign_work_unit(node)

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            was_measured = self._is_measured()
            super().mark_test_complete(node, item_index, duration)
            if was_measured and not self._is_measured():
                self.schedule()

    return LiveTogether(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """The servers that another process has used."""
    used.update({given["major"]: Fetched(**given) for given in getattr(node, "workeroutput", {}).get("servers", ())})


def pytest_sessionfinish(session: pytest.Session) -> None:
    servers = [asdict(used[major]) for major in sorted(used)]
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["servers"] = servers
        return
    cache = getattr(session.config, "cache", None)  # absent with -p no:cacheprovider
    if servers and cache is not None:
        cache.set("leadline/servers", servers)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for major in sorted(used):
        terminalreporter.write_line(f"PostgreSQL {used[major].version}: {used[major].package}")
    if not majors.ALL:
        said = f"majors between the oldest and the newest: for one test in {majors.ONE_IN}"
        terminalreporter.write_line(f"{said}, by LEADLINE_TEST_SEED={majors.SEED}")
