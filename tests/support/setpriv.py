"""Commands with the rights of another user, and with only some capabilities."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable

import pytest

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="to become another user needs root and setpriv"
)


def setpriv(user: int, group: int, capabilities: Iterable[str]) -> list[str]:
    """What stands before the command. capabilities: named as in sys_ptrace; the command has no others, and gets none."""
    having = ",".join(["-all", *(f"+{name}" for name in capabilities)])
    become = [f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs"]
    return ["setpriv", *become, f"--inh-caps={having}", f"--ambient-caps={having}", f"--bounding-set={having}"]
