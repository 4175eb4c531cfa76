-- id: PROCESS-CHURN
-- title: Something starts processes all the time
-- question: How many processes start and end in a second, who starts them, and what do they use?
-- domain: host
-- needs: host_stat
-- unit: processes that ended, per second
-- cost: CPU
-- threshold: churn_per_s = 50 (at some 1 ms of CPU each, to start and to end, that is 5 % of a CPU)
-- threshold: churn_cpu_high = 0.2 (CPUs used by processes that ended in the window: a fifth of a CPU)
-- threshold: churn_min = 200 (processes in the window: less is a burst)
-- threshold: confident_readings = 10 (intervals)
-- threshold: named_processes = 3 (names told in the sentence; the evidence has more)
-- evaluable when: (select count(distinct ts) from host_stat where metric = 'stat.processes') >= 3 | fewer than three readings of the kernel's count of tasks
-- silent unless: (select sum(processes) from process_exit) >= getvariable('churn_min') or (not exists (from process_exit) and (select max(value) - min(value) from host_stat where metric = 'stat.processes') >= getvariable('churn_min'))
-- wrong when: the host is there to start processes (a build machine, a host of CGI or shell scripts)
with span as (
  select sum(grown) as tasks, min(ts - dt_ns) as ts_from, max(ts) as ts_to, (max(ts) - min(ts - dt_ns)) / 1e9 as span_s, count(*) as readings
  from host_rate where metric = 'stat.processes'
),
parent as (  -- one that starts enough alone stands for itself; the others of its name are told together
  select parent_comm, ppid, sum(processes) >= greatest(getvariable('churn_min'), getvariable('churn_per_s') * any_value(span_s)) as alone
  from process_exit cross join span group by parent_comm, ppid
),
kind as (
  select parent_comm, case when alone then ppid end as alone_pid, any_value(ppid) as ppid, count(distinct ppid) as parents, comm, sum(processes) as processes, sum(unseen) as unseen,
         sum(cpu_run_ns) / 1e9 as cpu_s, sum(lifetime_ns) / 1e6 / sum(processes) as lifetime_ms
  from process_exit join parent using (parent_comm, ppid) group by parent_comm, alone_pid, comm
),
by_parent as (
  select parent_comm, alone_pid, any_value(ppid) as ppid, max(parents) as parents, count(*) over (partition by parent_comm) as rows_of_name, sum(processes) as processes, sum(unseen) as unseen, sum(cpu_s) as cpu_s,
         sum(lifetime_ms * processes) / sum(processes) as lifetime_ms,
         string_agg(format('{} {}', coalesce(nullif(comm, ''), '?'), processes::bigint), ', ' order by processes desc, comm) as children,
         to_json(list({command: comm, parent: parent_comm, processes: processes::bigint, unseen: unseen::bigint, cpu_s: round(cpu_s, 3), lifetime_ms: round(lifetime_ms, 2)}
                      order by processes desc, comm)[:20]) as evidence
  from kind group by parent_comm, alone_pid
),
found as (
  select 'short processes of ' || coalesce(nullif(parent_comm, ''), 'unknown parents')
         || case when rows_of_name = 1 then '' when alone_pid is null then ' (others)' else format(' (pid {})', alone_pid) end as subject, cpu_s,
         format('{}{} started {} processes that ended ({:.0f} a second), {} of them between two readings; {:.1f} s of CPU, {:.1f} ms of life each: {}',
                coalesce(nullif(parent_comm, ''), 'Unknown parents'),
                case when parent_comm = '' then '' when parents = 1 then format(' (pid {})', ppid) else format(' ({} processes of this name)', parents) end,
                processes::bigint, processes / span_s, unseen::bigint, cpu_s, lifetime_ms,
                array_to_string(string_split(children, ', ')[:getvariable('named_processes')::int], ', ')) as statement,
         processes, evidence, true as is_named
  from by_parent cross join span
  union all  -- without the kernel's word of each end: tasks are counted, and so are threads
  select 'short processes', null, format('{} tasks (processes and threads) were started ({:.0f} a second); who started them could not be read', tasks::bigint, tasks / span_s),
         tasks, '[]'::json, false
  from span where not exists (from process_exit)
)
select 'PROCESS-CHURN' as id, case when cpu_s >= getvariable('churn_cpu_high') * span_s then 'high' when is_named then 'medium' else 'low' end as severity,
       case when readings >= getvariable('confident_readings') then 'high' else 'medium' end as confidence, subject, statement,
       cpu_s as cost_s, null::double as share_of_db_time, processes::bigint as samples, ts_from, ts_to, evidence
from found cross join span
where processes >= greatest(getvariable('churn_min'), getvariable('churn_per_s') * span_s)
order by subject
