"""The questions of the page as SQL over the views of a capture. Values are bound, never written into the text.

`shown` has the same query with its values as literals, for `leadline sql CAPTURE`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MOST_STEPS = 300  # of a picture: more are narrower than a pixel of a phone
MOST_ROWS = 50  # of a ranking
CLASSES = "list({'wait_class': wait_class, 'seconds': s} order by s desc, wait_class) as classes"
Value = int | str
OneOf = tuple[int, ...]


@dataclass(frozen=True)
class Dimension:
    """What database time can be ranked and filtered by. column: of db_time; an empty value stands for none."""

    name: str
    label: str
    column: str
    is_number: bool = False

    @property
    def key(self) -> str:
        """SQL of its value as text."""
        if self.column == "wait_event":  # a name of an event can stand in two classes
            return "case when wait_event is null then 'CPU' else wait_class || ':' || wait_event end"
        return f"coalesce({self.column}::varchar, '')" if self.is_number else f"coalesce({self.column}, '')"


DIMENSIONS = {
    d.name: d
    for d in (
        Dimension("event", "wait event", "wait_event"),
        Dimension("class", "wait class", "wait_class"),
        Dimension("statement", "statement", "statement_id", is_number=True),
        Dimension("user", "user", '"user"'),
        Dimension("application", "application", "application"),
        Dimension("client", "client", "client"),
        Dimension("database", "database", "database"),
        Dimension("session", "session", "session_id", is_number=True),
    )
}
# Waits for objects are seen at looks, a few times a second, and not at each sample: one can rank by them, not filter.
OBJECT = "object"
RANKINGS = {name: d.label for name, d in DIMENSIONS.items()} | {OBJECT: "object"}


@dataclass(frozen=True)
class Asked:
    """A window, in ns on the clock of the capture, and filters: a dimension's name and the value that it must have, or the numbers."""

    ts_from: int
    ts_to: int
    filters: tuple[tuple[str, Value | OneOf], ...] = ()


@dataclass
class Query:
    """SQL with $1, $2, ... and their values, in that order."""

    sql: str = ""
    values: list[Value] = field(default_factory=list)

    def bind(self, value: Value) -> str:
        """The name that stands for the value."""
        if value in self.values:
            return f"${self.values.index(value) + 1}"
        self.values.append(value)
        return f"${len(self.values)}"

    @property
    def shown(self) -> str:
        """With the values in their places."""
        return re.sub(r"\$(\d+)", lambda found: literal(self.values[int(found[1]) - 1]), self.sql)


def literal(value: Value) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def _window(query: Query, asked: Asked) -> str:
    return f"ts >= {query.bind(asked.ts_from)} and ts < {query.bind(asked.ts_to)}"


def _where(query: Query, asked: Asked) -> str:
    """The window and the filters, over db_time."""
    parts = [_window(query, asked)]
    for name, value in asked.filters:
        of = DIMENSIONS[name]
        if name == "event" and isinstance(value, str):
            wait_class, _, event = value.partition(":")
            parts.append(f"wait_class = {query.bind(wait_class)}")
            parts.append(f"wait_event = {query.bind(event)}" if event else "wait_event is null")
        elif isinstance(value, tuple):
            parts.append(f"{of.column} in ({', '.join(map(query.bind, value))})" if value else "false")
        elif value == "":
            parts.append(f"{of.column} is null" if of.is_number else f"coalesce({of.column}, '') = ''")
        else:
            parts.append(f"{of.column} = {query.bind(value)}")
    return " and ".join(parts)


def _step(query: Query, asked: Asked, step_ns: int) -> str:
    """The step of a ts. A rest of less than half a step is a part of the last one: a few passes say little of a height."""
    last = query.bind(last_step(asked, step_ns))
    return f"least((ts - {query.bind(asked.ts_from)}) // {query.bind(step_ns)}, {last})"


def last_step(asked: Asked, step_ns: int) -> int:
    return max((asked.ts_to - asked.ts_from + step_ns // 2) // step_ns, 1) - 1


def over_time(asked: Asked, step_ns: int, counted_ns: int = 0) -> Query:
    """Seconds by step and wait class; queue_s: the part that waited for a CPU.

    counted_ns: the interval between two readings of the scheduler's counters. A row from a counter has the seconds of a whole interval,
    which are spread over its steps: else each reading would be a peak.
    """
    parts = max((counted_ns + step_ns // 2) // step_ns, 1)
    query = Query()
    where = _where(query, asked)
    half = query.bind(counted_ns // (2 * parts))
    step = _step(query, asked, step_ns)
    query.sql = (
        f"select greatest({step}, 0) as step, wait_class, sum(weight_s) as seconds, coalesce(sum(cpu_queue_s), 0) as queue_s\n"
        "from (\n"
        "  select * replace (case when from_counter then ts - (2 * part + 1) * {half} else ts end as ts, weight_s / parts as weight_s,\n"
        "                    cpu_queue_s / parts as cpu_queue_s)\n"
        "  from (select *, unnest(range(parts)) as part\n"
        "        from (select *, case when from_counter then {parts} else 1 end as parts from db_time where {where}))\n"
        ")\ngroup by all order by step, wait_class"
    ).replace("{half}", half).replace("{parts}", query.bind(parts)).replace("{where}", where)
    return query


def passes(asked: Asked, step_ns: int) -> Query:
    """Seconds observed by step. A step without a row was not seen."""
    query = Query()
    query.sql = (
        f"select {_step(query, asked, step_ns)} as step, sum(period_ns) / 1e9 as observed_s\n"
        f"from tick\nwhere {_window(query, asked)}\ngroup by all order by step"
    )
    return query


def ranking(asked: Asked, by: str, most: int | None = MOST_ROWS) -> Query:
    """Seconds by the values of a dimension, most first, each with its wait classes. there, total_s: of all values, also those cut off."""
    limit = "" if most is None else f" limit {most}"
    if by == OBJECT:
        return _objects(asked, limit)
    query, of = Query(), DIMENSIONS[by]
    columns = ", ".join(dict.fromkeys((of.column, "wait_class")))
    query.sql = (
        f"with part as (\n  select {columns}, sum(weight_s) as s\n  from db_time\n  where {_where(query, asked)}\n  group by all)\n"
        f"select {of.key} as key, sum(s) as seconds, {CLASSES},\n"
        "       count(*) over () as there, sum(sum(s)) over () as total_s\n"
        f"from part group by key order by seconds desc, key{limit}"
    )
    return query


def active(asked: Asked, by: str) -> Query:
    """Sessions active on average by the values of a dimension: seconds for each second that was observed, which is null where none was."""
    query = ranking(asked, by, most=None)
    query.sql = (
        f"select key, seconds, seconds / observed_s as sessions\nfrom (\n{query.sql})\n"
        f"cross join (select sum(period_ns) / 1e9 as observed_s from tick where {_window(query, asked)})\norder by seconds desc, key"
    )
    return query


def whole(asked: Asked) -> Query:
    """The database time of a window, and the seconds in which it was observed."""
    query = Query()
    query.sql = (
        f"select coalesce(sum(weight_s), 0) as seconds,\n"
        f"       (select coalesce(sum(period_ns), 0) / 1e9 from tick where {_window(query, asked)}) as observed_s\n"
        f"from db_time where {_where(query, asked)}"
    )
    return query


def _objects(asked: Asked, limit: str) -> Query:
    """Objects of locks by what the looks at their waiters stand for. Objects of buffers: the time of such waits, divided by where their
    waiters were seen in the window, of all sessions.
    """
    query = Query()
    where, window = _where(query, asked), _window(query, asked)
    query.sql = f"""with locked as (
  select object, sum(wait_s) as s
  from (
    select ts, session_id, object, k.wait_s, k.in_db_time
    from (select distinct ts, session_id, pid, object from lock_wait where {window} and looks is null) w
    join lock_look k using (ts, session_id, pid)
    union all  -- of a coarse capture
    select ts, session_id, object, part_s, of_db_time from lock_wait where {window} and looks is not null)
  where in_db_time and (ts, session_id) in (
    select (ts, session_id) from db_time where {where} and wait_class = 'Lock' and not from_counter)
  group by object),
seen as (
  select object, wait_kind, sum(waiters) as waiters from hot_block where {window} group by all),
waited as (
  select case replace(lower(wait_event), '_', '') when 'bufferpin' then 'pin' when 'bufferio' then 'io' when 'buffercontent' then 'content'
         end as wait_kind, wait_class, sum(s) as s
  from (select wait_class, wait_event, sum(weight_s) as s from db_time where {where} and wait_event is not null group by all)
  group by all),
part as (
  select object as key, 'Lock' as wait_class, s from locked
  union all
  select object, wait_class, s * waiters / sum(waiters) over (partition by wait_kind, wait_class) from seen join waited using (wait_kind))
select key, sum(s) as seconds, {CLASSES},
       count(*) over () as there, (select coalesce(sum(weight_s), 0) from db_time where {where}) as total_s
from part where s > 0 group by key order by seconds desc, key{limit}"""
    return query


def lock_chains(asked: Asked) -> Query:
    """The chains behind a lock tree of the window."""
    query = Query()
    query.sql = (
        "select root_session_id, root_pid, sum(wait_s) as seconds, count(distinct session_id) as victims\n"
        f"from lock_chain\nwhere {_window(query, asked)}\ngroup by all order by seconds desc, root_pid"
    )
    return query
