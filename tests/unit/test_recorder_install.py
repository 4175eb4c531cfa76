"""A recorder as a service of the host: what is written, what systemctl is told and when, and what it refuses. No systemd runs here."""

from __future__ import annotations

import os
import pwd
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from leadline.cli import record
from leadline.errors import LeadlineError
from leadline.recorder import install
from leadline.recorder.pieces import used_bytes
from leadline.recorder.unit import STATE, name_of
from leadline.units import sized

HOST = ("--host", "--to", "/var/lib/leadline/host")
NAME = "leadline-record-host.service"
STARTED = ["daemon-reload", f"enable {NAME}", f"restart {NAME}"]
ME = pwd.getpwuid(os.geteuid())


class Systemd:
    """What stands for it: a directory of units, and a systemctl that writes down what it is told and which units there are then."""

    def __init__(self, folder: Path) -> None:
        self.units, self.defaults, self.log, self.fails = (folder / name for name in ("units", "default", "log", "fails"))
        self.units.mkdir()
        self.defaults.mkdir()
        program = folder / "bin" / "systemctl"
        program.parent.mkdir()
        units = f'"$(ls {shlex.quote(str(self.units))})"'
        fail = f'grep -qx -- "$1" {self.fails} 2>/dev/null && {{ echo "Job for $2 failed." >&2; exit 1; }}'
        program.write_text(f'#!/bin/sh\necho "$*" with {units} >> {self.log}\n{fail}\nexit 0\n')
        program.chmod(0o755)
        self.path = f"{program.parent}:{os.environ['PATH']}"

    @property
    def unit(self) -> str:
        return (self.units / NAME).read_text()

    def told(self) -> list[str]:
        """The calls since the last look: words, and the units that were there."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return [line.removesuffix(" with ") for line in lines]

    def started(self) -> list[str]:
        return [f"{words} with {NAME}" for words in STARTED]


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Systemd]:
    made = Systemd(tmp_path)
    monkeypatch.setenv("PATH", made.path)
    monkeypatch.setattr(install, "UNITS", made.units)
    monkeypatch.setattr(install, "DEFAULTS", made.defaults)
    monkeypatch.setattr(install, "BOOTED", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(install, "_may_enter", lambda directory, user: True)  # wherever this checkout lies
    before = os.umask(0o077)  # as a careful root has it: the unit is for everybody to read
    yield made
    os.umask(before)


def run(*words: object, answer: str | None = None) -> Result:
    """answer: of a person at a terminal; None: nobody is there."""
    runner = CliRunner()
    with pytest.MonkeyPatch.context() as patch:
        if answer is not None:
            patch.setattr("leadline.cli.asked._answers", lambda: True)
        return runner.invoke(record.command, [str(word) for word in words], input=answer)


def refused(*words: object) -> LeadlineError:
    error = run(*words).exception
    assert isinstance(error, LeadlineError), error
    return error


def printed(*words: object) -> str:
    done = run(*words, "--unit")
    assert done.exit_code == 0, done.output
    return done.stdout


def test_it_writes_the_unit_that_unit_prints_and_starts_it(systemd: Systemd) -> None:
    done = run(*HOST, "--install", "--yes")
    assert done.exit_code == 0, done.output
    assert systemd.unit == printed(*HOST)
    assert (systemd.units / NAME).stat().st_mode & 0o777 == 0o644
    assert systemd.told() == systemd.started()
    assert list(systemd.units.iterdir()) == [systemd.units / NAME]


def test_it_shows_what_it_will_do_and_does_nothing_after_a_no(systemd: Systemd) -> None:
    done = run(*HOST, "--install", answer="n\n")
    assert done.exit_code == 1
    shown = done.stderr.splitlines()
    assert shown[0] == f"write {systemd.units / NAME}:"
    assert all(f"    {line}".rstrip() in shown for line in printed(*HOST).splitlines())
    assert [line for line in shown if line.startswith("systemctl ")] == [f"systemctl {words}" for words in STARTED]
    assert (systemd.told(), list(systemd.units.iterdir())) == ([], [])
    assert run(*HOST, "--install", answer="y\n").exit_code == 0
    assert systemd.told() == systemd.started()


def test_where_nobody_can_answer_nothing_is_done(systemd: Systemd) -> None:
    assert "nobody is there to ask" in refused(*HOST, "--install").message
    assert (systemd.told(), list(systemd.units.iterdir())) == ([], [])


def test_another_installation_changes_the_unit_of_the_directory_and_starts_it_anew(systemd: Systemd) -> None:
    run(*HOST, "--install", "--yes")
    systemd.told()
    done = run(*HOST, "--keep", "3d", "--install", answer="y\n")
    assert done.exit_code == 0, done.output
    shown = done.stderr.splitlines()
    assert shown[0] == f"change {systemd.units / NAME}:"
    changed = [line for line in shown if line.startswith(("    -", "    +"))]
    assert len(changed) == 2
    assert changed[1].endswith("--to=/var/lib/leadline/host --keep=3d")
    assert systemd.unit == printed(*HOST, "--keep", "3d")
    assert systemd.told() == systemd.started()


def test_a_unit_of_another_directory_is_not_replaced(systemd: Systemd) -> None:
    run(*HOST, "--install", "--yes")
    before = systemd.unit
    systemd.told()
    assert "records into another directory" in refused("--host", "--to", "/var/lib/other/host", "--install", "--yes").message
    assert (systemd.unit, systemd.told()) == (before, [])
    assert "no unit that was installed" in refused("--uninstall", "/var/lib/other/host", "--yes").message
    assert (systemd.unit, systemd.told()) == (before, [])


def test_uninstalling_stops_and_removes_the_unit_and_says_what_is_left(systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leadline.recorder.unit.STATE", systemd.units.parent)
    directory = systemd.units.parent / "host"
    assert run("--host", "--to", directory, "--as", ME.pw_name, "--install", "--yes").exit_code == 0
    piece = directory / "20261128T030000Z.leadline"
    piece.mkdir(parents=True)
    (piece / "rows").write_bytes(bytes(3 << 20))
    (systemd.defaults / "leadline-record-host").touch()
    systemd.told()
    assert run("--uninstall", directory, answer="n\n").exit_code == 1
    assert (systemd.told(), (systemd.units / NAME).exists()) == ([], True)
    done = run("--uninstall", directory, answer="y\n")
    assert done.exit_code == 0, done.output
    assert done.stderr.splitlines()[:3] == [
        f"systemctl disable --now {NAME}", f"remove {systemd.units / NAME}", "systemctl daemon-reload"
    ]  # fmt: skip
    assert systemd.told() == [f"disable --now {NAME} with {NAME}", "daemon-reload"]
    assert list(systemd.units.iterdir()) == []
    assert done.stdout.splitlines() == [
        f"left: {directory}, {sized(used_bytes(directory))} of captures; to remove them: rm -r {directory}",
        f"left: {systemd.defaults}/leadline-record-host",
    ]
    assert (piece / "rows").stat().st_size == 3 << 20


def test_what_is_not_installed_is_not_taken_away(systemd: Systemd) -> None:
    assert refused("--uninstall", "/var/lib/leadline/host", "--yes").detail == "none is installed"
    run(*HOST, "--install", "--yes")
    assert refused("--uninstall", "/var/lib/leadline/shop", "--yes").detail == f"installed are {NAME}"


@pytest.mark.parametrize("fails", [words.partition(" ")[0] for words in STARTED])
def test_what_systemctl_refuses_is_told(systemd: Systemd, fails: str) -> None:
    systemd.fails.write_text(f"{fails}\n")
    error = refused(*HOST, "--install", "--yes")
    assert error.message.startswith(f"systemctl {fails}")
    assert error.detail.endswith("failed.")
    assert [line.partition(" ")[0] for line in systemd.told()][-1] == fails


def test_without_systemd_it_says_what_to_run(systemd: Systemd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(install, "BOOTED", tmp_path / "missing")
    error = refused(*HOST, "--install", "--yes")
    assert error.message == "systemd does not run on this host"
    assert error.hint.endswith("record --host --to=/var/lib/leadline/host")
    assert refused("--uninstall", "/var/lib/leadline/host", "--yes").kind == "unsupported"


def test_without_root_it_says_the_command_line_that_would_do(systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["/usr/bin/leadline", "record", "host=/run/pg dbname=shop", "--install"])
    assert refused(*HOST, "--install", "--yes").hint == "sudo /usr/bin/leadline record 'host=/run/pg dbname=shop' --install"
    assert refused("--uninstall", "/var/lib/leadline/host", "--yes").kind == "rights"
    assert list(systemd.units.iterdir()) == []


def test_a_user_who_is_not_there_is_named(systemd: Systemd) -> None:
    assert refused(*HOST, "--as", "nobody-of-ours", "--install", "--yes").message == "there is no user nobody-of-ours"


@pytest.mark.parametrize("there", [True, False])
def test_a_directory_that_the_user_does_not_own_is_refused(systemd: Systemd, tmp_path: Path, there: bool) -> None:
    directory = tmp_path / "recorder"
    if there:
        directory.mkdir()
    words = ("--host", "--to", directory, "--as", next(user.pw_name for user in pwd.getpwall() if user.pw_uid != ME.pw_uid))
    error = refused(*words, "--install", "--yes")
    assert error.hint == f"install -d -m 0700 -o {words[-1]} {directory}"
    assert list(systemd.units.iterdir()) == []


def test_a_leadline_that_the_user_cannot_reach_is_refused(systemd: Systemd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[Path, str]] = []

    def may_enter(directory: Path, user: pwd.struct_passwd | None) -> bool:
        asked.append((directory, "" if user is None else user.pw_name))
        return directory != Path(sys.prefix).resolve().parent

    monkeypatch.setattr(install, "_may_enter", may_enter)
    error = refused(*HOST, "--install", "--yes")
    assert (error.message, error.kind) == ("the unit cannot run this leadline", "rights")
    assert error.detail.startswith(str(Path(sys.prefix).resolve().parent))
    assert {user for _, user in asked} == {""}
    asked.clear()
    refused("postgres:///shop", "--to", "/var/lib/shop", "--as", ME.pw_name, "--install", "--yes")
    assert {user for _, user in asked} == {ME.pw_name}


OTHER = next(user for user in pwd.getpwall() if ME.pw_uid != user.pw_uid and ME.pw_gid not in os.getgrouplist(user.pw_name, user.pw_gid))

MATE = pwd.struct_passwd(("mate-of-ours", "x", ME.pw_uid + 1, os.getegid(), "", "/", "/bin/sh"))


@pytest.mark.parametrize(
    ("mode", "user", "may"),
    [
        (0o755, None, True), (0o750, None, False), (0o700, ME, True), (0o077, ME, False), (0o750, OTHER, False), (0o751, OTHER, True),
        (0o710, MATE, True), (0o701, MATE, False),
    ],
)  # fmt: skip
def test_who_may_enter_a_directory(tmp_path: Path, mode: int, user: pwd.struct_passwd | None, may: bool) -> None:
    tmp_path.chmod(mode)
    found = install._may_enter(tmp_path, user)
    tmp_path.chmod(0o700)
    assert found == may


@pytest.mark.parametrize("directory", ["/var/lib/leadline/shop", "/srv/50% of $HOME and 'more'", "/srv/two words"])
def test_a_unit_is_known_by_its_directory(directory: str) -> None:
    text = printed("--host", "--to", directory, "--as", "watcher", "--keep", "3d")
    of: Callable[[str], bool] = lambda other: install.records_into(text, Path(other))  # noqa: E731
    others: Sequence[str] = (directory + "2", directory[:-1], "/srv", str(STATE))
    assert (of(directory), [other for other in others if of(other)]) == (True, [])
    assert name_of(Path(directory)).startswith("leadline-record-")
    assert install.records_into(printed("--host", "--to", directory, "--as", "watcher"), Path(directory))
