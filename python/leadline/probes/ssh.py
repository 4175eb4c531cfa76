"""A leadline on another host, started there by the system's ssh: where it is, how the two talk, and what the errors of ssh mean.

They talk in lines of JSON over the one connection: a question, then its answer. The other side ends when its stdin does, so that nothing
stays behind there, however this side ends.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from leadline.errors import LeadlineError
from leadline.figures import one_line
from leadline.version import version

PREFIX = "ssh:"
THERE = "--answer-over-ssh"  # the option that has leadline answer
HELLO = b"leadline over ssh "  # begins its first line: what the profile of a shell prints before is passed over
PROGRAM_VARIABLE = "LEADLINE_REMOTE_PATH"
ANSWER_S = 60.0
SILENCE_S = 60.0  # without a question the other side ends; half of the time without a byte of the capture is waited for
MOST_LINE = 1 << 20
MOST_BEFORE_HELLO = 1 << 16
_OPTIONS = (
    "BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3", "ClearAllForwardings=yes", "RemoteCommand=none",
)  # fmt: skip
_PLACE = re.compile(
    r"ssh:(?://)?(?:(?P<user>[^-@:/\s][^@:/\s]*)@)?(?P<host>\[[0-9A-Fa-f:.]+(?:%\w+)?\]|\w[\w.-]*)(?::(?P<port>[0-9]{1,5}))?(?P<server>/.*)?",
    re.ASCII,
)
_IS_DSN = re.compile(r"/\w+(?:://|\s*=)", re.ASCII)


@dataclass(frozen=True)
class Place:
    """server: a data directory or a connection string there, which may have a password; empty: the server that is found there."""

    host: str
    user: str = ""
    port: str = ""
    server: str = ""

    @staticmethod
    def of(text: str) -> Place:
        """From ssh:[USER@]HOST[:PORT][/DATA_DIR or /DSN]. Raises LeadlineError('usage')."""
        found = _PLACE.fullmatch(text)
        if found is None or int(found["port"] or 1) not in range(1, 65536):
            hint = "ssh:[USER@]HOST[:PORT], then /DATA_DIR or /DSN where that host has more than one server"
            raise LeadlineError("usage", "cannot parse the place of the other leadline", hint=hint)
        server = found["server"] or ""
        server = server[1:] if _IS_DSN.match(server) or server == "/" else server
        return Place(found["host"].strip("[]"), found["user"] or "", found["port"] or "", server)

    def __str__(self) -> str:
        """Without the server: its connection string may have a password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return PREFIX + (f"{self.user}@" if self.user else "") + host + (f":{self.port}" if self.port else "")

    def command(self, *words: str) -> list[str]:
        """ssh, and what it runs there. The words are ours, and a program of safe letters: the shell there has nothing to interpret."""
        options = [part for option in _OPTIONS for part in ("-o", option)]
        user, port = ["-l", self.user] if self.user else [], ["-p", self.port] if self.port else []
        return ["ssh", "-T", "-x", *options, *user, *port, "--", self.host, " ".join([program_there(), *words])]


def is_place(text: str) -> bool:
    return text.startswith(PREFIX)


def program_there() -> str:
    """Raises LeadlineError('usage')."""
    program = os.environ.get(PROGRAM_VARIABLE) or "leadline"
    if not re.fullmatch(r"[\w./~+@][\w./~+@-]*", program, re.ASCII):
        hint = "give the path of leadline there: letters, digits and . / ~ + @ - only"
        raise LeadlineError("usage", f"{PROGRAM_VARIABLE} is not a path that can be given to a shell", hint=hint)
    return program


class Far:
    """The leadline of another host, which answers questions. Raises LeadlineError when it cannot be started, or is of another version."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._left, self._lock = b"", threading.Lock()
        self._said: IO[bytes] = tempfile.TemporaryFile()
        try:  # a session of its own: Ctrl-C must end the window here, and not the connection
            self._process = subprocess.Popen(
                place.command(THERE), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, bufsize=0, start_new_session=True
            )
        except FileNotFoundError:
            self._said.close()
            raise LeadlineError("not_found", "ssh is not installed here", hint="install it: apt-get install openssh-client") from None
        try:
            self._meet()
        except BaseException:
            self.close()
            raise

    def _meet(self) -> None:
        before = 0
        until = time.monotonic() + ANSWER_S
        while HELLO not in (line := self._line(until)):
            before += len(line)
            if before > MOST_BEFORE_HELLO:
                detail = f"it says: {one_line(line.decode(errors='replace'))[:200]}"
                raise LeadlineError("connection", "no leadline answers there", detail, where=str(self.place))
        theirs, ours = str(_json(line.partition(HELLO)[2]).get("version")), version()
        if theirs != ours:
            raise self._other_version(theirs, ours)

    def _other_version(self, theirs: str, ours: str) -> LeadlineError:
        message = f"{self.place} has leadline {theirs}, and this is leadline {ours}"
        return LeadlineError("unsupported", message, "both must be of one version", _how_to_install(ours), str(self.place))

    def ask(self, question: str, timeout_s: float = ANSWER_S, **more: Any) -> dict[str, Any]:
        """The answer. Raises LeadlineError: what the other side says went wrong there, or that it does not answer."""
        with self._lock:
            self._send(json.dumps({"do": question} | more).encode() + b"\n")
            answer = _json(self._line(time.monotonic() + timeout_s))
        if error := answer.get("error"):
            known = {name: str(error.get(name, "")) for name in ("message", "detail", "hint")}
            raise LeadlineError(str(error.get("kind", "fault")), **known, where=str(self.place))
        return answer

    def read(self, size: int) -> bytes:
        """What follows an answer, at most so much; empty: the other side has ended. For tarfile. Raises LeadlineError."""
        if not self._left:
            self._left = self._piece(time.monotonic() + SILENCE_S / 2)
        piece, self._left = self._left[:size], self._left[size:]
        return piece

    def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
        except (OSError, ValueError):
            raise self._ended() from None

    def _line(self, until: float) -> bytes:
        while b"\n" not in self._left:
            if len(self._left) > MOST_LINE:
                raise LeadlineError("connection", "the other side says what leadline never says", where=str(self.place))
            if not (piece := self._piece(until)):
                raise self._ended()
            self._left += piece
        line, _, self._left = self._left.partition(b"\n")
        return line

    def _piece(self, until: float) -> bytes:
        assert self._process.stdout is not None
        try:
            if not select.select([self._process.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
                raise LeadlineError("connection", "the leadline of the other host does not answer in time", where=str(self.place))
            return self._process.stdout.read(1 << 18) or b""
        except (OSError, ValueError):
            raise self._ended() from None

    def _ended(self) -> LeadlineError:
        """Why there is no more answer."""
        try:
            code = self._process.wait(5)
        except subprocess.TimeoutExpired:
            code = 0
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - 4096))
        return self._meaning(code, self._said.read().decode(errors="replace"))

    def _meaning(self, code: int, said: str) -> LeadlineError:
        where, text = str(self.place), one_line(said)[-1000:]
        if code == 127 or "ommand not found" in said:
            hint = f"{_how_to_install(version())}; if it is not on the PATH of ssh: {PROGRAM_VARIABLE}=/PATH/OF/leadline"
            return LeadlineError("not_found", f"{where} has no {program_there()}", text, hint, where)
        if "No such option" in said and THERE in said:
            return self._other_version(self._version_there(), version())
        if code == 255:
            for parts, kind, message, hint in _MEANINGS:
                if any(part in said for part in parts):
                    return LeadlineError(kind, message, text, hint.format(command=self._login()), where)
            return LeadlineError("connection", "ssh cannot reach the other host, or the connection broke", text, where=where)
        detail = text or f"ssh ended with code {code}"
        return LeadlineError("gone", "the leadline of the other host has ended", detail, where=where)

    def _version_there(self) -> str:
        words = self.place.command("--version")
        with suppress(subprocess.TimeoutExpired, IndexError):
            return subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=ANSWER_S).stdout.split()[-1]
        return "of an unknown version"

    def _login(self) -> str:
        """What a person would type to log in."""
        port, user = f"-p {self.place.port} " if self.place.port else "", f"{self.place.user}@" if self.place.user else ""
        return f"ssh {port}{user}{self.place.host}"

    def close(self) -> None:
        """Ends the connection, and with it the other side, which has removed what it wrote before ssh ends."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._said.close()


def _json(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        said = one_line(line.decode(errors="replace"))[:200]
        raise LeadlineError("connection", "the other side says what leadline never says", detail=f"it says: {said}")
    return found


def _how_to_install(ours: str) -> str:
    return f"install leadline {ours} there, by the package or the wheel that is installed here: pipx install leadline-{ours}-*.whl"


_MEANINGS: Sequence[tuple[tuple[str, ...], str, str, str]] = (  # part of ssh's message, kind, our message, hint
    (
        ("REMOTE HOST IDENTIFICATION HAS CHANGED",),
        "rights",
        "the key of the other host is not the one that ssh knows",
        "find out why it changed before you log in: {command}",
    ),
    (
        ("Host key verification failed", "No matching host key"),
        "rights",
        "ssh does not know the key of the other host",
        "log in once and compare the fingerprint: {command}",
    ),
    (
        ("Permission denied", "Too many authentication failures"),
        "rights",
        "the other host does not let this user in",
        "ssh must not ask for a password: put your key there with ssh-copy-id, or into ssh-agent; try {command}",
    ),
    (
        ("Could not resolve hostname",),
        "connection",
        "unknown host name",
        "check the host; names of ~/.ssh/config count, too",
    ),
    (
        ("Connection refused", "No route to host", "Connection timed out", "Network is unreachable"),
        "connection",
        "the sshd of the other host cannot be reached",
        "check host and port: {command}",
    ),
)
