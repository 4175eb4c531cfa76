"""A server in the background: started, found again, and stopped by a file beside the book that names its process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from leadline.book.place import Place
from leadline.errors import LeadlineError
from leadline.host import proc

START_S, STOP_S = 20.0, 20.0


def _note(place: Place) -> Path:
    return place.root / "server.json"


def log_of(place: Place) -> Path:
    return place.root / "server.log"


def running(place: Place) -> tuple[int, str] | None:
    """Process and address of the server in the background, if it is still the same process."""
    try:
        note = json.loads(_note(place).read_text())
        pid, start, url = int(note["pid"]), int(note["start"]), str(note["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (pid, url) if proc.lives(pid, start) else None


def public_url(place: Place) -> str:
    """The address for users of the server that runs now, without / at its end; empty if none runs."""
    there = running(place)
    try:
        return str(json.loads(_note(place).read_text()).get("public") or there[1]).rstrip("/") if there else ""
    except (OSError, ValueError, AttributeError, TypeError):
        return ""


def warned(place: Place) -> list[str]:
    """What the server in the background had to say when it began."""
    try:
        return [str(line) for line in json.loads(_note(place).read_text()).get("warnings", [])]
    except (OSError, ValueError, AttributeError, TypeError):
        return []


def announce(place: Place, url: str, public: str, warnings: list[str]) -> None:
    """Called by the server when it listens."""
    note = _note(place)
    fresh = note.with_suffix(".tmp")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "w") as file:
        json.dump({"pid": os.getpid(), "start": proc.start_ticks(os.getpid()), "url": url, "public": public, "warnings": warnings}, file)
    fresh.replace(note)


def forget(place: Place) -> None:
    _note(place).unlink(missing_ok=True)


def start(place: Place, options: list[str]) -> tuple[int, str]:
    """Process and address, once it listens. Raises LeadlineError."""
    if (there := running(place)) is not None:
        raise LeadlineError("usage", f"a server of this book is running already at {there[1]}", hint="leadline serve --stop")
    place.make()
    fd = os.open(log_of(place), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as log:
        before = log.tell()
        child = subprocess.Popen(
            [sys.executable, "-m", "leadline", "serve", *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=place.root,
        )
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if (there := running(place)) is not None and there[0] == child.pid:
            return there
        if child.poll() is not None:
            said = log_of(place).read_bytes()[before:].decode("utf-8", "replace").strip()
            raise LeadlineError("usage", "the server did not start", detail=said[-500:].replace("\n", " "), where=str(log_of(place)))
        time.sleep(0.05)
    child.terminate()
    raise LeadlineError("connection", f"the server does not listen after {START_S:g} s", where=str(log_of(place)))


def stop(place: Place) -> int:
    """The process that was ended. Raises LeadlineError if there was none. Runs that it started go on."""
    there = running(place)
    if there is None:
        forget(place)
        raise LeadlineError("not_found", "no server of this book is running in the background", hint="leadline serve --background")
    pid = there[0]
    ticks = proc.start_ticks(pid)
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    while proc.lives(pid, ticks):
        if time.monotonic() > deadline:
            raise LeadlineError("gone", f"process {pid} did not end within {STOP_S:g} s", hint=f"kill -KILL {pid}")
        time.sleep(0.05)
    return pid

