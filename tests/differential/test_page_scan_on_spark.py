"""The example of Spark in docs/guides/pages.md, as it is printed there. Oracle: the same scan in threads, whose files must be the same to
the byte.

Only with LEADLINE_LONG_TESTS=1, and where Java and Spark are installed (pip install pyspark): each run starts a JVM, for half a minute.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
from conftest import no_oracle, wait_until
from leadline.cli import run
from page_tasks import FILES, example_with, made, tables_of_a_task_each
from recovery import only_in_long_runs
from task_faults import LONGEST_S, Faults, spark_node

pytestmark = pytest.mark.timeout(2 * LONGEST_S)
SUPPORT = Path(__file__).resolve().parents[1] / "support"
TABLES = ("page", "heap_tuple")
NODES = "local-cluster[2,1,1024]"  # two executors of one CPU and 1 GB
# Before the example: what happens to its tasks.
FAULTY = """
from pathlib import Path
from leadline.files.pages import tasks
from task_faults import Faults, spark_node
tasks.run_task = Faults(Path({folder!r}), {what!r}, spark_node).run_task
"""
Submit = Callable[..., Path]


@pytest.fixture(scope="module")
def relations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tables_of_a_task_each(tmp_path_factory.mktemp("on-spark") / "5")


@pytest.fixture(scope="module")
def whole(relations: Path) -> Path:
    out = relations.parent / "threads.leadline"
    assert run(["page", "scan", str(relations), "-o", str(out)]) == 0
    return out


@pytest.fixture
def submit(relations: Path, tmp_path: Path) -> Submit:
    """Runs the example on a master that Spark starts, on loopback addresses. what: happens to tasks (Faults)."""
    spark = importlib.util.find_spec("pyspark")
    if spark is None or spark.origin is None:
        no_oracle("no pyspark")
    if shutil.which("java") is None:
        no_oracle("no java")
    home = tmp_path / "spark"  # a cluster writes below its home
    home.mkdir()
    for entry in Path(spark.origin).parent.iterdir():
        (home / entry.name).symlink_to(entry)
    path = os.pathsep.join([str(SUPPORT), *filter(None, sys.path)])
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(home), "PYTHONPATH": path}

    def submit(master: str, what: str = "") -> Path:
        out, script = tmp_path / "rows", tmp_path / "scan.py"
        before = FAULTY.format(folder=str(tmp_path), what=what) if what else ""
        script.write_text(before + example_with("SparkSession", {"/shared/rows": str(out), "/shared/main": str(relations)}))
        settings = ["--conf", f"spark.pyspark.python={sys.executable}", "--conf", "spark.ui.enabled=false"]
        line = [str(home / "bin" / "spark-submit"), "--master", master, *settings, str(script)]
        done = subprocess.run(line, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=2 * LONGEST_S)
        assert done.returncode == 0, done.stderr
        return out

    return submit


@only_in_long_runs
def test_the_files_are_those_of_threads(whole: Path, submit: Submit) -> None:
    assert made(submit("local[2]"), TABLES) == made(whole, TABLES)


@only_in_long_runs
def test_all_nodes_of_a_cluster_work_at_once(whole: Path, submit: Submit, tmp_path: Path) -> None:
    """Both executors have begun a task before either may go on."""
    faults = Faults(tmp_path, "wait", spark_node)

    def go_on() -> None:
        wait_until(lambda: len({node for node, _ in faults.begun()}) == 2, LONGEST_S, "a task on each node")
        faults.go_on()

    waiter = Thread(target=go_on)
    waiter.start()
    out = submit(NODES, "wait")
    waiter.join()
    assert made(out, TABLES) == made(whole, TABLES)
    assert len(faults.begun()) == FILES


@only_in_long_runs
@pytest.mark.parametrize("what", ["raise", "kill"])
def test_a_task_that_fails_once_is_run_again(whole: Path, submit: Submit, tmp_path: Path, what: str) -> None:
    """It raises, or its process is killed with its part written and no receipt given."""
    faults = Faults(tmp_path, what, spark_node)
    assert made(submit("local[2,4]", what), TABLES) == made(whole, TABLES)
    assert len(faults.begun()) == FILES + 1


@only_in_long_runs
def test_a_second_run_goes_on_where_the_first_failed(whole: Path, submit: Submit, tmp_path: Path) -> None:
    """local[2] runs a task once: the error ends the job. The parts of the others are made again as they were."""
    faults = Faults(tmp_path, "raise", spark_node)
    with pytest.raises(AssertionError, match="OSError: once"):
        submit("local[2]", "raise")
    assert made(submit("local[2]", "raise"), TABLES) == made(whole, TABLES)
    assert len(faults.begun()) > FILES
