"""What the CPUs of this machine do to a benchmark, and how to hold it still."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager


@contextmanager
def awake() -> Iterator[None]:
    """Keeps every CPU from sleeping, for which waking up takes longer the longer it slept; any other thread comes first."""

    def spin(cpu: int) -> None:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        os.sched_setaffinity(0, {cpu})
        while True:
            pass

    spinners = [multiprocessing.Process(target=spin, args=(cpu,), daemon=True) for cpu in os.sched_getaffinity(0)]
    for spinner in spinners:
        spinner.start()
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.join()


@contextmanager
def on(cpus: Collection[int]) -> Iterator[None]:
    """This thread, and what it starts, runs on these CPUs only. Where two ends of a socket run decides how long a byte takes."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def ends() -> tuple[int, int]:
    """The CPUs of a client and of its server."""
    near, *_, far = sorted(os.sched_getaffinity(0))
    return near, far
