"""The command leadline, and python -m leadline."""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False  # that of `typing`, which is imported when nothing looks for garbage
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    # What is imported here stays: to look for garbage in it takes a tenth of a short command, while it starts and when it ends.
    gc.disable()
    import signal

    from leadline.cli import run
    from leadline.cli.streams import open_streams

    gc.freeze()
    gc.set_threshold(100_000)  # nor does a short command make enough garbage to look for it
    gc.enable()
    open_streams()
    # As `timeout`, service managers and a terminal that is closed end it: what is half done is removed, as on Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    _leave(run(sys.argv[1:]))


def _leave(code: int) -> NoReturn:
    """Ends the process. What Python would do besides, freeing each object, takes a tenth of a short command."""
    import contextlib

    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # run() has said already what could not be written
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
