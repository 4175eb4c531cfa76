"""The statistics views to read before and after a window, as rows of data: what changes with the major is `since`/`until`.

Every numeric, boolean, time, interval and LSN column of a query becomes one server_stat row; `key` columns name the object.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StatView:
    """view: name in server_stat.view. since, until: first and last major. key: columns that name the row.

    The counters of pg_stat_statements: statements().
    """

    view: str
    sql: str
    key: tuple[str, ...] = ()
    since: int = 12
    until: int = 9999


# For pg_stat_statements: sums per query id over users, databases and nesting level. Means and extremes do not add up. Which of the
# columns there are depends on the version of the extension, which an upgrade of the server leaves as it was.
STATEMENT_LIMIT = 2000
STATEMENT_COLUMNS = (
    "calls", "total_time", "total_exec_time", "rows",
    "shared_blks_hit", "shared_blks_read", "shared_blks_dirtied", "shared_blks_written", "temp_blks_read", "temp_blks_written",
    "wal_records", "wal_fpi", "wal_bytes", "plans", "total_plan_time",
    # deforming is a part of the generation
    "jit_functions", "jit_generation_time", "jit_inlining_time", "jit_optimization_time", "jit_emission_time",
    "parallel_workers_to_launch", "parallel_workers_launched", "generic_plan_calls", "custom_plan_calls",
)  # fmt: skip


def statements(schema: str, columns: list[str]) -> str:
    """The counters of the costliest statements, of an extension whose function has these columns."""
    sums = ", ".join(f"sum({column})::float8 as {column}" for column in STATEMENT_COLUMNS if column in columns)
    time = "total_exec_time" if "total_exec_time" in columns else "total_time"
    return f"""select queryid, {sums} from {schema}.pg_stat_statements(false)
               where queryid is not null group by queryid order by sum({time}) desc limit {STATEMENT_LIMIT}"""


# Tables by what they did, what waits in them and their size: a server may have 100,000 of them, and pg_class itself may be bloated. So
# one pass over it chooses, and only the chosen are read in full. Nothing here opens a table: it could be locked.
_TABLES = """
with counted as materialized (
  select {oid} as oid, c.oid as owner, c.relpages,
         coalesce(pg_stat_get_tuples_returned({oid}) + pg_stat_get_tuples_fetched({oid}) + pg_stat_get_tuples_inserted({oid})
                  + pg_stat_get_tuples_updated({oid}) + pg_stat_get_tuples_deleted({oid}), 0) as activity,
         coalesce(pg_stat_get_dead_tuples({oid}), 0) as dead, coalesce(pg_stat_get_mod_since_analyze({oid}), 0) as changed
  from pg_class c where {which}
),
chosen as materialized (
  (select oid, owner from counted order by activity desc, oid limit {limit})
  union (select oid, owner from counted order by dead desc, oid limit {limit})
  union (select oid, owner from counted order by changed desc, oid limit {limit})
  union (select oid, owner from counted order by relpages desc, oid limit {limit})
)
select current_database() as datname, n.nspname as schemaname, o.relname, c.oid::int8 as relid, c.relkind = 'p' as is_partitioned,
       pg_stat_get_numscans(c.oid) as seq_scan, pg_stat_get_tuples_returned(c.oid) as seq_tup_read, i.scans as idx_scan,
       pg_stat_get_tuples_fetched(c.oid) + coalesce(i.fetched, 0) as idx_tup_fetch,
       pg_stat_get_tuples_inserted(c.oid) as n_tup_ins, pg_stat_get_tuples_updated(c.oid) as n_tup_upd,
       pg_stat_get_tuples_deleted(c.oid) as n_tup_del, pg_stat_get_tuples_hot_updated(c.oid) as n_tup_hot_upd,
       pg_stat_get_live_tuples(c.oid) as n_live_tup, pg_stat_get_dead_tuples(c.oid) as n_dead_tup,
       pg_stat_get_mod_since_analyze(c.oid) as n_mod_since_analyze, pg_stat_get_ins_since_vacuum(c.oid) as n_ins_since_vacuum,
       pg_stat_get_last_vacuum_time(c.oid) as last_vacuum, pg_stat_get_last_autovacuum_time(c.oid) as last_autovacuum,
       pg_stat_get_last_analyze_time(c.oid) as last_analyze, pg_stat_get_last_autoanalyze_time(c.oid) as last_autoanalyze,
       pg_stat_get_vacuum_count(c.oid) as vacuum_count, pg_stat_get_autovacuum_count(c.oid) as autovacuum_count,
       pg_stat_get_analyze_count(c.oid) as analyze_count, pg_stat_get_autoanalyze_count(c.oid) as autoanalyze_count,
       c.relpages, c.reltuples::float8 as reltuples, case when c.relfrozenxid::text <> '0' then age(c.relfrozenxid) end as relfrozenxid_age,
       p.partitions, p.partition_rows, r.*
from chosen k join pg_class c on c.oid = k.oid join pg_class o on o.oid = k.owner join pg_namespace n on n.oid = o.relnamespace
cross join lateral (
  select sum(pg_stat_get_numscans(indexrelid)) as scans, sum(pg_stat_get_tuples_fetched(indexrelid)) as fetched
  from pg_index where indrelid = c.oid) i
cross join lateral (  -- what a table sets for itself
  select {options}
  from pg_options_to_table(c.reloptions)) r
cross join lateral (
  select count(*) as partitions, sum(greatest(s.reltuples, 0))::float8 as partition_rows
  from pg_inherits h join pg_class s on s.oid = h.inhrelid
  where h.inhparent = c.oid and c.relkind = 'p') p
"""
_OPTIONS = (
    ("autovacuum_enabled", "bool"),
    *(
        (f"autovacuum_{name}", "float8")
        for name in ("vacuum_threshold", "vacuum_scale_factor", "vacuum_max_threshold", "analyze_threshold", "analyze_scale_factor")
    ),
)
# view, what it lists, whose counters, how many for each of the four orders
_SYSTEM = "(select oid from pg_namespace where nspname in ('pg_catalog', 'information_schema'))"
_LISTS = (
    ("pg_stat_user_tables", "c.oid", f"c.relkind in ('r', 'm', 'p') and c.relpersistence <> 't' and c.relnamespace not in {_SYSTEM}", 200),
    ("pg_stat_toast_tables", "c.reltoastrelid", "c.reltoastrelid <> 0 and c.relpersistence <> 't'", 50),
    ("pg_stat_sys_tables", "c.oid", "c.relkind = 'r' and c.relnamespace = 'pg_catalog'::regnamespace", 10),
)


def _tables(view: str, oid: str, which: str, limit: int) -> StatView:
    options = ", ".join(f"max(option_value) filter (where option_name = '{name}')::{kind} as {name}" for name, kind in _OPTIONS)
    sql = _TABLES.replace("{oid}", oid).replace("{which}", which).replace("{limit}", str(limit)).replace("{options}", options)
    return StatView(view, sql, ("datname", "schemaname", "relname"), since=13)


VIEWS: tuple[StatView, ...] = (
    StatView(
        "pg_stat_database",
        """select coalesce(s.datname, '(shared objects)') as object, s.*, age(d.datfrozenxid) as datfrozenxid_age
           from pg_stat_database s left join pg_database d on d.oid = s.datid""",
        ("object",),
    ),
    StatView("pg_stat_io", "select * from pg_stat_io", ("backend_type", "object", "context"), since=16),
    StatView("pg_stat_wal", "select * from pg_stat_wal", since=14),
    StatView("pg_stat_slru", "select name, blks_hit, blks_read, blks_written from pg_stat_slru", ("name",), since=13),
    StatView("pg_stat_bgwriter", "select * from pg_stat_bgwriter"),
    StatView("pg_stat_checkpointer", "select * from pg_stat_checkpointer", since=17),
    StatView(
        "pg_stat_replication",
        """select s.*, s.state = 'streaming' as streaming, age(s.backend_xmin) as backend_xmin_age,
                  case when not pg_is_in_recovery() then pg_wal_lsn_diff(pg_current_wal_lsn(), s.replay_lsn) end as replay_lag_bytes
           from pg_stat_replication s""",
        ("application_name", "client_addr", "pid"),
    ),
    StatView(  # safe_wal_size: a standby counts it from a position that does not move there
        "pg_replication_slots",
        """select s.*, age(s.xmin) as xmin_age, age(s.catalog_xmin) as catalog_xmin_age,
                  r.is as in_recovery, r.is and to_jsonb(s) ->> 'synced' = 'true' as is_copy,
                  case when not r.is then s.safe_wal_size end as safe_wal_size,
                  s.slot_type = 'logical' as is_logical, s.wal_status = 'lost' as is_lost,
                  to_jsonb(s) ->> 'conflicting' = 'true' as is_conflict, to_jsonb(s) ->> 'invalidation_reason' = 'idle_timeout' as is_idle,
                  pg_wal_lsn_diff(case when r.is then greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())
                                       else pg_current_wal_lsn() end, s.restart_lsn) as retained_bytes
           from pg_replication_slots s cross join (select pg_is_in_recovery() as is) r""",
        ("slot_name",),
    ),
    StatView(
        "pg_prepared_xacts",
        """select gid, database, transaction::text::bigint as transaction, age(transaction) as transaction_age, prepared,
                  extract(epoch from now() - prepared)::float8 as prepared_age_s
           from pg_prepared_xacts""",
        ("database", "gid"),
    ),
    StatView(
        "pg_stat_get_backend_subxact",  # who has more subtransactions than its entry in shared memory holds
        """select pg_stat_get_backend_pid(i.id) as pid, s.subxact_count
           from pg_stat_get_backend_idset() i(id) cross join pg_stat_get_backend_subxact(i.id) s(subxact_count, overflowed)
           where s.overflowed""",
        ("pid",),
        since=16,
    ),
    StatView("pg_stat_archiver", "select * from pg_stat_archiver"),
    StatView("pg_ls_archive_statusdir", "select count(*) filter (where name like '%.ready') as waiting from pg_ls_archive_statusdir()"),
    StatView(  # of a standby: its last restartpoint, and what it has replayed since
        "pg_control_checkpoint",
        """select c.redo_lsn, p.replay_lsn, pg_wal_lsn_diff(p.replay_lsn, c.redo_lsn) as replayed_bytes
           from pg_control_checkpoint() c cross join (select pg_last_wal_replay_lsn()) p(replay_lsn) where pg_is_in_recovery()""",
    ),
    StatView(  # of a standby; a server that is none prefetches nothing
        "pg_stat_recovery_prefetch",
        """select p.*, (select pid from pg_stat_activity where backend_type = 'startup') as startup_pid
           from pg_stat_recovery_prefetch p where pg_is_in_recovery()""",
        since=15,
    ),
    StatView(  # what a vacuum has to pass over: few rows, and none of vacuums themselves
        "pg_locks",
        """select l.relation::int8 as relation, l.pid, l.mode, l.relation::int8 as relid,
                  extract(epoch from clock_timestamp() - a.xact_start)::float8 as xact_age_s
           from pg_locks l join pg_stat_activity a using (pid)
           where l.locktype = 'relation' and l.granted and l.relation >= 16384 and a.backend_type <> 'autovacuum worker'
             and l.database = (select oid from pg_database where datname = current_database()) and not exists (
               select from pg_stat_progress_vacuum v where v.pid = l.pid)
             and l.mode in ('ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
           limit 1000""",
        ("relation", "pid", "mode"),
    ),
    StatView(  # the largest B-trees: their pages, and the average width of an entry where the statistics of all columns may be seen
        "pg_index",
        """select current_database() as datname, c.oid::int8 as index, c.relpages, c.reltuples::float8 as reltuples,
                  w.columns, w.known, w.key_bytes, w.nulls,
                  coalesce((select max(option_value::int) from pg_options_to_table(c.reloptions)
                            where option_name = 'fillfactor'), 90) as fillfactor
           from (select oid, relname, relnamespace, relpages, reltuples, reloptions from pg_class
                 where relkind = 'i' and relpages >= 128 and relam = (select oid from pg_am where amname = 'btree')
                 order by relpages desc, oid limit 100) c
           join pg_index i on i.indexrelid = c.oid join pg_class t on t.oid = i.indrelid
           join pg_namespace n on n.oid = c.relnamespace
           cross join lateral (
             select count(*) as columns, count(s.avg_width) as known, max(s.null_frac)::float8 as nulls,
                    sum(ceil(s.avg_width::float8 / case a.attalign when 'd' then 8 when 'i' then 4 when 's' then 2 else 1 end)
                        * case a.attalign when 'd' then 8 when 'i' then 4 when 's' then 2 else 1 end) as key_bytes
             from pg_attribute a left join pg_attribute b on b.attrelid = i.indrelid and b.attnum = i.indkey[a.attnum - 1] and b.attnum > 0
             left join lateral (  -- one at a time by name: a join would go through all statistics for each index
               select * from pg_stats p where p.schemaname = n.nspname and not p.inherited
                 and p.tablename = case when b.attnum is null then c.relname else t.relname end
                 and p.attname = coalesce(b.attname, a.attname)
               offset 0) s on true
             where a.attrelid = c.oid and a.attnum > 0) w""",
        ("datname", "index"),
    ),
    StatView(  # which tables foreign keys lead to: their rows are locked by others' inserts
        "pg_constraint",
        """select conrelid::int8 as child, confrelid::int8 as parent, count(*) as keys from pg_constraint
           where contype = 'f' group by conrelid, confrelid order by conrelid, confrelid limit 2000""",
        ("child", "parent"),
    ),
    StatView("pg_stat_progress_vacuum", "select * from pg_stat_progress_vacuum", ("datname", "pid")),
    StatView("pg_stat_progress_analyze", "select * from pg_stat_progress_analyze", ("datname", "pid"), since=13),
    StatView("pg_stat_progress_create_index", "select * from pg_stat_progress_create_index", ("datname", "pid")),
    StatView("pg_stat_progress_cluster", "select * from pg_stat_progress_cluster", ("datname", "pid")),
    StatView("pg_stat_progress_basebackup", "select * from pg_stat_progress_basebackup", ("pid",), since=13),
    StatView("pg_stat_progress_copy", "select * from pg_stat_progress_copy", ("datname", "pid"), since=14),
    *(_tables(*listed) for listed in _LISTS),
)


def views_of(major: int) -> list[StatView]:
    """The views a server of this major has."""
    return [v for v in VIEWS if v.since <= major <= v.until]


SETTINGS = """
select name, coalesce(setting, ''), coalesce(unit, ''), source, coalesce(boot_val, ''), context, pending_restart
from pg_catalog.pg_settings order by name
"""

# What leadline sets for its own sessions. Others have other values, which SETTINGS gives to a session without these: its names are whole.
OWN_SETTINGS = ("statement_timeout", "lock_timeout", "default_transaction_read_only", "search_path")

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

STATEMENTS_FUNCTION = """
select quote_ident(n.nspname), p.proargnames
from pg_extension e join pg_namespace n on n.oid = e.extnamespace join pg_proc p on p.pronamespace = n.oid and p.proname = e.extname
where e.extname = 'pg_stat_statements'
"""
