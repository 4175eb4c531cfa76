-- id: ORPHANED-LARGE-OBJECTS
-- title: Large objects that no row names any more fill the disk
-- question: How many large objects of the connected database does no column name, and about how much room do they take?
-- domain: postgres
-- needs: server_stat
-- unit: bytes of these objects (an estimate; no cost in time of its own)
-- cost: none
-- threshold: orphans_low = 100 (objects: fewer are worth knowing, and no trouble)
-- threshold: orphans_medium_bytes = 1000000000 (bytes: each backup carries 1 GB of what nobody reads)
-- evaluable when: exists (from server_stat where view = 'pg_largeobject_metadata' and metric = 'orphans') | large objects were not compared with the columns that name them; a note of the capture says why
-- silent unless: exists (from server_stat where view = 'pg_largeobject_metadata' and metric = 'orphans' and value > 0)
-- wrong when: numbers of objects are kept outside of this database, or in a column that is neither oid, text nor a number
with counted as (
  select object as datname, max(value) filter (metric = 'objects') as objects, max(value) filter (metric = 'orphans') as orphans, max(value) filter (metric = 'orphan_bytes') as orphan_bytes
  from server_stat where view = 'pg_largeobject_metadata' and metric in ('objects', 'orphans', 'orphan_bytes') group by object
),
named as (
  select split_part(object, '/', 1) as datname, split_part(object, '/', 2) || '.' || split_part(object, '/', 3) as name, metric = 'named_as_oid' as is_oid,
         case when metric in ('named_as_oid', 'named_as_domain') then format('NOT EXISTS (SELECT FROM {} t WHERE t.{} = m.oid)', split_part(object, '/', 2), split_part(object, '/', 3))
              when metric = 'named_as_array' then format('NOT EXISTS (SELECT FROM {} t WHERE m.oid = ANY (t.{}))', split_part(object, '/', 2), split_part(object, '/', 3))
              else format('NOT EXISTS (SELECT FROM {} t WHERE t.{}::text = m.oid::text)', split_part(object, '/', 2), split_part(object, '/', 3)) end as condition
  from server_stat where view = 'pg_largeobject_metadata' and starts_with(metric, 'named_as_')
),
by_name as (
  select datname, string_agg(condition, ' AND ' order by name) as conditions, string_agg(name, ', ' order by name) as columns, string_agg(name, ', ' order by name) filter (not is_oid) as others
  from named group by datname
),
first as (
  select split_part(object, '/', 1) as datname, list(value::bigint order by value) as oids from server_stat where view = 'pg_largeobject_metadata' and metric = 'orphan' group by 1
)
select 'ORPHANED-LARGE-OBJECTS' as id,
       case when orphan_bytes >= getvariable('orphans_medium_bytes') then 'medium' when orphans >= getvariable('orphans_low') then 'low' else 'info' end as severity,
       'high' as confidence, 'large objects of database ' || c.datname as subject,
       format('no column names {:.0f} of the {:.0f} large objects of database {}; they take about {:.1f} MB. Columns that name objects: {}', orphans, objects, c.datname, coalesce(orphan_bytes, 0) / 1048576.0,
              coalesce(n.columns, 'none')) as statement,
       null::double as cost_s, null::double as share_of_db_time, 1::bigint as samples, p.ts_from, p.ts_to,
       to_json([{database: c.datname, objects: objects::bigint, orphans: orphans::bigint, orphan_bytes_estimate: orphan_bytes::bigint, first_orphans: f.oids, named_by: n.columns}]) as evidence,
       to_json({database: c.datname, condition: coalesce(n.conditions, 'true'), others: n.others}) as facts
from counted c left join by_name n using (datname) left join first f using (datname) cross join capture p
where orphans > 0
order by subject
