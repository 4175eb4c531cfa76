-- id: DURABILITY-OFF
-- title: A crash can destroy the database
-- question: Is fsync or full_page_writes off?
-- domain: postgres
-- needs: setting
-- unit: server setting
-- cost: none
-- evaluable when: exists (from setting where name in ('fsync', 'full_page_writes')) | fsync and full_page_writes could not be read
-- silent unless: exists (from setting where name in ('fsync', 'full_page_writes') and lower(setting) in ('off', 'false', 'no', '0'))
-- wrong when: the data can be thrown away (tests), or the file system never tears a page (ZFS) and only full_page_writes is off
with data_mount as (select max(fstype) as fstype from mount where holds like '%data%')
select 'DURABILITY-OFF' as id,
       case when name = 'fsync' then 'critical' when fstype = 'zfs' then 'low' else 'high' end as severity,
       'high' as confidence, 'setting ' || name as subject,
       case when name = 'fsync' then 'fsync is off: the server does not wait for its data to reach the disk, and a crash of the host can leave a database that cannot be used'
            else format('full_page_writes is off: a page half written at a crash cannot be repaired{}',
                        case when fstype = 'zfs' then '; the data is on ZFS, which writes whole pages' else '' end) end
         || case when pending_restart then ' (another value waits for a restart)' else '' end as statement,
       null::double as cost_s, null::double as share_of_db_time, 1::bigint as samples, c.ts_from, c.ts_to,
       to_json([{name: name, setting: setting, source: source, data_file_system: fstype}]) as evidence
from setting cross join data_mount cross join capture c
where name in ('fsync', 'full_page_writes') and lower(setting) in ('off', 'false', 'no', '0')
order by name
