"""docs/guides/ansible.md: each command on it is run, in the order of the page, and prints what stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_runs import Site, site
from books import Run

__all__ = ["Run", "site"]
pytestmark = pytest.mark.timeout(1500)  # a busy host is slow
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "ansible.md"


def steps() -> list[tuple[str, list[str]]]:
    """Commands with the lines that they print. `...` stands for anything; `[N]` in the end is an exit code."""
    out: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^```console\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                out.append((line[2:], []))
            elif line.startswith("> "):
                out[-1] = (f"{out[-1][0]}\n{line[2:]}", out[-1][1])
            else:
                out[-1][1].append(line)
    return out


def pattern_of(lines: list[str]) -> str:
    """ID, TIME, N and ... are what differs from run to run; so does the width of columns."""
    out = ""
    for line in lines:
        if line == "...":
            out += r"(?:.*\n)*?"
            continue
        words = re.escape(re.sub(r"-{2,}", "-", re.sub(r" +", " ", line.strip())))
        for known, wild in (("TIME", r"\d{4}-\d\d-\d\d\ \d\d:\d\d:\d\d"), (r"\.\.\.", ".*")):
            words = words.replace(known, wild)
        words = re.sub(r"\bID\b", "[0-9a-z]{5}", re.sub(r"\bN\b", r"[\\d.]+", words))
        out += f"{words}\n"
    return out


def plain(text: str) -> str:
    return "".join(re.sub(r"-{2,}", "-", re.sub(r" +", " ", line.strip())) + "\n" for line in text.splitlines())


def test_the_commands_of_the_guide_print_what_it_says(site: Site) -> None:
    site.more |= {"XDG_DATA_HOME": str(site.folder / "data"), "PATH": f"{Path(sys.executable).parent}:{site.environment['PATH']}"}
    site.plugins = []
    environment = {name: value for name, value in site.environment.items() if name != "ANSIBLE_CALLBACK_PLUGINS"}
    found = steps()
    script = "".join(f"echo 'STEP {n}' | tee /dev/stderr >/dev/null\n{command}\necho \"[$?]\"\n" for n, (command, _) in enumerate(found))
    done = subprocess.run(
        ["bash", "-c", f"exec 2>&1\n{script}"], cwd=site.folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=900, check=False,
    )  # fmt: skip
    said = re.split(r"^STEP \d+\n", done.stdout, flags=re.MULTILINE)[1:]
    assert len(said) == len(found) == 13
    for (command, expected), text in zip(found, said):
        code = expected[-1] if expected and re.fullmatch(r"\[\d+\]", expected[-1]) else "[0]"
        lines = [line for line in expected if line != code]
        assert re.fullmatch(pattern_of([*lines, code]), plain(text)), f"$ {command}\n{text}"
