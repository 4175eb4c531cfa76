"""The command leadline, and python -m leadline."""

from __future__ import annotations

import gc
import sys
from typing import NoReturn


def main() -> NoReturn:
    # What is imported here stays: to look for garbage in it takes a tenth of a short command, while it starts and when it ends.
    gc.disable()
    from leadline.cli import run
    from leadline.cli.streams import open_streams

    gc.freeze()
    gc.enable()
    open_streams()
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
