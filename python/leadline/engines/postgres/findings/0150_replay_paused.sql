-- id: REPLAY-PAUSED
-- title: Replay is paused on a standby
-- question: On which standby has replay been paused, for how long, and how much WAL waits for it?
-- domain: replication
-- needs: replication_lag
-- unit: bytes of WAL that wait for replay (no cost in time of its own)
-- cost: none
-- threshold: paused_medium_bytes = 100000000 (bytes that wait; replaying them takes seconds)
-- threshold: paused_high_bytes = 10000000000 (bytes that wait; replaying them takes minutes, and they fill the disk)
-- silent unless: exists (from replication_lag where is_paused)
-- wrong when: somebody paused it to look at one state of the data, and will resume it
with seen as (
  select node, count(*) as readings, count(*) filter (is_paused) as paused, bool_or(is_paused) filter (ts = last_ts) as at_end,
         sum(step_s) filter (is_paused) as paused_s, max(lag_bytes) filter (is_paused) as bytes, max(lag_s) filter (is_paused) as lag_s,
         bool_or(is_least) filter (is_paused) as is_least, min(ts) filter (is_paused) as ts_from, max(ts) filter (is_paused) as ts_to
  from (select *, max(ts) over (partition by node) as last_ts,  -- the last reading may come late: what lies outside the window is no part of it
               case when before is null then 0 else greatest(least(ts, (select ts_to from capture)) - greatest(before, (select ts_from from capture)), 0) / 1e9 end as step_s
        from (select *, lag(ts) over (partition by node order by ts) as before from replication_lag where is_standby))
  group by node having paused > 0
)
select 'REPLAY-PAUSED' as id,
       case when not at_end then 'low' when bytes >= getvariable('paused_high_bytes') then 'high' when bytes >= getvariable('paused_medium_bytes') then 'medium' else 'low' end as severity,
       'high' as confidence, 'standby ' || n.name as subject,
       format('Replay was paused for {:.1f} s of {:.1f} s on standby {}{}: up to {:.1f} MB of WAL waited, and what was replayed had been made {}{:.1f} s before',
              paused_s, c.window_s, n.name, if(at_end, ', also at the end', ''), bytes / 1048576.0, if(is_least, 'at least ', ''), lag_s) as statement,
       null::double as cost_s, null::double as share_of_db_time, paused::bigint as samples, s.ts_from, s.ts_to,
       to_json([{standby: n.name, paused_s: round(paused_s, 1), lag_bytes: bytes, lag_s: round(lag_s, 1), at_end: at_end}]) as evidence,
       to_json({standby: n.name, at_end: at_end}) as facts
from seen s join replication_node n using (node) cross join (select window_s from capture) c
order by bytes desc, subject
