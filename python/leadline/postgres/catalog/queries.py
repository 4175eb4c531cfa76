"""The statistics views to read before and after a window, as rows of data: what changes with the major is `since`/`until`.

Every numeric, boolean, time, interval and LSN column of a query becomes one server_stat row; `key` columns name the object.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StatView:
    """view: name in server_stat.view. since, until: first and last major. key: columns that name the row.

    scope: server (once), extension:NAME (in the connected database, when that extension is there) or database (each one read).
    """

    view: str
    sql: str
    key: tuple[str, ...] = ()
    since: int = 12
    until: int = 9999
    scope: str = "server"


# For pg_stat_statements: sums per query id over users, databases and nesting level. Means and extremes do not add up.
_STATEMENTS = """
select queryid, sum(calls)::float8 as calls, sum({time})::float8 as {time}, sum(rows)::float8 as rows,
       sum(shared_blks_hit)::float8 as shared_blks_hit, sum(shared_blks_read)::float8 as shared_blks_read,
       sum(shared_blks_dirtied)::float8 as shared_blks_dirtied, sum(shared_blks_written)::float8 as shared_blks_written,
       sum(temp_blks_read)::float8 as temp_blks_read, sum(temp_blks_written)::float8 as temp_blks_written{wal}
from {schema}.pg_stat_statements(false)
where queryid is not null group by queryid order by sum({time}) desc limit 2000
"""
_WAL = ", sum(wal_records)::float8 as wal_records, sum(wal_fpi)::float8 as wal_fpi, sum(wal_bytes)::float8 as wal_bytes"

VIEWS: tuple[StatView, ...] = (
    StatView(
        "pg_stat_database",
        """select coalesce(s.datname, '(shared objects)') as object, s.*, age(d.datfrozenxid) as datfrozenxid_age
           from pg_stat_database s left join pg_database d on d.oid = s.datid""",
        ("object",),
    ),
    StatView("pg_stat_io", "select * from pg_stat_io", ("backend_type", "object", "context"), since=16),
    StatView("pg_stat_wal", "select * from pg_stat_wal", since=14),
    StatView("pg_stat_bgwriter", "select * from pg_stat_bgwriter"),
    StatView("pg_stat_checkpointer", "select * from pg_stat_checkpointer", since=17),
    StatView(
        "pg_stat_replication",
        """select s.*, s.state = 'streaming' as streaming, age(s.backend_xmin) as backend_xmin_age,
                  case when not pg_is_in_recovery() then pg_wal_lsn_diff(pg_current_wal_lsn(), s.replay_lsn) end as replay_lag_bytes
           from pg_stat_replication s""",
        ("application_name", "client_addr", "pid"),
    ),
    StatView(
        "pg_replication_slots",
        """select s.*, age(s.xmin) as xmin_age, age(s.catalog_xmin) as catalog_xmin_age,
                  case when not pg_is_in_recovery() then pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn) end as retained_bytes
           from pg_replication_slots s""",
        ("slot_name",),
    ),
    StatView(
        "pg_prepared_xacts",
        """select gid, database, transaction::text::bigint as transaction, age(transaction) as transaction_age, prepared,
                  extract(epoch from now() - prepared)::float8 as prepared_age_s
           from pg_prepared_xacts""",
        ("database", "gid"),
    ),
    StatView("pg_stat_archiver", "select * from pg_stat_archiver"),
    StatView("pg_ls_archive_statusdir", "select count(*) filter (where name like '%.ready') as waiting from pg_ls_archive_statusdir()"),
    StatView("pg_stat_progress_vacuum", "select * from pg_stat_progress_vacuum", ("datname", "pid")),
    StatView("pg_stat_progress_analyze", "select * from pg_stat_progress_analyze", ("datname", "pid"), since=13),
    StatView("pg_stat_progress_create_index", "select * from pg_stat_progress_create_index", ("datname", "pid")),
    StatView("pg_stat_progress_cluster", "select * from pg_stat_progress_cluster", ("datname", "pid")),
    StatView("pg_stat_progress_basebackup", "select * from pg_stat_progress_basebackup", ("pid",), since=13),
    StatView("pg_stat_progress_copy", "select * from pg_stat_progress_copy", ("datname", "pid"), since=14),
    StatView(
        "pg_stat_statements",
        _STATEMENTS.replace("{time}", "total_time").replace("{wal}", ""),
        ("queryid",),
        until=12,
        scope="extension:pg_stat_statements",
    ),
    StatView(
        "pg_stat_statements",
        _STATEMENTS.replace("{time}", "total_exec_time").replace("{wal}", _WAL),
        ("queryid",),
        since=13,
        scope="extension:pg_stat_statements",
    ),
    StatView(
        "pg_stat_user_tables",
        """select current_database() as datname, schemaname, relname, seq_scan, seq_tup_read, idx_scan, idx_tup_fetch,
                  n_tup_ins, n_tup_upd, n_tup_del, n_tup_hot_upd, n_live_tup, n_dead_tup, n_mod_since_analyze,
                  last_autovacuum, last_autoanalyze, vacuum_count, autovacuum_count, analyze_count, autoanalyze_count
           from pg_stat_user_tables
           order by coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) + n_tup_ins + n_tup_upd + n_tup_del + n_dead_tup desc
           limit 500""",
        ("datname", "schemaname", "relname"),
        scope="database",
    ),
)


def views_of(major: int) -> list[StatView]:
    """The views a server of this major has."""
    return [v for v in VIEWS if v.since <= major <= v.until]


SETTINGS = """
select name, coalesce(setting, ''), coalesce(unit, ''), source, coalesce(boot_val, ''), context, pending_restart
from pg_settings order by name
"""

HBA_RULES = """
select line_number, coalesce(type, ''), coalesce(array_to_string(database, ','), ''), coalesce(array_to_string(user_name, ','), ''),
       coalesce(address, ''), coalesce(netmask, ''), coalesce(auth_method, ''), coalesce(error, '')
from pg_hba_file_rules where type is not null or error is not null order by line_number
"""

DATABASES = """
select oid, datname, dattablespace,
       case when {sizes} and has_database_privilege(oid, 'connect') then pg_database_size(oid) else -1 end
from pg_database order by oid
"""

ROLES = "select oid, rolname from pg_roles order by oid"

# {size} is pg_relation_size where that cannot wait for a lock, else the planner's page count. A relation that someone holds or
# wants in access exclusive mode is never opened: pg_relation_size would stand in that queue. Databases with very many relations
# keep the largest.
RELATIONS = """
with locked as (select distinct relation from pg_locks where mode = 'AccessExclusiveLock' and relation is not null),
owner as (select reltoastrelid as oid, oid as table_oid from pg_class where reltoastrelid <> 0)
select case when c.relisshared then 0::oid else d.oid end, c.oid, coalesce(pg_relation_filenode(c.oid), 0)::oid,
       case when c.reltablespace <> 0 then c.reltablespace when c.relisshared then 1664::oid else d.dattablespace end,
       n.nspname, c.relname, c.relkind::text, coalesce(a.amname, ''),
       coalesce(toast_of_index.table_oid, toast.table_oid, i.indrelid, c.oid),
       {size}, c.reltuples::float8
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
join pg_database d on d.datname = current_database()
left join pg_am a on a.oid = c.relam
left join pg_index i on i.indexrelid = c.oid
left join owner toast on toast.oid = c.oid
left join owner toast_of_index on toast_of_index.oid = i.indrelid
left join locked l on l.relation = c.oid
where c.relkind in ('r', 'i', 'S', 't', 'm', 'p', 'I') {shared}
order by c.relpages desc, c.oid limit {limit}
"""
SIZE_ON_DISK = "case when l.relation is null then coalesce(pg_relation_size(c.oid), -1) else -1 end"
SIZE_BY_PLANNER = "c.relpages::int8 * current_setting('block_size')::int8"

STATEMENTS_SCHEMA = """
select quote_ident(n.nspname) from pg_extension e join pg_namespace n on n.oid = e.extnamespace where e.extname = 'pg_stat_statements'
"""
