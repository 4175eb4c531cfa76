-- id: INTERRUPT-STEAL
-- title: Interrupts take much of a program's CPU time
-- question: Which programs lost CPU time to interrupts on their CPUs, and of which kind were they?
-- domain: kernel
-- needs: thread_time, interrupt_sum
-- unit: CPU seconds in interrupts
-- cost: wall time
-- threshold: stolen_share = 0.1 (of the program's time on a CPU: a tenth)
-- threshold: stolen_min_s = 0.2 (seconds in the window, of all threads of a program: less is a moment)
-- threshold: confident_interrupts = 1000 (interrupts of the host)
-- threshold: stolen_kinds = 3 (kinds told in the sentence; the evidence has more)
-- silent unless: exists (from thread_time where interrupt_ns > 0)
-- wrong when: the program itself makes the packets or requests, and they are handled on its CPU before it goes on
with total as (
  select n.comm, count(distinct n.pid) as processes, count(distinct n.thread_id) as threads, any_value(n.pid) as pid,
         sum(t.interrupt_ns) / 1e9 as lost_s, sum(t.user_ns + t.system_ns) / 1e9 as ran_s
  from thread_time t join thread_name n using (thread_id) group by n.comm
),
kind as (
  select kind, sum(count)::bigint as count, sum(time_ns) / 1e9 as seconds from interrupt_sum group by kind
),
host as (select sum(count)::bigint as count from kind)
select 'INTERRUPT-STEAL' as id, severity_of(lost_s / (threads * w.window_s), lost_s, w.window_s) as severity,
       case when h.count >= getvariable('confident_interrupts') then 'high' else 'medium' end as confidence,
       f.comm as subject,
       format('Interrupts took {:.2f} s of the {:.2f} s that {} was on a CPU; on the whole host: {}', lost_s, ran_s,
              program(f.comm, processes, pid),
              (select string_agg(format('{} {:.2f} s', kind, seconds), ', ' order by seconds desc, kind)
               from (from kind order by seconds desc, kind limit getvariable('stolen_kinds')::int))) as statement,
       lost_s as cost_s, null::double as share_of_db_time, h.count as samples, w.ts_from, w.ts_to,
       to_json((select list({kind: kind, interrupts: count, seconds: round(seconds, 6)} order by seconds desc, kind) from kind)) as evidence
from total f cross join host h cross join capture w
where lost_s >= getvariable('stolen_min_s') and lost_s >= getvariable('stolen_share') * ran_s
order by cost_s desc, subject
