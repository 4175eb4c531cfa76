"""The probe that reads the shared memory of a server."""

from typing import Any, NotRequired, TypedDict, final, type_check_only

from leadline._core.capture import ProbeFinal, ProbeStatus

__all__ = ["PipelineMemory", "Recent", "Recorder", "normalise"]

def normalise(text: str) -> tuple[str, int]:
    """A statement with its literals replaced by $n, and the 64-bit key of its shape (0 for an empty text)."""

@type_check_only
class LayoutCheck(TypedDict):
    """One check of the layout against the running server. result: passed, failed or skipped."""

    check: str
    result: str
    detail: str

@type_check_only
class MemoryAccess(TypedDict):
    """How memory is read. shared_memory: map_files, process_vm_readv or none; why: the reason that it is not mapped."""

    shared_memory: str
    private_memory: bool
    why: str

@type_check_only
class ProbeFound(TypedDict):
    """What one probe can do here. status: ok, partial or off. detail: as in a ProbeState."""

    status: str
    why: str
    hint: str
    detail: NotRequired[dict[str, Any]]

@type_check_only
class ServerDescription(TypedDict):
    """The server, and how it is sampled. probes: sessions, locks, buffers, deltas."""

    server_version_num: int
    server_version: str
    max_connections: int | None
    shared_buffers_bytes: int
    data_dir: str | None
    layout_checks: list[LayoutCheck]
    access: MemoryAccess
    probes: dict[str, ProbeFound]

@type_check_only
class SamplerStatus(ProbeStatus):
    """How sampling goes. torn: entries that kept changing while they were read; sessions: of the last pass."""

    ts_now: int
    torn: int
    sessions: int
    realtime_priority: bool

@type_check_only
class SamplerFinal(ProbeFinal):
    """What a sampler says at its end: its last status, and what every probe says then."""

    ts_now: int
    torn: int
    sessions: int
    realtime_priority: bool

@final
class Recorder:
    """The shared-memory probe of one server and the threads that write what it sees."""

    def __new__(
        cls,
        capture_dir: str,
        pid: int,
        rate_hz: float,
        *,
        delta_interval_s: float = 1.0,
        flush_interval_s: float = 5.0,
        growing_segments: bool = True,
        allow_map: bool = True,
    ) -> Recorder:
        """Attaches to the postmaster `pid` and calibrates. Raises kinds rights, unsupported, layout, not_found."""

    def describe(self) -> ServerDescription: ...
    def attach_again(self, pid: int) -> None:
        """Attaches to the server that has started again as `pid`; `start` goes on. Raises as the constructor."""

    def last_seen(self) -> int | None:
        """Start of the last pass that counts, ns on CLOCK_MONOTONIC; known when the server is gone."""

    def start(self) -> None:
        """Starts sampling in threads of its own and returns; once after each attach."""

    def status(self) -> SamplerStatus: ...
    def write_soon(self) -> None:
        """Has the segments finished with what is handed over next: within half a second, or a pass."""

    def stop(self) -> SamplerFinal:
        """Flushes and joins. loss: ticks_taken, ticks_missed, ticks_unverified, torn."""

@type_check_only
class PositionSeen(TypedDict):
    """One reading, with the names of table replication_position."""

    in_recovery: bool
    insert_lsn: int | None
    flush_lsn: int | None
    write_lsn: int | None
    upstream_lsn: int | None
    replay_lsn: int | None
    record_lsn: int | None
    timeline: int | None
    is_paused: bool | None
    receiver_status: str | None
    last_replayed_commit: int | None
    startup_wait: int | None

@type_check_only
class SenderPosition(TypedDict):
    """One walsender, with the names of table walsender. is_candidate: it may count as a synchronous standby."""

    pid: int
    application_name: str
    client_addr: str
    is_logical: bool
    state: str
    sent_lsn: int | None
    write_lsn: int | None
    flush_lsn: int | None
    replay_lsn: int | None
    is_candidate: bool

@final
class PipelineMemory:
    """The positions of one server in the WAL, read from its memory: at once, or at a steady rate in a thread of its own."""

    def __new__(
        cls,
        capture_dir: str,
        pid: int,
        node: int,
        rate_hz: float,
        *,
        flush_interval_s: float = 5.0,
        growing_segments: bool = True,
        allow_map: bool = True,
    ) -> PipelineMemory:
        """Attaches to the postmaster `pid`. What it reads is a claim until SQL was compared with it. Raises kinds rights, unsupported,
        layout, not_found."""

    def read(self) -> tuple[PositionSeen, list[SenderPosition]]:
        """Of this moment. Raises LeadlineError (gone, layout)."""

    def take_applied(self) -> list[tuple[int, int]]:
        """Records that the thread has seen while they were applied, since the last time: what was replayed before, where each ends."""

    def start(self) -> None:
        """Writes replication_position and walsender from now on."""

    def status(self) -> ProbeStatus: ...
    def stop(self) -> ProbeFinal:
        """Flushes and joins. loss: ticks_taken, ticks_missed."""

@type_check_only
class SessionSeen(TypedDict):
    """A session at a pass. state: as table session_run numbers them. busy_s: its database time in the window. cpu, read_bytes,
    write_bytes: a second, over the last seconds.
    """

    session_id: int
    pid: int
    backend_start: int
    backend_type: str
    leader_pid: int
    datid: int
    usesysid: int
    application_name: str
    client_addr: str
    state: int
    wait_class: str
    event: str
    age_s: float | None
    xact_age_s: float | None
    xmin_age: int | None
    in_db_time: bool
    busy_s: float
    blocked_by: list[int]
    statement: str
    cpu: float | None
    read_bytes: float | None
    write_bytes: float | None

@type_check_only
class Look(TypedDict):
    """Sums of a window, in seconds of database time. last_ts: its last pass with samples. counts: clients, active sessions, idle in
    transaction, lock waiters of that pass. events: class, event, seconds. cpu: running, in the run queue, not known. steps: number,
    seconds observed, seconds by class; of the steps with a pass. sessions: of the last pass, if asked for.
    """

    ticks: int
    missed: int
    observed_s: float
    last_ts: int | None
    counts: tuple[int, int, int, int]
    events: list[tuple[str, str, float]]
    cpu: tuple[float, float, float]
    steps: list[tuple[int, float, list[tuple[str, float]]]]
    sessions: list[SessionSeen]

@final
class Recent:
    """The newest minutes of a recording in memory, and the sums of a window of it. For one thread."""

    def __new__(cls) -> Recent: ...
    def take_in(self, folder: str, wall_offset_ns: int) -> None:
        """Reads the segments that have come into a folder since the last call; they stay. Raises kind storage."""

    def samples(self) -> int: ...
    def extent(self) -> tuple[int, int] | None:
        """Begin of the first pass with samples and end of the last one, ns on CLOCK_MONOTONIC."""

    def trim(self, ts_from: int, spared: tuple[int, int] | None = None) -> None:
        """Forgets what is older than ts_from and not in the spared window."""

    def look(self, ts_from: int, ts_to: int, step_ns: int, listed: bool) -> Look:
        """The sums of [ts_from, ts_to). listed: the sessions of the last pass too."""
