"""The unit of a recorder as a service of this host: written where systemd looks, and started; or all of that taken back."""

from __future__ import annotations

import difflib
import os
import pwd
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from leadline.errors import LeadlineError
from leadline.recorder.pieces import used_bytes
from leadline.recorder.unit import Wanted, is_state, name_of, records_into, unit
from leadline.replacing import write_durably
from leadline.units import sized

UNITS = Path("/etc/systemd/system")
DEFAULTS = Path("/etc/default")
BOOTED = Path("/run/systemd/system")  # it is there where systemd runs: sd_booted(3)


@dataclass(frozen=True)
class Change:
    """Commands of systemctl around one file that is written (text) or removed (None). was: what lies there now, or None."""

    file: Path
    was: str | None
    text: str | None
    first: Sequence[Sequence[str]] = ()
    then: Sequence[Sequence[str]] = ()

    def lines(self) -> list[str]:
        """What will be done, for people."""
        steps = [_line(words) for words in self.first]
        if self.text is None:
            steps.append(f"remove {self.file}")
        elif self.was is None:
            steps += [f"write {self.file}:", *_indented(self.text.splitlines())]
        elif self.was != self.text:
            changed = list(difflib.unified_diff(self.was.splitlines(), self.text.splitlines(), lineterm="", n=0))[2:]
            steps += [f"change {self.file}:", *_indented(changed)]
        return steps + [_line(words) for words in self.then]

    def perform(self) -> None:
        """Raises LeadlineError; what was done until then stays."""
        for words in self.first:
            _systemctl(words)
        try:
            if self.text is None:
                self.file.unlink()
            else:
                write_durably(self.file, self.text.encode())
                self.file.chmod(0o644)
        except OSError as e:
            raise LeadlineError("storage", f"cannot change the unit: {e.strerror}", where=str(self.file)) from e
        for words in self.then:
            _systemctl(words)


def to_install(wanted: Wanted) -> Change:
    """Enables and starts the unit. It replaces one that records into the same directory. Raises LeadlineError."""
    _needs_systemd_and_root(f"run it under what starts services here: {shlex.join(wanted.command)}")
    _can_run(wanted)
    name = f"{name_of(wanted.directory)}.service"
    file = UNITS / name
    was = file.read_text(encoding="utf-8") if file.exists() else None
    if was is not None and not records_into(was, wanted.directory):
        hint = "give the directory another last name: the unit is called after it"
        raise LeadlineError("usage", f"{name} is there already, and records into another directory", hint=hint, where=str(file))
    return Change(file, was, unit(wanted), then=(("daemon-reload",), ("enable", name), ("restart", name)))


def to_uninstall(directory: Path) -> Change:
    """Stops and removes the unit that records into an absolute directory. Raises LeadlineError."""
    _needs_systemd_and_root("without it there is no unit to take away")
    name = f"{name_of(directory)}.service"
    file = UNITS / name
    was = file.read_text(encoding="utf-8") if file.exists() else ""
    if not records_into(was, directory):
        found = sorted(other.name for other in UNITS.glob("leadline-record-*.service"))
        detail = f"installed are {', '.join(found)}" if found else "none is installed"
        raise LeadlineError("not_found", "no unit that was installed records into this directory", detail=detail, where=str(directory))
    return Change(file, was, None, first=(("disable", "--now", name),), then=(("daemon-reload",),))


def left(directory: Path) -> list[str]:
    """What is still there when its unit is gone, for people."""
    lines, variables = [], DEFAULTS / name_of(directory)
    if directory.is_dir():
        at = directory.resolve()  # what a user of its own had is a link into /var/lib/private
        lines.append(f"left: {at}, {sized(used_bytes(directory))} of captures; to remove them: rm -r {shlex.quote(str(at))}")
    return lines + [f"left: {variables}"] * variables.exists()


def _needs_systemd_and_root(otherwise: str) -> None:
    if not BOOTED.is_dir() or shutil.which("systemctl") is None:
        raise LeadlineError("unsupported", "systemd does not run on this host", detail=f"{BOOTED} or systemctl is missing", hint=otherwise)
    if os.geteuid() != 0:
        program = str(Path(sys.argv[0]).absolute())
        raise LeadlineError("rights", "the services of a host are root's", hint=f"sudo {shlex.join([program, *sys.argv[1:]])}")


def _can_run(wanted: Wanted) -> None:
    """What systemd would find out in each of its attempts to start the unit. Raises LeadlineError."""
    user = None
    if wanted.user:
        try:
            user = pwd.getpwnam(wanted.user)
        except KeyError:
            raise LeadlineError("not_found", f"there is no user {wanted.user}", hint="--as USER, who runs the server") from None
    if not is_state(wanted.directory) and not (wanted.directory.is_dir() and user and wanted.directory.stat().st_uid == user.pw_uid):
        hint = f"install -d -m 0700 -o {wanted.user} {shlex.quote(str(wanted.directory))}"
        raise LeadlineError("rights", f"the directory does not belong to {wanted.user}", hint=hint, where=str(wanted.directory))
    for place in (wanted.command[0], sys.prefix, sys.base_prefix, __file__):
        resolved = Path(place).resolve()
        for directory in resolved.parents:
            if not _may_enter(directory, user):
                detail = f"{directory} is closed to {wanted.user or 'the user of the unit'}"
                hint = "install leadline where everybody may read, such as in /opt: docs/guides/install.md"
                raise LeadlineError("rights", "the unit cannot run this leadline", detail, hint, str(resolved))


def _may_enter(directory: Path, user: pwd.struct_passwd | None) -> bool:
    """user: None is one that owns nothing."""
    about = directory.stat()
    if user is None:
        return bool(about.st_mode & 0o001)
    if about.st_uid == user.pw_uid:
        return bool(about.st_mode & 0o100)
    return bool(about.st_mode & (0o010 if about.st_gid in os.getgrouplist(user.pw_name, user.pw_gid) else 0o001))


def _systemctl(words: Sequence[str]) -> None:
    done = subprocess.run(["systemctl", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise LeadlineError(
            "invalid", f"{_line(words)} failed", detail=said[0] if said else f"it ended with code {done.returncode}",
            hint=f"journalctl -u {words[-1]}" if len(words) > 1 else "",
        )  # fmt: skip


def _line(words: Sequence[str]) -> str:
    return shlex.join(["systemctl", *words])


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}".rstrip() for line in lines]
