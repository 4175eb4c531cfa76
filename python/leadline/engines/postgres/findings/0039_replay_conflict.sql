-- id: REPLAY-CONFLICT
-- title: Replay on a standby waits for sessions of the standby
-- question: How long did the startup process wait for snapshots, locks or pins of sessions of this standby, and of which sessions?
-- domain: postgres
-- needs: session_sample, tick
-- unit: seconds that replay waited
-- cost: wall time
-- threshold: min_stall_s = 1.0 (seconds; sharing a server with readers always costs some time)
-- threshold: min_part = 0.05 (one second in twenty; with less, replay catches up by itself)
-- threshold: samples_medium = 10 (samples; only one process is sampled, and its waits are long)
-- threshold: stall_high_part = 0.5 (share of the time; replay needs the other half to catch up)
-- threshold: stall_high_s = 10 (seconds; a third of the default max_standby_streaming_delay)
-- threshold: stall_medium_part = 0.2 (share of the time)
-- evaluable when: (select coarse_s is null from capture) | it looks at single passes, and the capture is coarse
-- silent unless: exists (from wait_time where backend_type = 'startup')
-- wrong when: the standby exists to run long reports and its delay is intended
with stall as (
  select ts, session_id, weight_s,
         case when wait_class = 'Lock' then 'locks' when wait_class = 'BufferPin' then 'pinned pages'
              when wait_event = 'RecoveryConflictTablespace' then 'temporary files' else 'snapshots' end as kind
  from session_sample
  where backend_type = 'startup'
    and (wait_class in ('Lock', 'BufferPin') or wait_event in ('RecoveryConflictSnapshot', 'RecoveryConflictTablespace'))
),
of_kind as (select kind, sum(weight_s) as stalled_s from stall group by kind),
total as (
  select sum(weight_s) as stalled_s, count(*) as samples, min(ts) as ts_from, max(ts) as ts_to,
         (select string_agg(format('{:.1f} s for {}', stalled_s, kind), ', ' order by stalled_s desc, kind) from of_kind) as parts
  from stall
),
holding as (  -- at each moment the oldest snapshot, and every holder of the lock
  select s.ts, s.kind, s.weight_s as held_s, k.session_id
  from stall s join session_sample k on k.ts = s.ts and k.xmin_age is not null and k.backend_type = 'client backend'
  where s.kind = 'snapshots'
  qualify row_number() over (partition by s.ts order by k.xmin_age desc, k.session_id) = 1
  union all
  select s.ts, s.kind, l.period_ns / 1e9, l.blocker_session_id
  from stall s join lock_wait l on l.ts = s.ts and l.session_id = s.session_id and l.blocker_kind = 'holder'
  where s.kind = 'locks'
),
holder as (
  select k.pid, h.kind, sum(h.held_s) as held_s, mode(k.state order by k.state) as state, any_value(k.application_name) as application_name, max(k.xact_age_s) as xact_age_s
  from holding h join session_sample k on k.ts = h.ts and k.session_id = h.session_id
  group by k.pid, h.kind
),
top_holder as (
  select arg_max(format('pid {} ({}{}) held the {} longest{}', pid, coalesce(state, 'state not seen'),
                        case when application_name <> '' then ', application ' || application_name else '' end,
                        case kind when 'locks' then 'lock' else 'oldest snapshot' end,
                        case when xact_age_s is not null then format(', in a transaction up to {:.1f} s old', xact_age_s) else '' end),
                 (held_s, -pid)) as named,
         to_json(list({pid: pid, waited_for: kind, held_s: round(held_s, 3), state: state, application_name: application_name, xact_age_s: xact_age_s}
                      order by held_s desc, pid)[:20]) as evidence
  from holder
),
delay as (
  select max(case when setting = '-1' then '-1, without end' else setting || ' ' || unit end) as setting
  from setting where name = 'max_standby_streaming_delay'
)
select 'REPLAY-CONFLICT' as id,
       case when stalled_s >= getvariable('stall_high_part') * observed_s and stalled_s >= getvariable('stall_high_s') then 'high'
            when stalled_s >= getvariable('stall_medium_part') * observed_s then 'medium' else 'low' end as severity,
       confidence_of(c.tier, samples, medium := getvariable('samples_medium')) as confidence,
       'replay' as subject,
       format('Replay stood still for {:.1f} s ({:.0f} % of the time) because of sessions of this standby: {}{}{}', stalled_s, 100 * stalled_s / observed_s, parts,
              case when named is not null then '; ' || named else '' end,
              case when d.setting is not null then '; max_standby_streaming_delay is ' || d.setting else '' end) as statement,
       stalled_s as cost_s, null::double as share_of_db_time, samples, ts_from, ts_to, coalesce(evidence, '[]'::json) as evidence
from total cross join top_holder cross join delay d cross join (select tier from capture) c
cross join (select sum(period_ns) / 1e9 as observed_s from tick)
where stalled_s >= getvariable('min_stall_s') and stalled_s >= getvariable('min_part') * observed_s
