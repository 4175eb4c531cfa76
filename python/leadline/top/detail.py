"""One session in full: who it is, its statement, what it waits and waited for, and what it uses a second."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from leadline.capture.manifest import CLIENT
from leadline.figures import one_line, quantity, seconds
from leadline.top.chart import MUTED
from leadline.top.grid import Bar, cell
from leadline.top.grids import colour, waiting
from leadline.top.model import Detail, Frame, SessionNow
from leadline.units import age_in_words, sized
from leadline.views.wait_classes import wait_class

LABEL = 14
NAME = 30
USED = (  # label, column of session_delta, what one unit of it is, factor
    ("blocks hit", "shared_blks_hit", "", 1.0),
    ("read", "shared_blks_read", "", 1.0),
    ("dirtied", "shared_blks_dirtied", "", 1.0),
    ("written", "shared_blks_written", "", 1.0),
    ("temp read", "temp_blks_read", "", 1.0),
    ("temp written", "temp_blks_written", "", 1.0),
    ("WAL records", "wal_records", "", 1.0),
    ("WAL", "wal_bytes", "B", 1.0),
    ("on CPU", "cpu_run_ns", "%", 1e-7),
    ("run queue", "cpu_queue_ns", "%", 1e-7),
    ("block I/O", "blkio_delay_ns", "%", 1e-7),
    ("switches", "voluntary_ctxt_switches", "", 1.0),
    ("preempted", "nonvoluntary_ctxt_switches", "", 1.0),
    ("minor faults", "minflt", "", 1.0),
    ("from storage", "read_bytes", "B", 1.0),
    ("to storage", "write_bytes", "B", 1.0),
)


def lines(frame: Frame, width: int) -> Iterator[Text]:
    """The page of frame.detail, unwrapped; the statement is one long line."""
    d = frame.detail
    if d is None:
        yield Text("waiting for the next samples", MUTED)
        return
    s = d.session
    if s is None:
        yield Text("The session has ended, or was not there at the end of the window.", "bold")
    else:
        yield from _who(s, d)
    yield Text("")
    yield Text("Statement", "bold")
    yield Text(one_line(d.statement) or "(none known)")
    yield Text("")
    yield Text(f"Database time in {seconds(frame.load.observed_s)} s", "bold")
    if not d.waits:
        yield Text("none: it was not active", MUTED)
    for w in d.waits[:8]:
        share = w.seconds / frame.load.observed_s if frame.load.observed_s else 0.0
        name = cell(waiting(w.wait_class, w.event), NAME)
        room = max(min(width - 18 - NAME - 2, 40), 0)
        yield Text.assemble(f"{seconds(w.seconds):>8} s {share:>5.0%}  ", name, " ", cell(Bar(share, wait_class(w.wait_class).dark), room))
    yield Text("")
    yield Text("Last", "bold")
    for stretch in d.last:
        yield Text.assemble(
            f"{'-' + seconds(max(stretch.ago_s, 0)):>8} s  for {seconds(stretch.lasted_s):>6} s  ",
            (stretch.what, colour(stretch.wait_class)),
        )
    yield Text("")
    yield Text(f"Used per second, over {seconds(d.used_s)} s", "bold")
    yield from _used(d, width)


def _who(s: SessionNow, d: Detail) -> Iterator[Text]:
    def line(label: str, value: str | Text) -> Text:
        return Text.assemble((f"{label:<{LABEL}}", MUTED), value)

    who = " · ".join(part for part in (s.usename and f"user {s.usename}", s.datname and f"db {s.datname}", s.application_name) if part)
    kind = "" if s.backend_type == CLIENT else f" ({s.backend_type})"
    yield Text(f"pid {s.pid}{kind}  {one_line(who)}", "bold")
    if s.client_addr:
        yield line("client", "unix socket" if s.client_addr == "local" else s.client_addr)
    yield line("state", f"{s.state or 'server process'}" + (f" for {age_in_words(s.age_s)}" if s.age_s is not None else ""))
    now = waiting(s.wait_class, s.event)
    if s.state.startswith("idle"):
        now = Text(f"the client ({s.event})" if s.event != "CPU" else "the client", MUTED)
    yield line("waits for", now if s.wait_class != "CPU" else Text("nothing: on a CPU or ready to run", colour("CPU")))
    if s.xact_age_s is not None:
        horizon = f", its snapshot is {s.xmin_age:,} transactions old" if s.xmin_age else ""
        yield line("transaction", f"open for {age_in_words(s.xact_age_s)}{horizon}")
    if s.leader_pid:
        yield line("works for", f"pid {s.leader_pid}")
    if s.blocked_by:
        yield line("blocked by", Text(", ".join(f"pid {pid}" if pid else "a prepared transaction" for pid in s.blocked_by), colour("Lock")))
    if d.blocks:
        yield line("blocks", Text(", ".join(f"pid {pid}" for pid in d.blocks), colour("Lock")))


def _used(d: Detail, width: int) -> Iterator[Text]:
    if not d.used_s:
        yield Text("not yet read", MUTED)
        return
    known = [(label, value * factor, unit) for label, name, unit, factor in USED if (value := d.used.get(name)) is not None]
    missing = [label for label, name, _, _ in USED if d.used.get(name) is None]
    each = 26
    columns = max(1, min(4, width // each))
    for start in range(0, len(known), columns):
        line = Text()
        for label, value, unit in known[start : start + columns]:
            shown = sized(value) if unit == "B" else quantity(value, unit) if value >= 10 or value == 0 else f"{value:.1f}{unit}"
            text = f"{value:.1f} %" if unit == "%" else shown
            line.append(f"{label:<13}", MUTED)
            line.append(f"{text:>10}   ")
        line.rstrip()
        yield line
    if missing:
        yield Text("not readable: " + ", ".join(missing), MUTED)
