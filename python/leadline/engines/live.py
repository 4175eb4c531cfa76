"""Running servers: what an engine must do so that `take`, `top` and `doctor` work on its servers, and which server a user has named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from leadline.capture import manifest
from leadline.capture.store import Row
from leadline.engines import all_engines
from leadline.engines.check import Check
from leadline.errors import LeadlineError
from leadline.host.storage import StoredPath
from leadline.probes.probe import Probe, Thread

if TYPE_CHECKING:
    from leadline.capture.reader import Capture


class Server(Protocol):
    """One running server that was found. pid: its main process on this host, if it runs here. notes: what the user should know."""

    @property
    def engine(self) -> str: ...
    @property
    def pid(self) -> int | None: ...
    @property
    def notes(self) -> tuple[str, ...]: ...

    def describe(self) -> str:
        """One line for people."""

    def evidence(self) -> manifest.Target:
        """What the manifest says of this server before a probe has asked it more."""

    def named_by(self) -> dict[str, Any]:
        """How the user named it, for JSON; without secrets."""

    def stored_paths(self) -> Iterable[StoredPath]:
        """What a server on this host keeps where."""

    def port(self) -> int:
        """Of a server on this host. Raises LeadlineError when it cannot be told, or when it does not listen on TCP."""


@dataclass(frozen=True)
class Sampling:
    """The sessions of a server, ready to be sampled. on_return: who is told of the server after a restart; None: nobody follows it."""

    probe: Probe
    notes: tuple[str, ...] = ()
    on_return: list[Callable[[Server], None]] | None = None


@dataclass(frozen=True)
class Vitals:
    """What a server counts by itself. Rates a second, over the time between two readings. hit_part: None if no block was asked for."""

    transactions: float
    hit_part: float | None
    temp_files: float
    temp_bytes: float
    sessions: int
    max_connections: int


@dataclass(frozen=True)
class StandbyNow:
    """A server that follows another, at its last reading in a window. is_asked: it was asked itself; else this is what it last reported to
    the server that sends to it. age_s: from that reading to the end of the window; None: there is none, and `held_up` says why.

    behind_s: how long ago the log that it replays now was made; is_least: at least. Bytes wait on their way: all of them, then by part.
    Rates are bytes a second over the window. None: not known. held_up: where most of the bytes wait, and what replay does there.
    """

    name: str
    is_asked: bool
    age_s: float | None = None
    behind_s: float | None = None
    is_least: bool = False
    lag_bytes: int | None = None
    unsent_bytes: int | None = None
    unreceived_bytes: int | None = None
    unflushed_bytes: int | None = None
    unreplayed_bytes: int | None = None
    made_per_s: float | None = None
    replayed_per_s: float | None = None
    held_up: str = ""


class Session(Protocol):
    """A session that is asked to do something. backend_start: Unix microseconds, 0 where it is hidden."""

    @property
    def pid(self) -> int: ...
    @property
    def backend_type(self) -> str: ...
    @property
    def backend_start(self) -> int: ...


@dataclass(frozen=True)
class Deed:
    """What a session may be asked. name: of the key's action."""

    name: str
    question: str
    done: str


CANCEL = Deed("cancel", "Cancel the statement of", "asked to cancel its statement")
TERMINATE = Deed("terminate", "Terminate the session of", "asked to end")


class Sampler(Thread, Protocol):
    """Samples sessions for a screen."""

    def write_soon(self) -> None:
        """Has the segments finished, within half a second or after the next pass: somebody is about to read them. Does not wait."""


class Watch:
    """A server that `top` watches. An engine overrides what it can do more than to sample.

    probe: samples the sessions, in threads of its own.
    product: what the server is a server of, for people.
    """

    product = ""

    def __init__(self, probe: Sampler, tier: str, rate_hz: float, notes: tuple[str, ...] = ()) -> None:
        self.probe, self.tier, self.rate_hz, self.notes = probe, tier, rate_hz, notes

    def describe(self, manifest: manifest.Manifest) -> None:
        """Puts what the probe knows of the server and of itself into the manifest."""

    def names(self, databases: set[int]) -> dict[str, list[Row]]:
        """Rows of the tables of names; databases: which are asked for. Raises LeadlineError."""
        return {}

    def follow(self, others: Sequence[str]) -> None:
        """Also watches these servers, which replicate to or from it; before `describe`. Raises LeadlineError."""
        raise LeadlineError("unsupported", "leadline does not know which servers this one replicates with", hint="leave out --with")

    def standbys(self, capture: Capture) -> list[StandbyNow] | None:
        """Those of the window of the capture, which has what was recorded; None where no other server is watched."""
        return None

    def start(self) -> None:
        """Begins to read what `vitals` gives."""

    def close(self) -> None:
        """Ends it, and writes out what it has seen."""

    def vitals(self) -> Vitals | None:
        """The newest; None when the server is not asked."""
        return None

    def processes(self) -> dict[int, int]:
        """Processes of sessions as this host numbers them, by the number that the server gives."""
        return {}

    def refusal(self, deed: Deed, session: Session) -> str:
        """Why this session is left alone; empty if it may be asked."""
        return f"leadline cannot {deed.name} sessions of this server"

    def carry_out(self, deed: Deed, session: Session) -> str:
        """What came of it, in one sentence. Never raises."""
        return self.refusal(deed, session)


class Live(Protocol):
    """What an engine does with running servers. `find` gives None when another engine may know what was named."""

    def find(self, dsn: str | None, pid: int | None, data_dir: str | Path | None) -> Server | None: ...

    def sample(self, server: Any, directory: Path, *, rate_hz: float, tier: str, follows: bool, required: bool) -> Sampling:
        """Attaches to its sessions. Raises LeadlineError."""

    def watch(self, server: Any, directory: Path, *, rate_hz: float, tier: str, flush_interval_s: float) -> Watch:
        """Attaches to its sessions for `top`. Raises LeadlineError."""

    def servers_here(self) -> Iterable[Check]:
        """The servers that this host runs, for `doctor`."""

    def checks(self, server: Any) -> Iterable[Check]:
        """What can be measured of it, in areas of `doctor.AREAS`; in area `capture` the ways to sample it, the best first."""

    def beside(self, server: Server | None, *, pooler: str | None, others: Sequence[str], tier: str) -> list[Probe]:
        """Probes of what else the options name beside this server: a pooler, others that it replicates to or from. tier: as of
        the options. Raises LeadlineError."""


def all_live() -> list[Live]:
    return [engine.load_live() for engine in all_engines() if engine.live]


def live_of(server: Server) -> Live:
    found: Live = next(engine for engine in all_engines() if engine.name == server.engine).load_live()
    return found


def find(dsn: str | None = None, pid: int | None = None, data_dir: str | Path | None = None) -> Server:
    """The server that was named in one or more ways. Raises LeadlineError; the last engine says what is wrong."""
    for live in all_live():
        if (found := live.find(dsn, pid, data_dir)) is not None:
            return found
    raise LeadlineError("not_found", "no server was found")


def is_connection_string(text: str) -> bool:
    """Whether it names a server by a connection string, and is no path."""
    return ("://" in text or "=" in text) and not Path(text).exists()


def find_text(text: str) -> Server:
    """The server that was named with one word."""
    return find(*named_with(text))


def named_with(text: str) -> tuple[str | None, int | None, str | None]:
    """One word as what `find` takes: a pid, a data directory, else a connection string."""
    if text.isdigit():
        return None, int(text), None
    if Path(text).is_dir() and "=" not in text:
        return None, None, text
    return text, None, None
