"""Marks on the axis: what happened besides, as far as tables of the capture say so.

Each kind is one query, which gives ts_from, ts_to and a text. A kind that the capture has no evidence of has its reason instead of marks.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from leadline.capture import gaps
from leadline.capture.manifest import CLIENT
from leadline.capture.reader import Capture

MOST = 500  # of a kind: the longest

DDL = "create|alter|drop|truncate|rename|reindex"  # how a statement begins that changes what the database is made of
_COMMENT = r"^(\s|/\*.*?\*/|--[^\n]*\n)*"


@dataclass(frozen=True)
class Kind:
    """name: of its rows; short: at the edge of the chart. needs: tables and views without which nothing is known. seen: what a mark is."""

    name: str
    label: str
    short: str
    needs: tuple[str, ...]
    seen: str
    sql: str


CHECKPOINT = """select min(ts_from) as ts_from, max(ts) as ts_to,
       format('{:.1f} s of writes, {:.1f} s of syncs', coalesce(sum(seconds) filter (phase = 'write'), 0),
              coalesce(sum(seconds) filter (phase = 'sync'), 0)) as text
from (select *, count(*) filter (phase = 'none') over (order by ts) as number from checkpoint_phase)
where phase <> 'none' group by number"""

AWAY = """select g.ts_from, coalesce(g.ts_to, c.ts_to, g.ts_from) as ts_to, g.cause as text
from server_gap g cross join capture c"""

UNSEEN = """select ts - missed * period_ns as ts_from, ts as ts_to, format('passes that were due and not made: {}', missed) as text
from tick where missed > 0"""

CLOCK = """select ts_from, any_value(ts_to) as ts_to,
       format(case clock when 'realtime' then 'the wall clock was set by {:+.3f} s' else 'the host was suspended for {:.3f} s' end,
              (max(at_from) - min(at_from)) / 1e9) as text
from clock_piece where stepped group by clock, ts_from"""

STATEMENTS = f"""with changing as (
  select statement_id, any_value(query) as query from statement
  where regexp_matches(query, '{_COMMENT}({DDL})\\s', 'is') group by statement_id)
select min(ts) as ts_from, max(ts) + (any_value(weight_s) * 1e9)::bigint as ts_to, format('pid {{}}: {{}}', any_value(pid), query) as text
from session_sample join changing using (statement_id)
where in_db_time and backend_type = '{CLIENT}'
group by session_id, statement_id, query, round(ts / 1e9 - query_age_s, 2)"""

KINDS = (
    Kind("checkpoint", "checkpoints", "ckpt", ("checkpoint_phase",),
         "the time in which samples show the checkpointer writing or syncing; two without a pause between them are one", CHECKPOINT),
    Kind("away", "server away or not seen", "away", ("server_gap",),
         "a restart, a crash, a lost connection, or a change of the recorder's piece", AWAY),
    Kind("ddl", "DDL", "DDL", ("session_sample", "statement"),
         f"a statement that begins with {DDL.replace('|', ', ')}, from its first sample to its last; short ones are often missed",
         STATEMENTS),
    Kind("clock", "clock set", "clock", ("clock_piece",), "the second in which the wall clock was set, or the host was suspended", CLOCK),
    Kind("missed", "passes missed", "", ("tick",), "time without a pass of the sampler: what happened then is not known", UNSEEN),
)  # fmt: skip


def marks(capture: Capture, ts_from: int) -> list[dict[str, Any]]:
    """Every kind with its marks, in the order of time, in seconds from ts_from; there: how many, also of those beyond MOST."""
    return [_of(capture, kind, ts_from) for kind in KINDS]


def _of(capture: Capture, kind: Kind, ts_from: int) -> dict[str, Any]:
    out = {name: value for name, value in asdict(kind).items() if name not in ("needs", "sql")}
    out |= {"why": next(filter(None, (capture.unavailable(name) for name in kind.needs)), ""), "there": 0, "marks": [], "sql": []}
    if out["why"]:
        return out
    longest = f"select *, count(*) over () as there from (\n{kind.sql}\n) order by ts_to - ts_from desc, ts_from limit {MOST}"
    rows = sorted(capture.rows(longest), key=lambda row: (row["ts_from"], row["ts_to"]))
    out["there"], out["sql"] = (rows[0]["there"] if rows else 0), [f"{kind.sql}\norder by ts_from"]
    for row in rows:
        text = gaps.CAUSES.get(row["text"], row["text"]) if kind.name == "away" else " ".join(row["text"].split())
        out["marks"].append({"from_s": (row["ts_from"] - ts_from) / 1e9, "to_s": (row["ts_to"] - ts_from) / 1e9, "text": text})
    return out
