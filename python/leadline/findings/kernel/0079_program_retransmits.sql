-- id: PROGRAM-RETRANSMITS
-- title: A program sleeps while its segments are retransmitted
-- question: Which programs lose data on the way, to whom, and how long do their threads sleep meanwhile?
-- domain: kernel
-- needs: retransmit
-- unit: segments retransmitted; seconds asleep beyond the usual sleep of the thread
-- cost: wall time
-- threshold: program_again_min = 20 (segments in the window: fewer say nothing of a rate)
-- threshold: program_again_min_s = 0.2 (seconds asleep in the window: the least time after which a lost segment without others behind it is sent again)
-- threshold: confident_again = 100 (segments)
-- evaluable when: not exists (from syscall_sum) | the trace has sums of calls instead of every call and sleep, at least from some moment on
-- silent unless: (select count(*) from tcp_retransmit where file_id > 0) >= getvariable('program_again_min')
-- wrong when: the thread slept for another reason, as one does that serves many connections and had nothing to do
with slept as (  -- a sleep once, however many segments were sent again in it
  select distinct comm, remote_addr, thread_id, slept_from, sleep_ns, nr from retransmit where slept_from is not null
),
usual as (
  select o.thread_id, o.nr, median(o.sleep_ns) as usual_ns
  from off_cpu o anti join slept s on s.thread_id = o.thread_id and s.slept_from = o.ts - o.duration_ns
  where o.state <> 0 and o.thread_id in (select thread_id from slept) group by all
),
waited as (
  select comm, remote_addr, count(*) as sleeps, sum(greatest(sleep_ns - coalesce(usual_ns, 0), 0)) / 1e9 as seconds
  from slept left join usual using (thread_id, nr) group by all
),
again as (
  select comm, remote_addr, count(*) as segments, sum(bytes)::bigint as bytes, count(distinct file_id) as connections,
         count(distinct pid) as processes, count(distinct thread_id) as threads, any_value(pid) as pid,
         count(*) filter (state = 'SYN_SENT') as opening, min(ts) as ts_from, max(ts) as ts_to
  from retransmit group by all
)
select 'PROGRAM-RETRANSMITS' as id, severity_of(seconds / (threads * w.window_s), seconds, w.window_s) as severity,
       case when segments >= getvariable('confident_again') then 'high' else 'medium' end as confidence,
       format('{} to {}', f.comm, f.remote_addr) as subject,
       format('{} segments of {} to {} were retransmitted on {} connection{}: its threads slept {:.3f} s longer than usual in {} sleeps{}',
              segments, program(f.comm, processes, pid), f.remote_addr, connections, case when connections = 1 then '' else 's' end, seconds, sleeps,
              case when opening > 0 then format('; {} of them were to open a connection', opening) else '' end) as statement,
       seconds as cost_s, null::double as share_of_db_time, segments as samples, f.ts_from, f.ts_to,
       to_json([{remote_addr: f.remote_addr, segments: segments, bytes: bytes, connections: connections, opening: opening, sleeps: sleeps,
                 seconds: round(seconds, 6), processes: processes, threads: threads}]) as evidence
from again f join waited using (comm, remote_addr) cross join capture w
where segments >= getvariable('program_again_min') and seconds >= getvariable('program_again_min_s')
order by cost_s desc, subject
