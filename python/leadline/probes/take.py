"""Takes a capture: finds what to measure, attaches the probes (attaching.py), and records with them (recording.py)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from leadline.capture import manifest
from leadline.capture.directory import new_capture
from leadline.engines.live import all_live, find
from leadline.probes.attaching import Attached, attach
from leadline.probes.host import HostProbe
from leadline.probes.options import Options
from leadline.probes.overhead import OverheadProbe
from leadline.probes.probe import Probe
from leadline.probes.recording import POLL_UNTIL_S, Recording, cpu_s
from leadline.progress import Progress, Silent


def take(*, progress: Progress | None = None, **options: Any) -> Path:
    """Takes a capture and gives its directory. options: the fields of `leadline.probes.options.Options`; `for_s` must be given.

    Ctrl-C or SIGTERM ends the window early and keeps everything.
    Raises LeadlineError; when the capture had begun, its `where` is the directory that was kept.
    """
    return take_with(Options(**options), progress or Silent())


def take_with(
    options: Options, progress: Progress, until: Callable[[], bool] | None = None, begun: Callable[[], None] | None = None,
    *, every_s: float = POLL_UNTIL_S, stop: threading.Event | None = None, attached: Callable[[Sequence[Probe]], None] | None = None,
) -> Path:  # fmt: skip
    """As `take`. until: ends it before for_s have passed, asked each every_s; begun: called when all probes look.

    stop: is set when the user wants the end; without it SIGINT and SIGTERM say so. attached: called with the probes before they begin.
    """
    cpu_at_call = cpu_s()
    options.check()
    server = None if options.host else find(options.dsn, options.pid, options.data_dir)
    with new_capture(options.out, overwrite=options.overwrite) as directory:
        beside = [
            probe
            for live in all_live()
            for probe in live.beside(server, pooler=options.pooler, others=options.others, tier=options.tier)
        ]
        if server is None:
            evidence, found = this_host(), Attached([HostProbe(directory, options.rate, required=True)])
        else:
            evidence, found = server.evidence(), attach(server, directory, options)
        probes = [*found.probes, *beside, OverheadProbe(directory)]
        recording = Recording(directory, evidence, probes, progress, options.recorded(), found.notes, cpu_at_call)
        recording.manifest.probes |= found.absent
        if attached is not None:
            attached(probes)
        recording.run(options.for_s, until, begun, every_s=every_s, stop=stop)
    return directory


def this_host() -> manifest.Target:
    """The host as the target of a capture."""
    return manifest.Target("host", manifest.Host.this().name, cpu_count=os.cpu_count())
