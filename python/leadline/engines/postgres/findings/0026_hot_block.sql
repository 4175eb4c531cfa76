-- id: HOT-BLOCK
-- title: Sessions compete for one kind of page of one relation
-- question: Does one kind of page of one relation cause a large part of the buffer waits, other than the kinds that have a finding of their own?
-- domain: postgres
-- needs: buffer_wait, session_sample
-- unit: seconds waited for the content locks of these pages; the waits of each statement are divided among pages in proportion to its waiters seen on each
-- cost: database time
-- threshold: min_part = 0.3 (30 % of the waiters seen on pages; the contention is then concentrated, not spread)
-- threshold: min_share = 0.01 (1 % of database time; less has no visible effect on throughput)
-- threshold: min_samples = 10 (with fewer, the sampling error is as large as the number)
-- threshold: small_table_bytes = 1048576 (bytes; tables up to this size belong to HOT-HEAP-PAGE)
-- threshold: min_named = 5 (waiters seen on pages; with fewer, their shares mean little: see BUFFER-WAITS-UNNAMED)
-- silent unless: exists (select 1 from page_wait where not at_right_edge and page_kind <> 'sequence' group by object, relid, page_kind having 2 * sum(share_of_page_waits) >= getvariable('min_part') and 2 * sum(samples) >= getvariable('min_samples'))
-- wrong when: few waiters were seen, so that 30 % of them are only a handful
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
  select object, relid, any_value(dbnode) as dbnode, page_kind, sum(wait_s) as cost_s, round(sum(samples))::bigint as samples,
         sum(waiters) as waiters, max(peak_waiters) as peak, count(*) as blocks, arg_max(block, waiters order by block) as top_block,
         sum(share_of_page_waits) as part, min(ts_from) as ts_from, max(ts_to) as ts_to,
         to_json(list({block: block, page_kind: page_kind, waiters: waiters, waiters_exclusive: waiters_exclusive, peak: peak_waiters,
                       looks: looks, holder_seen: holder_seen, holder_waits_for: holder_waits_for, wait_s: round(wait_s, 3)}
                      order by waiters desc, block)[:20]) as evidence
  from page_wait left join size using (dbnode, relfilenode)
  where not at_right_edge and page_kind <> 'sequence'
    and not (fork = 'main' and page_kind in ('heap', 'heap tail') and size_bytes <= getvariable('small_table_bytes'))
  group by object, relid, page_kind
),
named as (select sum(waiters) as named from page_wait),
cost as (
  select h.*, s.*, n.named, h.cost_s / b.db_time_s as share from hot h cross join base b cross join scan s cross join named n
)
select 'HOT-BLOCK' as id,
       severity_of(share, cost_s, c.window_s) as severity,
       confidence_of_seen(samples, waiters, attributed, waiting) as confidence,
       page_kind || ' pages of ' || object as subject,
       format('{:.1f} s ({:.1f} % of database time) went to waits for {} pages of {}: {} block{}, block {} most; '
              || '{:.0f} % of the waiters whose page is known waited there, up to {} at once; of {} buffer waits in scans of all buffers, the page is known for {}{}',
              cost_s, 100 * share, page_kind, object, blocks, case when blocks = 1 then '' else 's' end, top_block, 100 * part, peak, waiting, attributed,
              case when cost.relid is null then '; the name could not be read: tablespace/database/file numbers instead' else '' end) as statement,
       cost_s, share as share_of_db_time, samples, ts_from, ts_to, evidence,
       to_json({index: case when r.relkind in ('i', 'I') then pg_ident(r.nspname) || '.' || pg_ident(r.relname) end,
                gin_index: case when page_kind like 'gin%' then pg_ident(r.nspname) || '.' || pg_ident(r.relname) end,
                is_heap_tail: page_kind = 'heap tail', is_heap: page_kind = 'heap', is_leaf: page_kind like 'btree%leaf',
                is_root: regexp_matches(page_kind, '^btree (root|inner|meta)'), is_map: page_kind in ('visibility map', 'free space map'),
                is_gin_list: regexp_matches(page_kind, '^gin (meta|pending)'), is_other: regexp_matches(page_kind, '^(gin|hash|gist|spgist|sp-gist|brin)') and not regexp_matches(page_kind, '^gin (meta|pending)')}) as facts
from cost left join relation r on r.datid = cost.dbnode and r.relid = cost.relid cross join (select tier, window_s from capture) c
where part >= getvariable('min_part') and share >= getvariable('min_share') and samples >= getvariable('min_samples') and named >= getvariable('min_named')
order by cost_s desc, subject
