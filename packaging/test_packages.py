"""The .deb and .rpm of `make packages`, on a Debian that has Python and nothing else: installed without the network, used, and removed.

Run by `make test-dist`, as root. systemd does not run there: nothing is started by it.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import PROJECT, Run

MOST_BYTES = 85_000_000
UNIT = "usr/lib/systemd/system/leadline-record-host.service"
MODULES = "usr/lib/leadline/site-packages"
DATA = "/var/lib/leadline/host"
OWN = ("leadline-record-host.service", "leadline-record-shop.service")
RESTARTED = ["daemon-reload", *(f"try-restart {unit}" for unit in OWN)]


def package(kind: str) -> Path:
    (found,) = (PROJECT / "dist").glob(f"*.{kind}")
    return found


def files_of(root: Path) -> dict[str, str]:
    """What lies below a directory that may be a package's, and what it is: mode, and where a link leads."""
    found = {}
    for path in (root / "usr").rglob("*"):
        about = path.lstat()
        if not stat.S_ISDIR(about.st_mode):
            found[str(path.relative_to(root))] = f"{about.st_mode:o} {path.readlink() if path.is_symlink() else about.st_size}"
    return found


@pytest.fixture(scope="session", params=["deb", "rpm"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def before(empty: Run) -> dict[str, str]:
    """systemd seems to run there: its systemctl writes down what it is told. Two units of recorders are there, one of another leadline."""
    root = empty.root  # type: ignore[attr-defined]
    (root / "run/systemd/system").mkdir(parents=True)
    systemctl = root / "usr/bin/systemctl"
    systemctl.write_text('#!/bin/sh\necho "$*" >> /var/log/systemctl\n')
    systemctl.chmod(0o755)
    units = root / "etc/systemd/system"
    units.mkdir(parents=True, exist_ok=True)
    for name, program in (("shop", "/usr/bin/leadline"), ("other", "/opt/leadline/bin/leadline")):
        (units / f"leadline-record-{name}.service").write_text(f"[Service]\nExecStart={program} record --host --to=/var/lib/{name}\n")
    return files_of(root)


def told(root: Path) -> list[str]:
    """What systemctl was told since the last look."""
    log = root / "var/log/systemctl"
    lines = log.read_text().splitlines()
    log.unlink()
    return lines


@pytest.fixture(scope="session")
def installed(kind: str, empty: Run, before: dict[str, str]) -> Run:
    install(kind, empty)
    return empty


def install(kind: str, empty: Run) -> None:
    """dpkg refuses it if something is missing that it needs. The .rpm asks for packages as they are called elsewhere."""
    root = empty.root  # type: ignore[attr-defined]
    if kind == "deb":
        shutil.copy(package("deb"), root / "x.deb")
        done = empty("dpkg", "-i", "/x.deb")
    else:
        command = ["rpm", f"--root={root}", "--upgrade", "--force", "--nodeps", "--nosignature", str(package("rpm"))]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


def test_it_is_small(kind: str) -> None:
    assert package(kind).stat().st_size <= MOST_BYTES


def test_both_have_the_same_files() -> None:
    unpacked = subprocess.run(["dpkg-deb", "--contents", package("deb")], capture_output=True, text=True, check=True).stdout
    of_deb = {line.split()[5].removeprefix(".") for line in unpacked.splitlines() if not line.startswith("d")}
    of_rpm = set(subprocess.run(["rpm", "-qpl", package("rpm")], capture_output=True, text=True, check=True).stdout.splitlines())
    assert of_deb <= of_rpm
    assert all((PROJECT / "dist/root" / name[1:]).is_dir() for name in of_rpm - of_deb)
    assert len(of_deb) > 1000


def test_what_it_asks_for() -> None:
    asked = subprocess.run(["rpm", "-qp", "--requires", package("rpm")], capture_output=True, text=True, check=True).stdout
    control = subprocess.run(["dpkg-deb", "-f", package("deb"), "Depends"], capture_output=True, text=True, check=True).stdout
    pythons = re.findall(r"python3\.\d+", control)
    assert f"({' or '.join(f'/usr/bin/{python}' for python in pythons)})" in asked.splitlines()
    assert "libc6 (>= 2.28)" in control


def test_nothing_is_started(installed: Run) -> None:
    """try-restart leaves alone what does not run."""
    root = installed.root  # type: ignore[attr-defined]
    assert told(root) == RESTARTED
    assert not (root / DATA[1:]).exists()


def test_it_says_its_version_and_what_this_host_allows(installed: Run) -> None:
    version = subprocess.run([sys.executable, "-m", "leadline", "--version"], check=True, capture_output=True, text=True).stdout
    assert installed("leadline", "--version").stdout == version
    checks = json.loads(installed("leadline", "doctor", "--json").stdout)["checks"]
    assert {check["area"] for check in checks} >= {"host", "servers"}


def test_its_modules_are_compiled(installed: Run) -> None:
    root = installed.root  # type: ignore[attr-defined]
    assert list((root / MODULES / "leadline/cli/__pycache__").glob("record.cpython-*.pyc"))


def test_processes_that_it_starts_find_it_too(installed: Run) -> None:
    """The recorder starts others of itself, by the name of its Python."""
    code = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-m', 'leadline', '--version'], cwd='/tmp').returncode)"
    assert installed("/usr/lib/leadline/bin/python", "-c", code).returncode == 0


def test_its_unit_is_that_of_the_recorder(installed: Run) -> None:
    root = installed.root  # type: ignore[attr-defined]
    printed = installed("leadline", "record", "--host", "--to", DATA, "--as", "leadline", "--unit").stdout
    assert (root / UNIT).read_text().splitlines()[1:] == printed.splitlines()[1:]


def test_the_command_of_its_unit_records_as_the_user_of_the_package(installed: Run) -> None:
    """With no capability. systemd, which would make the directory, does not run here."""
    root = installed.root  # type: ignore[attr-defined]
    (command,) = re.findall("^ExecStart=(.*)$", (root / UNIT).read_text(), re.MULTILINE)
    assert installed("install", "-d", "-o", "leadline", "-g", "leadline", DATA).returncode == 0
    become = ["setpriv", "--reuid=leadline", "--regid=leadline", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]
    with subprocess.Popen(
        ["/usr/sbin/chroot", root, *become, *shlex.split(command)], cwd="/", stderr=subprocess.PIPE, text=True
    ) as process:
        until = time.monotonic() + 60
        while not (found := list((root / DATA[1:]).glob("*.leadline/clock/*.parquet"))) and process.poll() is None:
            assert time.monotonic() < until, "nothing recorded within a minute"
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert installed("leadline", "record", "--status", DATA).returncode == 0
    assert installed("stat", "-c", "%U", f"{DATA}/{found[0].parents[1].name}").stdout == "leadline\n"


def test_an_upgrade_stops_nothing_and_restarts_what_runs(installed: Run, kind: str) -> None:
    root = installed.root  # type: ignore[attr-defined]
    install(kind, installed)
    assert told(root) == RESTARTED
    assert list((root / MODULES / "leadline/cli/__pycache__").glob("record.cpython-*.pyc"))


def test_it_is_removed_and_leaves_the_captures_and_the_user(installed: Run, kind: str, before: dict[str, str]) -> None:
    root = installed.root  # type: ignore[attr-defined]
    command = (
        ["/usr/sbin/chroot", root, "dpkg", "--remove", "leadline"] if kind == "deb" else ["rpm", f"--root={root}", "--erase", "leadline"]
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert told(root) == [f"disable --now {unit}" for unit in OWN]
    assert files_of(root) == before
    assert not (root / "usr/lib/leadline").exists()
    assert list((root / DATA[1:]).glob("*.leadline/manifest.json"))
    assert installed("getent", "passwd", "leadline").returncode == 0
    assert installed("sh", "-c", f"rm -r {DATA} && userdel leadline").returncode == 0  # for the next package
