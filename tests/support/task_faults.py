"""What happens once to the tasks of a scan on a cluster: one raises, its process is killed, or all wait until they may go on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from leadline.files.pages import tasks
from leadline.files.tasks import Receipt, Task, task_name

LONGEST_S = 300  # until all nodes have begun a task, on a busy host


def ray_node() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())


def spark_node() -> str:
    """Each executor has a working directory, whose name is its number."""
    return Path.cwd().name


class Faults:
    """Of one scan. Goes to the processes of the cluster with the task; what they tell each other are files below a folder that all have.

    node: says in such a process which node it is of.
    """

    def __init__(self, folder: Path, what: str, node: Callable[[], str]) -> None:
        self._folder, self._what, self._node = folder / "faults", what, node
        (self._folder / "begun").mkdir(parents=True, exist_ok=True)

    def run_task(self, task: Task, directory: str, key: str | None = None) -> Receipt:
        (self._folder / "begun" / f"{self._node()}.{os.getpid()}.{task_name(task)}.{os.urandom(4).hex()}").touch()
        if self._what == "wait":
            self._wait()
        if self._what == "raise" and self._is_first():
            raise OSError("once")
        receipt = tasks.run_task(task, directory, key=key)
        if self._what == "kill" and self._is_first():
            os.kill(os.getpid(), signal.SIGKILL)
        return receipt

    def begun(self) -> list[tuple[str, str]]:
        """Node and task of each run of a task."""
        names = [file.name.split(".") for file in (self._folder / "begun").iterdir()]
        return [(node, task) for node, _, task, _ in names]

    def go_on(self) -> None:
        self._may_go_on.touch()

    @property
    def _may_go_on(self) -> Path:
        return self._folder / "go-on"

    def _wait(self) -> None:
        deadline = time.monotonic() + LONGEST_S
        while not self._may_go_on.exists():
            if time.monotonic() > deadline:
                raise TimeoutError("no word to go on")
            time.sleep(0.02)

    def _is_first(self) -> bool:
        try:
            (self._folder / "first").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True
