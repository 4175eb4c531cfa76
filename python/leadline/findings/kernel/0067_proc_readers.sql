-- id: PROC-READERS
-- title: Programs read /proc and /sys over and over
-- question: Which programs open and read files of /proc and /sys again and again, and what does it cost?
-- domain: kernel
-- needs: call, open_file
-- unit: calls a second; seconds in them
-- cost: CPU
-- threshold: proc_per_s = 500 (calls a second of a program on such files: a monitor that looks once a second at 100 processes)
-- threshold: proc_min_s = 0.2 (seconds in them in the window: less disturbs nobody)
-- threshold: named_files = 3 (files told in the sentence; the evidence has more)
-- evaluable when: not exists (from syscall_sum) | the trace has sums of calls instead of every call and sleep, at least from some moment on
-- silent unless: exists (from open_file where is_kernel_file(name))
-- wrong when: the program is a monitor that somebody needs at this rate
with part as (
  select comm, regexp_replace(file, '/[0-9]+', '/PID', 'g') as file, count(*) as calls, sum(duration_ns) / 1e9 as seconds
  from call where is_kernel_file(file) group by all
),
total as (
  select comm, count(*) as calls, sum(duration_ns) / 1e9 as seconds, count(distinct pid) as processes, count(distinct thread_id) as threads,
         any_value(pid) as pid, min(ts_from) as ts_from, max(ts) as ts_to
  from call where is_kernel_file(file) group by comm
)
select 'PROC-READERS' as id, severity_of(seconds / (threads * w.window_s), seconds, w.window_s) as severity, 'high' as confidence,
       f.comm as subject,
       format('{} made {} calls ({:.0f} a second) on files of /proc and /sys: {:.3f} s in them; most of it for {}',
              program(f.comm, processes, pid), calls, calls / w.window_s, seconds,
              (select string_agg(format('{} {:.3f} s', p.file, p.seconds), ', ' order by p.seconds desc, p.file)
               from (select * from part p where p.comm = f.comm order by p.seconds desc, p.file limit getvariable('named_files')::int) p)) as statement,
       seconds as cost_s, null::double as share_of_db_time, calls as samples, f.ts_from, f.ts_to,
       to_json((select list({file: p.file, calls: p.calls, seconds: round(p.seconds, 6)} order by p.seconds desc, p.file)[:20]
                from part p where p.comm = f.comm)) as evidence
from total f cross join capture w
where calls >= getvariable('proc_per_s') * w.window_s and seconds >= getvariable('proc_min_s')
order by cost_s desc, subject
