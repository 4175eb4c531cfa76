-- id: LAG-BLIND
-- title: pg_stat_replication does not show how far a standby is behind
-- question: While the standby was behind, did the primary's replay_lag say so, or did it stand still, say nothing, or say too much?
-- domain: replication
-- needs: replication_lag, walsender, replication_node
-- unit: seconds in which the view was wrong (no cost in database time)
-- cost: none
-- threshold: blind_lag_s = 2 (seconds behind, or as the view says; less is within the interval of reports and nobody's alarm)
-- threshold: blind_factor = 2 (times: the view says less than a half or more than the double)
-- threshold: blind_min_s = 3 (seconds in which it was wrong; a burst that is confirmed late is right soon)
-- threshold: blind_apart_s = 1 (seconds: a reading of the standby that is older says nothing of this one of the primary)
-- silent unless: exists (from walsender) and exists (from replication_lag where is_standby)
-- wrong when: nobody looks at the columns of lag of pg_stat_replication
with standby as (  -- with more than one of either, nobody knows which walsender serves which
  select any_value(node) as node from replication_lag where is_standby having count(distinct node) = 1
),
sender as (
  select * from walsender
  where (ts, node) in (select ts, node from replication_lag where not is_standby)  -- of the server that makes the WAL at that time
    and not is_logical and state in ('streaming', 'catchup') and (select count(distinct pid) from walsender where not is_logical and state in ('streaming', 'catchup')) = 1
),
truth as (select l.ts, l.lag_s from replication_lag l join standby using (node) where l.is_standby),
reading as (
  select s.ts, s.replay_lag / 1e6 as shown_s, t.lag_s, s.application_name, lead(s.ts) over (order by s.ts) - s.ts as dt
  from sender s asof join truth t on t.ts <= s.ts where (s.ts - t.ts) / 1e9 < getvariable('blind_apart_s')
),
judged as (
  select *, case when dt is null then 0 else least(dt, 2000000000) / 1e9 end as seconds,
         case when lag_s >= getvariable('blind_lag_s') and shown_s is null then 'nothing'
              when lag_s >= getvariable('blind_lag_s') and shown_s * getvariable('blind_factor') < lag_s then 'less'
              when shown_s >= getvariable('blind_lag_s') and lag_s * getvariable('blind_factor') < shown_s then 'more' end as wrong
  from reading
),
summed as (
  select sum(seconds) filter (wrong is not null) as wrong_s, sum(seconds) as all_s, count(*) filter (wrong is not null) as samples, min(ts) as ts_from, max(ts) as ts_to,
         arg_max(lag_s, abs(lag_s - coalesce(shown_s, 0))) filter (wrong is not null) as lag_s,
         arg_max(coalesce(shown_s, -1), abs(lag_s - coalesce(shown_s, 0))) filter (wrong is not null) as shown_s,
         mode(wrong) as wrong, any_value(application_name) as application_name
  from judged
)
select 'LAG-BLIND' as id, 'low' as severity, 'medium' as confidence, 'standby ' || n.name as subject,
       format('For {:.1f} s of {:.1f} s pg_stat_replication of the primary was wrong about standby {}: it showed {} as replay_lag when the standby was {:.1f} s behind',
              wrong_s, all_s, n.name, if(shown_s < 0, 'nothing', format('{:.2f} s', shown_s)), lag_s) as statement,
       null::double as cost_s, null::double as share_of_db_time, samples::bigint as samples, ts_from, ts_to,
       to_json([{standby: n.name, application_name: application_name, wrong_s: round(wrong_s, 1), lag_s: round(lag_s, 2), shown_s: if(shown_s < 0, null, round(shown_s, 3)), shows: wrong}]) as evidence,
       to_json({is_less: wrong in ('less', 'nothing'), is_more: wrong = 'more'}) as facts
from summed cross join standby s join replication_node n on n.node = s.node
where wrong_s >= getvariable('blind_min_s')
order by wrong_s desc
