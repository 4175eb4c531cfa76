"""Records one of several servers, in a process of its own, until its stdin ends.

    python -m leadline.recorder.one < WANTED

WANTED: one line, a JSON object as leadline.recorder.servers tells it. A connection string may have a password: everybody sees arguments.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from leadline.errors import LeadlineError
from leadline.probes.options import Options
from leadline.probes.recording import stop_on_signal
from leadline.recorder.detail import Bounds
from leadline.recorder.retention import Level, Limits
from leadline.recorder.run import Recorder, World


def record(told: dict[str, Any]) -> int:
    def say(text: str) -> None:
        print(f"{told['name']}: {text}", file=sys.stderr, flush=True)

    levels = tuple(Level(**level) for level in told["limits"]["levels"])
    recorder = Recorder(
        Path(told["directory"]), Options(**told["options"]), Limits(**told["limits"] | {"levels": levels}), World(say=say),
        findings_s=told["findings_s"], detail=Bounds(**told["detail"]), baseline=told["baseline"],
    )  # fmt: skip
    with stop_on_signal() as stop:
        threading.Thread(target=_end_with_stdin, args=(stop,), daemon=True).start()
        try:
            recorder.run(stop)
        except LeadlineError as e:
            say(f"error: {e.message}" + (f" ({e.detail})" if e.detail else ""))
            return 2
    return 0


def _end_with_stdin(stop: threading.Event) -> None:
    while os.read(sys.stdin.fileno(), 1):  # not over sys.stdin, whose lock would be held when the interpreter ends
        pass
    stop.set()


if __name__ == "__main__":
    sys.exit(record(json.loads(sys.stdin.buffer.readline())))
