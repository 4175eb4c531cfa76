"""promtool, which comes with Prometheus, as an oracle."""

from __future__ import annotations

import shutil
import subprocess

from conftest import no_oracle


def promtool(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    program = shutil.which("promtool")
    if program is None:
        no_oracle("no promtool")
    return subprocess.run([program, *arguments], input=given, capture_output=True, text=True, timeout=60, check=False)
