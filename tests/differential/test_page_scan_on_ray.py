"""`page scan --engine ray` on a cluster of Ray of this host. Oracle: the same scan in threads, whose files must be the same to the byte.

Only with LEADLINE_LONG_TESTS=1, and where Ray is installed (pip install leadline[ray]): each cluster takes half a minute and 1 GB.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from conftest import no_oracle, wait_until
from leadline.cli import run
from leadline.files.pages import scan
from page_tasks import FILES, WAITING, made, tables_of_a_task_each
from recovery import only_in_long_runs
from task_faults import Faults, ray_node

SUPPORT = Path(__file__).resolve().parents[1] / "support"
TABLES = ("page", "heap_tuple")


@pytest.fixture(scope="module")
def relations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tables_of_a_task_each(tmp_path_factory.mktemp("on-ray") / "5")


@pytest.fixture(scope="module")
def whole(relations: Path) -> Path:
    out = relations.parent / "threads.leadline"
    assert run(["page", "scan", str(relations), "-o", str(out)]) == 0
    return out


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head without CPUs, where no task runs, and two nodes of one CPU."""
    if importlib.util.find_spec("ray") is None:
        no_oracle("no ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # loopback addresses
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SUPPORT), *filter(None, sys.path)]))
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 80 << 20, "include_dashboard": False})
    try:
        made.workers = [made.add_node(num_cpus=1, object_store_memory=80 << 20) for _ in range(2)]  # type: ignore[attr-defined]
        made.wait_for_nodes()
        monkeypatch.setenv("RAY_ADDRESS", made.address)
        yield made
    finally:
        made.shutdown()


def scanned(relations: Path, out: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the cluster, with what happens to tasks there."""
    with monkeypatch.context() as patch:
        patch.setattr(scan, "run_task", faults.run_task)
        assert run(["page", "scan", str(relations), "-o", str(out), "--engine", "ray"]) == 0


@only_in_long_runs
def test_the_files_are_those_of_threads(relations: Path, whole: Path, cluster: Any, tmp_path: Path) -> None:
    out = tmp_path / "out.leadline"
    assert run(["page", "scan", str(relations), "-o", str(out), "--engine", "ray"]) == 0
    assert made(out, TABLES) == made(whole, TABLES)


@only_in_long_runs
def test_a_task_that_raises_once_is_run_again(
    relations: Path, whole: Path, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, faults = tmp_path / "out.leadline", Faults(tmp_path, "raise", ray_node)
    scanned(relations, out, faults, monkeypatch)
    assert made(out, TABLES) == made(whole, TABLES)
    assert len(faults.begun()) == FILES + 1


@only_in_long_runs
def test_a_killed_worker_is_replaced(
    relations: Path, whole: Path, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It kills itself with its part written and no receipt given."""
    out, faults = tmp_path / "out.leadline", Faults(tmp_path, "kill", ray_node)
    scanned(relations, out, faults, monkeypatch)
    assert made(out, TABLES) == made(whole, TABLES)
    assert len(faults.begun()) == FILES + 1


@only_in_long_runs
def test_tasks_of_a_removed_node_run_on_the_other(
    relations: Path, whole: Path, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both nodes have begun a task, and one is removed before either ends."""
    out, faults = tmp_path / "out.leadline", Faults(tmp_path, "wait", ray_node)
    removed = cluster.workers[1]

    def remove() -> None:
        wait_until(lambda: len({node for node, _ in faults.begun()}) == 2, 60, "a task on each node")
        cluster.remove_node(removed, allow_graceful=False)
        faults.go_on()

    remover = Thread(target=remove)
    remover.start()
    scanned(relations, out, faults, monkeypatch)
    remover.join()
    assert made(out, TABLES) == made(whole, TABLES)
    assert removed.node_id in {node for node, _ in faults.begun()}
    assert len(faults.begun()) == FILES + 1


@only_in_long_runs
def test_a_killed_driver_goes_on(relations: Path, whole: Path, cluster: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.leadline"
    line = ["page", "scan", str(relations), "-o", str(out), "--engine", "ray"]
    with subprocess.Popen([sys.executable, "-c", WAITING, "2", *line], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"kept\n"
        process.send_signal(signal.SIGKILL)
    capfd.readouterr()
    assert run([*line, "--resume"]) == 0
    assert f"2 tasks of {FILES} done before\n" in capfd.readouterr().err
    assert made(out, TABLES) == made(whole, TABLES)
