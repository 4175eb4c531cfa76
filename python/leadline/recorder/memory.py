"""Memory of a process that runs for months: what it has freed goes back to the system, and few arenas keep what is free.

glibc gives each of up to eight threads for each CPU an arena of its own, which stays as large as it ever was. A recorder begins its threads
anew with each piece, and each of them may find another arena. So its memory would grow with each piece for a long time, though nothing is
lost. What Python objects hold in cycles (probes, and what they have attached) goes only when the collector comes to the oldest
generation, which may take many pieces.
"""

from __future__ import annotations

import ctypes
import gc

ARENAS = 2
M_ARENA_MAX = -8  # <malloc.h>


def few_arenas() -> None:
    """For the threads that begin from now on. Without glibc, nothing."""
    if (mallopt := _of_libc("mallopt")) is not None:
        mallopt(M_ARENA_MAX, ARENAS)


def give_back() -> None:
    """What is not used any more, to the system."""
    gc.collect()
    if (trim := _of_libc("malloc_trim")) is not None:
        trim(0)


def _of_libc(name: str) -> ctypes._NamedFuncPointer | None:
    return getattr(ctypes.CDLL(None), name, None)
