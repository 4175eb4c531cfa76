-- id: ROW-HOTSPOT
-- title: Many short transactions compete for the same rows
-- question: Do row lock waits concentrate on one table, or on one row of it, while no single transaction blocks for long?
-- domain: postgres
-- needs: lock_wait, session_sample
-- unit: seconds waited for row locks (events tuple, transactionid, spectoken)
-- cost: database time
-- threshold: min_block_s = 1.0 (seconds; waits behind a transaction that blocks for longer belong to BLOCK-CHAIN)
-- threshold: min_share = 0.02 (2 % of database time; any concurrent updates cost less than this)
-- threshold: min_samples = 10 (with fewer, the sampling error is as large as the number)
-- threshold: by_statement_part = 0.5 (share of the waits whose table was taken from the statement text; above it the confidence is at most medium)
-- evaluable when: (select coarse_s is null from capture) or not exists (from lock_wait) | it looks at single passes, and the capture is coarse
-- silent unless: exists (from wait_time where wait_class = 'Lock' and wait_event in ('tuple', 'transactionid', 'spectoken'))
-- wrong when: the table was taken from the statement text and the statement uses several tables
with base as (  -- a waiter that is hidden over SQL has no other part in it
  select coalesce((select sum(weight_s) from db_time), 0) + coalesce((select sum(wait_s) from lock_look where in_db_time is null), 0) as db_time_s
),
rate as (select sum(samples) / sum(seconds) as samples_per_s from wait_time where in_db_time and wait_class = 'Lock'),
short_part as (  -- of each look at a waiter, the part that no long transaction explains; a circle has no root and is DEADLOCKS'
  select c.ts, c.session_id, avg((h.blocked_s < getvariable('min_block_s') or h.looks < 2)::int) as part
  from lock_chain c join lock_hold h using (ts, root_session_id, root_pid)
  group by c.ts, c.session_id
),
waiter as (  -- a session waits for one lock at a time
  select w.ts, w.session_id, any_value(k.wait_s) as wait_s, any_value(w.period_ns) as period_ns,
         any_value(w.datid) as datid, any_value(w.relid) as relid, any_value(w.page) as page, any_value(w.tuple) as tuple
  from lock_wait w join lock_look k using (ts, session_id)
  where w.locktype in ('tuple', 'transactionid', 'spectoken') and coalesce(k.in_db_time, true) group by w.ts, w.session_id
),
head as (  -- the head of a row's queue holds its tuple lock while it waits for the transaction of the row's last writer
  select ts, blocker_session_id as session_id, any_value(datid) as datid, any_value(relid) as relid,
         any_value(page) as page, any_value(tuple) as tuple
  from lock_wait where locktype = 'tuple' and blocker_kind = 'holder' group by ts, blocker_session_id
),
placed as materialized (
  select w.ts, w.session_id, w.wait_s, w.period_ns, coalesce(p.part, 0.0) as part, s.statement_id, s.datid as session_datid,
         case when w.relid <> 0 then w.datid else h.datid end as datid,
         case when w.relid <> 0 then w.relid else h.relid end as relid,
         case when w.relid <> 0 then w.page else h.page end as page,
         case when w.relid <> 0 then w.tuple else h.tuple end as tuple
  from waiter w
  left join head h on h.ts = w.ts and h.session_id = w.session_id
  left join short_part p on p.ts = w.ts and p.session_id = w.session_id
  left join session_sample s on s.ts = w.ts and s.session_id = w.session_id
),
statement_relation as (  -- what the tuple locks of a statement were taken on
  select statement_id, datid, relid from placed where relid is not null and statement_id is not null
  group by statement_id, datid, relid
  qualify row_number() over (partition by statement_id order by count(*) desc, relid) = 1
),
statement_table as (  -- else the first table its text names
  select s.statement_id, s.query,
         first_table(s.query) as name
  from statement s
),
statement_object as (
  select t.statement_id, t.name, min(r.nspname || '.' || r.relname) as object, count(r.relid) as relations
  from statement_table t
  left join (select distinct statement_id, session_datid from placed) p using (statement_id)
  left join relation r on r.datid = p.session_datid and r.relkind in ('r', 'p')
    and (r.relname = t.name or r.nspname || '.' || r.relname = t.name)
  where t.name <> ''
  group by t.statement_id, t.name
),
row_wait as materialized (
  select p.* exclude (datid, relid),
         case when p.relid is not null or sr.relid is not null
                then coalesce(r.nspname || '.' || r.relname, coalesce(p.datid, sr.datid) || '/' || coalesce(p.relid, sr.relid))
              when so.relations = 1 then so.object
              else coalesce(so.name, 'not known') end as object,
         p.relid is null as by_statement
  from placed p
  left join statement_relation sr on sr.statement_id = p.statement_id
  left join statement_object so on so.statement_id = p.statement_id
  left join relation r on r.datid = coalesce(p.datid, sr.datid) and r.relid = coalesce(p.relid, sr.relid)
),
loss as (
  select object, session_id, sum(wait_s * part) as lost_s from row_wait group by object, session_id
),
tuple_wait as (
  select object, page, tuple, count(*) as waits from row_wait where part > 0 and page is not null group by object, page, tuple
),
top_tuple as (
  select object, sum(waits) as waits, arg_max(page, waits order by page) as page, arg_max(tuple, waits order by tuple) as tuple, max(waits) as top_waits,
         to_json(list({page: page, tuple: tuple, waits: waits} order by waits desc, page, tuple)[:20]) as evidence
  from tuple_wait group by object
),
look as (
  select object, min(ts) as ts_from, max(ts + period_ns) as ts_to, mode(statement_id order by statement_id) as statement_id,
         count(*) as waits, count(*) filter (by_statement) as waits_by_statement
  from row_wait where part > 0 group by object
),
found as (
  select object, count(*) filter (lost_s > 0) as victims, sum(lost_s) as cost_s
  from loss group by object
),
named as (
  select f.*, l.* exclude (object), t.page, t.tuple, t.top_waits, t.waits as tuple_waits, t.evidence, f.cost_s / nullif(b.db_time_s, 0) as share,
         round(coalesce(f.cost_s * (select samples_per_s from rate), l.waits))::bigint as samples,
         left(regexp_replace(s.query, '\s+', ' ', 'g'), 120) as query
  from found f cross join base b
  join look l using (object)
  left join top_tuple t using (object)
  left join statement s using (statement_id)
)
select 'ROW-HOTSPOT' as id,
       severity_of(share, cost_s, c.window_s) as severity,
       confidence_of(case when waits_by_statement < getvariable('by_statement_part') * waits then c.tier else 'by statement' end, samples) as confidence,
       'rows of table ' || object as subject,
       format('{} sessions lost {:.1f} s ({:.1f} % of database time) waiting for rows of table {} behind short transactions{}{}{}',
              victims, cost_s, 100 * share, object,
              case when page is null then ''
                   else format('; of {} waits whose row is known {} were for block {} tuple {}', tuple_waits, top_waits, page, tuple) end,
              case when waits_by_statement = 0 then ''
                   else format('; {} of {} waits took the table from the statement', waits_by_statement, waits) end,
              case when query is not null then '; mostly in: ' || query else '' end) as statement,
       cost_s, share as share_of_db_time, samples, ts_from, ts_to,
       coalesce(evidence, to_json([{waits: waits, named_by_statement: waits_by_statement, query: query}])) as evidence,
       to_json({relation: (select pg_ident(nspname) || '.' || pg_ident(relname) from relation where nspname || '.' || relname = object limit 1)}) as facts
from named cross join (select tier, window_s from capture) c
where share >= getvariable('min_share') and samples >= getvariable('min_samples')
order by cost_s desc, object
