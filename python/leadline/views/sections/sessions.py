"""Sections of a capture in which the sessions of a PostgreSQL server were sampled."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from rich.text import Text

from leadline.capture.manifest import CLIENT
from leadline.figures import count, one_line, percent, seconds
from leadline.output import UNLIMITED, terminal_width
from leadline.output import shown as in_room
from leadline.views import spenders, where
from leadline.views.lock_tree import LockTree, Waiter, count_roots, lock_trees
from leadline.views.sections import Context, Section, Tile
from leadline.views.spenders import First, HotBlock, ObjectTime, Spender, hot_blocks, objects, sessions, statements
from leadline.views.text import BAR, NARROWEST, name_in, room_for, section, wait_bar, wrapped
from leadline.views.wait_classes import wait_class

MOST_EVENTS = 4
MOST_WAITERS = 8
MOST_TREES = 6
MOST_STATEMENTS = 5
MOST_OF_EACH = 6
FIGURES = 17  # columns of seconds and share
SMALLEST_CHAIN = 0.05  # of the seconds lost in the worst chain; smaller ones are only counted
LEAST_S = 0.005  # the scheduler's counters also have the microseconds of idle sessions
UNSEEN_SHARE = 0.01  # of database time; less is no more than sampling error
NEEDS = ("tick",)


def _time(at: Context, classes: list[where.ClassTime]) -> Iterator[Text]:
    of = at.window
    if not of.ticks:
        yield Text("no passes were recorded, so no times are known")
        return
    cpus = f" on {of.cpu_count} CPUs" if of.cpu_count else ""
    yield Text("")
    yield Text.assemble(
        ("Database time ", "bold"), (f"{seconds(of.db_time_s)} s", "bold"), f": {of.aas:.2f} sessions active on average (AAS){cpus}"
    )
    if of.db_time_s < LEAST_S:
        yield Text("no session that may be seen was active" if at.evaluation.unseen else "no session was active")
        return
    if of.share(of.db_time_s - of.active_s) >= UNSEEN_SHARE:
        waited = f"{seconds(of.db_time_s - of.active_s)} s of it waited for a CPU before the server called the session active"
        yield Text(waited, style="dim")
    room = room_for((f"  {e.event}" for c in classes for e in c.events[:MOST_EVENTS]), 27, 28)
    yield Text(f"{'class  event':<{room}}{'seconds':>9}{'AAS':>8}{'share':>8}", style="dim")
    most = classes[0].seconds

    def line(name: str, spent_s: float, wait_class: str, style: str = "") -> Text:
        figures = f"{seconds(spent_s):>9}{spent_s / of.observed_s:>8.2f}{percent(of.share(spent_s)):>8}  "
        whole = Text.assemble((name_in(room, name), style), figures)
        wide = min((terminal_width() or UNLIMITED) - len(whole), BAR)
        return whole.append_text(wait_bar(spent_s / most, wait_class, wide)) if wait_class and wide > 0 else whole

    for c in classes:
        shown = c.events[:MOST_EVENTS]
        only = len(c.events) == 1 and len(c.wait_class) + len(c.events[0].event) < 27
        name = c.wait_class + (f":{shown[0].event}" if only and shown[0].event != c.wait_class else "")
        yield line(name, c.seconds, c.wait_class, "bold")
        if c.wait_class == "CPU":
            split = where.cpu_split(at.capture)
            parts = (("  running", split.run_s), ("  waiting to run", split.queue_s), ("  not split", split.unknown_s))
            if split.run_s + split.queue_s == 0:
                yield Text("  running and waiting to run could not be distinguished", style="dim")
                continue
            for part, spent_s in parts:
                if spent_s > 0:
                    yield line(part, spent_s, "CPU")
                if part == "  waiting to run":
                    reasons = (("    after waking up", split.after_wake_s), ("    after preemption", split.after_preempt_s))
                    yield from (line(reason, of_it_s, "", "dim") for reason, of_it_s in reasons if of_it_s)
        elif not only:
            yield from (line("  " + event.event, event.seconds, c.wait_class) for event in shown)
            if len(c.events) > MOST_EVENTS:
                rest = c.events[MOST_EVENTS:]
                yield line(f"  {len(rest)} more", sum(e.seconds for e in rest), "", "dim")


def _outside(at: Context, rows: list[where.Outside]) -> Iterator[Text]:
    of = at.window
    if not rows or not of.ticks:
        return
    yield Text("")
    events = (terminal_width() or UNLIMITED) - 57
    if events < NARROWEST:  # no room for them
        events, room = 0, room_for((row.what for row in rows), 19)
    else:
        room = 36
    yield Text(f"{'not database time':<{room}}{'seconds':>9}{'sessions':>10}{'  top events' if events else ''}", style="dim")
    for row in rows:
        what = f"  {in_room(row.events, events)}" if events else ""
        yield Text(f"{name_in(room, row.what)}{seconds(row.seconds):>9}{row.seconds / of.observed_s:>10.2f}{what}")


def _statements(at: Context, found: First[Spender]) -> Iterator[Text]:
    if not found:
        return
    width = room_for((), FIGURES) + FIGURES
    yield from section("Top statements", f"{'seconds':>9}{'share':>8}", width)
    for s in found[:MOST_STATEMENTS]:
        yield _spender_line(s, f"in {count(s.sessions, 'session')}", at.window, width)
        yield Text(in_room("  " + one_line(s.label)), style="dim")
    yield from _more(at, found, MOST_STATEMENTS, "db_time")


def _more(at: Context, found: First[Any], shown: int, table: str) -> Iterator[Text]:
    """How many more there are than those that were printed, and where."""
    if (left := found.there - min(shown, len(found))) > 0:
        yield from wrapped(f'{left:,} more: leadline sql {shlex.quote(str(at.capture.path))} "from {table}"', "dim")


def _spender_line(spender: Spender, name: str, of: where.Window, width: int) -> Text:
    """Name, the classes it waited in, seconds and share."""
    parts = [(f"{name:<16}", "")]
    room = max(width - FIGURES - 16, 1)
    for c, spent_s in spender.by_class.items():
        if spent_s < 0.005 * spender.seconds:
            break
        part = f"{c} {100 * spent_s / spender.seconds:.0f}%  "
        if len(part) > room:
            break
        room -= len(part)
        parts.append((part, wait_class(c).dark))
    return Text.assemble(*parts, " " * room, f"{seconds(spender.seconds):>9}{percent(of.share(spender.seconds)):>8}")


def _locks(at: Context, trees: list[LockTree]) -> Iterator[Text]:
    if not trees:
        return
    trees = [t for t in trees[:3] if t.seconds >= SMALLEST_CHAIN * trees[0].seconds]
    lines = [(tree, [(_root_name(tree), tree.seconds, "bold"), *_waiter_lines(tree.waiters, "  ")]) for tree in trees]
    room = room_for((name for _, listed in lines for name, _, _ in listed), 9)
    yield from section("Lock chains", "seconds", room + 9)
    for tree, listed in lines:
        for number, (name, lost_s, style) in enumerate(listed):
            yield Text.assemble((name_in(room, name), style), f"{seconds(lost_s):>9}")
            if tree.statement and not number:
                yield Text(in_room("  last: " + one_line(tree.statement)), style="dim")
    more = count_roots(at.capture) - len(trees)
    if more > 0:
        yield from wrapped(f'{count(more, "smaller chain")}: leadline sql {shlex.quote(str(at.capture.path))} "from lock_chain"', "dim")


def _root_name(tree: LockTree) -> str:
    age = f", transaction {seconds(tree.xact_age_s)} s old" if tree.xact_age_s is not None else ""
    return f"{one_line(tree.name)}: {tree.state}, {count(tree.victims, 'victim')}{age}"


def _waiter_lines(waiters: list[Waiter], indent: str) -> Iterator[tuple[str, float, str]]:
    """Name, seconds and style of each line."""
    for at, waiter in enumerate(waiters[:MOST_WAITERS]):
        last = at == len(waiters) - 1
        queued = " (in the queue)" if waiter.queued else ""
        name = f"{indent}{'└' if last else '├'} {waiter.pid} {one_line(waiter.who)}: {waiter.mode} on {one_line(waiter.object)}{queued}"
        yield name, waiter.seconds, ""
        yield from _waiter_lines(waiter.waiters, indent + ("  " if last else "│ "))
    if len(waiters) > MOST_WAITERS:
        rest = waiters[MOST_WAITERS:]
        yield f"{indent}└ {len(rest)} more", sum(w.seconds for w in rest), "dim"


def _objects(at: Context, found: First[ObjectTime]) -> Iterator[Text]:
    if not found:
        return
    heads = f"{'locks':>9}{'buffers':>9}{'seconds':>9}{'share':>8}"
    room = room_for((one_line(o.object) for o in found[:MOST_OF_EACH]), len(heads))
    yield from section("Objects waited for", heads, room + len(heads))
    for o in found[:MOST_OF_EACH]:
        parts = f"{seconds(o.lock_s) if o.lock_s else '-':>9}{seconds(o.buffer_s) if o.buffer_s else '-':>9}{seconds(o.seconds):>9}"
        yield Text(f"{name_in(room, one_line(o.object))}{parts}{percent(at.window.share(o.seconds)):>8}")
    yield from _more(at, found, MOST_OF_EACH, "lock_wait")


def _blocks(at: Context, found: First[HotBlock]) -> Iterator[Text]:
    if not found:
        return
    heads = f"{'hottest':>10}{'of':>6}  {'kind of page':<22}{'waiters':>8}{'seconds':>9}"
    room = room_for((one_line(b.object) for b in found[:MOST_OF_EACH]), len(heads))
    yield from section("Hot blocks", heads, room + len(heads))
    for b in found[:MOST_OF_EACH]:
        numbers = f"{b.block:>10}{b.blocks:>6}  {in_room(b.page_kind, 22):<22}{'max ' + str(b.most_waiters):>8}{seconds(b.seconds):>9}"
        yield Text(f"{name_in(room, one_line(b.object))}{numbers}")
    yield from _more(at, found, MOST_OF_EACH, "hot_block")


def _sessions(at: Context, found: First[spenders.Session]) -> Iterator[Text]:
    of = at.window
    if not found:
        return
    first = found[:MOST_OF_EACH]
    longest = max(len(s.top_event) + 1 if s.by_class else 0 for s in first)
    wide = max(20, min(longest, (terminal_width() or UNLIMITED) - 60))  # of events; names have as much as in 80 columns
    room = room_for((_session_name(s) for s in first), wide + FIGURES)
    yield from section("Top sessions", f"{'top wait':<{wide}}{'seconds':>9}{'share':>8}", room + wide + FIGURES)
    for s in first:
        event, wait = (s.top_event, next(iter(s.by_class))) if s.by_class else ("idle in transaction", "Client")
        spent = s.seconds or s.idle_in_xact_s
        yield Text.assemble(
            name_in(room, _session_name(s)),
            (f"{in_room(event, wide - 1):<{wide}}", wait_class(wait).dark),
            f"{seconds(spent):>9}{percent(of.share(s.seconds)) if s.seconds else '-':>8}",
        )
    yield from _more(at, found, MOST_OF_EACH, "session_sample")


def _session_name(s: spenders.Session) -> str:
    who = " ".join(filter(None, (s.application_name or s.usename, s.client_addr)))
    return f"{s.pid} {one_line(who if s.backend_type == CLIENT else s.backend_type)}"


def _tiles(at: Context, classes: list[where.ClassTime]) -> list[Tile]:
    of, cpu = at.window, where.cpu_split(at.capture)
    cpus = f", on {of.cpu_count} CPUs" if of.cpu_count else ""
    tiles = [
        Tile("Database time", seconds(of.db_time_s), f"in {seconds(of.observed_s)} s observed", " s"),
        Tile("Active sessions", f"{of.aas:.2f}", f"on average{cpus}"),
    ]
    if classes:
        tiles.append(Tile("Most time in", classes[0].wait_class, f"{percent(of.share(classes[0].seconds))} of database time"))
    else:
        tiles.append(Tile("Most time in", "-", "no session was active"))
    if cpu.run_s + cpu.queue_s > 0:
        unknown = f", not split {percent(of.share(cpu.unknown_s))}" if cpu.unknown_s > 0 else ""
        tiles.append(Tile("Waiting for a CPU", percent(of.share(cpu.queue_s)), f"running {percent(of.share(cpu.run_s))}{unknown}"))
    else:
        tiles.append(Tile("Waiting for a CPU", "?", "could not be distinguished from running"))
    missed = f"{of.missed:,} missed: {seconds(of.unknown_s)} s unknown" if of.missed else "none missed"
    return [*tiles, Tile("Passes taken", f"{of.ticks:,}", missed)]


def _window(at: Context) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(at.window) | {"aas": at.window.aas}


TIME = (
    Section("window", "", NEEDS, _window, in_text=False, in_html=False),
    Section("db_time", "Time", NEEDS, lambda at: where.by_class(at.capture), _time, "time.html.j2", tiles=_tiles),
    Section("cpu", "", NEEDS, lambda at: where.cpu_split(at.capture), in_text=False, in_html=False),
    Section("outside_db_time", "", NEEDS, lambda at: where.outside(at.capture), _outside, in_html=False),
)
DETAIL = (
    Section("classes", "Wait classes", NEEDS, lambda at: None, html="classes.html.j2", in_text=False, in_json=False),
    Section("statements", "Statements", NEEDS, lambda at: statements(at.capture), _statements, "statements.html.j2"),
    Section("objects", "Objects", NEEDS, lambda at: objects(at.capture), _objects, "objects.html.j2"),
    Section("hot_blocks", "", NEEDS, lambda at: hot_blocks(at.capture), _blocks, in_html=False),
    Section("sessions", "Sessions", NEEDS, lambda at: sessions(at.capture), _sessions, "sessions.html.j2"),
    Section("lock_trees", "Locks", NEEDS, lambda at: lock_trees(at.capture, MOST_TREES), _locks, "locks.html.j2"),
)
