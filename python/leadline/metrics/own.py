"""What the recorder itself is and costs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from leadline.host.proc import PROC, read_text, start_unix_s
from leadline.metrics.families import OWN_CPU, OWN_MEMORY, OWN_START, VERSION, Reading
from leadline.probes.recording import cpu_s
from leadline.version import version

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class OwnSource:
    def __init__(self) -> None:
        # Once: a wall clock that is set must not look like a restart.
        self.start_ns = round((start_unix_s(os.getpid()) or time.time()) * 1e9)

    def readings(self) -> Iterable[Reading]:
        yield Reading(OWN_CPU, (((), round(cpu_s() * 1e9)),), self.start_ns)
        pages = (read_text(PROC / "self/statm") or "").split()
        if len(pages) > 1:
            yield Reading(OWN_MEMORY, (((), int(pages[1]) * PAGE_BYTES),), self.start_ns)
        yield Reading(OWN_START, (((), self.start_ns),), self.start_ns)
        yield Reading(VERSION, (((version(),), 1),), self.start_ns)
