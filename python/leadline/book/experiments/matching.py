"""A regular expression of somebody else, looked for in what a command printed: in a process that ends when it takes too long.

Python's expressions can try so many ways that they never end, for example (a+)+$ on a line of many a, and nothing else runs meanwhile.
"""

from __future__ import annotations

import resource
import subprocess
import sys

MOST_CPU_S = 10
MOST_MEMORY = 2 << 30
LONGEST = 1000  # characters of what is given back
NOT_FOUND = 3
LOOK = f"""
import re, sys
found = None
for match in re.compile(sys.argv[1], re.MULTILINE).finditer(sys.stdin.buffer.read().decode("utf-8", "replace")):
    found = match
if found is None:
    sys.exit({NOT_FOUND})
sys.stdout.buffer.write((found[1] or "")[:{LONGEST}].encode("utf-8", "replace"))
"""


class TooMuch(Exception):
    """It took too much time or memory."""


def last_match(pattern: str, output: bytes) -> str | None:
    """What the first group of a pattern that compiles is where it matches last. Raises TooMuch."""

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    command = [sys.executable, "-I", "-S", "-c", LOOK, pattern]
    done = subprocess.run(command, input=output, capture_output=True, check=False, preexec_fn=bound)
    if done.returncode not in (0, NOT_FOUND):
        raise TooMuch
    return done.stdout.decode() if done.returncode == 0 else None
