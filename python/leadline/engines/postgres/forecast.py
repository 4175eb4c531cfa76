"""When a standby has caught up, the highest rate that it can follow, and when a disk is full of WAL: from the curves of a capture.

A standby replays as fast as it can while WAL waits on its own disk. Only that time counts for its capacity: between two readings it was
busy all the time if at the second one it had not yet replayed what was on its disk at the first. The last kilobytes do not count: where
they end within a record, nobody can replay it yet. Short spells do not count either: of small steps, those that took long would be chosen.
Where more than a second of WAL has not reached the standby's disk, the way to it has a capacity, too, and the lower one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, pairwise
from random import Random
from statistics import quantiles
from typing import Any

from leadline.capture.reader import Capture
from leadline.errors import LeadlineError

LEAST_BUSY_S = 0.5  # with less, nobody knows how fast it can be
LEAST_BUSY = 10  # intervals between readings
LEAST_SPELL_S = 0.25  # many periods of a quota of CPU, and longer than the walwriter of the primary waits
PART = 32 << 10  # of a record whose end has not come
BELIEVED = 1.1  # times its capacity: what replays more in all has another one
LEAST_SHARE = 0.5  # of the time at work: what is fast in short bursts, as with a quota of CPU, need not be fast for long
BLOCK_S = 1.0  # intervals so near to each other are drawn together
DRAWS = 400
WORTH_S = 1.0  # so little lag is none


@dataclass(frozen=True)
class Reading:
    """Bytes of the WAL: made on the primary, on the disk of the standby, replayed."""

    at_s: float
    made: int
    on_disk: int
    replayed: int
    is_paused: bool = False


@dataclass(frozen=True)
class Capacity:
    """Bytes a second, with its 95 % interval. of: replay, or receipt (the way to the standby's disk). known_from: backlog (it never had
    nothing to do), or share (its rate by the share of the time in which it worked)."""

    rate: float
    low: float | None
    high: float | None
    known_from: str
    busy_s: float
    of: str = "replay"


@dataclass(frozen=True)
class Forecast:
    """Of one standby. verdict: caught up, catches up, never, paused, unknown. reaches_now_s: until it has replayed what is made by now;
    catch_up_s: until it is no longer behind. Of one that is paused: from when it is resumed."""

    standby: str
    lag_bytes: int
    made_per_s: float
    capacity: Capacity | None
    verdict: str
    reaches_now_s: float | None = None
    catch_up_s: float | None = None
    catch_up_low_s: float | None = None
    catch_up_high_s: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """One flat row."""
        row = asdict(self)
        known = row.pop("capacity") or dict.fromkeys(Capacity.__dataclass_fields__)
        return row | {"capacity_per_s": known["rate"], "capacity_low": known["low"], "capacity_high": known["high"],
                      "capacity_of": known["of"], "known_from": known["known_from"], "busy_s": known["busy_s"]}  # fmt: skip


@dataclass(frozen=True)
class Filling:
    """A disk that WAL fills. what: who keeps the WAL. full_s, lost_s: until the disk is full, and until the slot loses its WAL, at this
    rate."""

    server: str
    what: str
    kept_bytes: int
    growth_per_s: float
    free_bytes: int | None
    full_s: float | None
    lost_s: float | None


def capacity(readings: Sequence[Reading], busy_share: float | None = None) -> Capacity | None:
    """How fast it replays when it has work; busy_share: of the time in which it was seen to work, if it was watched."""
    going = [(a, b) for a, b in pairwise(readings) if not (a.is_paused or b.is_paused) and b.at_s > a.at_s]
    seconds = sum(b.at_s - a.at_s for a, b in going)
    replayed = sum(max(b.replayed - a.replayed, 0) for a, b in going)
    found = _at_work(going, lambda a, b: a.replayed <= b.replayed < a.on_disk - PART, lambda r: r.replayed, "replay")
    if found is not None and replayed / seconds <= BELIEVED * found.rate:
        return found
    if busy_share is None or busy_share < LEAST_SHARE or not seconds or not replayed:
        return None
    return Capacity(replayed / seconds / busy_share, None, None, "share", busy_share * seconds)


def receipt(readings: Sequence[Reading], made_per_s: float) -> Capacity | None:
    """How fast WAL reaches its disk while more than a second of it has not. Less is on its way at any time."""
    going = [(a, b) for a, b in pairwise(readings) if b.at_s > a.at_s]
    return _at_work(going, lambda a, b: a.on_disk <= b.on_disk < a.made - made_per_s * WORTH_S, lambda r: r.on_disk, "receipt")


def _at_work(
    going: Sequence[tuple[Reading, Reading]], is_busy: Callable[[Reading, Reading], bool], done: Callable[[Reading], int], of: str
) -> Capacity | None:
    """going: each reading with the next one."""
    blocks: dict[int, list[float]] = {}
    count = 0
    for busy, spell in groupby(going, lambda pair: is_busy(*pair)):
        pairs = list(spell)
        if not busy or sum(b.at_s - a.at_s for a, b in pairs) < LEAST_SPELL_S:
            continue
        for a, b in pairs:
            block = blocks.setdefault(int((a.at_s - going[0][0].at_s) / BLOCK_S), [0.0, 0.0])
            block[0] += done(b) - done(a)
            block[1] += b.at_s - a.at_s
        count += len(pairs)
    busy_s = sum(seconds for _, seconds in blocks.values())
    if busy_s < LEAST_BUSY_S or count < LEAST_BUSY:
        return None
    low, high = _interval(list(blocks.values()))
    return Capacity(sum(moved for moved, _ in blocks.values()) / busy_s, low, high, "backlog", busy_s, of)


def _interval(blocks: list[list[float]]) -> tuple[float | None, float | None]:
    """95 %: blocks of time are drawn again and again."""
    if len(blocks) < 5:
        return None, None
    draw = Random(33)
    rates = []
    for _ in range(DRAWS):
        chosen = draw.choices(blocks, k=len(blocks))
        rates.append(sum(made for made, _ in chosen) / sum(seconds for _, seconds in chosen))
    cuts = quantiles(rates, n=40)
    return cuts[0], cuts[-1]


def forecast(standby: str, readings: Sequence[Reading], busy_share: float | None = None) -> Forecast:
    """Of a standby that was read at least twice."""
    first, last = readings[0], readings[-1]
    made = (last.made - first.made) / (last.at_s - first.at_s)
    lag = max(last.made - last.replayed, 0)
    both = [found for found in (capacity(readings, busy_share), receipt(readings, made)) if found is not None]
    known = min(both, key=lambda found: found.rate, default=None)

    def told(verdict: str, *seconds: float | None) -> Forecast:
        return Forecast(standby, lag, made, known, "paused" if last.is_paused else verdict, *seconds)

    def at(rate: float | None) -> float | None:
        return None if rate is None or rate <= made else lag / (rate - made)

    if lag <= made * WORTH_S and not last.is_paused:
        return told("caught up", 0.0, 0.0)
    if known is None or known.rate <= 0:
        return told("unknown")
    if known.rate <= made:
        return told("never", lag / known.rate)
    return told("catches up", lag / known.rate, at(known.rate), at(known.high), at(known.low))


def forecasts(capture: Capture) -> list[Forecast]:
    """Of the standbys of a capture that were asked themselves; where none was, of those that a primary has heard of.

    Raises LeadlineError.
    """
    if capture.unavailable("replication_position") is not None:
        hint = "leadline take DSN --with STANDBY_DSN, or give the connection string here"
        raise LeadlineError("unsupported", "the capture knows nothing of replication", hint=hint, where=str(capture.path))
    rows = capture.rows(
        """
        with shown as (
          select * from replication_lag where is_standby or not exists (from replication_lag where is_standby))
        select case when s.is_standby then n.name else s.receiver end as standby, s.node, s.is_standby, s.ts / 1e9 as at_s,
               s.made_lsn, s.flush_lsn, s.replay_lsn, s.is_paused
        from shown s left join replication_node n using (node)
        where s.flush_lsn is not null and s.made_lsn is not null order by standby, s.ts
        """
    )
    shares = {
        row["node"]: row["share"]
        for row in capture.rows(
            """
            select node, sum(seconds) filter (activity in ('apply', 'read'))
                         / nullif(sum(seconds) filter (activity <> 'held'), 0) as share
            from replay_sample group by node
            """
        )
    }
    standbys: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        standbys.setdefault(row["standby"], []).append(row)
    found = []
    for standby, of in standbys.items():
        readings = [Reading(r["at_s"], r["made_lsn"], r["flush_lsn"], r["replay_lsn"], r["is_paused"]) for r in of]
        if len(readings) > 1 and readings[-1].at_s > readings[0].at_s:
            found.append(forecast(standby, readings, shares.get(of[0]["node"]) if of[0]["is_standby"] else None))
    return found


def fillings(capture: Capture) -> list[Filling]:
    """Disks that get fuller: of slots that keep more and more WAL, and of standbys that receive more than they replay."""
    known = capture.rows("select * from replication_node") if capture.unavailable("replication_node") is None else []
    nodes = {row["node"]: row for row in known}
    found = []
    if capture.unavailable("server_stat") is None:
        target = nodes.get(1, {})
        for slot in capture.rows(
            """
            select object as slot, max(after) filter (metric = 'retained_bytes') as kept,
                   max(delta) filter (metric = 'retained_bytes') as grown, max(dt_s) filter (metric = 'retained_bytes') as dt_s,
                   max(after) filter (metric = 'safe_wal_size') as safe
            from server_stat_delta where view = 'pg_replication_slots' group by object order by object
            """
        ):
            if slot["grown"] and slot["grown"] > 0 and slot["dt_s"]:
                per_s, safe = slot["grown"] / slot["dt_s"], slot["safe"]
                lost = None if safe is None else max(safe, 0) / per_s
                free = target.get("wal_free_bytes")
                full = None if free is None else free / per_s
                what = f"slot {slot['slot']}"
                found.append(Filling(target.get("name", "the target"), what, int(slot["kept"]), per_s, free, full, lost))
    for row in capture.rows(
        """
        select node, arg_max(flush_lsn - replay_lsn, ts) as kept, regr_slope(flush_lsn - replay_lsn, ts / 1e9) as per_s
        from replication_lag where is_standby and flush_lsn is not null group by node having count(*) > 1 order by node
        """
    ):
        node, per_s = nodes.get(row["node"]), row["per_s"]
        if node is not None and per_s and per_s > 0 and row["kept"] > per_s * WORTH_S:
            free = node["wal_free_bytes"]
            full = None if free is None else free / per_s
            found.append(Filling(node["name"], "WAL received and not replayed", int(row["kept"]), per_s, free, full, None))
    return found
