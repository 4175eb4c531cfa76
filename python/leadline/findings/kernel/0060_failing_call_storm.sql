-- id: FAILING-CALL-STORM
-- title: A system call fails over and over, always in the same way
-- question: Which call fails again and again with the same arguments and the same error, in which programs, and how long does it take them?
-- domain: kernel
-- needs: call
-- unit: failed calls per second; seconds in them
-- cost: wall time
-- threshold: storm_per_s = 50 (failed calls a second; LinuxKI warns of SAP workers from 50 failed semget calls of a process in its 20 s)
-- threshold: storm_min = 500 (failed calls in the window: less is a start of a program)
-- threshold: waiting_part = 0.5 (of their time asleep or in the run queue: they fail slowly, and disturb each other)
-- threshold: confident_calls = 5000 (failed calls)
-- silent unless: exists (from syscall where ret between -4095 and -1) or exists (from syscall_sum where errno is not null)
-- wrong when: the program polls on purpose, and the error is its way to see that nothing has changed
with single as (  -- names are looked up for few groups, not for each call
  select thread_id, nr, errno_of(nr, ret) as errno, plain_argument(arg0) as arg0, plain_argument(arg1) as arg1, count(*) as calls,
         sum(duration_ns) as duration_ns, sum(sleep_ns) as sleep_ns, sum(runq_ns) as runq_ns, max(duration_ns) as max_ns,
         min(ts - duration_ns) as ts_from, max(ts) as ts, false as summed
  from syscall where ret between -4095 and -1 and errno_of(nr, ret) is not null and partial = 0 group by all
), call_or_sum as (  -- of calls that the kernel summed, the arguments are not known
  from single
  union all by name
  select thread_id, nr, errno, null as arg0, null as arg1, calls, duration_ns, sleep_ns, runq_ns, max_ns, ts_from, ts, summed
  from call_sum where error is not null and summed
),
failed as (
  select coalesce(t.comm, '?') as comm, n.call, c.nr, coalesce(e.name, 'errno ' || c.errno) as error, c.errno, arg0, arg1, summed,
         sum(calls)::bigint as calls, count(distinct pid) as processes, count(distinct thread_id) as threads, sum(duration_ns) / 1e9 as seconds,
         sum(sleep_ns + runq_ns) / 1e9 as waited_s, max(max_ns) / 1e6 as max_ms, min(c.ts_from) as ts_from, max(ts) as ts_to, any_value(pid) as pid
  from call_or_sum c join call_name n using (nr) left join thread_name t using (thread_id) left join errno_name e on e.errno = c.errno
  where error not in ('EAGAIN', 'EINTR', 'ETIMEDOUT', 'EINPROGRESS', 'EALREADY')  -- how calls that do not wait, or wait for so long, say so
  group by all
),
slept as (
  select c.comm, c.call, arg_max(k.wait_function, k.sleep_ns) as wait_function
  from (select distinct comm, call, nr from call_sum) c
  join (select n.comm, o.nr, s.wait_function, sum(o.sleep_ns) as sleep_ns
        from off_cpu o join thread_name n using (thread_id) join kernel_stack s using (stack_id) group by all) k on k.comm = c.comm and k.nr = c.nr
  group by c.comm, c.call
), caller as (
  select comm, nr, errno, arg_max(frames, samples) as frames, arg_max(lines, samples) as lines, max(samples) as samples,
         sum(samples)::bigint as of_samples
  from (select n.comm, s.nr, s.errno, u.frames, min(u.lines) as lines, count(*) as samples
        from stack_sample s join thread_name n using (thread_id) join user_frames u using (user_stack_id)
        where s.kind = 'failed' group by n.comm, s.nr, s.errno, u.frames)
  group by comm, nr, errno
)
select 'FAILING-CALL-STORM' as id, severity_of(seconds / (threads * w.window_s), seconds, w.window_s) as severity,
       case when calls >= getvariable('confident_calls') then 'high' else 'medium' end as confidence,
       format('{} of {}', call, f.comm) as subject,
       format('{} of {} failed {} times with {} ({:.0f} a second){}: {:.3f} s in all, {:.1f} us each{}',
              call, program(f.comm, processes, pid),
              calls, error, calls / w.window_s, 
              case when summed then '' else format(', always with the arguments {}, {}', coalesce(printf('0x%x', arg0), 'an address'),
                                                   coalesce(printf('0x%x', arg1), 'an address')) end, seconds, seconds / calls * 1e6,
              case when waited_s >= getvariable('waiting_part') * seconds
                   then format(', {:.3f} s of it waiting{}', waited_s, coalesce(' in ' || s.wait_function, '')) else '' end)
       || coalesce(format('. Called from {}', array_to_string(list_transform(list_zip(c.frames[:5], c.lines[:5]), f -> placed_function(f[1], f[2])), ' < ')), '')
       as statement,
       seconds as cost_s, null::double as share_of_db_time, calls as samples, f.ts_from, f.ts_to,
       to_json([{call: call, error: error, arg0: printf('0x%x', arg0), arg1: printf('0x%x', arg1), calls: calls, per_second: round(calls / w.window_s, 1),
                 processes: processes, threads: threads, seconds: round(seconds, 6), waited_s: round(waited_s, 6), max_ms: round(max_ms, 3),
                 stack: c.frames, lines: c.lines, stack_samples: c.samples, of_stack_samples: c.of_samples}]) as evidence
from failed f left join slept s using (comm, call) left join caller c on (c.comm, c.nr, c.errno) = (f.comm, f.nr, f.errno) cross join capture w
where calls >= greatest(getvariable('storm_min'), getvariable('storm_per_s') * w.window_s)
order by subject
