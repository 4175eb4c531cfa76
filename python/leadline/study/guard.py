"""Waits beside a study on a server that is not ours. If the study is killed, it puts the server back as it was.

    python -m leadline.study.guard JOURNAL < DSN        says "ready"; a further line "done" means that all is well
"""

from __future__ import annotations

import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from leadline.errors import LeadlineError
from leadline.study.servers import put_back

TRIES, PAUSE_S = 30, 1.0  # a server that restarts does not answer for a while


def main(journal: Path) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    dsn = sys.stdin.readline().rstrip("\n")
    with suppress(BrokenPipeError):
        print("ready", flush=True)
    if sys.stdin.readline() == "done\n":
        return 0
    for _ in range(TRIES):
        try:
            put_back(dsn, journal)
            return 0
        except (LeadlineError, OSError, ValueError):
            time.sleep(PAUSE_S)
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
