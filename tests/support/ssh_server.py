"""An sshd of its own on 127.0.0.1, run by the user of the test servers, with keys, configuration and temporary directory of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import leadline
from conftest import background, no_oracle, wait_until
from leadline.engines.postgres.server.private import _free_port
from leadline.engines.postgres.server.user import server_user

SSHD = "/usr/sbin/sshd"
NAME = "db2"


@dataclass
class SshServer:
    """`ssh` with `path` in front of PATH knows it as NAME. temporary: the directory for temporary files there. log: what sshd says."""

    folder: Path
    port: int
    pid: int

    @property
    def path(self) -> str:
        return f"{self.folder / 'client'}:{os.environ['PATH']}"

    @property
    def run(self) -> str:
        """The line of a script that becomes leadline."""
        return f'exec {_python()} -m leadline "$@"'

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    def script(self, name: str, *lines: str) -> Path:
        """A program that the user there finds on its PATH."""
        return _script(self.folder / "there" / name, *lines)

    def config(self, *lines: str) -> None:
        """Puts lines before what the client is told of the server."""
        (self.folder / "client" / "config").write_text("\n".join([*lines, *self.told()]) + "\n")

    def told(self) -> list[str]:
        return [
            f"Host {NAME}",
            "HostName 127.0.0.1",
            f"Port {self.port}",
            f"User {server_user().name}",
            f"IdentityFile {self.folder / 'id'}",
            "IdentitiesOnly yes",
            f"UserKnownHostsFile {self.folder / 'known'}",
            "GlobalKnownHostsFile /dev/null",
            "StrictHostKeyChecking yes",
        ]

    def left_behind(self) -> list[Path]:
        return sorted(self.temporary.iterdir())

    def processes(self) -> list[int]:
        """Of leadline there: those whose temporary directory it is."""
        wanted, found = f"TMPDIR={self.temporary}".encode(), []
        for entry in Path("/proc").iterdir():
            try:
                is_of_us = entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0")
                if is_of_us and b"--answer-over-ssh" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found


def _python() -> str:
    """That the user there may run: root's own may lie where nobody else may look."""
    system = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    found = next((path for path in (sys.executable, system) if server_user().can_execute(Path(path))), None)
    return found or no_oracle(f"user {server_user().name} can run neither {sys.executable} nor {system}")


def _script(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(0o755)
    return path


@contextmanager
def ssh_server() -> Iterator[SshServer]:
    if not os.access(SSHD, os.X_OK) or shutil.which("ssh") is None:
        no_oracle("sshd or ssh is not installed: apt-get install openssh-server openssh-client")
    user = server_user()
    with tempfile.TemporaryDirectory(prefix="ssh-") as name:
        made = SshServer(Path(name), _free_port(), 0)
        made.folder.chmod(0o755)
        for part in ("client", "there", "tmp"):
            (made.folder / part).mkdir()
        for key in ("id", "host"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", key, "-f", made.folder / key], check=True)
        shutil.copy(made.folder / "id.pub", made.folder / "authorized")
        (made.folder / "known").write_text(f"[127.0.0.1]:{made.port} {(made.folder / 'host.pub').read_text()}")
        for part in ("host", "tmp"):
            user.own(made.folder / part)
        made.config()
        ssh = shutil.which("ssh")
        _script(made.folder / "client" / "ssh", f'exec {ssh} -F {made.folder / "client" / "config"} "$@"')
        made.script("leadline", made.run)
        code = ":".join([str(Path(leadline.__file__).parents[1]), *(path for path in sys.path if path.endswith("-packages"))])
        (made.folder / "sshd_config").write_text(
            "\n".join(
                [
                    f"Port {made.port}", "ListenAddress 127.0.0.1", f"HostKey {made.folder / 'host'}", "PidFile none", "UsePAM no",
                    f"AuthorizedKeysFile {made.folder / 'authorized'}", "StrictModes no", "PasswordAuthentication no",
                    "KbdInteractiveAuthentication no", "MaxStartups 100",
                    f"SetEnv PATH={made.folder / 'there'}:/usr/bin:/bin PYTHONPATH={code} TMPDIR={made.temporary}",
                ]
            )
            + "\n"
        )  # fmt: skip
        command = [SSHD, "-D", "-e", "-f", made.folder / "sshd_config"]
        said = made.folder / "log"
        with (
            said.open("wb") as log,
            background(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, **user.popen_arguments()) as process,
        ):
            made.pid = process.pid
            wait_until(lambda: _listens(made.port) or process.poll() is not None, what="sshd")
            assert process.poll() is None, said.read_text()
            try:
                yield made
            finally:
                wait_until(lambda: not made.processes(), what="the end of every leadline there")


def _listens(port: int) -> bool:
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0
