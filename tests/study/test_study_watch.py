"""The captures beside the trials: one process makes them, and what goes wrong with one is told and no more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Server
from findings_synthetic import SyntheticCapture
from leadline.capture.manifest import ProbeState, read_manifest, write_manifest
from leadline.compare.environment import of_capture
from leadline.compare.moved import sums_of
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


BUSY = "select count(*) from generate_series(1, 2000000) a where sqrt(a) < 7"


def test_a_profile_has_the_functions_that_used_the_cpu(servers: Callable[[int], Server], tmp_path: Path) -> None:
    server, watcher, of = servers(18), Watcher(), {}
    for name, profile in (("plain", False), ("profile", True)):
        with watcher.watching(server.dsn, tmp_path / f"{name}.leadline", profile=profile):
            server.sql(BUSY)
        assert not watcher.problem
        assert not watcher.not_profiled
        side = of_capture(tmp_path / f"{name}.leadline")
        assert side.capture is not None
        of[name] = sums_of(side)
        side.capture.close()
    watcher.close()
    assert "functions" not in of["plain"].parts
    functions = of["profile"].parts["functions"]
    cpu_s = of["profile"].parts["waits"]["CPU"]
    assert 0.3 * cpu_s < sum(functions.values()) < 2 * cpu_s + 0.3, functions
    assert len(functions) > 3


def test_a_host_that_allows_no_profile_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def captured(_watcher: Watcher, line: str) -> str:
        if line != "null":
            path = SyntheticCapture(tmp_path).write()
            manifest = read_manifest(path)
            manifest.probes["kernel"] = ProbeState("off", "CAP_BPF is missing")
            write_manifest(path, manifest)
        return ""

    monkeypatch.setattr(Watcher, "_ask", captured)
    watcher = Watcher()
    with watcher.watching("", tmp_path / "synthetic.leadline", profile=True):
        pass
    assert (watcher.problem, watcher.not_profiled) == ("", "CAP_BPF is missing")


def test_a_capture_that_cannot_be_read_is_not_in_the_way_of_its_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watcher, "_ask", lambda *_: "")
    watcher = Watcher()
    with watcher.watching("", tmp_path / "none.leadline", profile=True):
        pass
    assert (watcher.problem, watcher.not_profiled) == ("", "no such capture")
