"""Where the time of two captures differs: by state and wait, by statement, by device, and the latency of a load; the figures of two runs.

Database time is for each transaction where both have counted them, else for each second. `share`: which part of the whole difference a
row explains; parts may be negative, and add up to 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from leadline.capture.reader import Capture
from leadline.compare import pressure
from leadline.compare.environment import Side
from leadline.views.flame import folded, functions
from leadline.views.grid import Column, Grid

MOST = 15
SMALLEST = 0.05  # of the larger one: what differs by less as a whole has parts that are noise


STATES = "select coalesce(state, 'server process') as name, sum(weight_s) as s from session_sample group by 1"
WAITS = """
    select wait_class || case when event = wait_class then '' else ': ' || event end as name, sum(weight_s) as s from db_time group by 1
"""
STATEMENTS = """
    select coalesce(regexp_replace(trim(q.query), '\\s+', ' ', 'g'), '(no statement known)') as name, sum(weight_s) as s
    from db_time left join (select statement_id, any_value(query) as query from statement group by 1) q using (statement_id) group by 1
"""
BY = (  # key, title, query
    ("states", "Sessions by state", STATES), ("waits", "Database time by wait", WAITS),
    ("statements", "Database time by statement", STATEMENTS),
)  # fmt: skip
FUNCTIONS = ("functions", "CPU time by function")
OF_DEVICE = ("queue", "busy", "reads", "read_ms", "writes", "write_ms")


@dataclass(frozen=True)
class Moved:
    key: str
    title: str
    grid: Grid


@dataclass(frozen=True)
class Rate:
    """What seconds are divided by. unit: how they are then called."""

    by: float
    unit: str
    factor: float = 1.0


@dataclass(frozen=True)
class Sums:
    """Of one capture, or of several that were measured alike.

    transactions: in counted_s seconds, by the server's own count; with of_load those of the load beside, which all ended while it was
    observed. parts: seconds by name, of states, waits, statements and functions. devices: by what they hold, what there was in `seconds`.
    host: how much its counters grew, as compare.pressure has it.
    """

    seconds: float = 0.0
    observed_s: float = 0.0
    database_s: float = 0.0
    transactions: float = 0.0
    counted_s: float = 0.0
    of_load: bool = False
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    devices: Mapping[str, Mapping[str, float]] | None = None
    host: Mapping[str, float] = field(default_factory=dict)

    def __add__(self, other: Sums) -> Sums:
        names = ("seconds", "observed_s", "database_s", "transactions", "counted_s")
        numbers: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in names}
        devices = self.devices if other.devices is None else other.devices if self.devices is None else _added(self.devices, other.devices)
        numbers["of_load"] = self.of_load or other.of_load
        host = _added({"": self.host}, {"": other.host})[""]
        return Sums(**numbers, parts=_added(self.parts, other.parts), devices=devices, host=host)


def moved(one: Side, other: Side) -> Iterator[Moved]:
    if one.figures and other.figures:
        yield _figures(one.figures, other.figures)
    if one.capture is None or other.capture is None:
        return
    captures = (one.capture, other.capture)
    if all(not capture.unavailable("load_second") for capture in captures):
        yield from _loads(*captures)
    yield from between(sums_of(one), sums_of(other))


def between(one: Sums, other: Sums) -> Iterator[Moved]:
    """Of what both have."""
    if one.parts and other.parts:
        yield from _database_time(one, other)
    if one.devices is not None and other.devices is not None:
        yield _devices(one, other)
    if one.host and other.host:
        yield _host(one, other)


def sums_of(side: Side) -> Sums:
    capture = side.capture
    assert capture is not None
    numbers: dict[str, Any] = {"seconds": side.seconds}
    if not capture.unavailable("session_sample"):
        transactions, counted_s = _transactions(capture)
        numbers |= {
            "observed_s": _one(capture, "select coalesce(sum(period_ns), 0) / 1e9 from tick"), "transactions": transactions,
            "database_s": _one(capture, "select coalesce(sum(weight_s), 0) from db_time"), "counted_s": counted_s,
            "parts": {key: {row["name"]: float(row["s"]) for row in capture.rows(query)} for key, _, query in BY},
        }  # fmt: skip
        if not capture.unavailable("stack_sample") and _one(capture, "select count(*) from stack_sample where kind = 'on_cpu'"):
            found = functions(folded(capture, "on-cpu", None))
            numbers["parts"][FUNCTIONS[0]] = {function.name: function.itself / 1e9 for function in found if function.itself}
    if not capture.unavailable("device_delta"):
        numbers["devices"] = _of_devices(side)
    if not capture.unavailable("host_rate"):
        numbers["host"] = pressure.grown(capture)
    return Sums(**numbers)


def _added(one: Mapping[str, Mapping[str, float]], other: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    out = {key: dict(of) for key, of in one.items()}
    for key, of in other.items():
        for name, value in of.items():
            out.setdefault(key, {})[name] = out.get(key, {}).get(name, 0.0) + value
        out.setdefault(key, {})
    return out


def _database_time(one: Sums, other: Sums) -> Iterator[Moved]:
    both = (one, other)
    rates = _rates(*both)
    per = rates[0].unit
    heads = [
        {"what": "database time", "one": _per(one.database_s, rates[0]), "other": _per(other.database_s, rates[1])},
        {"what": "sessions active on average", **_pair([of.database_s / (of.observed_s or 1) for of in both])},
    ]
    if all(of.counted_s for of in both):
        heads.append({"what": "transactions a second", **_pair([of.transactions / of.counted_s for of in both])})
    yield Moved("totals", f"Database time, {per}", _ratios(heads))
    seconds = [Rate(of.observed_s, "seconds a second") for of in both]
    for key, title, _ in BY:
        by = seconds if key == "states" else rates
        yield Moved(key, f"{title}, {by[0].unit}", _parts(one.parts.get(key, {}), other.parts.get(key, {}), by))
    key, title = FUNCTIONS
    if one.parts.get(key) and other.parts.get(key):
        yield Moved(key, f"{title}, {rates[0].unit}", _parts(one.parts[key], other.parts[key], rates))


def _rates(one: Sums, other: Sums) -> list[Rate]:
    """Milliseconds for each transaction, if both have counted more than a few; else seconds for each second that was observed."""
    if all(of.transactions >= 10 and of.counted_s for of in (one, other)):
        # transactions of the observed time: the counters and the passes do not cover the same seconds
        by = [of.transactions if of.of_load else of.transactions / of.counted_s * of.observed_s for of in (one, other)]
        return [Rate(each, "ms a transaction", 1000) for each in by]
    return [Rate(of.observed_s, "seconds a second") for of in (one, other)]


def _transactions(capture: Capture) -> tuple[float, float]:
    """How many ended, by the server's own count, in how many seconds; nothing where the counters were reset."""
    row = capture.rows(
        """
        select coalesce(sum(delta), 0) as n, max(dt_s) as s, coalesce(min(delta), 0) as least from server_stat_delta
        where view = 'pg_stat_database' and metric in ('xact_commit', 'xact_rollback') and delta is not null
        """
    )[0]
    return (float(row["n"]), float(row["s"])) if row["s"] and row["least"] >= 0 else (0.0, 0.0)


def _loads(one: Capture, other: Capture) -> Iterator[Moved]:
    """Latencies from the moment a transaction was due, and seconds of each statement for each transaction."""
    sums = [
        c.rows(
            """
            select coalesce(sum(done), 0) as done, coalesce(sum(failed), 0) as failed, coalesce(sum(skipped), 0) as skipped,
                   coalesce(sum(duration_ns) filter (not after_the_end), 0) / 1e9 as seconds
            from load_second where not warm_up
            """
        )[0]
        for c in (one, other)
    ]
    heads = [{"what": "transactions a second", **_pair([row["done"] / (row["seconds"] or 1) for row in sums])}]
    heads += [{"what": name, **_pair([float(row[name]) for row in sums])} for name in ("failed", "skipped")]
    reached = [_quantiles(c) for c in (one, other)]
    heads += [{"what": f"latency {name}, ms", **_pair([of.get(name) for of in reached])} for name in ("p50", "p90", "p99", "p99.9", "max")]
    yield Moved("load", "The load", _ratios(heads))
    query = """
        select regexp_replace(trim(text), '\\s+', ' ', 'g') as name, sum(mean_ns * count) / 1e9 as s
        from load_statement join (select phase, bool_and(warm_up) as warm_up from load_second group by phase) using (phase)
        where not warm_up and mean_ns is not null group by 1
    """
    parts = [{row["name"]: float(row["s"]) for row in c.rows(query)} for c in (one, other)]
    by = [Rate(float(row["done"]), "ms a transaction", 1000) for row in sums]
    yield Moved("load_statements", "The load by statement, ms a transaction", _parts(parts[0], parts[1], by))


def _quantiles(capture: Capture) -> dict[str, float]:
    """Of all that counts: the warm-up is left out."""
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    asked = ", ".join(f"min(high_ns) filter (below >= {share} * whole) / 1e6 as \"{name}\"" for name, share in shares.items())
    row = capture.rows(
        f"""
        with counted as (
          select high_ns, sum(count) as n
          from load_bucket join (select phase, bool_and(warm_up) as warm_up from load_second group by phase) using (phase)
          where kind = 'latency' and not warm_up group by high_ns),
        summed as (select high_ns, sum(n) over (order by high_ns) as below, sum(n) over () as whole from counted)
        select {asked} from summed
        """
    )[0]
    return {name: float(value) for name, value in row.items() if value is not None}


def _devices(one: Sums, other: Sums) -> Moved:
    """By what they hold: names of devices differ between hosts. Seconds of requests for each second: the mean queue."""
    rows = [_a_second(of) for of in (one, other)]
    whole = [sum(row["queue"] for row in of.values()) for of in rows]
    heads = {"queue": "queue", "busy": "busy", "reads": "reads/s", "read_ms": "read ms", "writes": "writes/s", "write_ms": "write ms"}
    columns = (
        Column("name", "device", "text"),
        *(
            Column(f"{of}_{name}", f"{heads[name]} {letter}", "share" if name == "busy" else "figure", minor=name != "queue")
            for name in OF_DEVICE
            for of, letter in (("one", "A"), ("other", "B"))
        ),
        Column("share", "of change", "share"),
    )
    found: list[dict[str, Any]] = []
    for name in dict.fromkeys((*rows[0], *rows[1])):
        a, b = (of.get(name, {}) for of in rows)
        values = {f"{of}_{what}": each.get(what) for of, each in (("one", a), ("other", b)) for what in OF_DEVICE}
        found.append({"name": name, **values, "share": _share(a.get("queue", 0.0), b.get("queue", 0.0), whole)})
    found.sort(key=lambda row: -abs((row["other_queue"] or 0) - (row["one_queue"] or 0)))
    title = "Devices: requests under way on average, and what each took"
    return Moved("devices", title, Grid.of(columns, found[:MOST], empty="no device did anything"))


def _of_devices(side: Side) -> dict[str, dict[str, float]]:
    assert side.capture is not None
    holds: dict[str, list[str]] = {}
    for place in ("data", "wal"):
        names = [value for name, value in side.facts.items() if name.startswith(f"storage.{place}.device.") and name.endswith(".names")]
        for device in ",".join(names).split(","):
            holds.setdefault(device, []).append({"data": "data", "wal": "WAL"}[place])
    rows = side.capture.rows(
        """
        select device, sum(reads) as reads, sum(writes) as writes, sum(read_ns) as read_ns, sum(write_ns) as write_ns,
               sum(queue_ns) / 1e9 as queue_s, sum(busy_ns) / 1e9 as busy_s
        from device_delta group by device
        """
    )
    out: dict[str, dict[str, float]] = {}
    for row in rows:  # a device has rows only for seconds in which it did something
        name = " and ".join(holds[row["device"]]) if row["device"] in holds else row["device"]
        of = out.setdefault(name, dict.fromkeys(("queue_s", "busy_s", "reads", "writes", "read_ns", "write_ns"), 0.0))
        for what in of:
            of[what] += float(row[what])
    return out


def _a_second(of: Sums) -> dict[str, dict[str, float]]:
    """Of each device what OF_DEVICE names."""
    length, out = of.seconds or 1.0, dict[str, dict[str, float]]()
    for name, sums in (of.devices or {}).items():
        out[name] = {what: sums[key] / length for what, key in (("queue", "queue_s"), ("busy", "busy_s"))}
        out[name] |= {what: sums[what] / length for what in ("reads", "writes")}
        out[name] |= {f"{kind}_ms": sums[f"{kind}_ns"] / sums[f"{kind}s"] / 1e6 for kind in ("read", "write") if sums[f"{kind}s"]}
    return out


def _host(one: Sums, other: Sums) -> Moved:
    a, b = (pressure.a_second(of.host) for of in (one, other))
    rows = [{"what": name, "one": a[name], "other": b[name]} for name in a if name in b and (a[name] or b[name])]
    return Moved("host", "Pressure and reclaim on the host", replace(_ratios(rows), empty="no pressure, no reclaim, no writes"))


def _figures(one: Mapping[str, float], other: Mapping[str, float]) -> Moved:
    rows = [{"what": name, "one": one[name], "other": other[name]} for name in one if name in other]
    return Moved("figures", "Figures of the runs", _ratios(rows))


def _pair(values: list[Any]) -> dict[str, Any]:
    return {"one": values[0], "other": values[1]}


def _ratios(rows: list[dict[str, Any]]) -> Grid:
    for row in rows:
        a, b = row["one"], row["other"]
        row["ratio"] = b / a if a and b is not None and a > 0 and b >= 0 else None
    columns = (Column("what", "", "text"), Column("one", "A", "figure"), Column("other", "B", "figure"), Column("ratio", "B / A", "figure"))
    return Grid.of(columns, rows)


def _parts(one: Mapping[str, float], other: Mapping[str, float], rates: list[Rate]) -> Grid:
    """A row for each name, those that moved most first."""
    rows = []
    whole = [_per(sum(of.values()), rate) for of, rate in zip((one, other), rates)]
    for name in dict.fromkeys((*one, *other)):
        a, b = _per(one.get(name, 0.0), rates[0]), _per(other.get(name, 0.0), rates[1])
        change = 0.0 if math.isclose(a, b, rel_tol=1e-9) else b - a
        rows.append((name, a, b, change, _share(a, b, whole)))
    rows.sort(key=lambda row: (-abs(row[3]), row[0]))
    columns = (
        Column("name", "", "text"), Column("one", "A", "figure"), Column("other", "B", "figure"), Column("change", "B - A", "figure"),
        Column("share", "of change", "share"),
    )  # fmt: skip
    left = len(rows) - MOST
    return Grid(columns, list(rows[:MOST]), rest=f"{left:,} more, which moved less" if left > 0 else "")


def _per(seconds: float, rate: Rate) -> float:
    return rate.factor * seconds / rate.by if rate.by else 0.0


def _share(one: float, other: float, whole: list[float]) -> float | None:
    """Which part of the whole change this one is."""
    change = whole[1] - whole[0]
    return (other - one) / change if abs(change) > SMALLEST * max(map(abs, whole)) else None


def _one(capture: Capture, query: str) -> float:
    return float(capture.scalar(query) or 0.0)
