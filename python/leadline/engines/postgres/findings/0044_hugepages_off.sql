-- id: HUGEPAGES-OFF
-- title: Large shared buffers without huge pages
-- question: Are the shared buffers large and mapped with small pages, so that page tables cost memory and time?
-- domain: postgres
-- needs: setting
-- unit: bytes of shared buffers; bytes of page tables
-- cost: none
-- threshold: shared_buffers_gb = 8 (gigabytes; from this size on, the page tables of a hundred sessions take more than a gigabyte)
-- threshold: page_tables_medium_gb = 4 (gigabytes of page tables; memory that caches and sorts cannot use)
-- evaluable when: exists (from setting where name = 'shared_buffers') | the value of shared_buffers could not be read
-- evaluable when: exists (from setting where name in ('huge_pages_status', 'huge_pages')) or exists (from host_fact where name = 'hugepages.total') | neither huge_pages nor the host's huge pages could be read
-- evaluable when: (select coarse_s is null from capture) | it looks at single passes, and the capture is coarse
-- silent unless: not exists (from setting where name = 'shared_buffers' and unit = '8kB' and try_cast(setting as bigint) * 8 / 1048576 < getvariable('shared_buffers_gb'))
-- wrong when: few sessions touch much of the shared buffers
with given as (
  select max(lower(setting)) filter (where name = 'huge_pages') as huge_pages,
         max(lower(setting)) filter (where name = 'huge_pages_status') as status,
         max(setting) filter (where name = 'shared_buffers') as amount,
         max(unit) filter (where name = 'shared_buffers') as unit,
         block_bytes_of(max(setting) filter (where name = 'block_size')) as block_bytes
  from setting
),
measured as (  -- blocks: 1048576 with unit 8kB from pg_settings (16kB where they are so large), without a unit from the file; or '8GB'
  select *, lower(coalesce(nullif(regexp_extract(amount, '([A-Za-z]+)\s*$', 1), ''), nullif(unit, ''), format('{}B', block_bytes))) as of
  from given
),
shared as (
  select huge_pages, status,
         try_cast(regexp_extract(amount, '^\s*([\d.]+)', 1) as double)
           * coalesce(try_cast(regexp_extract(of, '^(\d+)', 1) as double), 1)
           * case regexp_extract(of, '([a-z]+)$', 1)
               when 'b' then 1 when 'kb' then 1024 when 'mb' then 1048576 when 'gb' then 1073741824
               when 'tb' then 1099511627776 end as shared_bytes
  from measured
),
host as (select max(try_cast(value as bigint)) filter (where name = 'hugepages.total') as reserved from host_fact),
page_table as (select max(value) as table_bytes, count(*) as readings from host_stat where metric = 'meminfo.PageTables_bytes'),
crowd as (
  select max(sessions) as sessions from (select ts, count(*) as sessions from session_sample where backend_type = 'client backend' group by ts)
),
judged as (  -- status is known from 17 on; before, 'try' falls back to small pages when the host has none to give
  select *, case when status in ('on', 'off') then status = 'off'
                 when huge_pages = 'off' then true
                 when huge_pages = 'on' then false
                 else reserved = 0 end as off
  from shared cross join host cross join page_table cross join crowd
)
select 'HUGEPAGES-OFF' as id,
       case when table_bytes >= getvariable('page_tables_medium_gb') * 1073741824 then 'medium' else 'low' end as severity,
       case when status in ('on', 'off') or huge_pages = 'off' then 'high' else 'medium' end as confidence,
       'huge_pages' as subject,
       format('shared_buffers of {:.1f} GB are mapped with small pages (huge_pages {}{}): up to {:.0f} MB of page tables per session{}',
              shared_bytes / 1073741824, coalesce(huge_pages, 'not known'), case when reserved = 0 then ', no huge pages reserved on the host' else '' end,
              shared_bytes / 4096 * 8 / 1048576,
              case when table_bytes is not null then format('; the host used {:.0f} MB for page tables with {} client sessions', table_bytes / 1048576.0, coalesce(sessions, 0))
                   else '' end) as statement,
       null::double as cost_s, null::double as share_of_db_time, greatest(coalesce(readings, 0), 1)::bigint as samples, c.ts_from, c.ts_to,
       to_json([{shared_buffers_bytes: shared_bytes::bigint, huge_pages: huge_pages, huge_pages_status: status, reserved_huge_pages: reserved,
                 page_tables_bytes: table_bytes, client_sessions: sessions}]) as evidence
from judged cross join capture c
where off and shared_bytes >= getvariable('shared_buffers_gb') * 1073741824
order by subject
