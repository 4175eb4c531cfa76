-- id: PIN-CLEANUP
-- title: A cleanup waits for other sessions to unpin a page
-- question: Does VACUUM, or replay on a standby, wait for pins that other sessions hold on its pages?
-- domain: postgres
-- needs: session_sample
-- unit: seconds waited in class BufferPin, including replay on a standby
-- cost: database time
-- threshold: min_wait_s = 1.0 (seconds; cleanup skips pinned pages where it may, so it waits this long only for a page it must clean)
-- threshold: min_samples = 5 (with fewer, the number says little)
-- threshold: pin_medium_sessions = 0.5 (processes waiting on average; vacuum was stopped for half of the window)
-- silent unless: exists (from wait_time where wait_class = 'BufferPin')
-- wrong when: a cursor was left open on purpose and VACUUM may wait
with base as (
  select sum(weight_s) as db_time_s from db_time
),
wait as (select * from session_sample where wait_class = 'BufferPin'),
session_cost as (
  select pid, backend_type, any_value(statement_id) as statement_id, sum(weight_s) as wait_s from wait group by pid, backend_type
),
evidence as (
  select to_json(list({pid: c.pid, backend_type: c.backend_type, wait_s: round(c.wait_s, 3),
                       query: left(regexp_replace(s.query, '\s+', ' ', 'g'), 120)} order by c.wait_s desc, c.pid)[:20]) as evidence,
         string_agg(c.backend_type || ' ' || c.pid, ', ' order by c.wait_s desc, c.pid) as who
  from session_cost c left join statement s using (statement_id)
),
pinned as (  -- the page seen most often: a page has one such waiter at most, and its number is not kept
  select first(object order by looks desc, object, block) as object, first(block order by looks desc, object, block) as block
  from (select object, block, count(*) as looks from hot_block where wait_kind = 'pin' group by object, block)
),
found as (
  select sum(weight_s) as cost_s, coalesce(sum(weight_s) filter (in_db_time), 0) as in_db_time_s, count(*) as samples,
         min(ts) as ts_from, max(ts) as ts_to
  from wait
),
cost as (
  select f.*, e.*, p.*, case when f.in_db_time_s > 0 then f.in_db_time_s / b.db_time_s end as share
  from found f cross join base b cross join evidence e cross join pinned p
)
select 'PIN-CLEANUP' as id,
       case when cost_s >= getvariable('pin_medium_sessions') * c.window_s then 'medium' else 'low' end as severity,
       confidence_of(c.tier, samples) as confidence,
       case when object is null then 'pins' else 'pins on ' || object end as subject,
       format('{:.1f} s went to waits for other sessions to unpin a page{}: {}', cost_s,
              case when object is null then '' else format(', mostly block {} of {}', block, object) end, who) as statement,
       cost_s, share as share_of_db_time, samples, ts_from, ts_to, evidence
from cost cross join (select tier, window_s from capture) c
where cost_s >= getvariable('min_wait_s') and samples >= getvariable('min_samples')
