"""Runs the screen: the temporary directory and the recorder around it, and an orderly end on every signal that asks for one."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from leadline.engines.live import Server
from leadline.errors import LeadlineError
from leadline.top.app import TopApp
from leadline.top.directory import temporary_directory
from leadline.top.engine import Engine
from leadline.top.signals import on_signal
from leadline.top.terminal import forgiving_terminal


def watch(
    target: Server, rate_hz: float, tier: str, window_s: float, refresh_s: float, read_only: bool = False, others: Sequence[str] = ()
) -> int:
    """Shows the server until the user quits. Gives 0, or raises the LeadlineError that ended the recording meanwhile."""
    app: TopApp | None = None
    asked = threading.Event()

    def end() -> None:
        asked.set()
        if app is not None:
            app.end_soon()

    with on_signal(end), temporary_directory() as directory:
        engine = Engine(target, directory, rate_hz, tier, others=others)
        try:
            engine.start()
            app = TopApp(engine, window_s, refresh_s, read_only)
            if not asked.is_set():
                with forgiving_terminal():
                    app.run()
            app.stop_refreshing()
        finally:
            engine.close()
    error: LeadlineError | None = app.failure or engine.feed.error
    if error is not None:
        raise error
    return 0
