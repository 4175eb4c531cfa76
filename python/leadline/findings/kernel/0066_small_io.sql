-- id: SMALL-IO
-- title: A file is read or written in very small pieces
-- question: Which programs read or write a file by a few bytes at a time, how often, and how long does it take?
-- domain: kernel
-- needs: call, open_file
-- unit: reads or writes a second; seconds in them
-- cost: wall time
-- threshold: small_bytes = 1024 (bytes of a call on average: a quarter of a memory page)
-- threshold: small_per_s = 500 (calls a second for one file)
-- threshold: small_min = 5000 (calls in the window: less is a file that is read once)
-- threshold: confident_small = 20000 (calls)
-- evaluable when: not exists (from syscall_sum) | the trace has sums of calls instead of every call and sleep, at least from some moment on
-- silent unless: exists (from open_file where kind = 'file')
-- wrong when: each piece has to be on disk, or be seen by others, before the next one
with moved as (  -- names are looked up for few groups, not for each call
  select thread_id, nr, file_id, count(*) as calls, sum(ret) as bytes, sum(duration_ns) as duration_ns, min(ts - duration_ns) as ts_from, max(ts) as ts
  from syscall where file_id > 0 and ret > 0 and partial = 0 group by all
), part as (
  select coalesce(t.comm, '?') as comm, f.name as file, is_read_call(n.call) as reads, sum(calls)::bigint as calls, sum(bytes) as bytes,
         sum(duration_ns) / 1e9 as seconds, count(distinct t.pid) as processes, count(distinct m.thread_id) as threads, any_value(t.pid) as pid,
         arg_max(n.call, calls) as call, min(m.ts_from) as ts_from, max(m.ts) as ts_to
  from moved m join call_name n using (nr) join file_name f using (file_id) left join thread_name t using (thread_id)
  where f.kind = 'file' and (is_read_call(n.call) or is_write_call(n.call)) and not is_kernel_file(f.name)
  group by 1, 2, 3
)
select 'SMALL-IO' as id, severity_of(seconds / (threads * w.window_s), seconds, w.window_s) as severity,
       case when calls >= getvariable('confident_small') then 'high' else 'medium' end as confidence,
       format('{} of {}', file, f.comm) as subject,
       format('{} {} {} {} times ({:.0f} a second) with {:.0f} bytes each: {:.3f} s in {}, {:.1f} us for each call',
              program(f.comm, processes, pid), case when reads then 'read' else 'wrote' end, file, calls, calls / w.window_s, bytes / calls,
              seconds, call, seconds / calls * 1e6) as statement,
       seconds as cost_s, null::double as share_of_db_time, calls as samples, f.ts_from, f.ts_to,
       to_json([{file: file, call: call, calls: calls, bytes: bytes::bigint, seconds: round(seconds, 6), processes: processes}]) as evidence
from part f cross join capture w
where calls >= greatest(getvariable('small_min'), getvariable('small_per_s') * w.window_s) and bytes / calls <= getvariable('small_bytes')
order by cost_s desc, subject
