"""docs/guides/export.md: each command on it is run as it stands there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from example_capture import example

GUIDE = (Path(__file__).resolve().parents[2] / "docs/guides/export.md").read_text()


def test_each_command_of_the_guide_writes_its_file(tmp_path: Path) -> None:
    example(tmp_path).write().rename(tmp_path / "slow.leadline")
    lines = re.findall(r"^leadline (export .*)$", GUIDE, re.MULTILINE)
    assert len(lines) == 7
    for line in lines:
        words = shlex.split(line)
        done = subprocess.run([sys.executable, "-m", "leadline", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, f"{words[-1]}\n"), done.stderr
        assert (tmp_path / words[-1]).stat().st_size > 100
