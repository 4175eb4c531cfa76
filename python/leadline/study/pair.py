"""A private primary and its standby on this host: what lies between them, and what the standby may use of a CPU.

`leadline net delay` stands between them as a process of its own, which ends with this one. The CPU of the process that replays WAL is
held by a control group of the kernel's `cpu` controller, which is removed with the pair, also if this process is killed.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from leadline.book.place import VARIABLE
from leadline.engines.postgres.server import PrivateServer, Standby
from leadline.engines.postgres.server.private import ends_with_us
from leadline.engines.postgres.server.settings import Effect
from leadline.engines.postgres.server.standby import ask
from leadline.errors import LeadlineError
from leadline.study.positions import connected

STANDBY = "leadline_standby"  # the user that it connects as
GROUPS, PERIOD_US = Path("/sys/fs/cgroup/cpu"), 20_000
LEAST_QUOTA_US = 1000  # that the kernel takes
MOST_SHARES = 1 << 18  # that the kernel takes: within its quota it runs before all others, so that the quota is what limits it
# Removes the group when this process has ended: a word on its stdin means that it is gone already.
_WATCHER = 'read -r word && exit 0; n=0; while ! rmdir "$1" 2>/dev/null && [ -e "$1" ] && [ $n -lt 200 ]; do n=$((n+1)); sleep 0.05; done'


class Primary(PrivateServer):
    """Over TCP it lets in a standby alone, with its password: what delays that connection can be reached by every user of this host."""

    def __init__(self, bin_dir: str | Path, settings: Mapping[str, object]) -> None:
        super().__init__(bin_dir, settings={**settings, "password_encryption": "scram-sha-256"}, loopback=True)
        self._password = secrets.token_hex(16)

    def _configure(self) -> None:
        super()._configure()
        rules = self.data_dir / "pg_hba.conf"
        kept = [line for line in rules.read_text(encoding="utf-8").splitlines() if not line.startswith("host")]
        rules.write_text("\n".join([*kept, f"host replication {STANDBY} 127.0.0.1/32 scram-sha-256", ""]), encoding="utf-8")

    def let_in(self) -> None:
        """The user of the standby. Raises LeadlineError."""
        ask(self, f"create role {STANDBY} login replication password '{self._password}'")

    def conninfo(self, port: int) -> str:
        """Of the standby, through a port of this host."""
        return f"host=127.0.0.1 port={port} user={STANDBY} password={self._password}"


class Link:
    """Adds a round trip to connections to the primary. conninfo: how the standby connects through it."""

    def __init__(self, primary: Primary, rtt: str) -> None:
        self.rtt = rtt
        words = ["net", "delay", "--listen", "127.0.0.1:0", "--to", f"127.0.0.1:{primary.port}", "--rtt", rtt, "--json"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "leadline", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True, preexec_fn=ends_with_us(signal.SIGTERM), env=os.environ | {VARIABLE: "off"}, cwd="/", text=True,
        )  # fmt: skip
        assert self._process.stderr is not None
        said = self._process.stderr.readline()
        if not said.startswith("listening on 127.0.0.1:"):
            detail = (said + self._process.communicate()[1]).strip()[-300:]
            raise LeadlineError("gone", "what delays the pair does not start", detail=detail)
        self.conninfo = primary.conninfo(int(said.split(",")[0].rpartition(":")[2]))

    def close(self) -> dict[str, Any]:
        """What it did, as `leadline net delay --json` says."""
        self._process.send_signal(signal.SIGTERM)
        try:
            said, _ = self._process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            said, _ = self._process.communicate()
        try:
            found = json.loads(said)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


class Quota:
    """A process that may use so much of one CPU. share: 0.05 is 5 %. period_us: in each such time."""

    def __init__(self, pid: int, share: float, period_us: int = PERIOD_US) -> None:
        self._was = _group_of(pid)
        try:
            self._group = Path(tempfile.mkdtemp(prefix="leadline-", dir=self._was))
        except OSError as e:
            hint = f"run it as root, with the cpu controller of cgroup v1 mounted at {GROUPS}"
            raise LeadlineError("rights", "the CPU of replay cannot be limited", e.strerror or str(e), hint, str(self._was)) from e
        self._watcher = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHER, "leadline-watcher", str(self._group)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True, cwd="/",
        )  # fmt: skip
        self.pid, self.share = pid, share
        try:
            self._write("cpu.shares", MOST_SHARES)
            period = max(period_us, round(LEAST_QUOTA_US / share))
            self._write("cpu.cfs_period_us", period)
            self._write("cpu.cfs_quota_us", max(round(period * share), LEAST_QUOTA_US))
            self._write("cgroup.procs", pid)
        except OSError as e:
            self.close()
            raise LeadlineError("rights", "the CPU of replay cannot be limited", detail=e.strerror or str(e), where=str(self._group)) from e

    def _write(self, name: str, value: int) -> None:
        (self._group / name).write_text(str(value))

    def throttled_s(self) -> float:
        """How long it would have run and was held."""
        text = (self._group / "cpu.stat").read_text(encoding="ascii")
        return float(dict(line.split() for line in text.splitlines()).get("throttled_time", 0)) / 1e9

    def close(self) -> None:
        with suppress(OSError):  # it may have ended
            (self._was / "cgroup.procs").write_text(str(self.pid))
        with suppress(OSError):
            self._group.rmdir()
            self._watcher.communicate(b"done\n")
            return
        self._watcher.communicate()  # the group is removed when the process has left it


def _group_of(pid: int) -> Path:
    """Of the cpu controller: what holds its parents holds it, too."""
    for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(",") and (GROUPS / path.lstrip("/")).is_dir():
            return GROUPS / path.lstrip("/")
    return GROUPS


class Pair:
    """A standby of a private server. set_up: with a round trip between them, and a share of a CPU for replay; empty for neither."""

    def __init__(self, primary: Primary, settings: Mapping[str, object], tell: Callable[[str], None]) -> None:
        self.primary = primary
        self.standby = Standby(primary, settings)
        self.settings: dict[str, Effect] = {}  # of the standby alone, as they are
        self.link: Link | None = None
        self.quota: Quota | None = None
        tell("making a standby of it on this host: a loopback pair")
        try:
            self.standby.__enter__()
            self.standby.until_streaming()
            primary.let_in()  # not before: where commits wait for a standby, this one does
        except BaseException:
            self.close()
            raise

    def connect(self) -> psycopg.Connection[Any]:
        """To the standby. Raises LeadlineError."""
        return connected(self.standby.dsn)

    def restart(self) -> None:
        """Of the standby."""
        self.standby.stop()
        self.standby.start()

    def set_up(self, rtt: str, share: float | None) -> None:
        """Raises LeadlineError."""
        if self.link is not None and self.link.rtt != rtt:
            self.unlink()
        if rtt and self.link is None:
            self.link = Link(self.primary, rtt)
            self.standby.follow(self.link.conninfo)
        self._hold(share)
        self.standby.until_streaming()

    def _hold(self, share: float | None) -> None:
        pid = self.standby.startup_pid
        if self.quota is not None and (share, pid) != (self.quota.share, self.quota.pid):
            self.quota.close()
            self.quota = None
        if share is not None and self.quota is None:
            self.quota = Quota(pid, share)

    def unlink(self) -> float | None:
        """Takes the link away. How many ms it added at the median; None where it does not know."""
        if self.link is None:
            return None
        link, self.link = self.link, None
        added = link.close().get("added_rtt_p50_ns")
        return added / 1e6 if isinstance(added, int | float) else None

    def start(self) -> None:
        """After stop(), when the primary runs again."""
        self.standby.start()
        self.standby.until_streaming()

    def stop(self) -> None:
        self.unlink()
        self.standby.stop()
        if self.quota is not None:
            self.quota.close()
            self.quota = None

    def close(self) -> None:
        self.stop()
        self.standby.close()
