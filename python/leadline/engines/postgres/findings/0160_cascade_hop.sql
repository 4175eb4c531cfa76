-- id: CASCADE-HOP
-- title: One hop of a cascade of standbys makes most of the lag
-- question: If a standby receives its WAL from another standby, between which two servers does most of its missing WAL wait?
-- domain: replication
-- needs: replication_lag, walsender, replication_node
-- unit: seconds that the last standby is behind (no cost in database time)
-- cost: none
-- threshold: hop_lag_s = 5 (seconds behind in the last quarter; a burst or a checkpoint takes less)
-- threshold: hop_share = 0.5 (of the WAL that the standby has not replayed: then this hop is the one to change)
-- threshold: hop_readings = 20 (readings of a standby and of a walsender; with fewer nobody knows who sends to whom)
-- threshold: hop_high_s = 60 (seconds behind; a failover to it then takes about as long)
-- silent unless: exists (from walsender where not is_logical and node in (select node from replication_position where in_recovery)) and exists (from replication_lag where is_standby and lag_s >= getvariable('hop_lag_s'))
-- wrong when: a standby has just come back and catches up by itself
with sender as (  -- read at some moment from `since` to `until`
  select node, pid, ts, sent_lsn, flush_lsn, ts - coalesce(answer_ns, 0) // 2 as since, ts + coalesce(answer_ns, 0) // 2 as until from walsender
  where not is_logical and state in ('streaming', 'catchup') and sent_lsn is not null and flush_lsn is not null
),
place as (  -- what each standby has on its disk. A walreceiver that starts again sets its positions back, and the WAL is still there
  select node, ts, max(greatest(flush_lsn, replay_lsn)) over (partition by node order by ts) as lsn, ts - answer_ns // 2 as since, ts + answer_ns // 2 as until
  from replication_position where in_recovery and greatest(flush_lsn, replay_lsn) is not null
),
-- The server does not say which of the watched standbys a walsender serves. It is none that lacks what the walsender was told is on its
-- receiver's disk, and none that has got what the walsender has not sent. A receiver that connects anew asks from the begin of the segment:
-- what it had when the walsender was first seen says nothing.
pair as (
  select s.node, s.pid, p.node as standby
  from (select node, pid from sender group by all having count(*) >= getvariable('hop_readings')) s
  join (select node from place group by all having count(*) >= getvariable('hop_readings')) p on p.node <> s.node
),
had as (
  select r.node, r.pid, r.standby, coalesce(max(p.lsn) filter (p.ts <= f.ts), min(p.lsn)) as lsn
  from pair r join (select node, pid, min(ts) as ts from sender group by all) f using (node, pid) join place p on p.node = r.standby group by all
),
refuted as (
  select s.node, s.pid, s.standby from (select * from sender join pair using (node, pid)) s asof join place p on p.node = s.standby and p.since >= s.until
  where p.lsn < s.flush_lsn
  union
  select d.upstream, d.pid, d.standby
  from (select h.node as upstream, h.pid, h.standby, p.until, p.lsn, h.lsn as had_lsn from had h join place p on p.node = h.standby) d asof join sender s on s.node = d.upstream and s.pid = d.pid and s.since >= d.until
  where d.lsn > s.sent_lsn and d.lsn > d.had_lsn
),
possible as (select * from pair except select * from refuted),
claimed as (select node, pid, any_value(standby) as standby from possible group by node, pid having count(*) = 1),
edge as (  -- where a walsender can serve only one standby, it does; what is left must be of one server
  select standby, any_value(node) as upstream from claimed group by standby having count(distinct node) = 1
  union all
  select standby, any_value(node) from possible
  where standby not in (select standby from claimed) and (node, pid) not in (select (node, pid) from claimed) group by standby having count(distinct node) = 1
),
step as (  -- all hops on the way to each standby
  with recursive way(standby, upstream, receiver) as (
    select standby, upstream, standby from edge
    union
    select w.standby, e.upstream, e.standby from way w join edge e on e.standby = w.upstream
  )
  select w.*, not exists (from place p where p.node = w.upstream) as is_first from way w
),
cascaded as (  -- the way begins at a server that makes WAL, and goes over a standby
  select standby from step group by standby having count(*) >= 2 and count(*) filter (is_first) = 1
),
tail as (
  select * from (select *, ntile(4) over (partition by node order by ts) as quarter, count(*) over (partition by node) as readings from replication_lag where is_standby and not is_paused)
  where quarter = 4 and node in (select standby from cascaded)
),
sizes as (  -- of each hop: what the one has and the other has not
  select s.standby, s.upstream, s.receiver, avg(greatest(case when s.is_first then t.made_lsn else u.lsn end - r.lsn, 0)) as bytes
  from tail t join step s on s.standby = t.node
  asof join place r on r.node = s.receiver and r.ts <= t.ts asof left join place u on u.node = s.upstream and u.ts <= t.ts
  group by all
),
behind as (
  select node, median(lag_s) as lag_s, avg(lag_bytes) as lag_bytes, avg(unreplayed_bytes) as unreplayed, avg(unflushed_bytes) as unflushed, bool_or(is_least) as is_least, any_value(readings) as readings,
         min(ts) as ts_from, max(ts) as ts_to
  from tail group by node
),
most as (
  select s.*, b.* exclude (node), case when s.receiver = s.standby then b.unflushed else 0 end as on_the_way
  from sizes s join behind b on b.node = s.standby
  where b.lag_s >= getvariable('hop_lag_s') and b.lag_bytes > 0 and s.bytes >= getvariable('hop_share') * b.lag_bytes
  qualify row_number() over (partition by s.standby order by s.bytes desc, s.receiver) = 1
),
hop as (  -- a hop stands above all standbys behind it
  select upstream, receiver, arg_max(standby, lag_s) as standby, count(*) as standbys, max(lag_s) as lag_s, arg_max(bytes, lag_s) as bytes, arg_max(lag_bytes, lag_s) as lag_bytes,
         arg_max(unreplayed, lag_s) as unreplayed, arg_max(on_the_way, lag_s) as unflushed, arg_max(is_least, lag_s) as is_least, arg_max(readings, lag_s) as readings, arg_max(ts_from, lag_s) as ts_from, arg_max(ts_to, lag_s) as ts_to
  from most group by all
)
select 'CASCADE-HOP' as id, case when lag_s >= getvariable('hop_high_s') then 'high' else 'medium' end as severity, 'medium' as confidence, 'hop from ' || u.name || ' to ' || r.name as subject,
       format('Standby {} was {}{:.1f} s and {:.1f} MB behind: {:.0f} % of these bytes wait between {} and {}, {:.0f} % for its own replay{}', n.name, if(is_least, 'at least ', ''), lag_s, lag_bytes / 1048576.0,
              100 * bytes / lag_bytes, u.name, r.name, 100 * unreplayed / lag_bytes, case when standbys > 1 then format('; the hop holds up {} standbys', standbys) else '' end) as statement,
       null::double as cost_s, null::double as share_of_db_time, readings::bigint as samples, ts_from, ts_to,
       to_json([{standby: n.name, upstream: u.name, receiver: r.name, lag_s: round(lag_s, 1), lag_bytes: round(lag_bytes), hop_bytes: round(bytes), unflushed_bytes: round(unflushed), unreplayed_bytes: round(unreplayed)}]) as evidence,
       to_json({upstream: u.name, receiver: r.name, is_disk: unflushed >= getvariable('hop_share') * bytes, is_network: unflushed < getvariable('hop_share') * bytes,
                is_between: h.upstream in (select node from place)}) as facts
from hop h join replication_node u on u.node = h.upstream join replication_node r on r.node = h.receiver join replication_node n on n.node = h.standby
order by lag_s desc, subject
