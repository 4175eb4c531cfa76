-- id: WALSENDER-READ
-- title: A walsender reads the WAL from files before it sends it
-- question: Which walsenders waited for reads of WAL files, for how much of their working time, and did the reads come from storage?
-- domain: postgres
-- needs: session_sample, session
-- unit: seconds that the walsender waited for reads of WAL files
-- cost: wall time
-- threshold: walread_share = 0.2 (of the samples in which it neither waits for WAL nor for its client; some reads are usual)
-- threshold: walread_s = 1.0 (seconds; reads of the kernel's cache take microseconds)
-- threshold: walread_part = 0.05 (of the time in which it was connected)
-- threshold: walread_samples = 20 (with fewer, the sampling error is large)
-- threshold: walread_storage = 0.5 (of the bytes that it read: then they are rather the storage's than the kernel's cache)
-- threshold: walread_unsent = 100000000 (bytes at the end; to send them takes a second or more: then it is medium)
-- silent unless: exists (from wait_time where backend_type = 'walsender' and replace(lower(wait_event), '_', '') = 'walread')
-- wrong when: a standby has just come back and catches up, and soon no longer needs old WAL
with seen as (  -- a base backup reads no WAL in this way
  select s.session_id, s.ts, s.weight_s, s.pid, s.datid <> 0 as is_logical, coalesce(s.application_name, '') as application_name, coalesce(s.client_addr, '') as client_addr, s.wait_event is not null as waits,
         coalesce(replace(lower(s.wait_event), '_', '') = 'walread', false) as reads, s.wait_class not in ('Activity', 'Client') as works
  from session_sample s where s.backend_type = 'walsender'
),
summed as (
  select session_id, any_value(pid) as pid, any_value(is_logical) as is_logical, arg_max(application_name, ts) as application_name, arg_max(client_addr, ts) as client_addr,
         sum(weight_s) as all_s, coalesce(sum(weight_s) filter (works), 0) as work_s, sum(weight_s) filter (reads) as seen_s, sum(weight_s) filter (waits) as waits_s, sum(weight_s) filter (not waits) as no_wait_s,
         count(*) filter (reads) as samples, min(ts) filter (reads) as ts_from, max(ts) filter (reads) as ts_to
  from seen group by session_id
),
used as (
  select session_id, sum(cpu_run_ns) / 1e9 as run_s, sum(cpu_queue_ns) / 1e9 as queue_s, sum(read_bytes) as storage_bytes, sum(rchar) as read_bytes from session_delta group by session_id
),
sender as (
  select s.*, waited_without_queue(seen_s, waits_s, no_wait_s, u.run_s, u.queue_s) as read_s, u.storage_bytes, u.read_bytes
  from summed s left join used u using (session_id) where seen_s > 0
),
unsent as (  -- as the server itself knows it
  select pid, arg_max(greatest(made_lsn - sent_lsn, 0), ts) as bytes
  from (select l.made_lsn, l.sent_lsn, l.ts, regexp_extract(l.receiver, '\((\d+)\)$', 1)::integer as pid from replication_lag l where l.node = 1 and not l.is_standby and l.sent_lsn is not null) group by pid
),
-- A receiver that connects anew has another walsender.
found as (
  select application_name, client_addr, is_logical, sum(read_s) as read_s, sum(work_s) as work_s, sum(all_s) as all_s, sum(s.samples) as samples, min(ts_from) as ts_from, max(ts_to) as ts_to,
         sum(storage_bytes) as storage_bytes, sum(read_bytes) as read_bytes, arg_max(u.bytes, s.ts_to) as unsent_bytes, arg_max(s.pid, s.ts_to) as pid
  from sender s left join unsent u using (pid) group by all
)
select 'WALSENDER-READ' as id, case when unsent_bytes >= getvariable('walread_unsent') then 'medium' else 'low' end as severity, confidence_of(c.tier, samples) as confidence,
       'walsender of ' || case when application_name = '' then 'a receiver' else application_name end || case when client_addr in ('', 'local') then '' else ' at ' || client_addr end as subject,
       format('The walsender{} of {}{} waited {:.1f} s for reads of WAL files ({:.0f} % of the {:.1f} s in which it had work){}{}', if(is_logical, ', which decodes,', ''),
              case when application_name = '' then 'a receiver' else application_name end, case when client_addr in ('', 'local') then '' else ' at ' || client_addr end, read_s, 100 * read_s / work_s, work_s,
              case when storage_bytes is null or read_bytes is null then ''
                   else format('; it read {:.1f} MB, {:.1f} MB of it from storage', greatest(read_bytes, storage_bytes) / 1048576.0, storage_bytes / 1048576.0) end,
              case when unsent_bytes is null then '' else format('; at the end {:.1f} MB were not sent', unsent_bytes / 1048576.0) end) as statement,
       read_s as cost_s, null::double as share_of_db_time, samples::bigint as samples, f.ts_from, f.ts_to,
       to_json([{pid: pid, application_name: application_name, client_addr: client_addr, is_logical: is_logical, read_s: round(read_s, 3), work_s: round(work_s, 3), read_bytes: read_bytes, storage_bytes: storage_bytes,
                 unsent_bytes: unsent_bytes}]) as evidence,
       to_json({is_logical: is_logical, is_physical: not is_logical, is_storage: storage_bytes > 0 and storage_bytes >= getvariable('walread_storage') * greatest(read_bytes, storage_bytes)}) as facts
from found f cross join (select tier from capture) c
where read_s >= getvariable('walread_share') * work_s and read_s >= getvariable('walread_s') and read_s >= getvariable('walread_part') * all_s and samples >= getvariable('walread_samples')
order by read_s desc, subject
