-- Run inside this folder: duckdb -init views.sql
create or replace view capture as select (m.clock->>'ts_from')::bigint as ts_from, (m.clock->>'ts_to')::bigint as ts_to,
  ((m.clock->>'ts_to')::bigint - (m.clock->>'ts_from')::bigint) / 1e9 as window_s,
  (m.clock->>'wall_offset_ns')::bigint as wall_offset_ns, m.tier, m.rate_hz::double as rate_hz,
  (m.target->>'server_version_num')::int as server_version_num, (m.target->>'cpu_count')::int as cpu_count
  from (select json->'clock' as clock, json->>'tier' as tier, json->>'rate_hz' as rate_hz, json->'target' as target
        from (select content::json as json from read_text('manifest.json'))) m;
create or replace view block_device as select * from read_parquet('block_device/*.parquet', union_by_name = true);
create or replace view buffer_scan as select * from read_parquet('buffer_scan/*.parquet', union_by_name = true);
create or replace view buffer_wait as select * from read_parquet('buffer_wait/*.parquet', union_by_name = true);
create or replace view buffer_waiter as select * from read_parquet('buffer_waiter/*.parquet', union_by_name = true);
create or replace view database as select * from read_parquet('database/*.parquet', union_by_name = true);
create or replace view hba_rule as select * from read_parquet('hba_rule/*.parquet', union_by_name = true);
create or replace view heap_tuple as select cast(null as INTEGER) as "file_id", cast(null as BIGINT) as "block", cast(null as INTEGER) as "lp", cast(null as INTEGER) as "lp_off", cast(null as INTEGER) as "lp_flags", cast(null as INTEGER) as "lp_len", cast(null as UINTEGER) as "t_xmin", cast(null as UINTEGER) as "t_xmax", cast(null as UINTEGER) as "t_field3", cast(null as BIGINT) as "t_ctid_block", cast(null as INTEGER) as "t_ctid_posid", cast(null as INTEGER) as "t_infomask2", cast(null as INTEGER) as "t_infomask", cast(null as INTEGER) as "t_hoff" where false;
create or replace view host_fact as select * from read_parquet('host_fact/*.parquet', union_by_name = true);
create or replace view host_stat as select * from read_parquet('host_stat/*.parquet', union_by_name = true);
create or replace view index_item as select cast(null as INTEGER) as "file_id", cast(null as BIGINT) as "block", cast(null as INTEGER) as "lp", cast(null as INTEGER) as "lp_off", cast(null as INTEGER) as "lp_flags", cast(null as INTEGER) as "lp_len", cast(null as BIGINT) as "t_tid_block", cast(null as INTEGER) as "t_tid_posid", cast(null as INTEGER) as "t_info", cast(null as UINTEGER) as "spgist_bits" where false;
create or replace view informix_buffer as select cast(null as INTEGER) as "sample", cast(null as INTEGER) as "pool_page_size", cast(null as VARCHAR) as "address", cast(null as VARCHAR) as "userthread", cast(null as VARCHAR) as "owner", cast(null as INTEGER) as "flgs", cast(null as INTEGER) as "flags", cast(null as INTEGER) as "chunk", cast(null as BIGINT) as "page", cast(null as VARCHAR) as "memaddr", cast(null as INTEGER) as "nslots", cast(null as INTEGER) as "pgflgs", cast(null as VARCHAR) as "page_type", cast(null as INTEGER) as "scount", cast(null as VARCHAR) as "waiter" where false;
create or replace view informix_chunk as select cast(null as INTEGER) as "chunk", cast(null as VARCHAR) as "dbspace", cast(null as VARCHAR) as "pathname", cast(null as INTEGER) as "page_size", cast(null as BIGINT) as "size", cast(null as BIGINT) as "used", cast(null as BIGINT) as "free" where false;
create or replace view informix_extent as select cast(null as INTEGER) as "chunk", cast(null as VARCHAR) as "dbspace", cast(null as VARCHAR) as "description", cast(null as VARCHAR) as "datname", cast(null as VARCHAR) as "owner", cast(null as VARCHAR) as "relname", cast(null as BIGINT) as "extent_offset", cast(null as BIGINT) as "extent_size", cast(null as INTEGER) as "page_size", cast(null as BIGINT) as "first_page", cast(null as BIGINT) as "end_page" where false;
create or replace view informix_sample as select cast(null as INTEGER) as "sample", cast(null as VARCHAR) as "file", cast(null as VARCHAR) as "listing", cast(null as VARCHAR) as "version", cast(null as DOUBLE) as "uptime_s" where false;
create or replace view lock_wait as select * from read_parquet('lock_wait/*.parquet', union_by_name = true);
create or replace view lwlock_wait as select * from read_parquet('lwlock_wait/*.parquet', union_by_name = true);
create or replace view mount as select * from read_parquet('mount/*.parquet', union_by_name = true);
create or replace view page as select cast(null as INTEGER) as "file_id", cast(null as BIGINT) as "block", cast(null as VARCHAR) as "kind", cast(null as BIGINT) as "pd_lsn", cast(null as INTEGER) as "pd_checksum", cast(null as INTEGER) as "pd_flags", cast(null as INTEGER) as "pd_lower", cast(null as INTEGER) as "pd_upper", cast(null as INTEGER) as "pd_special", cast(null as UINTEGER) as "pd_prune_xid", cast(null as INTEGER) as "lp_unused", cast(null as INTEGER) as "lp_normal", cast(null as INTEGER) as "lp_redirect", cast(null as INTEGER) as "lp_dead" where false;
create or replace view page_file as select cast(null as INTEGER) as "file_id", cast(null as VARCHAR) as "path", cast(null as UINTEGER) as "spcnode", cast(null as UINTEGER) as "dbnode", cast(null as UINTEGER) as "relfilenode", cast(null as VARCHAR) as "fork", cast(null as INTEGER) as "segment", cast(null as BIGINT) as "bytes", cast(null as INTEGER) as "block_size", cast(null as BOOLEAN) as "checksums" where false;
create or replace view relation as select * from read_parquet('relation/*.parquet', union_by_name = true);
create or replace view role as select * from read_parquet('role/*.parquet', union_by_name = true);
create or replace view self_cost as select * from read_parquet('self_cost/*.parquet', union_by_name = true);
create or replace view server_stat as select * from read_parquet('server_stat/*.parquet', union_by_name = true);
create or replace view session as select * from read_parquet('session/*.parquet', union_by_name = true);
create or replace view session_delta as select * from read_parquet('session_delta/*.parquet', union_by_name = true);
create or replace view session_run as select * from read_parquet('session_run/*.parquet', union_by_name = true);
create or replace view setting as select * from read_parquet('setting/*.parquet', union_by_name = true);
create or replace view statement as select * from read_parquet('statement/*.parquet', union_by_name = true);
create or replace view tick as select * from read_parquet('tick/*.parquet', union_by_name = true);
create or replace view wait_event as select * from read_parquet('wait_event/*.parquet', union_by_name = true);
create or replace view wal_block_raw as select cast(null as BIGINT) as "start_lsn", cast(null as INTEGER) as "block_id", cast(null as UINTEGER) as "xid", cast(null as INTEGER) as "type_id", cast(null as UINTEGER) as "spcnode", cast(null as UINTEGER) as "dbnode", cast(null as UINTEGER) as "relfilenode", cast(null as INTEGER) as "fork", cast(null as BIGINT) as "block", cast(null as INTEGER) as "flags", cast(null as INTEGER) as "data_length", cast(null as INTEGER) as "fpi_length", cast(null as INTEGER) as "fpi_info", cast(null as INTEGER) as "hole_offset", cast(null as INTEGER) as "hole_length" where false;
create or replace view wal_record_raw as select cast(null as BIGINT) as "start_lsn", cast(null as BIGINT) as "end_lsn", cast(null as BIGINT) as "prev_lsn", cast(null as UINTEGER) as "xid", cast(null as UINTEGER) as "top_xid", cast(null as INTEGER) as "origin", cast(null as INTEGER) as "type_id", cast(null as INTEGER) as "record_length", cast(null as INTEGER) as "main_data_length", cast(null as INTEGER) as "fpi_length", cast(null as INTEGER) as "blocks" where false;
create or replace view wal_record_type as select cast(null as INTEGER) as "type_id", cast(null as VARCHAR) as "rmgr", cast(null as VARCHAR) as "record_type" where false;
create or replace view hot_block as select b.*, d.datname, r.relid, r.nspname, r.relname, r.relkind, r.table_relid,
       coalesce(r.nspname || '.' || r.relname, 'file ' || b.spcnode || '/' || b.dbnode || '/' || b.relfilenode) as object,
       e.wait_event_type as holder_wait_event_type, e.wait_event as holder_wait_event
from buffer_wait b
left join relation r on r.datid = b.dbnode and r.relfilenode = b.relfilenode and r.relfilenode <> 0
left join database d on d.datid = b.dbnode
left join wait_event e on e.wait_event_info = b.holder_wait_event_info and b.holder_wait_event_info <> 0;
create or replace view informix_hot_buffer as with named as (  -- the last extent that begins at or before the page; the page is in it when it is before its end
  select b.*, e.dbspace, e.datname, e.relname, e.page_size,
         case when b.page < e.end_page then e.description end as description
  from informix_buffer b
  asof left join (from informix_extent where extent_size > 0) e on b.chunk = e.chunk and b.page >= e.first_page
)
select n.sample, s.file, s.listing, s.uptime_s, n.chunk, n.page,
       coalesce(n.description, 'chunk ' || n.chunk || case when c.chunk is null then ', not listed' else ', in no extent' end) as object,
       case when n.description is not null then n.dbspace else c.dbspace end as dbspace,
       case when n.description is not null then n.datname end as datname,
       case when n.description is not null then n.relname end as relname,
       c.page_size, n.pool_page_size, n.page_type, n.nslots, n.pgflgs, n.flags,
       case when n.flags & 128 <> 0 then 'exclusive' when n.flags & 16 <> 0 then 'shared' else '' end as access,
       n.scount, case when ltrim(n.waiter, '0') = '' then 0 else 1 end as waiters,
       n.owner, n.waiter, n.address
from named n
join informix_sample s on s.sample = n.sample
left join (select chunk, any_value(dbspace) as dbspace, any_value(page_size) as page_size from informix_chunk group by chunk) c
  on c.chunk = n.chunk;
create or replace view lock_chain as with recursive edge as (
  select distinct ts, period_ns, pid, session_id, blocker_pid, blocker_session_id from lock_wait
),
walk as (
  select ts, period_ns, pid, session_id, blocker_pid as root_pid, blocker_session_id as root_session_id, 1 as depth from edge
  union
  select w.ts, w.period_ns, w.pid, w.session_id, e.blocker_pid, e.blocker_session_id, w.depth + 1
  from walk w join edge e on e.ts = w.ts and e.pid = w.root_pid
  where w.depth < 32 and w.root_pid <> 0
)
select distinct ts, period_ns, pid, session_id, root_pid, root_session_id, max(depth) over (partition by ts, pid, root_pid) as depth
from walk w
where not exists (select 1 from edge e where e.ts = w.ts and e.pid = w.root_pid);
create or replace view prepared_xact as select object, arg_max(value, ts) filter (where metric = 'transaction')::bigint as transactionid,
       arg_max(value, ts) filter (where metric = 'prepared_age_s') as age_s, max(ts) as ts, bool_or(phase = 'after') as at_end
from server_stat
where view = 'pg_prepared_xacts'
group by object;
create or replace view server_stat_delta as select a.view, a.object, a.metric, b.value as before, a.value as after, a.value - b.value as delta,
       (a.ts - b.ts) / 1e9 as dt_s
from server_stat a
left join server_stat b on b.phase = 'before' and (b.view, b.object, b.metric) = (a.view, a.object, a.metric)
where a.phase = 'after';
create or replace view session_tick as select t.ts, r.session_id, r.state, r.wait_event_info, r.query_id, r.plan_id,
       r.statement_id, r.xact_start, r.query_start, r.state_change, r.backend_xid, r.backend_xmin
from (select *, unnest(range(tick, tick + ticks)) as pass from session_run) r
join tick t on t.tick = r.pass;
create or replace view wal_block as select b.start_lsn, printf('%X/%X', b.start_lsn >> 32, b.start_lsn & 4294967295) as lsn,
       b.block_id, b.xid, t.rmgr, t.record_type, b.spcnode, b.dbnode, b.relfilenode,
       case b.fork when 0 then 'main' when 1 then 'fsm' when 2 then 'vm' else 'init' end as fork, b.block,
       (b.flags & 1) <> 0 as has_image, (b.flags & 2) <> 0 as has_data, (b.flags & 4) <> 0 as will_init,
       b.data_length, b.fpi_length, (b.fpi_info & 2) <> 0 as fpi_apply,
       case when (b.fpi_info & 4) <> 0 then 'pglz' when (b.fpi_info & 8) <> 0 then 'lz4'
            when (b.fpi_info & 16) <> 0 then 'zstd' else '' end as fpi_compression,
       b.hole_offset, b.hole_length
from wal_block_raw b left join wal_record_type t on t.type_id = b.type_id;
create or replace view wal_record as select r.start_lsn, r.end_lsn, r.prev_lsn,
       printf('%X/%X', r.start_lsn >> 32, r.start_lsn & 4294967295) as lsn,
       r.xid, r.top_xid, r.origin, t.rmgr, t.record_type,
       r.record_length, r.main_data_length, r.fpi_length, r.blocks
from wal_record_raw r left join wal_record_type t on t.type_id = r.type_id;
create or replace view session_sample as with who as (  -- the description of the session that held at the sample
  select *, lead(ts, 1, 9223372036854775807) over (partition by session_id order by ts) as ts_until,
         row_number() over (partition by session_id order by ts) = 1 as is_first
  from session
)
select s.ts, s.session_id, w.pid, w.backend_start, w.backend_type,
       nullif(w.leader_pid, 0) as leader_pid,
       w.datid, d.datname, w.usesysid, r.usename, w.application_name, w.client_addr, w.client_port,
       case s.state when 1 then 'starting' when 2 then 'active' when 3 then 'idle' when 4 then 'idle in transaction'
                    when 5 then 'fastpath function call' when 6 then 'idle in transaction (aborted)'
                    when 7 then 'disabled' end as state,
       e.wait_event_type, e.wait_event,
       coalesce(e.wait_event_type, 'CPU') as wait_class,
       nullif(s.query_id, 0) as query_id, nullif(s.plan_id, 0) as plan_id, nullif(s.statement_id, 0) as statement_id,
       nullif(s.xact_start, 0) as xact_start,
       case when s.xact_start <> 0 then (s.ts + c.wall_offset_ns) / 1e9 - s.xact_start / 1e6 end as xact_age_s,
       case when s.query_start <> 0 then (s.ts + c.wall_offset_ns) / 1e9 - s.query_start / 1e6 end as query_age_s,
       case when s.state_change <> 0 then (s.ts + c.wall_offset_ns) / 1e9 - s.state_change / 1e6 end as state_age_s,
       nullif(s.backend_xid, 0) as backend_xid, nullif(s.backend_xmin, 0) as backend_xmin,
       case when s.backend_xmin <> 0 and t.next_xid <> 0
            then (t.next_xid - s.backend_xmin) % 4294967296 end as xmin_age,
       t.period_ns / 1e9 as weight_s,
       (s.state in (2, 5) and coalesce(e.wait_event_type, '') <> 'Activity'
        and coalesce(w.backend_type, '') <> 'walsender') as in_db_time
from session_tick s
join tick t using (ts)
cross join capture c
left join who w on w.session_id = s.session_id and (s.ts >= w.ts or w.is_first) and s.ts < w.ts_until
left join wait_event e on e.wait_event_info = s.wait_event_info
left join database d on d.datid = w.datid
left join role r on r.usesysid = w.usesysid;
create or replace view db_time as with cpu as (  -- per session and second: which part of its runnable time it really ran
  select session_id, ts, ts - dt_ns as ts_from, cpu_run_ns, cpu_queue_ns,
         cpu_run_ns / nullif(cpu_run_ns + cpu_queue_ns, 0)::double as run_share
  from session_delta
)
select s.* exclude (in_db_time), coalesce(s.wait_event, 'CPU') as event,
       case when s.wait_class = 'CPU' then s.weight_s * c.run_share end as cpu_run_s,
       case when s.wait_class = 'CPU' then s.weight_s * (1 - c.run_share) end as cpu_queue_s
from session_sample s
asof left join cpu c on c.session_id = s.session_id and s.ts <= c.ts
where s.in_db_time;
create or replace view page_wait as with content as (  -- BufferContent; buffer_content in 12
  select ts, session_id, coalesce(statement_id, 0) as statement_id, weight_s
  from session_sample where in_db_time and wait_class = 'LWLock' and replace(lower(wait_event), '_', '') = 'buffercontent'
),
waited as (
  select statement_id, sum(weight_s) as wait_s, count(*) as samples from content group by all
),
seen as (  -- a look at every buffer is fair; one at the buffers seen hot before misses pages that have just become hot
  select b.*, coalesce(s.scope, 'all') = 'all' as fair
  from hot_block b left join buffer_scan s on s.ts = b.ts
  where b.wait_kind = 'content'
),
leaf_look as (  -- how far the contended leaf pages of an index had moved at each look
  select spcnode, dbnode, relfilenode, ts, max(block) as block, sum(waiters) as waiters,
         max(max(block)) over (partition by spcnode, dbnode, relfilenode order by ts rows between unbounded preceding and 1 preceding) as reached,
         bool_or(page_kind in ('btree right-most leaf', 'btree right-edge leaf')) as right_most
  from seen where fair and fork = 'main' and page_kind in ('btree leaf', 'btree right-edge leaf', 'btree right-most leaf')
  group by spcnode, dbnode, relfilenode, ts
),
growth as (
  select spcnode, dbnode, relfilenode, bool_or(right_most) as right_most, count(*) filter (block > reached) as steps,
         sum(waiters) filter (reached is null or block >= reached) / sum(waiters) as onward
  from leaf_look group by all
),
growing as (  -- The contention moves on with the right-most leaf: pages it has just left were right-most when the wait began. On a
              -- busy host no look may be in time to see that; six looks in ascending order by chance are one case in 720.
  select spcnode, dbnode, relfilenode from growth
  where (right_most and steps >= 3 and onward >= 0.7) or (steps >= 5 and onward >= 0.9)
),
page as (
  select b.object, b.datname, b.relid, b.nspname, b.relname, b.relkind, b.table_relid,
         b.spcnode, b.dbnode, b.relfilenode, b.fork, b.block, b.page_kind,
         sum(b.waiters)::bigint as waiters, sum(b.waiters_exclusive)::bigint as waiters_exclusive, max(b.waiters) as peak_waiters,
         coalesce(sum(b.waiters) filter (b.fair), 0) as fair_waiters,
         count(*) as looks, count(*) filter (b.holder_pid <> 0) as holder_seen,
         mode(b.holder_wait_event_type || ':' || b.holder_wait_event) as holder_waits_for,
         min(b.ts) as ts_from, max(b.ts) as ts_to
  from seen b
  group by all
),
counted as (  -- the fair looks when these named enough waiters, else all looks
  select coalesce(sum(fair_waiters), 0) >= 30 as fair_only from page
),
part as (
  select *, case when fair_only then fair_waiters / sum(fair_waiters) over () else waiters / sum(waiters) over () end as share_of_page_waits
  from page cross join counted
),
stood as (  -- whose waiters were seen on which page
  select c.statement_id, b.spcnode, b.dbnode, b.relfilenode, b.fork, b.block, b.page_kind, count(*) as waiters
  from seen b cross join counted
  join buffer_waiter w on w.ts = b.ts and w.buf_id = b.buf_id
  join content c on c.ts = w.ts and c.session_id = w.session_id
  where b.fair or not fair_only
  group by all
),
told as (
  select statement_id, sum(waiters) as waiters from stood group by all
),
own as (  -- Statements differ in how long their waiters stand: those that wait for moments are seen less often than they wait, so
          -- the waits of each statement are split by its own waiters.
  select s.spcnode, s.dbnode, s.relfilenode, s.fork, s.block, s.page_kind,
         sum(w.wait_s * s.waiters / t.waiters) as wait_s, sum(w.samples * s.waiters / t.waiters) as samples
  from stood s join told t using (statement_id) join waited w using (statement_id)
  group by all
),
rest as (  -- of statements with no waiter seen on a page: as all waiters
  select coalesce(sum(wait_s), 0) as wait_s, coalesce(sum(samples), 0) as samples from waited anti join told using (statement_id)
)
select p.* exclude (table_relid, fair_waiters, fair_only, share_of_page_waits), t.nspname || '.' || t.relname as table_name,
       p.page_kind in ('btree right-most leaf', 'btree right-edge leaf') or (p.page_kind = 'btree leaf' and g.relfilenode is not null) as at_right_edge,
       coalesce(o.wait_s, 0) + r.wait_s * p.share_of_page_waits as wait_s,
       coalesce(o.samples, 0) + r.samples * p.share_of_page_waits as samples, p.share_of_page_waits
from part p
cross join rest r
left join own o using (spcnode, dbnode, relfilenode, fork, block, page_kind)
left join growing g on g.spcnode = p.spcnode and g.dbnode = p.dbnode and g.relfilenode = p.relfilenode and p.fork = 'main'
left join relation t on t.datid = p.dbnode and t.relid = p.table_relid;
