"""The captures beside the trials: one process makes them, and what goes wrong with one is told and no more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from conftest import Server
from leadline.capture.manifest import read_manifest
from leadline.study.watch import Watcher


def test_each_trial_has_its_capture_and_one_that_fails_is_told(servers: Callable[[int], Server], tmp_path: Path) -> None:
    server, watcher = servers(18), Watcher()
    threads = len(list(Path("/proc/self/task").iterdir()))
    for name in ("one", "two"):
        with watcher.watching(server.dsn, tmp_path / f"{name}.leadline"):
            server.sql("select 1")
            assert len(list(Path("/proc/self/task").iterdir())) == threads, "none that could take a signal from who waits for the trial"
        assert not watcher.problem and read_manifest(tmp_path / f"{name}.leadline").status == "complete"
    with watcher.watching("host=/nowhere dbname=x", tmp_path / "none.leadline"):
        pass
    assert "cannot be reached" in watcher.problem and not (tmp_path / "none.leadline").exists()
    with watcher.watching(server.dsn, tmp_path / "three.leadline"):
        pass
    assert not watcher.problem
    watcher.close()
