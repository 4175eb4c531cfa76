"""Tasks on a cluster of Ray, or in processes that Ray starts on this host.

A task runs where Ray puts it and writes its parts from there: all nodes need the same files under the same paths, and this leadline. Only
receipts come back. Ray runs a task again whose process or node is lost, or that raised an error: it makes the same files.
The cluster is the one that RAY_ADDRESS names; `auto` is one that runs on this host.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from leadline.errors import LeadlineError
from leadline.files.tasks import Receipt, Task

RETRIES = 3
WAITING = 1000  # tasks that Ray is given at a time: so many that a cluster sees how much there is to do


class Ray:
    """An engine."""

    def __init__(self) -> None:
        self._address = os.environ.get("RAY_ADDRESS", "")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else Ray reports to its makers
        if not self._address:
            # Whoever reaches the ports of Ray can run anything: with this, Ray takes loopback addresses (ray_constants.py), also on Linux.
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        try:
            import ray
        except ImportError as e:
            hint = "pip install leadline[ray], here and on all nodes of the cluster"
            raise LeadlineError("unsupported", "Ray is not installed", detail=str(e), hint=hint) from e
        self._ray = ray

    def __call__(self, tasks: Iterable[Task], work: Callable[[Task], Receipt]) -> Iterator[Receipt]:
        ray = self._ray
        ours = not ray.is_initialized()
        if ours:
            self._connect()
        try:
            remote = ray.remote(num_cpus=1, max_retries=RETRIES, retry_exceptions=True)(work_on)
            shared, rest, waiting = ray.put(work), iter(tasks), list[Any]()
            while waiting := waiting + [remote.remote(shared, task) for task in islice(rest, WAITING - len(waiting))]:
                ended, waiting = ray.wait(waiting)
                yield self._given(ended[0])
        finally:
            if ours:
                ray.shutdown()

    def _connect(self) -> None:
        new = {} if self._address else {"include_dashboard": False}
        try:
            self._ray.init(self._address or "local", log_to_driver=False, logging_level="error", **new)
        except Exception as e:  # what it raises where its processes do not start is of no other class
            hint = "RAY_ADDRESS names the cluster; without it, Ray starts processes on this host"
            raise LeadlineError("connection", "cannot use Ray", detail=str(e), hint=hint, where=self._address) from e

    def _given(self, ended: Any) -> Receipt:
        errors = self._ray.exceptions
        try:
            receipt: Receipt = self._ray.get(ended)
        except errors.RayTaskError as e:
            if isinstance(e.cause, LeadlineError):
                raise e.cause from None
            raise LeadlineError("fault", f"a task failed {RETRIES + 1} times", detail=repr(e.cause)) from e
        except errors.RayError as e:
            detail = " ".join(str(e).split())
            raise LeadlineError("gone", f"a task was lost {RETRIES + 1} times", detail=detail, hint="see the logs of Ray") from e
        return receipt


def work_on(work: Callable[[Task], Receipt], task: Task) -> Receipt:
    """What a process of Ray runs."""
    return work(task)
