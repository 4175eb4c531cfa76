-- id: MEMORY-RECLAIM
-- title: Threads free memory before they get some
-- question: Which programs had to reclaim or compact memory themselves, and for how long did it stop them?
-- domain: kernel
-- needs: kernel_work_sum
-- unit: seconds asleep or on a CPU in the reclaim of memory
-- cost: wall time
-- threshold: reclaim_min_s = 0.2 (seconds in the window, of all threads of a program: less is a moment)
-- threshold: confident_reclaims = 50 (samples and sleeps)
-- silent unless: exists (from kernel_work_sum where work = 'reclaim')
-- wrong when: a control group is meant to hold the program to its memory limit
select 'MEMORY-RECLAIM' as id, severity_of((cpu_s + sleep_s) / (threads * w.window_s), cpu_s + sleep_s, w.window_s) as severity,
       case when samples >= getvariable('confident_reclaims') then 'high' else 'medium' end as confidence,
       f.comm as subject,
       format('{} freed memory for {:.2f} s before it got some: {:.2f} s on a CPU and {:.2f} s asleep, mostly in {}',
              program(f.comm, processes, pid), cpu_s + sleep_s, cpu_s, sleep_s, place) as statement,
       cpu_s + sleep_s as cost_s, null::double as share_of_db_time, samples, f.ts_from, f.ts_to,
       to_json([{cpu_s: round(cpu_s, 6), sleep_s: round(sleep_s, 6), place: place, processes: processes, threads: threads}]) as evidence
from kernel_work_sum f cross join capture w
where work = 'reclaim' and cpu_s + sleep_s >= getvariable('reclaim_min_s')
order by cost_s desc, subject
