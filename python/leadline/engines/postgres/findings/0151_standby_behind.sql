-- id: STANDBY-BEHIND
-- title: A standby falls further and further behind
-- question: Which standby replays less WAL than is made, how far behind is it, and where do the bytes wait?
-- domain: replication
-- needs: replication_lag
-- unit: seconds that the standby is behind at the end (no cost in database time)
-- cost: none
-- threshold: behind_min_s = 5 (seconds behind; a burst or a checkpoint takes less)
-- threshold: behind_growth = 0.1 (seconds further behind for each second: it replays at most nine tenths of what is made)
-- threshold: behind_readings = 20 (readings; with fewer nobody knows a trend)
-- threshold: behind_high_s = 60 (seconds behind; a failover then takes about as long)
-- silent unless: exists (from replication_lag where lag_s >= getvariable('behind_min_s'))
-- wrong when: a bulk load runs that soon ends, and the standby catches up by itself
with reading as (  -- while replay is paused: REPLAY-PAUSED
  select *, ntile(4) over (partition by receiver order by ts) as quarter from replication_lag where not is_paused
),
trend as (
  select receiver, any_value(node) as node, bool_or(is_standby) as is_standby, count(*) as readings, min(ts) as ts_from, max(ts) as ts_to,
         regr_slope(lag_s, ts / 1e9) as growth, median(lag_s) filter (quarter = 1) as first_s, median(lag_s) filter (quarter = 4) as last_s, arg_max(lag_s, ts) as end_s,
         arg_max(lag_bytes, ts) as end_bytes, bool_or(is_least) filter (quarter = 4) as is_least,
         median(lag_bytes) filter (quarter = 1) as first_bytes, median(lag_bytes) filter (quarter = 4) as last_bytes,
         avg(coalesce(unsent_bytes, 0)) filter (quarter = 4) as unsent, avg(unreceived_bytes) filter (quarter = 4) as unreceived,
         avg(unflushed_bytes) filter (quarter = 4) as unflushed, avg(unreplayed_bytes) filter (quarter = 4) as unreplayed,
         (max(replay_lsn) - min(replay_lsn)) / ((max(ts) - min(ts)) / 1e9) as replay_bytes_per_s, (max(made_lsn) - min(made_lsn)) / ((max(ts) - min(ts)) / 1e9) as made_bytes_per_s
  from reading group by receiver having count(*) >= getvariable('behind_readings')
),
found as (  -- bytes must grow, too: a standby that replays one long transaction of a pause is not slower than the primary
  select *, greatest(unsent, unreceived, unflushed, unreplayed) as most from trend
  where last_s >= getvariable('behind_min_s') and growth >= getvariable('behind_growth') and last_s > first_s and last_bytes > first_bytes and made_bytes_per_s > replay_bytes_per_s
    and (is_standby or not exists (from replication_lag where is_standby))
),
named as (
  select f.*, case when is_standby then n.name else receiver end as standby,
         case when most = unreplayed then 'unreplayed' when most = unflushed then 'unflushed' when most = unsent then 'unsent' else 'unreceived' end as part
  from found f left join replication_node n using (node)
)
select 'STANDBY-BEHIND' as id, case when end_s >= getvariable('behind_high_s') then 'high' else 'medium' end as severity, 'medium' as confidence,
       'standby ' || standby as subject,
       format('Standby {} was {}{:.1f} s behind at the end, {:.1f} s more for each second: {:.2f} MB/s of WAL were made and {:.2f} MB/s replayed; most of the {:.1f} MB that wait {}',
              standby, if(is_least, 'at least ', ''), end_s, growth, made_bytes_per_s / 1048576.0, replay_bytes_per_s / 1048576.0, end_bytes / 1048576.0,
              case part when 'unreplayed' then 'are on its disk and not replayed' when 'unflushed' then 'are received and not on its disk'
                        when 'unsent' then 'are not sent' else 'are not received' end) as statement,
       null::double as cost_s, null::double as share_of_db_time, readings::bigint as samples, ts_from, ts_to,
       to_json([{standby: standby, lag_s: round(end_s, 1), growth_s_per_s: round(growth, 3), lag_bytes: end_bytes, made_bytes_per_s: round(made_bytes_per_s), replayed_bytes_per_s: round(replay_bytes_per_s),
                 unsent_bytes: round(unsent), unreceived_bytes: round(unreceived), unflushed_bytes: round(unflushed), unreplayed_bytes: round(unreplayed)}]) as evidence,
       to_json({standby: standby, is_replay: part = 'unreplayed', is_disk: part = 'unflushed', is_network: part in ('unsent', 'unreceived')}) as facts
from named
order by end_s desc, subject
