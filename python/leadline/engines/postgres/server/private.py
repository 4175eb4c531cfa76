"""One private PostgreSQL server: a fresh data directory, a socket nobody else can reach, and nothing left afterwards.

The server is a direct child of this process. It is stopped when the `with` block ends, however it ends. When this process is
killed without a chance to act, the kernel stops the server (PR_SET_PDEATHSIG) and a small watcher removes its directory.
The thread that enters the `with` block must outlive it: the kernel ties the server's life to that thread.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg

from leadline.engines.postgres.server.user import ServerUser, server_user
from leadline.errors import LeadlineError
from leadline.interrupt import deferred_interrupts

SOCKET_PATH_LIMIT = 107  # bytes in sockaddr_un.sun_path, less its final zero
SOCKET_NAME = ".s.PGSQL.65535"
PR_SET_PDEATHSIG = 1
SUPERUSER = "postgres"
PORT = 5432  # of the socket: only a part of its file name, so it collides with nothing

# Waits for the end of the process that holds the other end of its stdin. A word means all is well; end of file means that the
# process was killed. The kernel has then told the server to stop, which may take a moment: the directory is removed until it is gone.
_WATCHER = """
read -r word && exit 0
n=0
while [ -e "$1" ] && [ $n -lt 200 ]; do rm -rf -- "$1" 2>/dev/null; n=$((n+1)); sleep 0.05; done
"""

_libc = ctypes.CDLL(None, use_errno=True)


def ends_with_us(number: int) -> Callable[[], None]:
    """For preexec_fn: the kernel sends this signal to the child when the thread that starts it has ended. Call it in the parent."""
    parent = os.getpid()

    def after_fork() -> None:  # runs after the change of user, which would clear the signal
        _libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # died in between
            os._exit(1)

    return after_fork


def watcher_of(directory: Path) -> subprocess.Popen[bytes]:
    """Removes the directory when this process is killed; a word ends it before: communicate(b"done\\n")."""
    return subprocess.Popen(
        ["/bin/sh", "-c", _WATCHER, "leadline-watcher", str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )


class PrivateServer:
    """A private server for the time of a `with` block.

    bin_dir: directory with postgres and initdb. data_dir: where the cluster is made, empty or absent; by default in the temporary
    directory. A directory given by the caller is kept. settings: server parameters written to postgresql.conf.
    loopback: also listen on 127.0.0.1, on a free port, open to every user of this host; otherwise only a unix socket in a
    directory of mode 0700. address: with loopback, one more address of this host to listen on, open to nobody until pg_hba.conf
    says so. wal_dir: an empty directory for the WAL, which is kept.

    Raises LeadlineError when it cannot be started, with the last lines of the server's log.

    Attributes while it runs: pid (of the postmaster), dsn, socket_dir, port, data_dir, version_num (e.g. 180004), user, notes.
    """

    def __init__(
        self,
        bin_dir: str | Path,
        data_dir: str | Path | None = None,
        settings: Mapping[str, object] | None = None,
        *,
        loopback: bool = False,
        address: str | None = None,
        wal_dir: str | Path | None = None,
        start_timeout_s: float = 60.0,
    ) -> None:
        self.bin_dir = Path(bin_dir)
        self.settings = dict(settings or {})
        self.loopback, self.address, self.wal_dir = loopback, address, wal_dir
        self.start_timeout_s = start_timeout_s
        self.notes: list[str] = []
        self.port = PORT
        self.version_num = 0
        self._given_data_dir = Path(data_dir).absolute() if data_dir is not None else None
        self._base: Path | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PrivateServer:
        try:
            self._prepare()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Process id of the postmaster."""
        if self._process is None:
            raise LeadlineError("gone", "the private server does not run")
        return self._process.pid

    @property
    def dsn(self) -> str:
        return f"host={self.socket_dir} port={self.port} user={SUPERUSER} dbname=postgres"

    @property
    def loopback_dsn(self) -> str:
        """The same server over TCP; only with loopback=True."""
        return f"host=127.0.0.1 port={self.port} user={SUPERUSER} dbname=postgres"

    @property
    def base_dir(self) -> Path:
        """The directory that holds everything of this server and is removed with it."""
        if self._base is None:
            raise LeadlineError("gone", "the private server was not started")
        return self._base

    @property
    def log(self) -> str:
        """What initdb and the server have printed so far."""
        return (self.base_dir / "server.log").read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Starts the server; for one that was stopped, again with the same data."""
        listen = ",".join(filter(None, ("127.0.0.1", self.address))) if self.loopback else ""
        arguments = [self.bin_dir / "postgres", "-D", self.data_dir, "-k", self.socket_dir, "-p", self.port]
        command = [str(a) for a in arguments] + ["-c", f"listen_addresses={listen}", "-c", "logging_collector=off"]
        self._process = self._spawn(command)
        self._wait_until_ready()

    def stop(self, timeout_s: float = 20.0) -> None:
        """Fast shutdown; after the timeout immediate; then by force. The data stay until close()."""
        if self._process is None:
            return
        with deferred_interrupts():
            for number, patience_s in ((signal.SIGINT, timeout_s), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0)):
                if self._process.poll() is None:
                    self._process.send_signal(number)
                try:
                    self._process.wait(patience_s)
                    break
                except subprocess.TimeoutExpired:
                    continue
            self._process = None

    def close(self) -> None:
        """Stops the server and removes everything of it. May be called twice."""
        with deferred_interrupts():
            self.stop()
            if self._base is not None:
                shutil.rmtree(self._base, ignore_errors=True)
                self._base = None
            if self._watcher is not None and self._watcher.stdin is not None:
                self._watcher.communicate(b"done\n")
                self._watcher = None

    def _prepare(self) -> None:
        """The directory, the binaries where the server's user can run them, and a fresh cluster."""
        self.user = self._server_user()
        self._base = _make_base(self.user)
        self._watcher = watcher_of(self._base)
        (self._base / "server.log").touch(mode=0o600)
        self.socket_dir = self._base / "run"
        self.data_dir = self._given_data_dir or self._base / "data"
        for directory in (self.socket_dir, self.data_dir):
            directory.mkdir(mode=0o700, exist_ok=True)
            self.user.own(directory)
        self._make_binaries_reachable()
        if self.loopback:
            self.port = _free_port()
        self._initdb()
        self._configure()

    def _server_user(self) -> ServerUser:
        return server_user()

    def _make_binaries_reachable(self) -> None:
        postgres = self.bin_dir / "postgres"
        if self.user.can_execute(postgres):
            return
        prefix = self.bin_dir.parent
        if not any((prefix / share / "postgres.bki").is_file() for share in ("share", "share/postgresql")):
            raise LeadlineError(
                "rights",
                f"user {self.user.name} cannot run this postgres",
                detail="the server is never run as root, and the installation is not in one directory that could be copied",
                hint="make its parent directories accessible (chmod o+x), or use other binaries: --pg-bin DIR",
                where=str(postgres),
            )
        self.notes.append(f"user {self.user.name} may not run {postgres}: the binaries were copied into the temporary directory")
        self.bin_dir = _copy_installation(prefix, self.base_dir / "server") / "bin"

    def _initdb(self) -> None:
        """A cluster that trusts the socket, and TCP only when it was asked for."""
        host_auth = "trust" if self.loopback else "reject"
        command = [str(self.bin_dir / "initdb"), "-D", str(self.data_dir), "-U", SUPERUSER, "-E", "UTF8", "--no-locale", "--no-sync"]
        command += ["-X", str(self.wal_dir)] if self.wal_dir is not None else []
        process = self._spawn(command + ["--auth-local=trust", f"--auth-host={host_auth}"])
        try:
            code = process.wait(self.start_timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if code != 0:
            raise self._failed("initdb did not make a cluster" if code is not None else "initdb did not end in time")

    def _configure(self) -> None:
        with open(self.data_dir / "postgresql.conf", "a", encoding="utf-8") as conf:
            for name, value in self.settings.items():
                text = ("on" if value else "off") if isinstance(value, bool) else str(value)
                conf.write(f"{name} = '{text.replace(chr(39), chr(39) * 2)}'\n")

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        """A child as the server's user, in its own session (Ctrl-C must not reach it before us), that dies when we die."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_", "LANG"))}
        environment["LC_ALL"] = "C"
        with open(self.base_dir / "server.log", "ab") as log:
            arguments: dict[str, Any] = self.user.popen_arguments()
            try:
                return subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.data_dir.parent if self._given_data_dir is None else self.data_dir,
                    env=environment,
                    start_new_session=True,
                    preexec_fn=ends_with_us(signal.SIGQUIT),  # subprocess has no option for it; the server is started before threads are
                    umask=0o077,
                    **arguments,
                )
            except OSError as e:
                raise LeadlineError("not_found", f"cannot start {Path(command[0]).name}", detail=str(e), where=command[0]) from e

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + self.start_timeout_s
        while True:
            if self._process is None or self._process.poll() is not None:
                raise self._failed("the private server ended while starting")
            try:
                with psycopg.connect(self.dsn, connect_timeout=5, autocommit=True) as connection:
                    self.version_num = connection.info.server_version
                    return
            except psycopg.OperationalError as e:  # no socket yet, or still starting up
                if time.monotonic() > deadline:
                    raise self._failed(f"the private server was not ready within {self.start_timeout_s:g} s") from e
            time.sleep(0.02)

    def _failed(self, message: str) -> LeadlineError:
        lines = [line for line in self.log.splitlines() if line.strip()]
        return LeadlineError("gone", message, detail=" | ".join(lines[-3:]), where=str(self.bin_dir))


def _make_base(user: ServerUser) -> Path:
    """A temporary directory that the server's user can enter, with a path short enough for a socket."""
    for parent in dict.fromkeys((tempfile.gettempdir(), "/var/tmp", "/tmp")):
        if len(f"{parent}/leadline-pg-12345678/run/{SOCKET_NAME}") > SOCKET_PATH_LIMIT or not user.can_execute(Path(parent)):
            continue
        base = Path(tempfile.mkdtemp(prefix="leadline-pg-", dir=parent))
        user.own(base)
        return base
    raise LeadlineError(
        "storage",
        f"no temporary directory with a short path that user {user.name} may enter",
        detail=f"tried {tempfile.gettempdir()}, /var/tmp and /tmp",
        hint="set TMPDIR to such a directory",
    )


def _copy_installation(prefix: Path, target: Path) -> Path:
    """Copies bin, lib and share, readable for all. The wheel's libraries keep their place: two directories above its prefix."""
    copy = target / prefix.parent.name / prefix.name
    skip = shutil.ignore_patterns("*.a", "pgxs", "include", "doc", "man", "locale")
    for part in ("bin", "lib", "share"):
        shutil.copytree(prefix / part, copy / part, symlinks=True, ignore=skip)
    libraries = prefix.parent.parent / f"{prefix.parent.name}.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    for path in [target, *target.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
    return copy


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
