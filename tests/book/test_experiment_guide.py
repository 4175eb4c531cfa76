"""docs/guides/experiments.md is run as it stands, in a book of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "experiments.md").read_text(encoding="utf-8")


def test_the_guide_runs_and_says_what_it_says(tmp_path: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)
    script = "set -eu\n" + "".join(f"echo '## {n}'\n{block}" for n, block in enumerate(blocks))
    environment = {k: v for k, v in os.environ.items() if k != "LEADLINE_RUN"}
    environment |= {"LEADLINE_BOOK": str(tmp_path / "book"), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    (tmp_path / "leadline").write_text(f'#!/bin/sh\nexec {sys.executable} -m leadline "$@"\n')
    (tmp_path / "leadline").chmod(0o755)
    done = subprocess.run(["bash", "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    said = dict(re.findall(r"## (\d+)\n(.*?)(?=\n## |\Z)", done.stdout, re.DOTALL))
    assert len(said) == len(blocks) == 7
    names = re.findall(r"^(\w+)  +", re.findall(r"```\n(hypothesis.*?)```", GUIDE, re.DOTALL)[0], re.MULTILINE)
    assert names == ["hypothesis", "baseline", "variant", "measured", "order", "seal", "pair", "verdict"]
    assert set(names) <= set(re.findall(r"^(\w+)  ", said["0"], re.MULTILINE))
    better = "more: the variant has 1.112 times the baseline's figure (1.112 to 1.112, 95 % interval, {} pairs), which is better"
    assert better.format(6) in said["1"] and "this question" not in said["1"]
    assert better.format(7) in said["2"] and "this is the 2nd try of this question" in said["2"]
    assert said["3"].splitlines()[-1] == "not slower"
    assert re.search(r"^\d+ of \d+ pieces of evidence of \d+ runs as recorded$", said["5"].strip(), re.MULTILINE)
    assert "differ" not in said["5"]
    assert said["6"].strip().endswith("records as in the head")
