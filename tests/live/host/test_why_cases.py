"""Failing commands of real life: the cause is found, and nothing else is claimed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import no_oracle
from why_builds import BUILDS_THAT_WORK, Build
from why_cases import CASES, COPES, Case

ROOT = os.geteuid() == 0
ENV = {**os.environ, "LC_ALL": "C", "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that other users may enter."""
    made = Path("/var/tmp") / f"leadline-why-cases-{os.getpid()}"
    made.mkdir()
    made.chmod(0o755)
    yield made
    if (made / "pid").exists():
        os.kill(int((made / "pid").read_text()), signal.SIGTERM)
    if (made / "m").is_mount():
        subprocess.run(["umount", "-l", str(made / "m")], check=True)
    if ROOT and shutil.which("chattr"):
        subprocess.run(["chattr", "-R", "-i", str(made)], capture_output=True)
    shutil.rmtree(made)


def explained(case: Case | Build, folder: Path) -> tuple[int, dict[str, Any], str]:
    run, setup = (text.replace("{python}", sys.executable) for text in (case.run, case.setup))
    made = subprocess.run(["bash", "-c", setup], cwd=folder, env=ENV, capture_output=True, text=True, timeout=120)
    assert made.returncode == 0, made.stderr
    words = [sys.executable, "-m", "leadline", "why", "--json", "--linger", "0.2", "--", "bash", "-c", run]
    done = subprocess.run(words, cwd=folder, env=ENV, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert '{"explained"' in done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout[done.stdout.index('{"explained"') :]), done.stderr


@pytest.mark.parametrize("case", CASES, ids=[case.title for case in CASES])
def test_case(case: Case, folder: Path) -> None:
    if case.root and not ROOT:
        pytest.skip("mounts and other users need root")
    for program in case.needs.split():
        if shutil.which(program) is None:
            no_oracle(f"{program} is not installed")
    code, told, stderr = explained(case, folder)
    causes = told["causes"]
    shown = json.dumps([causes, stderr], indent=1)
    assert told["command"]["exit_code"] != 0, shown
    if case.never:
        assert case.never not in json.dumps([cause["statement"] for cause in causes]), shown
    if not case.kind:
        assert (code, causes) == (3, []), shown
        return
    assert code == 1, shown
    assert (causes[0]["kind"], case.says in causes[0]["statement"], case.fix in causes[0]["fix"]) == (case.kind, True, True), shown


@pytest.mark.parametrize("build", BUILDS_THAT_WORK, ids=[build.title for build in BUILDS_THAT_WORK])
def test_build_that_works(build: Build, folder: Path) -> None:
    for program in build.needs.split():
        if shutil.which(program) is None:
            no_oracle(f"{program} is not installed")
    code, told, stderr = explained(build, folder)
    assert (code, told["command"]["exit_code"], told["causes"]) == (0, 0, []), json.dumps([told, stderr], indent=1)


@pytest.mark.skipif(not ROOT, reason="mounts and other users need root")
@pytest.mark.parametrize("run", [run for _, run in COPES], ids=[name for name, _ in COPES])
def test_a_command_that_copes_with_the_failure(run: str, folder: Path) -> None:
    code, told, stderr = explained(Case("", run, ""), folder)
    assert (code, told["command"]["exit_code"], told["causes"]) == (0, 0, []), json.dumps([told, stderr], indent=1)


def test_the_guide_lists_these_cases() -> None:
    guide = (Path(__file__).parents[3] / "docs/guides/why-cases.md").read_text()
    rows = [f"| {case.title} | {f'`{case.kind}`' if case.kind else '-'} |" for case in CASES]
    rows += [f"- {build.title}\n" for build in BUILDS_THAT_WORK]
    assert [row for row in rows if row not in guide] == [] and guide.count("\n| ") >= len(rows)
