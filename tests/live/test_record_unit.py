"""The systemd unit that `record --unit` prints: what it says, and that a recorder with just its rights sees the server."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import Server, background, no_oracle, wait_until
from leadline.capture.manifest import read_manifest
from setpriv import needs_root, setpriv

LOCAL = ["AF_UNIX", "AF_NETLINK"]
NETWORK = [*LOCAL, "AF_INET", "AF_INET6"]
AWKWARD = "/srv/50% of $HOME and 'more'"


def printed(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "leadline", "record", *map(str, words), "--unit"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def unit(*words: object) -> dict[str, str]:
    """Its settings by name."""
    done = printed(*words)
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line and not line.startswith("#"))


def words_of(command: str) -> list[str]:
    """ExecStart as systemd reads it."""
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(command)]


def test_the_unit_runs_the_recorder_that_was_asked_for() -> None:
    said = unit("host=/run/postgresql dbname=shop", "--to", "/var/lib/leadline/shop", "--keep", "3d", "--piece", "10m")
    words = words_of(said["ExecStart"])
    assert words[words.index("record") :] == ["record", "host=/run/postgresql dbname=shop", "--to=/var/lib/leadline/shop", "--keep=3d"]
    assert (said["User"], said["StateDirectory"], said["StateDirectoryMode"]) == ("postgres", '"leadline/shop"', "0700")


@pytest.mark.parametrize(
    ("dsn", "families", "denied"),
    [
        ("postgres:///shop", LOCAL, "any"),
        ("host=/run/postgresql", LOCAL, "any"),
        ("postgresql://%2Frun%2Fpostgresql/shop", LOCAL, "any"),
        ("postgres://db1/shop", NETWORK, None),
        ("host=/run/postgresql,db2", NETWORK, None),
        ("hostaddr=10.0.0.7", NETWORK, None),
        ("service=shop", NETWORK, None),
    ],
)
def test_the_network_is_there_only_for_a_server_that_is_asked_over_it(dsn: str, families: list[str], denied: str | None) -> None:
    said = unit(dsn, "--to", "/var/lib/x")
    assert said["RestrictAddressFamilies"].split() == families
    assert said.get("IPAddressDeny") == denied
    assert dsn in words_of(said["ExecStart"])


def test_a_percent_sign_in_what_it_is_called_is_no_specifier() -> None:
    said = unit("postgresql://%2Frun%2Fpostgresql/shop", "--to", "/var/lib/x")
    assert said["Description"] == "leadline recorder of postgresql://%%2Frun%%2Fpostgresql/shop"


def test_the_host_needs_no_capability_and_has_a_user_of_its_own() -> None:
    said = unit("--host", "--to", "/var/lib/host")
    assert (said["DynamicUser"], said["AmbientCapabilities"], said["CapabilityBoundingSet"]) == ("yes", "", "")
    assert unit("--host", "--to", "/srv/host", "--as", "watcher")["User"] == "watcher"


def test_awkward_words_arrive_as_they_are(tmp_path: Path) -> None:
    said = unit("--data-dir", tmp_path, "--to", AWKWARD)
    assert f"--to={AWKWARD}" in words_of(said["ExecStart"])
    assert said["User"] == tmp_path.owner()
    assert said["ReadWritePaths"] == '"/srv/50%% of $HOME and \'more\'"'


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["postgres://a:secret@db/x", "--to", "/var/lib/x"], "no place for a password"),
        (["--pid", "1", "--to", "/var/lib/x"], "must name its server"),
        (["--to", "/var/lib/x"], "must name its server"),
        (["--host", "--to", "/srv/x"], "a user who may write the directory"),
        (["postgres:///x"], "no directory was given"),
    ],
)
def test_what_a_unit_cannot_be(words: list[str], what: str) -> None:
    done = printed(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert what in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.parametrize("words", [["postgres:///shop", "--to", "/var/lib/shop"], ["--host", "--to", "/var/lib/host"]])
def test_systemd_takes_the_unit_and_finds_little_exposed(words: list[str], tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        no_oracle("systemd-analyze is not installed")
    file = tmp_path / "leadline-record-shop.service"
    file.write_text(printed(*words).stdout)
    done = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=45", file]
    assert subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


@pytest.fixture
def directory() -> Iterator[Path]:
    """One that another user may enter, as those of pytest are not."""
    with tempfile.TemporaryDirectory(prefix="leadline-unit-") as made:
        yield Path(made)


def policies_of(pid: int) -> set[int]:
    """How the threads of a process are scheduled; one that ends meanwhile is left out."""
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):
            found.add(os.sched_getscheduler(int(task.name)))
    return found


@pytest.mark.live
@needs_root
@pytest.mark.parametrize(
    ("without", "way", "on_time"),
    [("", "map_files", True), ("CAP_CHECKPOINT_RESTORE", "process_vm_readv", True), ("CAP_SYS_NICE", "map_files", False)],
)
def test_each_capability_of_the_unit_is_needed(
    servers: Callable[[int], Server], directory: Path, without: str, way: str, on_time: bool
) -> None:
    server = servers(18)
    owner = Path(server.private.data_dir).stat()
    os.chown(directory, owner.st_uid, owner.st_gid)
    said = unit(server.dsn, "--to", directory, "--piece", "2s", "--as", Path(server.private.data_dir).owner())
    capabilities = [name.removeprefix("CAP_").lower() for name in said["AmbientCapabilities"].split() if name != without]
    become = setpriv(owner.st_uid, owner.st_gid, capabilities)
    environment = {"HOME": "/nonexistent", "PATH": os.environ["PATH"]}
    with background([*become, *words_of(said["ExecStart"])], env=environment, cwd="/") as process:
        policies: set[int] = set()  # that any thread had at a look

        def is_enough() -> bool:
            policies.update(policies_of(process.pid))
            return process.poll() is not None or len(list(directory.glob("*.leadline"))) > 2

        wait_until(is_enough, 60, "a third piece")
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    sessions = read_manifest(min(directory.glob("*.leadline"))).probes["sessions"]
    assert sessions.tier == "shm"
    assert sessions.access["shared_memory"] == way
    assert (os.SCHED_FIFO in policies) == on_time
