"""Lock chains of a whole capture as trees: the root that waits for no lock, and below it who waits for whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from leadline.capture.manifest import CLIENT
from leadline.capture.reader import Capture


@dataclass
class Waiter:
    """One session behind another, over the whole window. seconds: it waited in the chains of this root.

    A session that waited behind several others stands once, behind the one it waited for longest.
    """

    pid: int
    who: str
    seconds: float
    object: str
    mode: str
    blocker_mode: str
    queued: bool
    statement: str
    waiters: list[Waiter] = field(default_factory=list)


@dataclass
class LockTree:
    """One root. seconds: lost by all its victims; state, age and statement: the root's own while they waited."""

    pid: int
    who: str
    state: str
    wait: str
    xact_age_s: float | None
    statement: str
    seconds: float
    victims: int
    waiters: list[Waiter] = field(default_factory=list)

    @property
    def name(self) -> str:
        """With the pid, where it has one."""
        return f"pid {self.pid} {self.who}" if self.pid else self.who


Root = tuple[int, int]  # session_id and pid

def lock_trees(capture: Capture, limit: int = 5) -> list[LockTree]:
    """The roots by the seconds lost behind them, each with its tree."""
    roots = capture.rows(
        """
        select root_session_id, root_pid, sum(wait_s) as seconds, count(distinct session_id) as victims
        from lock_chain
        group by all order by seconds desc, root_pid limit $1
        """,
        [limit],
    )
    if not roots:
        return []
    keys = [(root["root_session_id"], root["root_pid"]) for root in roots]
    described, edges = _describe_roots(capture, keys), _edges(capture, keys)
    trees = []
    for root, (session_id, pid) in zip(roots, keys):
        tree = LockTree(pid, "", "", "", None, "", root["seconds"], root["victims"])
        if pid == 0:
            tree.who, tree.state = _name_prepared(capture), "prepared"
        else:
            _describe(tree, described.get(session_id))
        tree.waiters = _hang(edges[session_id, pid], pid)
        trees.append(tree)
    return trees


def count_roots(capture: Capture) -> int:
    return int(capture.scalar("select count(*) from (select distinct root_pid, root_session_id from lock_chain)"))


def _name_prepared(capture: Capture) -> str:
    listed = capture.rows("select object from prepared_xact order by age_s desc")
    return "a prepared transaction" + (f" (listed: {', '.join(row['object'] for row in listed)})" if listed else "")


def _describe_roots(capture: Capture, roots: list[Root]) -> dict[int, dict[str, Any]]:
    """By session: who each root is, and what it did while others waited for it."""
    rows = capture.rows(
        f"""
        with blocked as (
          select distinct root_session_id, ts from lock_chain
          where root_session_id in ({", ".join(str(session) for session, _ in roots)})),
        while_blocking as (
          select s.*, coalesce(state, 'background') as doing, coalesce(wait_class || ':' || wait_event, 'CPU') as waits_for
          from session_sample s join blocked b on b.root_session_id = s.session_id and b.ts = s.ts),
        root as (
          select session_id, any_value(user) as user, any_value(application) as application,
                 any_value(backend_type) as backend_type, mode(doing order by doing) as state, mode(waits_for order by waits_for) as wait,
                 max(xact_age_s) as xact_age_s, mode(statement_id order by statement_id) as statement_id
          from while_blocking group by session_id)
        select r.*, (select any_value(query) from statement t where t.statement_id = r.statement_id) as query from root r
        """
    )
    return {row["session_id"]: row for row in rows}


def _describe(tree: LockTree, row: dict[str, Any] | None) -> None:
    if row is None:
        tree.who, tree.state = "a session not in the samples", "not seen"
        return
    tree.who = who(row)
    tree.state, tree.wait, tree.xact_age_s = row["state"], row["wait"], row["xact_age_s"]
    tree.statement = " ".join((row["query"] or "").split())


def who(row: dict[str, Any]) -> str:
    """A session for people: its application, else its role, or the kind of server process."""
    if row["backend_type"] and row["backend_type"] != CLIENT:
        return str(row["backend_type"])
    return str(row["application"] or row["user"] or "")


def _edges(capture: Capture, roots: list[Root]) -> dict[Root, list[tuple[int, float, Waiter]]]:
    """(blocker pid, seconds behind it, waiter) in the chains of each root, most seconds first.

    Someone who holds the lock comes before someone who only stands ahead in its queue.
    """
    rows = capture.rows(
        f"""
        with chain as (
          select root_session_id, root_pid, ts, wait_s, pid from lock_chain
          where (root_session_id, root_pid) in ({", ".join(map(str, roots))})),
        total as (select root_session_id, root_pid, pid, sum(wait_s) as seconds from chain group by all),
        edge as (
          select l.*, c.root_session_id, c.root_pid,
                 bool_or(l.blocker_kind = 'holder') over (partition by c.root_session_id, c.root_pid, l.ts, l.pid) as has_holder
          from lock_wait l join chain c on c.ts = l.ts and c.pid = l.pid
            and (l.looks is null or (l.end_session_id = c.root_session_id and l.end_pid = c.root_pid)))
        select root_session_id, root_pid, e.blocker_pid, e.pid, e.session_id,
               sum(e.period_ns) / 1e9 as behind_s, any_value(t.seconds) as seconds, mode(target order by target) as target,
               count(distinct target) as targets, mode(e.mode order by e.mode) as mode,
               mode(blocker_mode order by blocker_mode) as blocker_mode, bool_and(blocker_kind = 'queue') as queued
        from edge e join total t using (root_session_id, root_pid, pid)
        where blocker_kind = 'holder' or not has_holder or looks is not null
        group by all order by behind_s desc, e.pid, e.blocker_pid
        """
    )
    described = _describe_waiters(capture)
    edges: dict[Root, list[tuple[int, float, Waiter]]] = {root: [] for root in roots}
    for row in rows:
        name, statement = described.get(row["session_id"], ("", ""))
        target = row["target"] + (f" and {row['targets'] - 1} more" if row["targets"] > 1 else "")
        waiter = Waiter(row["pid"], name, row["seconds"], target, row["mode"], row["blocker_mode"], row["queued"], statement)
        edges[row["root_session_id"], row["root_pid"]].append((row["blocker_pid"], row["behind_s"], waiter))
    return edges


def _describe_waiters(capture: Capture) -> dict[int, tuple[str, str]]:
    """Who each waiter is and the statement it mostly waited in."""
    rows = capture.rows(
        """
        with waiting as (
          select s.session_id, any_value(user) as user, any_value(application) as application,
                 any_value(backend_type) as backend_type, mode(statement_id order by statement_id) as statement_id
          from session_sample s where wait_class = 'Lock' and session_id in (select session_id from lock_wait) group by 1)
        select w.*, (select any_value(query) from statement t where t.statement_id = w.statement_id) as query from waiting w
        """
    )
    return {row["session_id"]: (who(row), " ".join((row["query"] or "").split())) for row in rows}


def _hang(edges: list[tuple[int, float, Waiter]], root: int) -> list[Waiter]:
    """The waiters below the root. Over a window sessions can wait for each other in turn; a tree has each once."""
    best: dict[int, int] = {}  # the blocker each waited for longest; the edges come most seconds first
    for blocker, _, waiter in edges:
        best.setdefault(waiter.pid, blocker)
    below: dict[int, list[Waiter]] = {root: []}
    while True:
        ready = [(blocker, w) for blocker, _, w in edges if w.pid not in below and blocker in below]
        if not ready:
            break
        blocker, waiter = next(((b, w) for b, w in ready if best[w.pid] == b), ready[0])
        below[waiter.pid] = waiter.waiters
        below[blocker].append(waiter)
    for waiters in below.values():
        waiters.sort(key=lambda w: (-w.seconds, w.pid))
    return below[root]
