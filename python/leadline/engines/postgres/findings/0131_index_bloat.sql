-- id: INDEX-BLOAT
-- title: An index is many times larger than its entries
-- question: Which large B-tree has far more pages than its entries fill, and how many bytes are that?
-- domain: postgres
-- needs: server_stat, relation
-- unit: bytes of pages that the entries do not need (an estimate; no cost in time of its own)
-- cost: none
-- threshold: bloat_bytes = 100000000 (bytes beyond what the entries need; less is not worth a new index)
-- threshold: bloat_times = 2.5 (times the pages that a new index would have; random inserts leave 1.3 times, and deletes here and there twice)
-- threshold: bloat_medium_bytes = 1000000000 (bytes)
-- threshold: bloat_high_bytes = 10000000000 (bytes)
-- threshold: bloat_max_entry = 2704 (bytes: the longest entry of a B-tree; an estimate above it is wrong)
-- silent unless: exists (from server_stat where view = 'pg_index')
-- wrong when: the table will soon grow again to what it was: new entries with keys in the same range use the room
with number as (
  select object, map_from_entries(list((metric, value))) as n from server_stat where view = 'pg_index' and phase = 'after' group by object
),
about as (select ts_from, ts_to, block_bytes_of((select max(setting) from setting where name = 'block_size')) as block_bytes from capture),
sized as (  -- header of 8 bytes, 16 with a bitmap of nulls, keys, and 4 of the line pointer; to the next 8 bytes
  select split_part(object, '/', 1) as datname, split_part(object, '/', 2)::bigint as relid, n['relpages'] as pages, n['reltuples'] as entries, n['key_bytes'] as key_bytes, n['fillfactor'] as fillfactor,
         4 + 8 * ceil((8 + case when n['nulls'] > 0 then 8 else 0 end + n['key_bytes']) / 8) as entry_bytes, (block_bytes - 40) * n['fillfactor'] / 100 as room, block_bytes, ts_from, ts_to
  from number cross join about where n['columns'] = n['known'] and n['reltuples'] >= 0
),
needed as (  -- leaves, and a page above for as many as fit; equal keys take less from 13 on, so that the estimate is high
  select *, ceil(entries * entry_bytes / room) * (1 + 2 * entry_bytes / room) + 2 as needs from sized where entry_bytes <= getvariable('bloat_max_entry')
),
found as (
  select *, (pages - needs) * block_bytes as lost_bytes from needed where pages >= getvariable('bloat_times') * needs and lost_bytes >= getvariable('bloat_bytes')
),
named as (  -- entries of dead rows are no bloat yet: what vacuum does to them is the matter of others
  select f.*, pg_ident(r.nspname) || '.' || pg_ident(r.relname) as index, pg_ident(t.nspname) || '.' || pg_ident(t.relname) as table_name, s.dead
  from found f join database d using (datname) join relation r on r.datid = d.datid and r.relid = f.relid
  left join relation t on t.datid = d.datid and t.relid = r.table_relid
  left join table_stat s on s.relid = r.table_relid and s.datname = f.datname
  where coalesce(s.dead, 0) <= f.entries + 1 or coalesce(s.dead, 0) * entry_bytes < lost_bytes / 2
)
select 'INDEX-BLOAT' as id,
       case when lost_bytes >= getvariable('bloat_high_bytes') then 'high' when lost_bytes >= getvariable('bloat_medium_bytes') then 'medium' else 'low' end as severity,
       'medium' as confidence, 'index ' || index as subject,
       format('Index {} of table {} has {:.0f} pages ({:.1f} MB); its {:.0f} entries of about {:.0f} bytes would fill {:.0f}: about {:.1f} MB ({:.0f} %) are empty', index, table_name, pages, pages * block_bytes / 1048576.0,
              entries, entry_bytes, needs, lost_bytes / 1048576.0, 100 * lost_bytes / (pages * block_bytes)) as statement,
       null::double as cost_s, null::double as share_of_db_time, 1::bigint as samples, ts_from, ts_to,
       to_json([{index: index, relation: table_name, pages: pages, entries: entries, entry_bytes: entry_bytes, pages_needed: needs, fillfactor: fillfactor, lost_bytes_estimate: lost_bytes::bigint}]) as evidence,
       to_json({index: case when not starts_with(index, 'pg_catalog.') and not starts_with(index, 'pg_toast.') then index end, relation: case when not starts_with(index, 'pg_toast.') then table_name end,
                regclass: pg_literal(index)}) as facts
from named
order by lost_bytes desc, subject
