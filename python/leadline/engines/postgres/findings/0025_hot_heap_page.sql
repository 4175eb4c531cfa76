-- id: HOT-HEAP-PAGE
-- title: Sessions compete for the pages of a small table
-- question: For which small, often updated table do sessions queue for its few pages?
-- domain: postgres
-- needs: buffer_wait, session_sample
-- unit: seconds waited for the content locks of its pages; the waits of each statement are divided among pages in proportion to its waiters seen on each
-- cost: database time
-- threshold: min_share = 0.01 (1 % of database time; less has no visible effect on throughput)
-- threshold: min_samples = 10 (with fewer, the sampling error is as large as the number)
-- threshold: small_table_bytes = 1048576 (bytes; 128 pages, on which all sessions meet. In larger tables HOT-BLOCK looks for single hot pages)
-- threshold: min_named = 5 (waiters seen on pages; with fewer, their shares mean little: see BUFFER-WAITS-UNNAMED)
-- silent unless: (select 2 * sum(samples) >= getvariable('min_samples') and 2 * sum(wait_s) >= getvariable('min_share') * (select sum(seconds) from wait_time where in_db_time) from page_wait where page_kind in ('heap', 'heap tail'))
-- wrong when: the size of the table is not known (no names); its highest contended block is then used as its size
with base as (
  select sum(weight_s) as db_time_s from db_time
),
scan as (  -- looks at the pages seen hot before miss those that have just become hot: they would count too low
  select coalesce(sum(waiting), 0) as waiting, coalesce(sum(attributed), 0) as attributed from buffer_scan where scope = 'all'
),
block as (select block_bytes_of(max(setting)) as block_bytes from setting where name = 'block_size'),
size as (  -- in bytes; a block seen beyond the size read before the window tells that it has grown
  select p.dbnode, p.relfilenode, greatest(any_value(nullif(r.size_bytes, -1)), any_value(b.block_bytes) * (max(p.block) + 1)) as size_bytes
  from page_wait p cross join block b
  left join relation r on r.datid = p.dbnode and r.relid = p.relid
  where p.fork = 'main' and p.page_kind in ('heap', 'heap tail')
  group by p.dbnode, p.relfilenode
),
hot as (
  select object, relid, any_value(dbnode) as dbnode, sum(wait_s) as cost_s, round(sum(samples))::bigint as samples,
         sum(waiters) as waiters, max(peak_waiters) as peak, count(*) as blocks, arg_max(block, waiters order by block) as top_block,
         sum(share_of_page_waits) as part, min(ts_from) as ts_from, max(ts_to) as ts_to,
         to_json(list({block: block, page_kind: page_kind, waiters: waiters, waiters_exclusive: waiters_exclusive, peak: peak_waiters,
                       looks: looks, holder_seen: holder_seen, holder_waits_for: holder_waits_for, wait_s: round(wait_s, 3)}
                      order by waiters desc, block)[:20]) as evidence
  from page_wait join size using (dbnode, relfilenode)
  where fork = 'main' and page_kind in ('heap', 'heap tail') and size_bytes <= getvariable('small_table_bytes')
  group by object, relid
),
named as (select sum(waiters) as named from page_wait),
cost as (
  select h.*, s.*, n.named, h.cost_s / b.db_time_s as share from hot h cross join base b cross join scan s cross join named n
)
select 'HOT-HEAP-PAGE' as id,
       severity_of(share, cost_s, c.window_s) as severity,
       confidence_of_seen(samples, waiters, attributed, waiting) as confidence,
       'table ' || object as subject,
       format('{:.1f} s ({:.1f} % of database time) went to waits for the pages of small table {}: block {}{}; '
              || '{:.0f} % of the waiters whose page is known waited there, up to {} at once; of {} buffer waits in scans of all buffers, the page is known for {}{}',
              cost_s, 100 * share, object, top_block,
              case when blocks = 1 then '' else format(' and {} more', blocks - 1) end, 100 * part, peak, waiting, attributed,
              case when cost.relid is null then '; the name could not be read: tablespace/database/file numbers instead' else '' end) as statement,
       cost_s, share as share_of_db_time, samples, ts_from, ts_to, evidence,
       to_json({relation: pg_ident(r.nspname) || '.' || pg_ident(r.relname)}) as facts
from cost left join relation r on r.datid = cost.dbnode and r.relid = cost.relid cross join (select tier, window_s from capture) c
where share >= getvariable('min_share') and samples >= getvariable('min_samples') and named >= getvariable('min_named')
order by cost_s desc, object
