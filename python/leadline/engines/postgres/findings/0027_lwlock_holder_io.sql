-- id: LWLOCK-HOLDER-IO
-- title: Holders of contended locks wait for storage or WAL
-- question: Do sessions wait for a page or an internal lock because its holder waits for storage or for WAL?
-- domain: postgres
-- needs: buffer_wait, lwlock_wait, session_sample
-- unit: seconds waited for locks whose holder was seen waiting for this; a lower bound, because most holders cannot be seen in time
-- cost: database time
-- threshold: min_share = 0.01 (1 % of database time; less has no visible effect on throughput)
-- threshold: min_samples = 10 (with fewer, the sampling error is as large as the number)
-- threshold: min_looks = 3 (scans that saw a holder; fewer may be chance)
-- silent unless: (select count(*) from hot_block where holder_pid <> 0 and holder_wait_event is not null) + (select count(*) from lwlock_wait where holder_pid <> 0 and holder_wait_event_info <> 0) >= getvariable('min_looks')
-- wrong when: few holders were seen; long holds are seen more often than short ones, so their share is not their share of all holds
with base as (
  select sum(weight_s) as db_time_s from db_time
),
wait as (  -- seconds by lock; the key makes buffer pages and the locks of the main array one list
  select case when replace(lower(wait_event), '_', '') = 'buffercontent' then 'BufferContent' else wait_event end as lock,
         sum(weight_s) as wait_s, count(*) as samples
  from db_time where wait_class = 'LWLock' group by 1
),
seen as (
  select ts, 'BufferContent' as lock, page_kind || ' page of ' || object as what, waiters, holder_pid,
         holder_wait_event_type as holder_class, holder_wait_event as holder_event
  from hot_block where wait_kind = 'content'
  union all
  select l.ts, w.wait_event, w.wait_event || case when l.partition >= 0 then ' partition ' || l.partition else '' end, l.waiters, l.holder_pid,
         h.wait_event_type, h.wait_event
  from lwlock_wait l
  join wait_event w on w.wait_event_info = l.wait_event_info
  left join wait_event h on h.wait_event_info = l.holder_wait_event_info and l.holder_wait_event_info <> 0
),
all_seen as (
  select lock, sum(waiters) as waiters, count(*) filter (holder_pid <> 0) as holders_seen from seen group by lock
),
held_up as (  -- a flush of the WAL under WALWrite is how commits work: WAL-CONTENTION
  select * from seen
  where holder_pid <> 0
    and (holder_class = 'IO' or lower(holder_event) in ('bufferio', 'walwrite', 'walinsert', 'walbufmapping', 'syncrep'))
    and not (lower(lock) in ('walwrite', 'walwritelock') and lower(holder_event) in ('walsync', 'walwrite', 'walinitwrite', 'walinitsync'))
),
part as (
  select h.holder_class || ':' || h.holder_event as holder_wait, h.lock, h.what, sum(h.waiters) as waiters, count(*) as looks,
         any_value(w.wait_s) * sum(h.waiters) / any_value(a.waiters) as cost_s,
         any_value(w.samples) * sum(h.waiters) / any_value(a.waiters) as samples,
         min(h.ts) as ts_from, max(h.ts) as ts_to
  from held_up h join wait w using (lock) join all_seen a using (lock)
  group by h.holder_class, h.holder_event, h.lock, h.what
),
found as (
  select holder_wait, sum(cost_s) as cost_s, round(sum(samples))::bigint as samples, sum(looks) as looks, count(distinct what) as locks,
         arg_max(what, cost_s order by what) as top_what, min(ts_from) as ts_from, max(ts_to) as ts_to,
         to_json(list({lock: lock, what: what, waiters: waiters, looks: looks, cost_s: round(cost_s, 3)}
                      order by cost_s desc, what)[:20]) as evidence
  from part group by holder_wait
),
holders as (select sum(holders_seen) as holders_seen from all_seen),
cost as (select f.*, h.holders_seen, f.cost_s / b.db_time_s as share from found f cross join base b cross join holders h)
select 'LWLOCK-HOLDER-IO' as id,
       severity_of(share, cost_s, c.window_s) as severity,
       confidence_of_seen(samples, looks, 1, 1) as confidence,
       'holders waiting for ' || holder_wait as subject,
       format('At least {:.1f} s ({:.1f} % of database time) went to waits for locks whose holder itself waited for {}: {}{}; '
              || 'seen in {} of {} looks that caught a holder',
              cost_s, 100 * share, holder_wait, top_what, case when locks = 1 then '' else format(' and {} more', locks - 1) end,
              looks, holders_seen) as statement,
       cost_s, share as share_of_db_time, samples, ts_from, ts_to, evidence
from cost cross join (select tier, window_s from capture) c
where share >= getvariable('min_share') and samples >= getvariable('min_samples') and looks >= getvariable('min_looks')
order by cost_s desc, subject
