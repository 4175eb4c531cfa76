-- id: STANDBY-DISK-FILLS
-- title: The disk of a standby fills with WAL that it has not replayed
-- question: On which standby does WAL that waits for replay grow, and when is the disk of its pg_wal full?
-- domain: replication
-- needs: replication_lag
-- unit: seconds until the disk is full at this pace (no cost in time of its own)
-- cost: none
-- threshold: fills_s = 21600 (seconds until the disk is full: a quarter of a day is the time to find out why, and to add space)
-- threshold: fills_high_s = 3600 (seconds until the disk is full: within an hour somebody has to act now)
-- threshold: fills_bytes = 67108864 (bytes that the wait has grown by in the capture: less may be one transaction or the end of a checkpoint)
-- threshold: fills_even = 0.5 (of the pace of the whole capture, in each half of it: else it grew once, and does not go on)
-- silent unless: (select max(unreplayed_bytes) from replication_lag where is_standby) >= getvariable('fills_bytes')
-- wrong when: the WAL grows only as long as a bulk load on the primary lasts, or replay is delayed on purpose and stops to grow after the delay
with reading as (
  select node, ts, unreplayed_bytes as bytes, ntile(2) over (partition by node order by ts) as half
  from replication_lag where is_standby and flush_lsn is not null
),
pace as (select node, half, regr_slope(bytes, ts / 1e9) as per_s from reading group by node, half),
growth as (
  select node, count(*) as readings, regr_slope(bytes, ts / 1e9) as per_s, arg_max(bytes, ts) as kept, max(ts) - min(ts) as ns, min(ts) as ts_from, max(ts) as ts_to
  from reading group by node
),
filling as (
  select g.*, n.name, n.wal_free_bytes as free, n.wal_free_bytes / g.per_s as full_s
  from growth g join replication_node n using (node)
  where n.wal_free_bytes is not null and g.per_s > 0 and g.per_s * g.ns / 1e9 >= getvariable('fills_bytes')
    and not exists (from pace p where p.node = g.node and coalesce(p.per_s, 0) < getvariable('fills_even') * g.per_s)
)
select 'STANDBY-DISK-FILLS' as id, case when full_s < getvariable('fills_high_s') then 'high' else 'medium' end as severity,
       'medium' as confidence, 'standby ' || name as subject,
       format('WAL that is received and not replayed grows by {:.1f} MB/s on standby {}: {:.1f} GB wait, {:.1f} GB are free on the disk of its pg_wal, which is full in {} at this pace',
              per_s / 1048576.0, name, kept / 1073741824.0, free / 1073741824.0,
              case when full_s < getvariable('fills_high_s') then format('{:.0f} minutes', full_s / 60) else format('{:.1f} hours', full_s / 3600) end) as statement,
       null::double as cost_s, null::double as share_of_db_time, readings::bigint as samples, ts_from, ts_to,
       to_json([{standby: name, growth_bytes_per_s: round(per_s), unreplayed_bytes: kept, wal_free_bytes: free, full_s: round(full_s)}]) as evidence,
       to_json({standby: name}) as facts
from filling where full_s < getvariable('fills_s')
order by full_s, subject
