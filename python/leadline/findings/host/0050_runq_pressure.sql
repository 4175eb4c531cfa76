-- id: RUNQ-PRESSURE
-- title: Processes wait for a CPU
-- question: How long were processes ready to run without a CPU, and which processes used the CPUs meanwhile?
-- domain: host
-- needs: process_delta
-- unit: processes waiting for a CPU at any time, per CPU
-- cost: CPU
-- threshold: waiting_per_cpu = 0.5 (half a process waits at each CPU at any time: what runs takes about half as long again)
-- threshold: waiting_per_cpu_high = 2 (two processes wait at each CPU: what runs takes three times as long)
-- threshold: waiting_min_s = 2 (seconds waited by all processes in the window: less is a burst)
-- threshold: confident_readings = 10 (readings of the processes: with fewer a single burst makes the figure)
-- threshold: named_processes = 3 (names told in the sentence; the evidence has more)
-- evaluable when: exists (from process_delta where cpu_queue_ns is not null) or exists (from process_exit where cpu_queue_ns is not null) | the kernel's run-queue times could not be read
-- wrong when: the waiting processes are a batch that runs at low priority on purpose, and nobody waits for it
with cpus as (
  select coalesce((select max(try_cast(value as double)) from host_fact where name = 'cpu.count'), max(cpu_count)) as cpus,
         any_value(ts_from) as ts_from, any_value(ts_to) as ts_to, any_value(window_s) as window_s
  from capture
),
by_name as (
  select comm, count(distinct process_id) + coalesce(sum(processes) filter (where process_id is null), 0) as processes, min(pid) as pid,
         sum(cpu_ns) / 1e9 as cpu_s, coalesce(sum(cpu_queue_ns), 0) / 1e9 as waited_s
  from process_use where not kernel group by comm
),
labelled as (
  select *, program(comm, processes, pid) as who
  from by_name
),
total as (
  select sum(waited_s) as waited_s, sum(cpu_s) as cpu_s,
         (select string_agg(format('{} {:.1f} s', who, cpu_s), ', ' order by cpu_s desc, who)
          from (from labelled order by cpu_s desc, who limit getvariable('named_processes')::int)) as users,
         (select string_agg(format('{} {:.1f} s', who, waited_s), ', ' order by waited_s desc, who)
          from (from labelled order by waited_s desc, who limit getvariable('named_processes')::int)) as waiters,
         to_json(list({command: comm, processes: processes, cpu_s: round(cpu_s, 3), waited_s: round(waited_s, 3)} order by cpu_s + waited_s desc, comm)[:20]) as evidence
  from labelled
),
reading as (select count(distinct ts) as readings from process_delta)
select 'RUNQ-PRESSURE' as id,
       case when waited_s >= getvariable('waiting_per_cpu_high') * cpus * window_s then 'high' else 'medium' end as severity,
       case when readings >= getvariable('confident_readings') then 'high' else 'medium' end as confidence,
       'CPUs of the host' as subject,
       format('Processes waited {:.1f} s for one of {:.0f} CPUs in {:.0f} s, {:.1f} at any time; most CPU: {}; most waiting: {}',
              waited_s, cpus, window_s, waited_s / window_s, users, waiters) as statement,
       waited_s as cost_s, null::double as share_of_db_time, readings as samples, ts_from, ts_to, evidence
from total cross join cpus cross join reading
where waited_s >= greatest(getvariable('waiting_min_s'), getvariable('waiting_per_cpu') * cpus * window_s)
order by subject
