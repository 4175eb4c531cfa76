"""Runs of Ansible for tests: hosts that are this one, a book of the test, nothing of the user's own settings."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ansible_cores import Core, Unavailable, core, runnable
from conftest import background, no_oracle, wait_until

SHOP = Path(__file__).resolve().parents[1] / "ansible" / "shop"
PLUGIN = Path(__file__).resolve().parents[2] / "python" / "leadline" / "book" / "ansible" / "plugin"
TIMEOUT_S = 900  # a busy host is slow, and Ara slower


def core_or_skip(version: str = "", *, with_ara: bool = False) -> Core:
    """This version, or the newest that a Python here can run."""
    versions = runnable()
    try:
        return core(version or versions[-1], with_ara=with_ara)
    except (Unavailable, IndexError) as e:
        no_oracle(f"ansible-core: {e}")


@dataclass
class Site:
    """A folder with playbooks, and a book for what they do."""

    core: Core
    folder: Path
    book: Path
    plugins: list[Path] = field(default_factory=lambda: [PLUGIN])
    more: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "LEADLINE_", "ARA_"))}
        return kept | {
            "PATH": f"{self.core.bin_dir}:{os.environ['PATH']}", "HOME": str(self.folder / "home"), "LEADLINE_BOOK": str(self.book),
            "ANSIBLE_CALLBACK_PLUGINS": ":".join(map(str, self.plugins)), "ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_HOME": str(self.folder / "home/.ansible"), "ANSIBLE_RETRY_FILES_ENABLED": "false",
            "ANSIBLE_PYTHON_INTERPRETER": str(self.core.bin_dir / "python"), **self.more,
        }  # fmt: skip

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def run(self, *words: Any, program: str = "ansible-playbook", **more: Any) -> subprocess.CompletedProcess[str]:
        command = [str(self.core.bin_dir / program), *map(str, words)]
        given: dict[str, Any] = {"capture_output": True, "text": True, "timeout": TIMEOUT_S, "check": False, "env": self.environment}
        return subprocess.run(command, cwd=self.folder, stdin=subprocess.DEVNULL, **{**given, **more})

    @contextmanager
    def running(self, *words: Any) -> Iterator[subprocess.Popen[bytes]]:
        command = [str(self.core.bin_dir / "ansible-playbook"), *map(str, words)]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with background(command, cwd=self.folder, env=self.environment, **quiet) as process:
            yield process

    def spools(self) -> list[Path]:
        return sorted((self.book / "spool").glob("*.jsonl"))

    def spool_text(self) -> str:
        return "".join(path.read_text() for path in self.spools())

    def interrupted(self, playbook: Path, number: signal.Signals) -> int:
        """Its exit code, after a signal during a task that sleeps and says so in the file `sleeping`."""
        with self.running(playbook) as process:
            wait_until((self.folder / "sleeping").exists, TIMEOUT_S, "the task that sleeps")
            process.send_signal(number)
            return process.wait(TIMEOUT_S)


SLEEPY = """
- name: Sleepers
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Before
      command: echo before
    - name: Sleep
      shell: "touch {folder}/sleeping; exec sleep 250"
    - name: Never
      command: echo never
"""


def make_site(tmp_path: Path, core: Core) -> Site:
    site = Site(core, tmp_path / "site", tmp_path / "book")
    (site.folder / "home").mkdir(parents=True)
    return site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """With the newest Ansible that this host can run."""
    return make_site(tmp_path, core_or_skip())


def make_shop(folder: Path, core: Core) -> Site:
    """The playbook of the fixtures: facts, loops, retries, handlers, ignored and rescued failures, no_log, delegation, free, includes."""
    site = make_site(folder, core)
    shutil.copytree(SHOP, site.folder, dirs_exist_ok=True)
    (folder / "out").mkdir()
    return site


def run_shop(site: Site) -> subprocess.CompletedProcess[str]:
    return site.run("-i", "hosts", "site.yml", "-e", f"out={site.folder.parent / 'out'}")


