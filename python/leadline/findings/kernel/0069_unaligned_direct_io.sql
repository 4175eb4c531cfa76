-- id: UNALIGNED-DIRECT-IO
-- title: Direct I/O is not aligned to blocks
-- question: Which files are opened with O_DIRECT and read or written at offsets or with lengths that are not whole blocks?
-- domain: kernel
-- needs: call, open_file
-- unit: unaligned calls; seconds in them
-- cost: wall time
-- threshold: direct_block = 4096 (bytes: the block of nearly every file system and disk of today)
-- threshold: direct_min = 100 (unaligned calls in the window)
-- threshold: confident_direct = 1000 (unaligned calls)
-- evaluable when: not exists (from syscall_sum) | the trace has sums of calls instead of every call and sleep, at least from some moment on
-- silent unless: exists (from open_file where flags & 16384 <> 0)
-- wrong when: the file system has smaller blocks (statx with STATX_DIOALIGN tells)
with direct as (  -- of calls with vectors the lengths are not known: of a write its result is, a read may end with the file
  select c.*, case when c.call in ('pread64', 'pwrite64', 'preadv', 'pwritev', 'preadv2', 'pwritev2') and c.arg3 >= 0 then c.arg3 else 0 end as place,
         coalesce(c.error = 'EINVAL', false) as refused,
         case when c.call in ('read', 'write', 'pread64', 'pwrite64') then c.arg2 when is_write_call(c.call) then greatest(c.ret, 0) end as length
  from call c join file_name f using (file_id)
  where f.flags & 16384 <> 0 and (is_read_call(c.call) or is_write_call(c.call)) and not c.partial
),
handed as (  -- reads and writes that are no calls of their own; of those by io_submit it is not known what became of them
  select ts, thread_id, file_id, bytes, place, result = -22 as refused, duration_ns from io_uring_op where place is not null or bytes is not null
  union all
  select ts, thread_id, file_id, bytes, place, false, 0 from io_submit_op where operation in ('read', 'write', 'readv', 'writev')
),
asked as (
  select comm, file, pid, thread_id, refused, length, place, duration_ns, sleep_ns, ts_from, ts from direct
  union all
  select coalesce(t.comm, '?'), f.name, t.pid, h.thread_id, coalesce(h.refused, false), h.bytes, coalesce(h.place, 0), h.duration_ns, 0, h.ts, h.ts
  from handed h join file_name f using (file_id) left join thread_name t using (thread_id) where f.flags & 16384 <> 0
),
part as (
  select comm, file, count(*) as calls, count(*) filter (refused) as refused, sum(duration_ns) / 1e9 as seconds, sum(sleep_ns) / 1e9 as sleep_s,
         count(distinct pid) as processes, count(distinct thread_id) as threads, any_value(pid) as pid, any_value(length) as length, any_value(place) as place,
         min(ts_from) as ts_from, max(ts) as ts_to
  from asked
  where refused or length % getvariable('direct_block')::bigint <> 0 or place % getvariable('direct_block')::bigint <> 0
  group by comm, file
)
select 'UNALIGNED-DIRECT-IO' as id, severity_of(seconds / (threads * w.window_s), seconds, w.window_s) as severity,
       case when calls >= getvariable('confident_direct') then 'high' else 'medium' end as confidence,
       format('{} of {}', file, f.comm) as subject,
       format('{} made {} reads and writes of {} with O_DIRECT that were not aligned to {:.0f} bytes (one had {} bytes at offset {}){}: {:.3f} s in total',
              program(f.comm, processes, pid), calls, file, getvariable('direct_block'), coalesce(length::varchar, 'some'), place,
              case when refused > 0 then format('; {} were refused with EINVAL', refused) else '' end, seconds) as statement,
       seconds as cost_s, null::double as share_of_db_time, calls as samples, f.ts_from, f.ts_to,
       to_json([{file: file, calls: calls, refused: refused, length: length, place: place, seconds: round(seconds, 6), sleep_s: round(sleep_s, 6)}]) as evidence
from part f cross join capture w
where calls >= getvariable('direct_min')
order by cost_s desc, subject
