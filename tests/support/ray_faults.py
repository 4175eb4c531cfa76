"""What happens once to the tasks of a scan on a cluster of Ray: one raises, its process is killed, or all wait until they may go on."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from leadline.files.pages import tasks
from leadline.files.tasks import Receipt, Task, task_name


class Faults:
    """Of one scan. Goes to the processes of Ray with the task; what they tell each other are files below a folder that all have."""

    def __init__(self, folder: Path, what: str) -> None:
        self._folder, self._what = folder / "faults", what
        (self._folder / "begun").mkdir(parents=True)

    def run_task(self, task: Task, directory: str, key: str | None = None) -> Receipt:
        import ray

        node = ray.get_runtime_context().get_node_id()
        (self._folder / "begun" / f"{node}.{os.getpid()}.{task_name(task)}.{os.urandom(4).hex()}").touch()
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
        deadline = time.monotonic() + 120
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
