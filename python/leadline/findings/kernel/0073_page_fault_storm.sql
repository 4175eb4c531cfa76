-- id: PAGE-FAULT-STORM
-- title: A program spends much of its time on page faults
-- question: Which programs spend much of their CPU time on page faults, and how many faults are there?
-- domain: kernel
-- needs: kernel_work_sum, thread_time
-- unit: seconds asleep or on a CPU in page faults
-- cost: wall time
-- threshold: faults_min_s = 0.2 (seconds in the window, of all threads of a program: less is a moment)
-- threshold: confident_faults = 50 (samples and sleeps)
-- threshold: faults_share = 0.05 (of the CPU time of the program: a twentieth)
-- threshold: faults_per_s = 1000 (a second: fewer that take long are disks, or reclaim)
-- silent unless: exists (from kernel_work_sum where work = 'page faults')
-- wrong when: the program starts, or reads a file by mmap for the first time
with faults as (
  select n.comm, sum(t.minor_faults)::bigint as minor, sum(t.major_faults)::bigint as major, sum(t.user_ns + t.system_ns) / 1e9 as ran_s
  from thread_time t join thread_name n using (thread_id) group by n.comm
)
select 'PAGE-FAULT-STORM' as id, severity_of((cpu_s + sleep_s) / (threads * w.window_s), cpu_s + sleep_s, w.window_s) as severity,
       case when samples >= getvariable('confident_faults') then 'high' else 'medium' end as confidence,
       f.comm as subject,
       format('{} had {} page faults ({:.0f} a second, {} read from disk): {:.2f} s of its {:.2f} s on a CPU, and {:.2f} s asleep',
              program(f.comm, processes, pid), minor + major, (minor + major) / w.window_s, major, cpu_s, ran_s, sleep_s) as statement,
       cpu_s + sleep_s as cost_s, null::double as share_of_db_time, samples, f.ts_from, f.ts_to,
       to_json([{cpu_s: round(cpu_s, 6), sleep_s: round(sleep_s, 6), place: place, processes: processes, threads: threads, minor_faults: minor, major_faults: major}]) as evidence
from kernel_work_sum f cross join capture w join faults using (comm)
where work = 'page faults' and cpu_s + sleep_s >= getvariable('faults_min_s')
  and cpu_s + sleep_s >= getvariable('faults_share') * ran_s and minor + major >= getvariable('faults_per_s') * w.window_s
order by cost_s desc, subject
