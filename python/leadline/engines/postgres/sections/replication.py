"""Sections of a capture of a primary and its standbys: how far each standby is behind, where its bytes wait, and how it went on."""

from __future__ import annotations

from leadline.units import MB
from leadline.views.grid import Column, Curves, Grid
from leadline.views.sections import Context, Section, Tile

NEEDS = ("replication_position",)
MOST = 20
NOTE = "Behind: how long ago the WAL that was being replayed had been made. Bytes: made and not replayed yet."

# A standby that was asked itself stands for what its sender has heard of it, unless they cannot be told apart.
_SHOWN = """
  named as (
    select l.*, case when l.is_standby then n.name else l.receiver end as standby
    from replication_lag l left join replication_node n using (node)),
  shown as (
    select * from named where is_standby or (select count(distinct node) from named where is_standby) = 0)
"""


def _standbys(of: Context) -> Grid:
    rows = of.capture.rows(
        f"""
        with {_SHOWN},
        speed as (
          select standby, (max(made_lsn) - min(made_lsn)) / {MB} / nullif((max(ts) - min(ts)) / 1e9, 0) as made_mb_per_s,
                 (max(replay_lsn) - min(replay_lsn)) / {MB} / nullif((max(ts) - min(ts)) / 1e9, 0) as replayed_mb_per_s
          from shown group by standby)
        select standby, median(lag_s) as median_lag_s, max(lag_s) as max_lag_s, arg_max(lag_s, ts) as last_lag_s,
               max(lag_bytes)::bigint as max_lag_bytes, arg_max(lag_bytes, ts)::bigint as last_lag_bytes,
               any_value(made_mb_per_s) as made_mb_per_s, any_value(replayed_mb_per_s) as replayed_mb_per_s,
               avg(is_paused::int) as paused_part, bool_or(is_least) as is_least, count(*) as readings
        from shown join speed using (standby) group by standby order by max_lag_s desc, standby
        """
    )
    columns = (
        Column("standby", "standby", "text"),
        Column("median_lag_s", "behind, median s", "seconds"),
        Column("max_lag_s", "most", "seconds"),
        Column("last_lag_s", "at the end", "seconds"),
        Column("max_lag_bytes", "bytes, most", "bytes"),
        Column("last_lag_bytes", "at the end", "bytes"),
        Column("made_mb_per_s", "made, MB/s", "figure"),
        Column("replayed_mb_per_s", "replayed, MB/s", "figure"),
        Column("paused_part", "paused", "share", minor=True),
        Column("readings", "readings", minor=True),
    )
    note = NOTE
    if any(row["is_least"] for row in rows):
        note += " Some of it was made before the capture began: those times are the least that they can be."
    return of.grid(columns, rows, MOST, "replication_lag", note, "no standby was seen", picture=_over_time(of))


def _over_time(of: Context) -> Curves:
    rows = of.capture.rows(
        f"with {_SHOWN} select (ts - (select min(ts) from replication_position)) / 1e9 as at_s, lag_s, standby from shown order by ts"
    )
    return Curves([(row["at_s"], row["lag_s"], row["standby"]) for row in rows], "seconds", "behind, s", log_x=False, log_y=False)


def _parts(of: Context) -> Grid:
    """Where bytes wait on their way, on average."""
    rows = of.capture.rows(
        f"""
        with {_SHOWN}
        select standby, avg(unsent_bytes) as unsent_bytes, avg(unreceived_bytes) as unreceived_bytes,
               avg(unflushed_bytes) as unflushed_bytes, avg(unreplayed_bytes) as unreplayed_bytes
        from shown group by standby order by avg(lag_bytes) desc, standby
        """
    )
    columns = (
        Column("standby", "standby", "text"),
        Column("unsent_bytes", "not sent", "bytes"),
        Column("unreceived_bytes", "not received", "bytes"),
        Column("unflushed_bytes", "not on its disk", "bytes"),
        Column("unreplayed_bytes", "not replayed", "bytes"),
    )
    note = "Bytes on average over the capture. What was not sent is known only where a sender reports for its standby."
    return of.grid(columns, rows, MOST, "replication_lag", note, "no standby was seen")


def _tiles(of: Context, grid: Grid) -> list[Tile]:
    standbys = grid.as_dicts()
    if not standbys:
        return []
    worst = max(standbys, key=lambda row: row["max_lag_s"])
    return [Tile("Most behind", f"{worst['max_lag_s']:,.1f}", worst["standby"], " s")]


def _watched(of: Context) -> bool:
    return bool(of.capture.scalar("select count(*) from replication_lag"))


def _replay(of: Context) -> Grid:
    """Where the time of the startup process went, by kind of record, relation and wait."""
    rows = of.capture.rows(
        """
        with part as (
          select node, activity, case activity when 'apply' then coalesce(rmgr || ' ' || record_type, 'unknown record')
                                               else '(' || activity || ')' end as record,
                 coalesce(relation, '') as relation, coalesce(wait, '') as wait, seconds
          from replay_sample where activity <> 'idle')
        select n.name as standby, record, relation, wait, sum(seconds) as seconds,
               sum(seconds) / (select sum(seconds) from replay_sample a where a.node = p.node) as share, count(*) as samples
        from part p left join replication_node n using (node)
        group by p.node, standby, record, relation, wait order by seconds desc, record, relation, wait
        """
    )
    columns = (
        Column("record", "record", "text"),
        Column("relation", "relation", "text"),
        Column("wait", "waiting for", "text"),
        Column("seconds", "seconds", "seconds"),
        Column("share", "of the time", "share"),
        Column("samples", "samples", minor=True),
        Column("standby", "standby", "text", minor=True),
    )
    return of.grid(columns, rows, MOST, "replay_sample", _replay_note(of), "replay had nothing to do")


def _replay_note(of: Context) -> str:
    told = of.capture.manifest.probe("replication").detail.get("replayed_records", {})
    found, gone, wrong = (sum(standby.get(name, 0) for standby in told.values()) for name in ("found", "gone", "wrong"))
    note = (
        "Sampled: the record that the startup process was applying. (read): it reads or decodes the next one. "
        f"{found:,} records were found in pg_wal by where they end"
    )
    note += f", {gone:,} had gone with their WAL" if gone else ""
    return note + (f", {wrong:,} were not where memory said" if wrong else "") + "."


def _profiled(of: Context) -> bool:
    return bool(of.capture.scalar("select count(*) from replay_sample"))


SECTIONS = (
    Section("replication", "Replication", NEEDS, _standbys, tiles=_tiles, applies=_watched),
    Section("replication_parts", "Where the bytes of standbys wait", NEEDS, _parts, applies=_watched),
    Section("replay_time", "Where the time of replay went", NEEDS, _replay, applies=_profiled),
)
