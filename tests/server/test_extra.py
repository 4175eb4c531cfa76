"""The packages of `leadline serve` are an extra: what records imports none of them, and what needs them says so in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = ("starlette", "uvicorn", "argon2", "cryptography", "cronsim", "anyio")
BLOCKED = (
    "import sys\nfor name in sys.argv[1].split(','): sys.modules[name] = None\nfrom leadline.cli import run\nsys.exit(run(sys.argv[2:]))"
)
LOADED = """
import sys
from leadline.cli import run
code = run(sys.argv[2:])
names = set(sys.argv[1].split(","))
print([m for m in sys.modules if m.partition(".")[0] in names or m.startswith("leadline.server")], file=sys.stderr)
"""


def python(script: str, *words: str, book: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"LEADLINE_BOOK": str(book)}
    return subprocess.run(
        [sys.executable, "-c", script, ",".join(PACKAGES), *words], env=environment, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    "line", ["serve --listen 127.0.0.1:0", "user create ann --admin --password-file /dev/stdin", "secret set main x --value-file /dev/null"]
)
def test_what_needs_a_package_says_in_one_line_how_to_get_it(line: str, tmp_path: Path) -> None:
    if line.startswith("secret"):
        python(BLOCKED, "secret", "key", book=tmp_path / "book")
        line = line.replace("/dev/null", str(tmp_path / "value"))
        (tmp_path / "value").write_text("a value")
    if line.startswith("user"):
        line = line.replace("/dev/stdin", str(tmp_path / "password"))
        (tmp_path / "password").write_text("a long enough password")
    done = python(BLOCKED, *line.split(), book=tmp_path / "book")
    assert done.returncode == 2
    assert done.stderr.count("error: ") == 1
    assert "hint: pip install 'leadline[web]'" in done.stderr


@pytest.mark.parametrize("line", ["run -- true", "tables session", "book list"])
def test_recording_imports_none_of_it(line: str, tmp_path: Path) -> None:
    assert python(LOADED, *line.split(), book=tmp_path / "book").stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("line", ["user projects", "template list", "schedule list", "run -- true"])
def test_what_needs_no_package_works_without_them(line: str, tmp_path: Path) -> None:
    done = python(BLOCKED, *line.split(), book=tmp_path / "book")
    assert (done.returncode, "error" in done.stderr) == (0, False), done.stderr
