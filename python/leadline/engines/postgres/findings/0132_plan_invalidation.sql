-- id: PLAN-INVALIDATION
-- title: Commands on tables make sessions plan again what they had prepared
-- question: Which commands made sessions plan prepared statements again, how often, and how long did these plans take?
-- domain: postgres
-- needs: server_stat, session
-- unit: seconds of planning, as the server counts them, for plans that were kept until a command on their table discarded them (at most)
-- cost: database time
-- threshold: again_calls = 20 (calls; with fewer nobody knows whether the plan is kept)
-- threshold: again_part = 0.5 (plans for a call: with fewer, most calls use a plan that was kept)
-- threshold: again_warm = 6 (plans of one statement in a new session before it keeps one: five with values, one without)
-- threshold: again_named = 3 (commands that the sentence names)
-- threshold: again_min_sessions = 0.02 (sessions that plan again on average)
-- evaluable when: exists (from server_stat where view = 'pg_stat_statements' and metric = 'plans' and value > 0) | pg_stat_statements.track_planning is off, or the extension was not read: nothing else counts plans, and one that is kept leaves no trace in samples
-- silent unless: exists (from server_stat where view = 'pg_stat_statements' and metric = 'plans' and value > 0)
-- wrong when: a migration ran once, and its effect was over after a moment
with about as (select window_s, ts_from, ts_to, wall_offset_ns from capture),
clients as (
  select count(*) as sessions, count(*) filter (where is_new) as new_sessions
  from (select session_id, bool_or(backend_start * 1000 - wall_offset_ns > ts_from) as is_new from session cross join about where backend_type = 'client backend' group by session_id)
),
ran as (  -- how often a command that changes a table ran, as far as the server counts them, and on what
  select split_part(object, '/', 1) as command, substr(object, strpos(object, '/') + 1) as name, greatest(after - coalesce(before, 0), 0) as times
  from server_stat_delta where view = 'pg_stat_statements_commands'
  union all  -- these also change what plans rest on
  select case metric when 'analyze_count' then 'ANALYZE' when 'vacuum_count' then 'VACUUM' when 'autoanalyze_count' then 'autovacuum: ANALYZE' else 'autovacuum: VACUUM' end,
         regexp_replace(substr(object, strpos(object, '/') + 1), '^(.*)/([^/]*)$', '\1.\2'), delta
  from server_stat_delta where view = 'pg_stat_user_tables' and metric in ('analyze_count', 'vacuum_count', 'autoanalyze_count', 'autovacuum_count')
),
event as (  -- an index stands for its table
  select r.command, coalesce(t.nspname || '.' || t.relname, r.name) as name, coalesce(t.relname, regexp_replace(r.name, '^.*\.', '')) as relname, sum(r.times) as times
  from ran r
  left join (select relname, nspname, any_value(table_relid) as table_relid, any_value(datid) as datid from relation where relkind in ('i', 'I') group by all having count(distinct table_relid) = 1) i
    on contains(r.command, 'INDEX') and not contains(r.command, 'CREATE') and r.name in (i.relname, i.nspname || '.' || i.relname)
  left join (select datid, relid, any_value(nspname) as nspname, any_value(relname) as relname from relation group by all) t on t.datid = i.datid and t.relid = i.table_relid
  where r.times > 0 group by all
),
kept as (  -- statements of which most calls need no plan, now or before; EXECUTE does not say of what
  select s.*, case when not regexp_matches(query, '(?i)^\s*execute\b') then lower(query) end as text from statement_stat s
  where plans > 0 and plan_s > 0 and ((calls >= getvariable('again_calls') and plans <= getvariable('again_part') * calls)
                                      or (calls_before >= getvariable('again_calls') and plans_before <= getvariable('again_part') * calls_before))
),
touched as (  -- the commands on tables that a statement names; all of them where its text is not known
  select k.statement_id, e.command, e.name, e.times
  from kept k join event e on k.text is null or regexp_matches(k.text, '(^|[^\w$])' || regexp_escape(lower(e.relname)) || '($|[^\w$])')
    or starts_with(lower(e.relname), nullif(regexp_replace(lower(first_table(k.query)), '^.*\.', ''), '') || '_')  -- a partition, by the usual name
),
bound as (  -- each command makes each session plan a statement once; new sessions plan it in any case
  select k.*, least(greatest(k.plans - getvariable('again_warm') * c.new_sessions, 0), t.times * c.sessions) as again
  from kept k join (select statement_id, sum(times) as times from touched group by statement_id) t using (statement_id) cross join clients c
),
lost as (select *, again / plans * plan_s as lost_s from bound where again > 0),
commands as (
  select command, name, max(times) as times from touched where statement_id in (select statement_id from lost) group by command, name
),
found as (
  select sum(lost_s) as cost_s, sum(again) as again, sum(calls) as calls, count(*) as statements, arg_max(query, lost_s) as query, arg_max(statement_id, lost_s) as statement_id, arg_max(plan_s / plans, lost_s) as one_s,
         count(*) filter (where text is null) as unnamed,
         to_json(list({statement_id: statement_id, query: left(regexp_replace(query, '\s+', ' ', 'g'), 200), plans_again: again::bigint, plans: plans, calls: calls, lost_s: round(lost_s, 3)} order by lost_s desc, statement_id)[:10]) as statements_json
  from lost having count(*) > 0
),
listed as (
  select array_to_string(list(format('{} of {} ({})', command, name, case when times = 1 then 'once' else format('{} times', times::bigint) end) order by times desc, command, name)[:getvariable('again_named')::bigint], ', ')
         || case when count(*) > getvariable('again_named') then format(' and {} more', (count(*) - getvariable('again_named'))::bigint) else '' end as commands,
         sum(times) as times, bool_or(starts_with(command, 'autovacuum')) as is_auto, bool_or(command in ('ANALYZE', 'VACUUM')) as is_manual,
         bool_or(command not in ('ANALYZE', 'VACUUM') and not starts_with(command, 'autovacuum')) as is_ddl,
         to_json(list({command: command, name: name, times: times} order by times desc, command, name)[:10]) as commands_json
  from commands
)
select 'PLAN-INVALIDATION' as id,
       severity_of(cost_s / greatest(b.db_time_s, cost_s), cost_s, a.window_s) as severity,
       case when unnamed = 0 then 'medium' else 'low' end as confidence, 'prepared statements' as subject,
       format('Up to {} sessions planned {} again at most {:.0f} times, in {:.0f} calls, because {} was discarded. This took at most {:.1f} s, {:.2f} ms for each plan of the costliest. {} on {} discarded the plans: {}{}',
              c.sessions, if(statements = 1, 'one statement', format('{} statements', statements)), again, calls, if(statements = 1, 'its kept plan', 'a kept plan'), cost_s, 1e3 * one_s,
              if(times = 1, 'One command', format('{} commands', times::bigint)), if(unnamed = 0, 'their tables', 'tables of the database'), commands,
              coalesce('; costliest: ' || left(regexp_replace(query, '\s+', ' ', 'g'), 160), '; costliest: statement ' || statement_id)) as statement,
       cost_s, cost_s / greatest(b.db_time_s, cost_s) as share_of_db_time, again::bigint as samples, a.ts_from, a.ts_to,
       to_json([{commands: commands_json, statements: statements_json}]) as evidence,
       to_json({is_auto: is_auto, is_manual: is_manual, is_ddl: is_ddl, commands: commands}) as facts
from found cross join listed cross join clients c cross join (select coalesce(sum(weight_s), 0) as db_time_s from db_time) b cross join about a
where cost_s >= getvariable('again_min_sessions') * a.window_s
order by subject
