-- id: SLOT-LOST
-- title: A replication slot was invalidated, and its reader cannot go on
-- question: Which replication slots has the server given up, why, and was it in the capture?
-- domain: postgres
-- needs: server_stat
-- unit: slots that were invalidated (no cost in time of their own)
-- cost: none
-- silent unless: exists (from server_stat where view = 'pg_replication_slots' and metric = 'is_lost' and value = 1)
-- wrong when: the slot has been replaced, and only waits to be dropped
with slot as (
  select object as slot, coalesce(max(before) filter (metric = 'is_lost') = 0, false) as is_new,
         coalesce(max(after) filter (metric = 'is_logical') = 1, false) as is_logical, coalesce(max(after) filter (metric = 'in_recovery') = 1, false) as on_standby,
         coalesce(max(after) filter (metric = 'is_copy') = 1, false) as is_copy,
         case when max(after) filter (metric = 'is_conflict') = 1 then 'conflict' when max(after) filter (metric = 'is_idle') = 1 then 'idle' else 'wal' end as reason
  from server_stat_delta where view = 'pg_replication_slots' group by object having max(after) filter (metric = 'is_lost') = 1
),
kept as (select max(setting || case when unit is null or setting = '-1' then '' else ' ' || unit end) as setting from setting where name = 'max_slot_wal_keep_size')
select 'SLOT-LOST' as id, case when is_new then 'high' else 'medium' end as severity, 'high' as confidence, 'replication slot ' || slot as subject,
       format('{} slot {}{} {}{}: nobody can read from it again', if(is_logical, 'Logical', 'Physical'), slot, if(on_standby, ' of this standby', ''),
              case reason when 'wal' then 'lost WAL that its reader still needed' || coalesce(' (max_slot_wal_keep_size is ' || k.setting || ')', '')
                          when 'idle' then 'was invalidated, because nobody read it for idle_replication_slot_timeout'
                          else 'was invalidated by the WAL that was replayed: rows of the catalog that it needed were removed, or wal_level became too low' end,
              if(is_new, ', in this capture', '')) as statement,
       null::double as cost_s, null::double as share_of_db_time, 1::bigint as samples, c.ts_from, c.ts_to,
       to_json([{slot: slot, reason: reason, is_logical: is_logical, is_new: is_new}]) as evidence,
       to_json({slot: case when not is_copy then pg_literal(slot) end, is_copy: is_copy, is_physical: not is_logical, is_logical: is_logical,
                is_wal: reason = 'wal', is_conflict: reason = 'conflict', is_idle: reason = 'idle'}) as facts
from slot cross join kept k cross join (select ts_from, ts_to from capture) c
order by is_new desc, subject
