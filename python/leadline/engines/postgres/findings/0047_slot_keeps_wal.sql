-- id: SLOT-KEEPS-WAL
-- title: A replication slot keeps WAL from being removed
-- question: Which replication slot keeps the most WAL, is anybody reading it, and how fast does the kept WAL grow?
-- domain: postgres
-- needs: server_stat
-- unit: bytes of WAL kept (no cost in time of its own)
-- cost: none
-- threshold: slot_bytes = 1073741824 (bytes: the default of max_wal_size, which a server keeps without any slot)
-- threshold: slot_high_bytes = 16106127360 (bytes: 15 times the default of max_wal_size; a usual disk for WAL has little more)
-- threshold: slot_days = 1 (days until the slot loses its WAL or the same amount again is kept; within one day somebody has to act)
-- silent unless: exists (from server_stat where view = 'pg_replication_slots' and metric = 'retained_bytes' and value >= getvariable('slot_bytes'))
-- wrong when: the reader catches up after a planned stop, or the slot belongs to a job that reads it now and then
with slot as (
  select object as slot, max(after) filter (metric = 'retained_bytes') as kept, max(delta) filter (metric = 'retained_bytes') as grown,
         max(dt_s) filter (metric = 'retained_bytes') as dt_s, max(after) filter (metric = 'active') = 1 as active,
         coalesce(max(after) filter (metric = 'in_recovery') = 1, false) as on_standby, coalesce(max(after) filter (metric = 'is_copy') = 1, false) as is_copy,
         max(after) filter (metric = 'safe_wal_size') as safe,
         case when not is_copy then max(after) filter (metric = 'inactive_since') end as inactive_since  -- of a copy, when it was last copied
  from server_stat_delta where view = 'pg_replication_slots' group by object
  having coalesce(max(after) filter (metric = 'is_lost'), 0) = 0  -- one that is lost keeps nothing
),
about as (
  select c.ts_from, c.ts_to, (c.ts_to + c.wall_offset_ns) / 1e9 as now_s,
         (select max(try_cast(setting as double)) * 1048576 from setting where name = 'max_wal_size') as max_wal_bytes,  -- shown in MB
         (select max(setting) = '-1' from setting where name = 'max_slot_wal_keep_size') as no_limit
  from capture c
),
kept as (
  select s.*, a.*, not s.active and not s.is_copy as is_unread, s.grown / nullif(s.dt_s, 0) as per_s, a.now_s - s.inactive_since as inactive_s,
         -- below 0 it is the next checkpoint that takes the WAL away
         case when s.safe <= 0 then 0 when s.grown > 0 then s.safe / (s.grown / s.dt_s) end as left_s
  from slot s cross join about a
  where s.kept >= greatest(getvariable('slot_bytes'), coalesce(a.max_wal_bytes, 0))
)
select 'SLOT-KEEPS-WAL' as id,
       case when is_unread and kept >= getvariable('slot_high_bytes') then 'high'
            when left_s < getvariable('slot_days') * 86400 then 'high'
            when is_unread then 'medium' else 'low' end as severity,
       'high' as confidence, 'replication slot ' || slot as subject,
       format('Replication slot {} keeps {:.1f} GB of WAL{}; {}{}{}', slot, kept / 1073741824.0, if(on_standby, ' on this standby', ''),
              case when is_copy then 'it is the copy of a slot of the primary'
                   when active then 'its reader is connected but behind'
                   when inactive_s is not null then format('nobody has read it for {:.1f} hours', inactive_s / 3600) else 'nobody reads it' end,
              case when grown > 0 then format('; it grew by {:.1f} MB in {:.0f} s, which is {:.1f} GB a day', grown / 1048576.0, dt_s, per_s * 86400 / 1073741824.0)
                   when grown = 0 then '; it did not grow' else '' end,
              case when left_s = 0 then '; the next checkpoint removes WAL that it needs (max_slot_wal_keep_size)'
                   when left_s is not null then format('; at this rate it loses its WAL in {:.1f} hours (max_slot_wal_keep_size)', left_s / 3600)
                   when no_limit then '; max_slot_wal_keep_size sets no limit, so it can fill the disk' else '' end) as statement,
       null::double as cost_s, null::double as share_of_db_time, 1::bigint as samples, ts_from, ts_to,
       to_json([{slot: slot, retained_bytes: kept, growth_bytes: grown, active: active, safe_wal_size: safe, inactive_s: round(inactive_s, 1)}]) as evidence,
       to_json({slot: pg_literal(slot), is_unread: is_unread, is_unread_here: is_unread and on_standby, is_read: active, is_copy: is_copy, no_limit: no_limit}) as facts
from kept where is_unread or grown > 0 or left_s = 0
order by kept desc, slot
