"""Takes one detail capture beside the recording, in a process of its own: every probe that the rights allow, 1,000 passes a second.

    python -m leadline.recorder.detailer < OPTIONS          prints what became of it and what that cost, as JSON

OPTIONS: a JSON object: `options` of the capture (probes.options.Options), `most_bytes` that it may take, `free_bytes` that the disk keeps.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from leadline.capture.manifest import read_manifest
from leadline.errors import LeadlineError
from leadline.probes.options import PROBES, Options
from leadline.probes.take import take_with
from leadline.progress import Silent
from leadline.recorder.child import report
from leadline.recorder.pieces import used_bytes

RATE_HZ, HOST_RATE_HZ = 1000.0, 10.0
KERNEL_BUDGET = 0.1  # of a core, for the trace of a server that may be in trouble
LOOK_S = 0.5


def full(options: Options, for_s: float, out: Path, about: dict[str, Any]) -> dict[str, Any]:
    """The options of a detail capture of the same server, as JSON has them."""
    return {
        "dsn": options.dsn, "pid": options.pid, "data_dir": None if options.data_dir is None else str(options.data_dir),
        "host": options.host, "tier": options.tier, "for_s": for_s, "out": str(out), "keep_going": True, "recorder": about,
        "rate_hz": HOST_RATE_HZ if options.host else max(options.rate, RATE_HZ), "probes": None if options.host else list(PROBES),
        "kernel_detail": "sums", "kernel_budget": KERNEL_BUDGET,
    }  # fmt: skip


def capture(wanted: dict[str, Any]) -> dict[str, Any]:
    """Raises LeadlineError."""
    out = Path(wanted["options"]["out"])
    options = Options(**wanted["options"] | {"out": out})
    grown = ""

    def is_enough() -> bool:
        nonlocal grown
        room = os.statvfs(out.parent)
        if used_bytes(out) >= wanted["most_bytes"]:
            grown = "its limit of size"
        elif room.f_bavail * room.f_frsize < wanted["free_bytes"]:
            grown = "lack of room on the disk"
        return bool(grown)

    error = None
    try:
        take_with(options, Silent(), is_enough, every_s=LOOK_S)
    except LeadlineError as e:
        if not (out / "manifest.json").exists() or read_manifest(out).clock.ts_from is None:
            raise
        error = e.message  # it has a part of what was wanted
    manifest = read_manifest(out)
    absent = {name: state.why or state.status for name, state in manifest.probes.items() if state.status == "off" and name in PROBES}
    return {
        "window_s": round(manifest.clock.window_s or 0.0, 3), "absent": absent, "ended_by": grown or error or "", "bytes": used_bytes(out),
    }  # fmt: skip


def main(wanted: str) -> int:
    return report(lambda: capture(json.loads(wanted)), "the detail capture")


if __name__ == "__main__":
    sys.exit(main(sys.stdin.read()))
