"""What records a run: its beginning, what it was given and made, its end and its cost."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from leadline.book.place import find_place
from leadline.book.redact import HIDDEN, is_secret, redact, redact_text
from leadline.book.spool import Spool, new_uid
from leadline.version import version

if TYPE_CHECKING:
    import resource

    from leadline.book.facts import Evidence
    from leadline.book.place import Place

PARENT = "LEADLINE_RUN"  # in the environment of what a run starts: its uid
LONGEST_SUMMARY = 500
LONGEST_VALUE = 1000
LONGEST_LISTING = 200_000  # letters: of some 2,000 files


class Recorder:
    """Records one run into a book, or into none. Nothing here raises what the run would notice."""

    def __init__(self, place: Place | None, uid: str = "") -> None:
        self.place = place
        self.uid = uid or new_uid()
        self._spool = None if place is None else Spool(place, self.uid)
        self._summary = ""
        self._began = time.monotonic()
        self._ended = False
        self._made: dict[str, str] = {}

    def begin(
        self, kind: str, name: str, argv: Sequence[str], *, labels: Mapping[str, str] | None = None,
        inputs: Mapping[str, Any] | None = None, files: Sequence[str] = (), parent: str | None = None, cwd: str | None = None,
    ) -> None:  # fmt: skip
        """kind: leadline, command, ansible, ... argv, inputs: as given; secrets are left out here. files: paths that it was given."""
        if self._spool is None:
            return
        with self._own_time(self._spool):
            from leadline.book.facts import facts, file_event, process

            self._spool.event(
                "begin", uid=self.uid, run_kind=kind, name=name, argv=redact(argv), labels=dict(labels or {}), inputs=_inputs(inputs or {}),
                parent=parent or os.environ.get(PARENT), cwd=cwd or _cwd(), user=_user(), host=os.uname().nodename, facts=facts(),
                version=version(), **process(),
            )  # fmt: skip
            for path in files:
                if (body := file_event(path)) is not None:
                    self._spool.event("file", **body)
            if self._spool.refused:
                sys.stderr.write(f"warning: nothing is recorded, as the directory of the book is not safe: {self._spool.refused}\n")

    @staticmethod
    @contextmanager
    def _own_time(spool: Spool) -> Iterator[None]:
        """Counts as time of the recorder what the block takes, with its events."""
        before, began = spool.own_ns, time.perf_counter_ns()
        yield
        spool.own_ns = before + time.perf_counter_ns() - began

    def summary(self, text: str) -> None:
        """One line of what came of it; the last counts."""
        self._summary = redact_text(" ".join(text.split()))[:LONGEST_SUMMARY]

    @property
    def has_summary(self) -> bool:
        return bool(self._summary)

    def artifact(self, kind: str, path: str | os.PathLike[str]) -> None:
        """A file or directory that the run makes: a capture, a report, ..."""
        if self._spool is not None and (where := os.path.abspath(path)) not in self._made:
            self._made[where] = kind
            self._spool.event("artifact", artifact_kind=kind, path=where)

    def event(self, kind: str, **body: Any) -> None:
        """An event of a kind of one's own (events.py)."""
        if self._spool is not None and not self._ended:
            self._spool.event(kind, **body)

    def end(
        self, rc: int | None, *, signal: int | None = None, usage: resource.struct_rusage | None = None, wall_s: float | None = None,
        **more: Any,
    ) -> dict[str, float]:  # fmt: skip
        """rc: the exit code; None when a signal ended it. usage, wall_s: what it used, if it was another process. Gives its metrics."""
        if self._spool is None or self._ended:
            return {}
        import resource

        from leadline.book.facts import evidence

        self._ended = True
        with self._own_time(self._spool):
            for path, kind in self._made.items():
                try:
                    found = evidence(path)
                except KeyboardInterrupt:  # who waits has waited enough
                    found = evidence(path, read=False)
                self._spool.event("artifact", artifact_kind=kind, path=path, **as_event(found))
        spent = [usage] if usage is not None else [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        metrics = {
            "wall_s": time.monotonic() - self._began if wall_s is None else wall_s,
            "cpu_s": sum(u.ru_utime + u.ru_stime for u in spent),
            "max_rss_bytes": max(u.ru_maxrss for u in spent) * 1024,
            "record_s": self._spool.own_ns / 1e9,
        }
        if usage is not None and usage.ru_maxrss <= 1.1 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss:
            del metrics["max_rss_bytes"]  # the kernel counts what we had when we started it
        self._spool.event("end", rc=rc, signal=signal, summary=self._summary, metrics=metrics, lost=self._spool.lost, **more)
        self._spool.close()
        return metrics


_current = Recorder(None, "-")


def current() -> Recorder:
    """The recorder of the command that runs; of a program that uses leadline as a library, one that records nothing."""
    return _current


def begin_command(name: str, argv: Sequence[str], inputs: Mapping[str, Any], files: Sequence[str]) -> None:
    """A command of leadline itself begins. What it starts knows it as its parent."""
    global _current
    place = find_place()
    if place is None:
        return
    _current = Recorder(place)
    _current.begin("leadline", name, ["leadline", *argv], inputs=inputs, files=files)
    os.environ[PARENT] = _current.uid


def end_command(rc: int, *, fine: bool, parent: str | None) -> None:
    """It ends with this exit code; fine: as it should. parent: what PARENT was before."""
    global _current
    if _current.place is None:
        return
    _current.end(rc, fine=fine)
    _current = Recorder(None, "-")
    if parent is None:
        os.environ.pop(PARENT, None)
    else:
        os.environ[PARENT] = parent


def as_event(found: Evidence | None) -> dict[str, Any]:
    if found is None:
        return {"gone": True}
    listing = {"listing": found.listing} if found.listing is not None and len(found.listing) <= LONGEST_LISTING else {}
    return {"size": found.size, "hash": found.hash, **listing}


def _inputs(given: Mapping[str, Any]) -> dict[str, Any]:
    """Values as JSON has them; what is named as a secret is not kept."""
    out: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, bool | int | float) or value is None:
            out[name] = value
        elif isinstance(value, list | tuple):
            out[name] = " ".join(redact([str(part) for part in value]))[:LONGEST_VALUE]
        else:
            out[name] = redact_text(str(value))[:LONGEST_VALUE]
        if is_secret(name) and value not in (None, False, ""):
            out[name] = HIDDEN
    return out


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
