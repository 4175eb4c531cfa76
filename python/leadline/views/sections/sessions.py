"""Sections of a capture in which the sessions of a PostgreSQL server were sampled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from leadline.capture.reader import Capture
from leadline.figures import count, fit, one_line, percent, seconds
from leadline.views import spenders, where
from leadline.views.lock_tree import LockTree, Waiter, count_roots, lock_trees
from leadline.views.sections import Context, Section, Tile
from leadline.views.spenders import HotBlock, ObjectTime, Spender, hot_blocks, objects, sessions, statements
from leadline.views.text import WIDTH, bar, section
from leadline.views.wait_classes import wait_class
from leadline.views.where import Window

MOST_EVENTS = 4
MOST_WAITERS = 8
MOST_TREES = 6
SMALLEST_CHAIN = 0.05  # of the seconds lost in the worst chain; smaller ones are only counted
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
    if not classes:
        yield Text("no session that may be seen was active" if at.evaluation.unseen else "no session was active")
        return
    yield Text(f"{'class  event':<28}{'seconds':>9}{'AAS':>8}{'share':>8}", style="dim")
    most = classes[0].seconds
    for c in classes:
        shown = c.events[:MOST_EVENTS]
        only = len(c.events) == 1 and len(c.wait_class) + len(c.events[0].event) < 27
        name = c.wait_class + (f":{shown[0].event}" if only and shown[0].event != c.wait_class else "")
        yield _time_line(name, c.seconds, of, "bold").append_text(bar(c.seconds / most, c.wait_class))
        if c.wait_class == "CPU":
            yield from _cpu_lines(at.capture, of, most)
        elif not only:
            for event in shown:
                yield _time_line("  " + event.event, event.seconds, of, "").append_text(bar(event.seconds / most, c.wait_class))
            if len(c.events) > MOST_EVENTS:
                rest = c.events[MOST_EVENTS:]
                yield _time_line(f"  {len(rest)} more", sum(e.seconds for e in rest), of, "dim")


def _time_line(name: str, spent_s: float, of: Window, style: str) -> Text:
    aas = spent_s / of.observed_s
    return Text.assemble((f"{fit(name, 27):<28}", style), f"{seconds(spent_s):>9}{aas:>8.2f}{percent(of.share(spent_s)):>8}  ")


def _cpu_lines(capture: Capture, of: Window, most: float) -> Iterator[Text]:
    split = where.cpu_split(capture)
    parts = (("  running", split.run_s), ("  waiting to run", split.queue_s), ("  not split", split.unknown_s))
    if split.run_s + split.queue_s == 0:
        yield Text("  running and waiting to run could not be distinguished", style="dim")
        return
    for name, spent_s in parts:
        if spent_s > 0:
            yield _time_line(name, spent_s, of, "").append_text(bar(spent_s / most, "CPU"))


def _outside(at: Context, rows: list[where.Outside]) -> Iterator[Text]:
    of = at.window
    if not rows or not of.ticks:
        return
    yield Text("")
    yield Text(f"{'not database time':<36}{'seconds':>9}{'sessions':>10}  mostly", style="dim")
    for row in rows:
        yield Text(f"{fit(row.what, 35):<36}{seconds(row.seconds):>9}{row.seconds / of.observed_s:>10.2f}  {fit(row.events, WIDTH - 57)}")


def _statements(at: Context, found: list[Spender]) -> Iterator[Text]:
    if not found:
        return
    yield from section("Top statements", f"{'seconds':>9}{'share':>8}")
    for s in found[:5]:
        yield _spender_line(s, f"in {count(s.sessions, 'session')}", at.window)
        yield Text("  " + fit(one_line(s.label), WIDTH - 2), style="dim")


def _spender_line(spender: Spender, name: str, of: Window) -> Text:
    """Name, the classes it waited in, seconds and share."""
    parts = [(f"{name:<16}", "")]
    room = WIDTH - 17 - 16
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
    yield from section("Lock chains", "seconds")
    for tree in trees:
        yield _root_line(tree)
        if tree.statement:
            yield Text("  last: " + fit(one_line(tree.statement), WIDTH - 8), style="dim")
        yield from _waiter_lines(tree.waiters, "  ")
    more = count_roots(at.capture) - len(trees)
    if more > 0:
        yield Text(count(more, "smaller chain"), style="dim")


def _root_line(tree: LockTree) -> Text:
    age = f", transaction {seconds(tree.xact_age_s)} s old" if tree.xact_age_s is not None else ""
    name = f"{one_line(tree.name)}: {tree.state}, {count(tree.victims, 'victim')}{age}"
    return Text.assemble((f"{fit(name, WIDTH - 10):<{WIDTH - 9}}", "bold"), f"{seconds(tree.seconds):>9}")


def _waiter_lines(waiters: list[Waiter], indent: str) -> Iterator[Text]:
    for at, waiter in enumerate(waiters[:MOST_WAITERS]):
        last = at == len(waiters) - 1
        queued = " (in the queue)" if waiter.queued else ""
        name = f"{indent}{'└' if last else '├'} {waiter.pid} {one_line(waiter.who)}: {waiter.mode} on {one_line(waiter.object)}{queued}"
        yield Text(f"{fit(name, WIDTH - 10):<{WIDTH - 9}}{seconds(waiter.seconds):>9}")
        yield from _waiter_lines(waiter.waiters, indent + ("  " if last else "│ "))
    if len(waiters) > MOST_WAITERS:
        rest = waiters[MOST_WAITERS:]
        yield Text(f"{fit(f'{indent}└ {len(rest)} more', WIDTH - 10):<{WIDTH - 9}}{seconds(sum(w.seconds for w in rest)):>9}", style="dim")


def _objects(at: Context, found: list[ObjectTime]) -> Iterator[Text]:
    if not found:
        return
    yield from section("Objects waited for", f"{'locks':>9}{'buffers':>9}{'seconds':>9}{'share':>8}")
    for o in found[:6]:
        room = WIDTH - 36
        parts = f"{seconds(o.lock_s) if o.lock_s else '-':>9}{seconds(o.buffer_s) if o.buffer_s else '-':>9}{seconds(o.seconds):>9}"
        yield Text(f"{fit(one_line(o.object), room):<{room + 1}}{parts}{percent(at.window.share(o.seconds)):>8}")


def _blocks(at: Context, found: list[HotBlock]) -> Iterator[Text]:
    if not found:
        return
    yield from section("Hot blocks", f"{'hottest':>10}{'of':>6}  {'kind of page':<22}{'waiters':>8}{'seconds':>9}")
    for b in found[:6]:
        room = WIDTH - 58
        numbers = f"{b.block:>10}{b.blocks:>6}  {fit(b.page_kind, 22):<22}{'max ' + str(b.most_waiters):>8}{seconds(b.seconds):>9}"
        yield Text(f"{fit(one_line(b.object), room):<{room + 1}}{numbers}")


def _sessions(at: Context, found: list[spenders.Session]) -> Iterator[Text]:
    of = at.window
    if not found:
        return
    yield from section("Top sessions", f"{'mostly':<20}{'seconds':>9}{'share':>8}")
    for s in found[:6]:
        who = " ".join(filter(None, (s.application_name or s.usename, s.client_addr)))
        kind = who if s.backend_type == "client backend" else s.backend_type
        event, wait = (s.top_event, next(iter(s.by_class))) if s.by_class else ("idle in transaction", "Client")
        spent = s.seconds or s.idle_in_xact_s
        room = WIDTH - 37
        yield Text.assemble(
            f"{fit(f'{s.pid} {one_line(kind)}', room - 1):<{room}}",
            (f"{fit(event, 19):<20}", wait_class(wait).dark),
            f"{seconds(spent):>9}{percent(of.share(s.seconds)) if s.seconds else '-':>8}",
        )



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
