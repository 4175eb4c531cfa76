-- id: READ-AGAIN
-- title: The same places of a disk are read over and over
-- question: Which disk was asked for the same blocks many times, who asked, and how long did that take?
-- domain: kernel
-- needs: block_io
-- unit: seconds of reads after the first one of a block
-- cost: wall time
-- threshold: read_again_times = 50 (reads of one place in the window; LinuxKI warns from 50 on in 20 s)
-- threshold: read_again_min_s = 0.5 (seconds in the window, of all reads but the first of each place: less is a moment)
-- threshold: confident_read_again = 500 (reads)
-- silent unless: exists (select 1 from block_io where operation = 'read' group by device, sector having count(*) >= getvariable('read_again_times'))
-- wrong when: the program looks at one place on purpose, to see whether another host has changed it
with place as (
  select device, sector, count(*) as reads, sum(queue_ns + service_ns) / 1e9 as seconds, any_value(bytes) as bytes, mode(comm) as comm,
         min(ts) as ts_from, max(ts) as ts_to
  from block_io where operation = 'read' and bytes > 0 group by device, sector
), again as (
  select device, count(*) as places, sum(reads - 1)::bigint as reads, sum(seconds * (reads - 1) / reads) as seconds, mode(comm) as comm,
         max(reads) as most, min(ts_from) as ts_from, max(ts_to) as ts_to
  from place where reads >= getvariable('read_again_times') group by device
)
select 'READ-AGAIN' as id, severity_of(seconds / w.window_s, seconds, w.window_s) as severity,
       case when reads >= getvariable('confident_read_again') then 'high' else 'medium' end as confidence,
       device as subject,
       format('{} places of {} were read {} times again, one of them {} times in all: {:.2f} s for what had been read before; most of them by {}',
              places, device, reads, most, seconds, comm) as statement,
       seconds as cost_s, null::double as share_of_db_time, reads as samples, f.ts_from, f.ts_to,
       to_json((select list({sector: sector, bytes: bytes, reads: reads, seconds: round(seconds, 6), command: comm} order by reads desc, sector)[:20]
                from place p where p.device = f.device and reads >= getvariable('read_again_times'))) as evidence
from again f cross join capture w
where seconds >= getvariable('read_again_min_s')
order by cost_s desc, subject
