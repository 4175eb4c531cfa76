-- id: NUMA-MIGRATION
-- title: The kernel moves pages between NUMA nodes in the time of a program
-- question: Which programs wait while the kernel samples and moves their pages between NUMA nodes?
-- domain: kernel
-- needs: kernel_work_sum
-- unit: seconds asleep or on a CPU in NUMA balancing
-- cost: wall time
-- threshold: numa_min_s = 0.2 (seconds in the window, of all threads of a program: less is a moment)
-- threshold: confident_numa = 50 (samples and sleeps)
-- silent unless: exists (from kernel_work_sum where work = 'NUMA')
-- wrong when: threads have just moved to another node for good, and their pages follow
select 'NUMA-MIGRATION' as id, severity_of((cpu_s + sleep_s) / (threads * w.window_s), cpu_s + sleep_s, w.window_s) as severity,
       case when samples >= getvariable('confident_numa') then 'high' else 'medium' end as confidence,
       f.comm as subject,
       format('The kernel moved pages between NUMA nodes for {:.2f} s in the time of {}: {:.2f} s on a CPU and {:.2f} s asleep, mostly in {}',
              cpu_s + sleep_s, program(f.comm, processes, pid), cpu_s, sleep_s, place) as statement,
       cpu_s + sleep_s as cost_s, null::double as share_of_db_time, samples, f.ts_from, f.ts_to,
       to_json([{cpu_s: round(cpu_s, 6), sleep_s: round(sleep_s, 6), place: place, processes: processes, threads: threads}]) as evidence
from kernel_work_sum f cross join capture w
where work = 'NUMA' and cpu_s + sleep_s >= getvariable('numa_min_s')
order by cost_s desc, subject
