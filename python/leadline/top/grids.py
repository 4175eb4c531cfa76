"""The tables of the view, from a frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rich.style import Style
from rich.text import Text

from leadline.capture.manifest import CLIENT
from leadline.figures import one_line, percent, seconds
from leadline.top.chart import MUTED, figure
from leadline.top.grid import Bar, Cell, Column, Grid, Row
from leadline.top.model import Frame, SessionNow
from leadline.units import age, age_in_words, short_size
from leadline.views.lock_tree import LockTree, Waiter
from leadline.views.wait_classes import rank, wait_class
from leadline.views.where import ClassTime

MOST_EVENTS = 5
BAR_MOST = 40
AWAY_S = 5.0  # without a reading
STATES = {
    "idle in transaction": "in xact",
    "idle in transaction (aborted)": "aborted",
    "fastpath function call": "active",
}
SORTS = ("busy", "age", "xact", "pid", "app", "wait")


def colour(name: str) -> Style:
    return Style(color=wait_class(name).dark)


def waiting(name: str, event: str) -> Text:
    """Class and event in the colour of the class."""
    return Text(name if name == event or not event else f"{name}:{event}", colour(name))


# -- 1 overview --------------------------------------------------------------------------------------------------------

OVERVIEW = (
    Column("class  event", 28, share=1, most=44),
    Column("seconds", 8, right=True),
    Column("AAS", 6, right=True),
    Column("share", 6, right=True),
    Column("", 12, share=2, most=BAR_MOST, from_width=64),
)


def overview(frame: Frame) -> Grid:
    of = frame.load
    grid = Grid(OVERVIEW, empty="no session was active in the window" if of.ticks else "waiting for the first samples")
    most = of.classes[0].seconds if of.classes else 1.0

    def row(key: str, name: str, spent_s: float, kind: str, style: str = "") -> Row:
        aas = spent_s / of.observed_s if of.observed_s else 0.0
        share = spent_s / of.db_time_s if of.db_time_s else None
        return Row(key, [Text(name, style), seconds(spent_s), figure(aas), percent(share), Bar(spent_s / most, wait_class(kind).dark)])

    for c in of.classes:
        only = len(c.events) == 1 and c.wait_class != "CPU"
        name = f"{c.wait_class}:{c.events[0].event}" if only else c.wait_class
        grid.rows.append(row(c.wait_class, name, c.seconds, c.wait_class, "bold"))
        if not only:
            grid.rows += [row(f"{c.wait_class}/{name}", f"  {name}", spent_s, c.wait_class) for name, spent_s in _parts(frame, c)]
    return grid


def _parts(frame: Frame, c: ClassTime) -> Iterable[tuple[str, float]]:
    """What a class is made of: its events; of CPU time, what the kernel says about it."""
    if c.wait_class == "CPU":
        split = frame.cpu
        if split is not None and split.run_s + split.queue_s > 0:
            yield "running", split.run_s
            yield "waiting for a CPU", split.queue_s
            if split.unknown_s > 0.05 * c.seconds:
                yield "not known", split.unknown_s
        return
    for event in c.events[:MOST_EVENTS]:
        yield event.event, event.seconds
    rest = c.events[MOST_EVENTS:]
    if rest:
        yield f"{len(rest)} more", sum(e.seconds for e in rest)


# -- 2 sessions --------------------------------------------------------------------------------------------------------

SESSIONS = (
    Column("pid", 7, right=True, sort="pid"),
    Column("user", 8, share=1, most=16, from_width=136),
    Column("db", 8, share=1, most=16, from_width=136),
    Column("app", 11, share=1, most=24, sort="app"),
    Column("state", 7),
    Column("wait", 26, share=1, most=34, sort="wait"),
    Column("age", 5, right=True, sort="age"),
    Column("xact", 5, right=True, from_width=96, sort="xact"),
    Column("busy", 4, right=True, from_width=88, sort="busy"),
    Column("cpu", 4, right=True, from_width=76),
    Column("mem", 5, right=True, from_width=112),
    Column("rd/s", 5, right=True, from_width=112),
    Column("wr/s", 5, right=True, from_width=112),
    Column("statement", 12, share=6),
)
_SORT_KEYS: dict[str, Callable[[SessionNow], tuple[object, ...]]] = {
    "age": lambda s: (-(s.age_s if s.age_s is not None else -1.0), s.pid),
    "xact": lambda s: (-(s.xact_age_s if s.xact_age_s is not None else -1.0), s.pid),
    "pid": lambda s: (s.pid,),
    "app": lambda s: (_app(s).casefold(), s.pid),
    "wait": lambda s: (rank(s.wait_class), s.event, s.pid),
}


def sessions(frame: Frame, *, idle: bool = False, sort: str = "busy") -> Grid:
    """sort: one of SORTS; busy is the order of the model. idle: also those that have nothing to do."""
    found = frame.sessions or []
    shown = [s for s in found if idle or not s.hidden_when_quiet]
    if sort in _SORT_KEYS:
        shown = sorted(shown, key=_SORT_KEYS[sort])
    grid = Grid(SESSIONS, empty="no session does anything just now" if found else "waiting for the first samples")
    if len(found) > len(shown):
        grid.note = f"{len(found) - len(shown)} idle not shown"
    for s in shown:
        quiet = s.hidden_when_quiet
        wait = Text("", "") if s.state.startswith("idle") else waiting(s.wait_class, s.event)
        if s.blocked_by:
            wait.append(" < " + ",".join(map(str, s.blocked_by)), MUTED)
        state: Text | str = STATES.get(s.state, s.state)
        if s.state.startswith("idle in"):
            state = Text(str(state), colour("idle in transaction"))
        part = s.busy_s / frame.load.observed_s if frame.load.observed_s else 0.0
        cells: list[Cell] = [str(s.pid), one_line(s.usename), one_line(s.datname), one_line(_app(s)), state, wait,
                                   age(s.age_s), age(s.xact_age_s), f"{part:.0%}",
                                   "" if s.cpu is None else f"{s.cpu:.0%}", short_size(s.memory_bytes),
                                   short_size(s.read_bytes), short_size(s.write_bytes),
                                   one_line(s.statement)]  # fmt: skip
        grid.rows.append(Row(str(s.session_id), cells, dim=quiet))
    return grid


def _app(s: SessionNow) -> str:
    """A client's application; of a server process its kind."""
    if s.backend_type not in ("", CLIENT):
        return f"{s.backend_type} of {s.leader_pid}" if s.leader_pid else s.backend_type
    return s.application_name


# -- 3 locks -----------------------------------------------------------------------------------------------------------

LOCKS = (
    Column("root and waiters", 24, share=1, most=44),
    Column("", 2, right=True),
    Column("seconds", 7, right=True),
    Column("mode", 12, share=1, most=26),
    Column("object / state of the root", 26, share=2, most=60),
    Column("statement", 20, share=3, from_width=110),
)


def locks(frame: Frame) -> Grid:
    """Roots with somebody behind them now come first; chains that are over follow, dimmed."""
    why = frame.unavailable.get("locks")
    grid = Grid(LOCKS, empty=f"not measured: {why}" if why else "no session waited for a lock in the window")
    now = frame.waiting_now
    trees = sorted(frame.trees or [], key=lambda t: (not any(w.pid in now for w in _below(t.waiters)), -t.seconds))
    for tree in trees:
        below = list(_below(tree.waiters))
        waiting_here = sum(w.pid in now for w in below)
        name = "prepared transaction" if tree.pid == 0 else f"{tree.pid} {one_line(tree.who)}"
        state = STATES.get(tree.state, tree.state) if not tree.state.startswith("idle") else tree.state
        doing = state if state != "active" or not tree.wait else tree.wait
        if tree.xact_age_s is not None:
            doing += f"{'' if tree.state.startswith('idle') else ', xact'} {age_in_words(tree.xact_age_s)}"
        kind = "idle in transaction" if tree.state.startswith("idle in") else tree.wait.split(":")[0] or "CPU"
        mark = Text("◆" if waiting_here else "", colour("Lock"))
        behind = f"{tree.victims} waited" if not waiting_here else f"{waiting_here} behind it"
        key = f"{tree.pid}"
        cells: list[Cell] = [Text(name, "bold"), mark, seconds(tree.seconds), behind, Text(doing, colour(kind)), one_line(tree.statement)]
        grid.rows.append(Row(key, cells, dim=not waiting_here))
        grid.rows += _waiters(tree, now, key)
    if frame.roots > len(trees):
        grid.note = f"{frame.roots - len(trees)} more roots, which cost less time"
    return grid


def _below(waiters: Iterable[Waiter]) -> Iterable[Waiter]:
    for waiter in waiters:
        yield waiter
        yield from _below(waiter.waiters)


def _waiters(tree: LockTree, now: frozenset[int], key: str) -> list[Row]:
    rows: list[Row] = []

    def add(waiters: list[Waiter], lead: str) -> None:
        for number, w in enumerate(waiters):
            last = number == len(waiters) - 1
            name = Text(lead + ("└ " if last else "├ "), MUTED).append(f"{w.pid} {one_line(w.who)}", "none")
            mark = Text("●", colour("Lock")) if w.pid in now else Text("")
            mode = w.mode.removesuffix("Lock") + (" (queued)" if w.queued else "")
            cells: list[Cell] = [name, mark, seconds(w.seconds), mode, one_line(w.object), one_line(w.statement)]
            rows.append(Row(f"{key}/{w.pid}", cells, dim=w.pid not in now))
            add(w.waiters, lead + ("  " if last else "│ "))

    add(tree.waiters, " ")
    return rows


# -- 4 blocks ----------------------------------------------------------------------------------------------------------

BLOCKS = (
    Column("relation", 22, share=3, most=60),
    Column("block", 8, right=True),
    Column("fork", 4, from_width=88),
    Column("page", 15, share=1, most=22),
    Column("for", 7),
    Column("seconds", 7, right=True),
    Column("most", 4, right=True),
    Column("holder", 8, share=2, most=30),
)


def blocks(frame: Frame) -> Grid:
    why = frame.unavailable.get("blocks")
    grid = Grid(BLOCKS, empty=f"not measured: {why}" if why else "no buffer was waited for in the window")
    for b in frame.blocks or []:
        block = f"{b.block}" + (f"+{b.blocks - 1}" if b.blocks > 1 else "")
        holder = waiting(*_split(b.holder)) if b.holder else Text("not seen", MUTED)
        kind = {"content": "content", "pin": "pin", "io": "I/O"}.get(b.wait_kind, b.wait_kind)
        name = Text(one_line(b.object), "bold" if b.object[:5] != "file " else "")
        most = f"{b.most_waiters}" + ("x" if b.exclusive else "")
        page = b.page_kind.removeprefix("btree ")
        cells: list[Cell] = [name, block, b.fork, page, kind, seconds(b.seconds), most, holder]
        grid.rows.append(Row(f"{b.object}/{b.fork}/{b.page_kind}/{b.wait_kind}", cells))
    if grid.rows:
        grid.note = "block: the worst, +n more like it; most: waiters at once, x: some exclusive"
    return grid


def _split(wait: str) -> tuple[str, str]:
    name, _, event = wait.partition(":")
    return name, event


# -- 5 statements ------------------------------------------------------------------------------------------------------

STATEMENTS = (
    Column("seconds", 7, right=True),
    Column("AAS", 5, right=True),
    Column("share", 6, right=True),
    Column("sess", 4, right=True),
    Column("main waits", 24, share=1, most=44),
    Column("statement", 20, share=5),
)
MAIN_WAITS = 3


def statements(frame: Frame) -> Grid:
    of = frame.load
    grid = Grid(STATEMENTS, empty="no session was active in the window")
    for s in frame.statements or []:
        waits = Text()
        for name, spent_s in sorted(s.by_class.items(), key=lambda item: -item[1])[:MAIN_WAITS]:
            if s.seconds and spent_s / s.seconds >= 0.005:
                waits.append(" " if waits else "")
                waits.append(f"{name} {spent_s / s.seconds:.0%}", colour(name))
        aas = s.seconds / of.observed_s if of.observed_s else 0.0
        share = s.seconds / of.db_time_s if of.db_time_s else None
        cells: list[Cell] = [seconds(s.seconds), figure(aas), percent(share), str(s.sessions), waits, one_line(s.label)]
        grid.rows.append(Row(str(s.key), cells))
    return grid


# -- 6 standbys --------------------------------------------------------------------------------------------------------

STANDBYS = (
    Column("standby", 16, share=1, most=70),
    Column("behind", 7, right=True),
    Column("bytes", 6, right=True),
    Column("made/s", 6, right=True),
    Column("replay/s", 8, right=True),
    Column("unsent", 6, right=True, from_width=112),
    Column("unreceived", 10, right=True, from_width=112),
    Column("unflushed", 9, right=True, from_width=112),
    Column("unreplayed", 10, right=True, from_width=112),
    Column("held up", 24, share=1, most=60),
)


def standbys(frame: Frame) -> Grid:
    grid = Grid(STANDBYS, empty="no standby was seen in the window")
    for number, s in enumerate(frame.standbys or []):
        parts = (s.unsent_bytes, s.unreceived_bytes, s.unflushed_bytes, s.unreplayed_bytes)
        behind = "" if s.behind_s is None else f"{'>' if s.is_least else ''}{seconds(s.behind_s)}"
        old = f"last read {age_in_words(s.age_s)} ago; " if s.age_s is not None and s.age_s > AWAY_S else ""
        cells: list[Cell] = [Text(one_line(s.name), "bold" if s.is_asked else ""), behind, short_size(s.lag_bytes),
                             short_size(s.made_per_s), short_size(s.replayed_per_s), *map(short_size, parts),
                             one_line(old + (s.held_up or "keeps up"))]  # fmt: skip
        grid.rows.append(Row(f"{number} {s.name}", cells, dim=not s.is_asked))
    if grid.rows:
        grid.note = "behind: age of what is replayed now; bytes: made and not replayed"
    return grid


def grid_of(tab: str, frame: Frame, *, idle: bool = False, sort: str = "busy") -> Grid:
    """The table of a tab of model.TABS."""
    if tab == "sessions":
        return sessions(frame, idle=idle, sort=sort)
    return {"overview": overview, "locks": locks, "blocks": blocks, "statements": statements, "standbys": standbys}[tab](frame)
