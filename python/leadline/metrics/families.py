"""The metrics: their names, units and labels. What is read, written, documented and drawn is one of these.

The number of series is bounded by design: no label holds a text of clients (statements, users, applications, addresses). Only names of
waits come from outside, as extensions may make them up: totals.py limits those.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

COUNTER, GAUGE, LEVEL = "counter", "gauge", "level"  # a level can be added up over hosts, as memory can: for Prometheus a gauge

SECONDS = "s"


@dataclass(frozen=True)
class Family:
    """name: for Prometheus. otlp: for OpenTelemetry, empty where that says it in another way. unit: as UCUM has it.

    Values are whole numbers: of seconds, whole nanoseconds. labels: pairs of the label and the name of the attribute.
    """

    name: str
    otlp: str
    kind: str
    unit: str
    help: str
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Reading:
    """The series of one family now. points: values of the labels, and the value. since_ns: when the counters began, ns since 1970."""

    family: Family
    points: tuple[tuple[tuple[str, ...], int], ...]
    since_ns: int


class Source(Protocol):
    """Something that has metrics."""

    def readings(self) -> Iterable[Reading]: ...


# -- of the pieces that are being recorded ---------------------------------------------------------------------------------

DB_TIME = Family(
    "leadline_db_time_seconds_total", "leadline.db.time", COUNTER, SECONDS,
    "Time of active sessions by what they waited for; CPU: they did not wait. Its rate is the average number of active sessions.",
    (("class", "leadline.wait.class"), ("event", "leadline.wait.event")),
)  # fmt: skip
SESSION_TIME = Family(
    "leadline_session_time_seconds_total", "leadline.session.time", COUNTER, SECONDS,
    "Time of sessions by their state. Its rate is the average number of sessions in the state.",
    (("state", "leadline.session.state"),),
)  # fmt: skip
SESSION_CPU = Family(
    "leadline_session_cpu_seconds_total", "leadline.session.cpu.time", COUNTER, SECONDS,
    "Time that processes of sessions were running on a CPU, or ready to run and queued for one, as the scheduler of the kernel counts it.",
    (("state", "leadline.cpu.state"),),
)  # fmt: skip
OBSERVED = Family(
    "leadline_observed_seconds_total", "leadline.observed.time", COUNTER, SECONDS,
    "Time that the passes stand for. Where its rate is below 1, sessions were not seen all the time.",
)  # fmt: skip
PASSES = Family("leadline_passes_total", "leadline.passes", COUNTER, "{pass}", "Passes over the sessions.")
MISSED = Family(
    "leadline_passes_missed_total", "leadline.passes.missed", COUNTER, "{pass}",
    "Passes that were due and did not run: the host was busy, or the server was away. Their time is in no other metric.",
)  # fmt: skip
CPUS = Family(
    "leadline_server_cpus", "leadline.server.cpus", LEVEL, "{cpu}", "CPUs that the server may use; absent where that is not known."
)
SERVER = Family(
    "leadline_server_info", "", GAUGE, "1", "Always 1; its labels say which server is recorded.", (("engine", ""), ("version", ""))
)

# -- of the host, if the server runs on it ---------------------------------------------------------------------------------

HOST_CPU = Family(
    "leadline_host_cpu_seconds_total", "system.cpu.time", COUNTER, SECONDS,
    "Time of all CPUs of the host by what they did, since its start.",
    (("mode", "cpu.mode"),),
)  # fmt: skip
HOST_CPUS = Family("leadline_host_cpus", "system.cpu.logical.count", LEVEL, "{cpu}", "CPUs of the host.")
PRESSURE = Family(
    "leadline_host_pressure_seconds_total", "leadline.host.pressure.time", COUNTER, SECONDS,
    "Time in which some or all (full) of the processes of the host that had work were held up for want of a resource, since its start.",
    (("resource", "leadline.host.resource"), ("stall", "leadline.host.stall")),
)  # fmt: skip

# -- of the recorder itself ------------------------------------------------------------------------------------------------

DOING = Family(
    "leadline_recorder_doing", "leadline.recorder.doing", GAUGE, "1",
    "What the recorder does: 1 for one of recording, waiting (for the server) and full (no room on the disk), 0 for the others.",
    (("doing", "leadline.recorder.doing"),),
)  # fmt: skip
PIECES = Family("leadline_pieces_total", "leadline.pieces", COUNTER, "{piece}", "Pieces that were begun.")
UNREAD = Family(
    "leadline_pieces_unread_total", "leadline.pieces.unread", COUNTER, "{piece}",
    "Pieces that could not be read for these metrics to their end: what they hold is only in the recorder's directory.",
)  # fmt: skip
OTHERS = Family(
    "leadline_other_waits", "leadline.waits.other", GAUGE, "{wait}",
    "Names of waits that have no series of their own, because there are too many: their time is in the event named other.",
)  # fmt: skip
OWN_CPU = Family("process_cpu_seconds_total", "process.cpu.time", COUNTER, SECONDS, "CPU time of the recorder.")
OWN_MEMORY = Family(
    "process_resident_memory_bytes", "process.memory.usage", LEVEL, "By",
    "Resident memory of the recorder, with the memory of the server that it maps.",
)  # fmt: skip
OWN_START = Family("process_start_time_seconds", "", GAUGE, SECONDS, "Start of the recorder, in seconds since 1970.")
VERSION = Family("leadline_info", "", GAUGE, "1", "Always 1; its label is the version of leadline.", (("version", ""),))
PUSHES = Family(
    "leadline_otlp_pushes_total", "leadline.otlp.pushes", COUNTER, "{push}",
    "Pushes to the collector by outcome: ok, failed, rejected (the collector did not take all of it), skipped (one took too long).",
    (("outcome", "leadline.otlp.outcome"),),
)  # fmt: skip

FAMILIES = (
    DB_TIME, SESSION_TIME, SESSION_CPU, OBSERVED, PASSES, MISSED, CPUS, SERVER, HOST_CPU, HOST_CPUS, PRESSURE, DOING, PIECES, UNREAD,
    OTHERS, OWN_CPU, OWN_MEMORY, OWN_START, VERSION, PUSHES,
)  # fmt: skip
