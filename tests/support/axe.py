"""axe-core, which finds barriers of a page for people with disabilities: fetched once from npm, cached, never needed by a user."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from locked import locked
from servers import Unavailable, cache_dir, check, extract

VERSION = "4.14.1"
CHECKSUM = "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="  # as the registry states it
RUN = """const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]}).then(found => done(found.violations.map(v => [v.id, v.help, v.nodes.map(n => n.html)])),
                                                      error => done([["axe failed", String(error), []]]));"""


def script(cache: Path | None = None) -> str:
    """The text of axe.min.js. Raises Unavailable. Safe to call from several processes."""
    cache = cache or cache_dir()
    cache.mkdir(parents=True, exist_ok=True)
    kept = cache / f"axe-core-{VERSION}.min.js"
    with locked(cache, "axe-core"):
        if not kept.exists():
            _fetch(kept)
        return kept.read_text(encoding="utf-8")


def _fetch(kept: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("npm is not installed")
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix="fetching-") as scratch:
        line = [npm, "pack", f"axe-core@{VERSION}", "--ignore-scripts", "--pack-destination", scratch]
        try:
            done = subprocess.run(line, cwd=scratch, capture_output=True, text=True, timeout=180)
        except subprocess.TimeoutExpired as e:
            raise Unavailable("npm did not end in 180 s") from e
        archives = list(Path(scratch).glob("*.tgz"))
        if done.returncode != 0 or len(archives) != 1:
            raise Unavailable(f"npm pack failed: {(done.stderr or done.stdout).strip()[-200:]}")
        check(archives[0], CHECKSUM)
        with tarfile.open(archives[0]) as tar:
            extract(tar, Path(scratch))
        (Path(scratch) / "package" / "axe.min.js").rename(kept)


def violations(driver: Any, text: str) -> list[Any]:
    """What axe finds on the page that a WebDriver shows: rule, what it asks for, and the elements."""
    driver.set_script_timeout(120)
    driver.execute_script(text)
    found: list[Any] = driver.execute_async_script(RUN)
    return found
