"""Each header of the BPF programs compiles alone, so none is a piece of another file, and none includes itself by way of another."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import no_oracle

FOLDER = Path(__file__).parents[2] / "crates" / "kernel" / "bpf"
HEADERS = sorted(FOLDER.glob("*.h"))
CLANG = os.environ.get("CLANG", "clang")


def included(file: Path) -> list[str]:
    return re.findall(r'^#include "(.*)"$', file.read_text(), re.MULTILINE)


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.name)
def test_a_header_compiles_alone(header: Path) -> None:
    if not shutil.which(CLANG):
        no_oracle(f"{CLANG} is not installed")
    machine = f"-I/usr/include/{platform.machine()}-linux-gnu"
    done = subprocess.run([CLANG, "-fsyntax-only", "-x", "c", "-target", "bpf", machine, str(header)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_headers_with_programs_are_named_as_such_and_all_are_part_of_the_object() -> None:
    section = re.compile(r'^SEC\("[\w/]+"\)$', re.MULTILINE)
    with_programs = {header.name for header in HEADERS if section.search(header.read_text())}
    assert with_programs == {header.name for header in FOLDER.glob("*.bpf.h")}
    seen: set[str] = set()
    new = set(included(FOLDER / "trace.bpf.c"))
    while new:
        seen |= new
        new = {name for header in new for name in included(FOLDER / header)} - seen
    assert seen == {header.name for header in HEADERS}


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.name)
def test_no_header_leads_back_to_itself(header: Path) -> None:
    seen: set[str] = set()
    new = set(included(header))
    while new:
        seen |= new
        new = {name for other in new for name in included(FOLDER / other)} - seen
    assert header.name not in seen
