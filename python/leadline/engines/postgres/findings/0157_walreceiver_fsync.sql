-- id: WALRECEIVER-FSYNC
-- title: The walreceiver waits for the disk of its WAL
-- question: How much of the time did the walreceiver wait for its WAL to be on the disk, and how much WAL was held up by that?
-- domain: postgres
-- needs: session_sample, tick
-- unit: seconds that the walreceiver waited for flushes or writes of WAL
-- cost: wall time
-- threshold: receiver_share = 0.5 (of its samples; it also has to receive and to write)
-- threshold: receiver_s = 1.0 (seconds; each flush of a disk takes some milliseconds)
-- threshold: receiver_samples = 20 (with fewer, the sampling error is large)
-- threshold: receiver_lag_s = 2 (seconds behind at the end: then it is medium)
-- silent unless: exists (from wait_time where backend_type = 'walreceiver' and wait_class = 'IO')
-- wrong when: commits of the primary do not wait for this standby, and it is not behind
with seen as (
  select *, replace(lower(wait_event), '_', '') in ('walsync', 'walwrite', 'walinitwrite', 'walinitsync') as flushes from session_sample where backend_type = 'walreceiver'
),
cpu as (
  select sum(cpu_run_ns) / 1e9 as run_s, sum(cpu_queue_ns) / 1e9 as queue_s
  from session_delta where session_id in (select session_id from session where backend_type = 'walreceiver')
),
summed as (
  select sum(weight_s) filter (flushes) as seen_s, sum(weight_s) as all_s, sum(weight_s) filter (wait_event is not null) as waits_s,
         sum(weight_s) filter (wait_event is null) as no_wait_s, count(*) filter (flushes) as samples, min(ts) filter (flushes) as ts_from, max(ts) filter (flushes) as ts_to,
         mode(pid) as pid
  from seen
),
found as (
  select s.*, waited_without_queue(seen_s, waits_s, no_wait_s, c.run_s, c.queue_s) as wait_s from summed s cross join cpu c where seen_s > 0
),
held as (  -- received and not on the disk: none of it may be replayed
  select max(unflushed_bytes) as most, avg(unflushed_bytes) as mean, arg_max(lag_s, ts) as lag_s from replication_lag where is_standby and node = 1
)
select 'WALRECEIVER-FSYNC' as id, case when lag_s >= getvariable('receiver_lag_s') then 'medium' else 'low' end as severity, confidence_of(c.tier, samples) as confidence,
       'walreceiver' as subject,
       format('The walreceiver waited {:.1f} s ({:.0f} % of its time) for its WAL to be on the disk{}{}', wait_s, 100 * wait_s / all_s,
              case when most > 0 then format('; up to {:.2f} MB were received and could not be replayed yet', most / 1048576.0) else '' end,
              case when lag_s is null then '' else format('; at the end this standby was {:.1f} s behind', lag_s) end) as statement,
       wait_s as cost_s, null::double as share_of_db_time, samples::bigint as samples, f.ts_from, f.ts_to,
       to_json([{pid: pid, wait_s: round(wait_s, 3), share: round(wait_s / all_s, 3), unflushed_bytes_most: most, unflushed_bytes: round(mean), lag_s: round(lag_s, 1)}]) as evidence
from found f cross join held cross join (select tier from capture) c
where wait_s >= getvariable('receiver_share') * all_s and wait_s >= getvariable('receiver_s') and samples >= getvariable('receiver_samples')
order by subject
