-- id: KERNEL-SPIN
-- title: Threads spin for a lock of the kernel
-- question: Which programs use CPU time to wait for spin locks of the kernel, in which calls, and in which part of the kernel?
-- domain: kernel
-- needs: stack_sample, kernel_stack, thread_time
-- unit: CPU seconds spent waiting for spin locks
-- cost: CPU
-- threshold: spin_min_s = 0.2 (CPU seconds in the window, of all threads of a program in one place: less is a moment)
-- threshold: spin_share = 0.05 (of the CPU time of the program; LinuxKI warns from 1 to 2 % of all samples in single functions)
-- threshold: confident_spins = 50 (samples)
-- silent unless: exists (from kernel_stack where list_bool_or(list_transform(functions, f -> is_kernel_spin(f))))
-- wrong when: the host is a virtual machine whose hypervisor stops a CPU that holds a lock: see CPU-STEAL
with spin as (
  select stack_id, list_filter(functions, f -> not is_kernel_spin(f) and not is_kernel_lock(f) and not regexp_matches(f, '^_raw_'))[1] as place
  from kernel_stack where list_bool_or(list_transform(functions, f -> is_kernel_spin(f)))
), spun as (
  select n.comm, coalesce(c.name, 'page faults') as call, coalesce(p.place, 'a place that is not known') as place, count(*) as samples,
         sum(s.weight) / 1e9 as seconds, count(distinct n.pid) as processes, count(distinct n.thread_id) as threads, any_value(n.pid) as pid,
         min(s.ts) as ts_from, max(s.ts) as ts_to
  from stack_sample s join spin p using (stack_id) join thread_name n using (thread_id) left join syscall_name c using (nr)
  where s.kind = 'on_cpu' group by n.comm, call, p.place
), ran as (
  select n.comm, sum(t.user_ns + t.system_ns) / 1e9 as ran_s from thread_time t join thread_name n using (thread_id) group by n.comm
)
select 'KERNEL-SPIN' as id, severity_of(seconds / (threads * w.window_s), seconds, w.window_s) as severity,
       case when samples >= getvariable('confident_spins') then 'high' else 'medium' end as confidence,
       format('{} of {} in {}', call, f.comm, place) as subject,
       format('{} spun for {:.2f} s of its {:.2f} s on a CPU for a lock of the kernel that {} takes, in {}', program(f.comm, processes, pid), seconds,
              ran_s, place, call) as statement,
       seconds as cost_s, null::double as share_of_db_time, samples, f.ts_from, f.ts_to,
       to_json([{call: call, place: place, seconds: round(seconds, 6), cpu_s: round(ran_s, 6), processes: processes, threads: threads}]) as evidence
from spun f join ran using (comm) cross join capture w
where seconds >= getvariable('spin_min_s') and seconds >= getvariable('spin_share') * ran_s
order by cost_s desc, subject
