"""The state of a recorder's directory: one JSON file, replaced as one step, and the lock of the recorder that writes into it."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from leadline.errors import LeadlineError, cannot_be_written
from leadline.host.proc import boot_id, lives, start_ticks
from leadline.recorder.moments import Moment
from leadline.replacing import write_durably

STATE, LOCK = "recorder.json", "recorder.lock"
EVENTS, WATCHED = "events.jsonl", "findings.tmp"  # what was found (watch.py); what is being evaluated (watcher.py)
COARSER_LOCK = "coarser.lock"  # of a coarser (coarser.py) whose recorder was killed: the next one waits for its end
FORMAT = 1


@dataclass
class State:
    """server: who is recorded (kind, name, data_dir, dsn without its password). settings: as the recorder was started.

    process: {pid, start_ticks, boot} of the recorder. began: when, ns since 1970; first: its first piece, once its probes look. doing:
    starting, recording, waiting (for the server), full (the disk), ended. since: of `doing`, ns since 1970. piece: the one that is being
    written, or was last. waited: why the next one has not begun, until one with a pass has told it. killed: recorders that were killed
    before their first pass since then: their count, when the first and the last of them began. last_error: the error object of the last
    failure, with `at`. removed: pieces and bytes that retention has removed, the last. coarser: what was made of finer pieces, by
    level, and its cost. findings: of watch.py: counts, cost, what is open, the last events. unusual: by kind, what is open (unusual.py),
    and the cost of looking. detail: of detail.py: the last captures, what of the budget is used. looked: the last look at the clocks;
    held_s: for how long nothing goes by age.
    """

    server: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    process: dict[str, Any] = field(default_factory=dict)
    began: int = 0
    first: str = ""
    doing: str = "ended"
    since: int = 0
    piece: str = ""
    waited: list[str] = field(default_factory=list)
    killed: dict[str, int] = field(default_factory=dict)
    last_error: dict[str, Any] | None = None
    removed: dict[str, Any] = field(default_factory=dict)
    coarser: dict[str, Any] = field(default_factory=dict)
    findings: dict[str, Any] = field(default_factory=dict)
    unusual: dict[str, Any] = field(default_factory=dict)
    detail: dict[str, Any] = field(default_factory=dict)
    looked: dict[str, Any] | None = None
    held_s: float = 0.0

    def runs(self, directory: Path) -> bool:
        """Whether its process is there: a pid alone may belong to another one by now. A recorder in a container may have another pid, and
        even another boot_id, than this process sees; its lock is the same."""
        pid, start = self.process.get("pid"), self.process.get("start_ticks")
        is_seen = isinstance(pid, int) and isinstance(start, int) and self.process.get("boot") == boot_id() and lives(pid, start)
        return is_seen or _is_locked(directory)

    @property
    def looked_at(self) -> Moment | None:
        try:
            return None if self.looked is None else Moment(**self.looked)
        except TypeError:
            return None


def this_process() -> dict[str, Any]:
    return {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid()), "boot": boot_id()}


def read_state(directory: Path) -> State | None:
    """None if there is none. Raises LeadlineError('invalid') if it is damaged, ('unsupported') if it is of a newer leadline."""
    path = directory / STATE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version = content["format_version"]
        if not isinstance(version, int):
            raise ValueError(f"format_version is {version!r}")
        if version > FORMAT:
            hint = "use the leadline version that made it, or a newer one"
            raise LeadlineError("unsupported", "the state of the recorder is of a newer leadline", hint=hint, where=str(path))
        known = {name: content[name] for name in (f.name for f in fields(State)) if name in content}
        for name in ("server", "settings", "process", "removed", "coarser", "findings", "unusual", "detail", "killed"):
            if not isinstance(known.get(name, {}), dict):
                raise ValueError(f"{name} is no object")
        if not all(isinstance(value, int) for value in known.get("killed", {}).values()):
            raise ValueError("killed has no numbers")
        if not isinstance(known.get("waited", []), list):
            raise ValueError("waited is no list")
        return State(**known)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise LeadlineError("storage", f"cannot read the state of the recorder: {e.strerror}", where=str(path)) from e
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        hint = "the pieces need it not: a new one is written at the next start"
        raise LeadlineError("invalid", "the state of the recorder is damaged", detail=repr(e), hint=hint, where=str(path)) from e


def write_state(directory: Path, state: State) -> None:
    """Raises LeadlineError('storage')."""
    text = json.dumps({"format_version": FORMAT} | asdict(state), indent=1, ensure_ascii=False) + "\n"
    try:
        write_durably(directory / STATE, text.encode("utf-8", errors="replace"))
    except OSError as e:
        raise cannot_be_written("the state of the recorder", e, directory) from e


def servers_below(directory: Path) -> list[Path]:
    """The directories of a recorder of several servers (servers.py); none if it records one."""
    if not directory.is_dir() or (directory / STATE).exists():
        return []
    return sorted(path.parent for path in directory.glob(f"*/{STATE}"))


def check_one(directory: Path) -> None:
    """Raises LeadlineError('usage') for a directory of several servers."""
    if below := servers_below(directory):
        hint = f"name the directory of one: {', '.join(map(str, below))}"
        raise LeadlineError("usage", "this directory has the recorders of several servers", hint=hint, where=str(directory))


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """The directory belongs to this process while the block runs. The kernel releases the lock when the process ends, however it ends."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        fd = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as e:
        raise cannot_be_written("the directory of the recorder", e, directory) from e
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            hint = "record into another directory, or end the other one first"
            raise LeadlineError("usage", "another recorder writes into this directory", _who(directory), hint, str(directory)) from None
        except OSError as e:
            hint = "record into a directory of a file system of this host"
            raise LeadlineError("storage", f"the directory cannot be locked: {e.strerror}", hint=hint, where=str(directory)) from e
        yield
    finally:
        os.close(fd)


def _is_locked(directory: Path) -> bool:
    """Whether a process has the lock; who may not open it does not know."""
    try:
        fd = os.open(directory / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as e:
        return isinstance(e, BlockingIOError)
    finally:
        os.close(fd)
    return False


def _who(directory: Path) -> str:
    try:
        state = read_state(directory)
    except LeadlineError:
        return ""
    return f"pid {state.process.get('pid')}" if state is not None and state.runs(directory) else ""
