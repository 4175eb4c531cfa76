"""A headless Chromium over its debugging pipe: one page at a given width and colour scheme, and scripts run in it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe")


class Browser:
    """with Browser(profile) as browser: browser.open(page, width=390, dark=True); browser.value("innerWidth")"""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        # Chromium reads its commands from descriptor 3 and answers on 4. Copies above both, so that no dup2 hits another.
        theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (to_read, to_write)]

        def descriptors() -> None:
            os.dup2(theirs[0], 3)
            os.dup2(theirs[1], 4)

        self.events: list[dict[str, Any]] = []
        self._buffer, self._number, self._session = b"", 0, ""
        line = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}"]
        self._process = subprocess.Popen(
            line, close_fds=False, preexec_fn=descriptors, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for fd in (to_read, to_write, *theirs):
            os.close(fd)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        os.close(self._to)
        os.close(self._from)

    def open(self, page: Path, *, width: int, dark: bool) -> None:
        """Loads a file in a new tab."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.events.clear()
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 700)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=page.as_uri())

    def value(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, script: str, timeout_s: float = 60) -> None:
        """Until the expression is true; fails at the deadline."""
        deadline = time.monotonic() + timeout_s
        while not self.value(script):
            assert time.monotonic() < deadline, f"not true within {timeout_s} s: {script}"
            time.sleep(0.05)

    def requests(self) -> list[str]:
        """The addresses the page has asked for."""
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        """Script errors, warnings and blocked resources."""
        found = [str(e["params"]) for e in self.events if e.get("method") == "Runtime.exceptionThrown"]
        found += [str(e["params"]["args"]) for e in self.events if e.get("method") == "Runtime.consoleAPICalled"]
        return found + [e["params"]["entry"]["text"] for e in self.events if e.get("method") == "Log.entryAdded"]

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the DevTools protocol and its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session and not method.startswith("Target."):
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._from, 1 << 20)
            assert part, "the browser ended"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer
