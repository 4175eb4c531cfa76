"""A missing oracle is a skip on a machine of somebody's own, and a failure in CI and where skips are forbidden."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
TEST = """
from conftest import no_oracle

def test_it():
    no_oracle("no pg_waldump of 99")
"""


@pytest.mark.parametrize(
    ("variables", "code", "told"),
    [
        ({}, 0, "1 skipped"),
        ({"CI": "true"}, 1, "an oracle is missing, and CI must have it (CI=true): no pg_waldump of 99"),
        ({"LEADLINE_FORBID_SKIPS": "1"}, 1, "skips are forbidden (LEADLINE_FORBID_SKIPS=1)"),
    ],
)
def test_a_missing_oracle_fails_in_ci(variables: dict[str, str], code: int, told: str, tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(TEST)
    known = {name: value for name, value in os.environ.items() if name not in ("CI", "LEADLINE_FORBID_SKIPS")}
    environment = known | {"PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS / 'support'}"} | variables
    line = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-p", "no:cacheprovider", "test_one.py"]
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    assert told in done.stdout


SKIPS = ("pytest.skip", "pytest.mark.skip", "pytest.mark.skipif", "pytest.importorskip")
# Skips for other reasons: a right or a feature of the kernel that the host does not give.
OF_THE_HOST = ("root", "kernel", "KERNEL_REFUSES", "may not be written", "cannot be mounted", "control group", "CPU quota", "namespace")


def test_other_skips_are_for_rights_and_kernels() -> None:
    """A skip that is none of these is for want of an oracle, and has to be told by no_oracle."""
    found = []
    for file in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in SKIPS:
                text = ast.unparse(node)
                if not any(word in text for word in OF_THE_HOST):
                    found.append(f"{file.relative_to(TESTS)}:{node.lineno}: {text}")
    assert found == []
