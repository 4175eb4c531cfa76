-- id: RIGHT-EDGE-INDEX
-- title: Inserts compete for the right-most leaf page of an index
-- question: For which index do inserting sessions queue for the right-most leaf page, because every new key is the greatest?
-- domain: postgres
-- needs: buffer_wait, session_sample
-- unit: seconds waited for the content lock of the page; the waits of each statement are divided among pages in proportion to its waiters seen on each
-- cost: database time
-- threshold: min_share = 0.01 (1 % of database time; less has no visible effect on throughput)
-- threshold: min_samples = 10 (with fewer, the sampling error is as large as the number)
-- threshold: min_named = 5 (waiters seen on pages; with fewer, their shares mean little: see BUFFER-WAITS-UNNAMED)
-- silent unless: exists (from page_wait where at_right_edge)
-- wrong when: the index is tiny, so that its only leaf is also the right-most one
with base as (
  select sum(weight_s) as db_time_s from db_time
),
scan as (  -- looks at the pages seen hot before miss those that have just become hot: they would count too low
  select coalesce(sum(waiting), 0) as waiting, coalesce(sum(attributed), 0) as attributed from buffer_scan where scope = 'all'
),
hot as (
  select object, relid, any_value(dbnode) as dbnode, any_value(table_name) as table_name, sum(wait_s) as cost_s, round(sum(samples))::bigint as samples,
         sum(waiters) as waiters, max(peak_waiters) as peak, count(*) as blocks, arg_max(block, waiters order by block) as top_block,
         sum(share_of_page_waits) as part,
         coalesce(sum(wait_s) filter (page_kind <> 'btree right-most leaf'), 0) as left_behind_s, min(ts_from) as ts_from, max(ts_to) as ts_to,
         to_json(list({block: block, page_kind: page_kind, waiters: waiters, waiters_exclusive: waiters_exclusive, peak: peak_waiters,
                       looks: looks, holder_seen: holder_seen, holder_waits_for: holder_waits_for, wait_s: round(wait_s, 3)}
                      order by waiters desc, block)[:20]) as evidence
  from page_wait where at_right_edge
  group by object, relid
),
named as (select sum(waiters) as named from page_wait),
cost as (
  select h.*, s.*, n.named, h.cost_s / b.db_time_s as share from hot h cross join base b cross join scan s cross join named n
)
select 'RIGHT-EDGE-INDEX' as id,
       severity_of(share, cost_s, c.window_s) as severity,
       confidence_of_seen(samples, waiters, attributed, waiting) as confidence,
       'index ' || object as subject,
       format('{:.1f} s ({:.1f} % of database time) went to waits for the right-most leaf of index {}{}: block {}{}{}; '
              || '{:.0f} % of the waiters whose page is known waited there, up to {} at once; of {} buffer waits in scans of all buffers, the page is known for {}{}',
              cost_s, 100 * share, object, case when table_name is null then '' else ' of table ' || table_name end, top_block,
              case when blocks = 1 then '' else format(' and {} more', blocks - 1) end,
              case when left_behind_s = 0 then '' else format(' ({:.1f} s of it on leaves that were right-most until just before)', left_behind_s) end, 100 * part, peak, waiting, attributed,
              case when cost.relid is null then '; the name could not be read: tablespace/database/file numbers instead' else '' end) as statement,
       cost_s, share as share_of_db_time, samples, ts_from, ts_to, evidence,
       to_json({is_toast: i.nspname = 'pg_toast', is_own: i.nspname not in ('pg_toast', 'pg_catalog'), block: top_block, index: pg_ident(i.nspname) || '.' || pg_ident(i.relname),
                owner: case when i.nspname = 'pg_toast' then coalesce(pg_ident(o.nspname) || '.' || pg_ident(o.relname), 'its table') end}) as facts
from cost left join relation i on i.datid = cost.dbnode and i.relid = cost.relid
left join relation t on t.datid = i.datid and t.relid = i.table_relid left join relation o on o.datid = t.datid and o.relid = t.table_relid cross join (select tier, window_s from capture) c
where share >= getvariable('min_share') and samples >= getvariable('min_samples') and named >= getvariable('min_named')
order by cost_s desc, object
