"""The standbys of a window that moves, for `top`: how far each is behind, where its bytes wait, and what replay does meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leadline.capture.reader import Capture
from leadline.engines.live import StandbyNow
from leadline.engines.postgres.probes.replication_node import Node

WORTH_S = 1.0  # so little lag is none
RECENT_S = 10.0  # of replay
PARTS = ("unsent_bytes", "unreceived_bytes", "unflushed_bytes", "unreplayed_bytes")
FIGURES = ("age_s", "behind_s", "is_least", "lag_bytes", *PARTS, "made_per_s", "replayed_per_s")
WAITS = dict(zip(PARTS, ("not sent", "not received", "not on its disk", "not replayed"), strict=True))
DOES = {"apply": "applies records", "read": "reads WAL", "held": "held on purpose"}

_NOW = """
select node, receiver, is_standby, ((select ts_to from capture) - max(ts)) / 1e9 as age_s, arg_max(is_paused, ts) as is_paused,
       arg_max(lag_s, ts) as behind_s, arg_max(is_least, ts) as is_least, arg_max(lag_bytes, ts) as lag_bytes,
       arg_max(unsent_bytes, ts) as unsent_bytes, arg_max(unreceived_bytes, ts) as unreceived_bytes,
       arg_max(unflushed_bytes, ts) as unflushed_bytes, arg_max(unreplayed_bytes, ts) as unreplayed_bytes,
       (max(made_lsn) - min(made_lsn)) / nullif((max(ts) - min(ts)) / 1e9, 0) as made_per_s,
       (max(replay_lsn) - min(replay_lsn)) / nullif((max(ts) - min(ts)) / 1e9, 0) as replayed_per_s
from replication_lag group by node, receiver, is_standby order by not is_standby, behind_s desc, node, receiver
"""
_REPLAY = f"""
with busy as (
  select node, activity, wait, sum(seconds) as seconds from replay_sample
  where activity <> 'idle' and wait is not null and ts > (select ts_to from capture) - {RECENT_S} * 1e9 group by all)
select node, activity, wait, seconds / sum(seconds) over (partition by node) as share
from busy where seconds > 0 order by node, share desc, activity, wait
"""


def standbys_now(capture: Capture, nodes: Sequence[Node]) -> list[StandbyNow]:
    """First those that were asked, the one that is most behind first; then what senders have heard of theirs."""
    names = {node.number: node.name for node in nodes}
    away = {node.number: f"cannot be read: {node.lost}" for node in nodes if node.is_away}
    does: dict[int, str] = {}
    for row in capture.rows(_REPLAY):  # the largest share of each first
        does.setdefault(row["node"], f"{row['wait'] or DOES[row['activity']]} {row['share']:.0%}")
    rows = capture.rows(_NOW)
    found = [_standby(row, names[row["node"]], does.get(row["node"], ""), away.get(row["node"], "")) for row in rows]
    seen = {row["node"] for row in rows if row["is_standby"]}
    unseen = [StandbyNow(names[number], True, held_up=why) for number, why in away.items() if number not in seen]
    return [*(one for one in found if one.is_asked), *unseen, *(one for one in found if not one.is_asked)]


def _standby(row: dict[str, Any], node: str, does: str, away: str) -> StandbyNow:
    is_asked = row["is_standby"]
    name = node if is_asked else f"{row['receiver']}, as {node} heard"
    told = {figure: row[figure] for figure in FIGURES}
    return StandbyNow(name, is_asked, **told, held_up=away or _held_up(row, does if is_asked else ""))


def _held_up(row: dict[str, Any], does: str) -> str:
    if row["is_paused"]:
        return "replay is paused"
    if not row["lag_bytes"] or row["behind_s"] < WORTH_S:
        return ""
    part = max(PARTS, key=lambda name: row[name] or 0)
    return f"{WAITS[part]}: {does}" if part == "unreplayed_bytes" and does else WAITS[part]
