-- id: EXTENSION-WAIT
-- title: Sessions wait for an extension
-- question: How much time do sessions wait for a lock that an extension made, or in the code of an extension?
-- domain: postgres
-- needs: session_sample
-- unit: seconds waited for LWLocks that are not the server's own, and in waits of class Extension
-- cost: database time
-- threshold: min_share = 0.02 (2 % of database time; an extension that only watches must cost less than this)
-- threshold: min_samples = 10 (with fewer, the sampling error is as large as the number)
-- silent unless: exists (from wait_time where in_db_time and (wait_class = 'Extension' or (wait_class = 'LWLock' and is_extension_lock(wait_event))))
-- wrong when: the extension waits on purpose, such as for the answer of another server
with base as (select sum(weight_s) as db_time_s from db_time),
wait as (
  select * from db_time
  where (wait_class = 'LWLock' and is_extension_lock(wait_event)) or (wait_class = 'Extension' and backend_type in ('client backend', 'parallel worker'))
),
event_statement as (
  select wait_class, wait_event, statement_id, sum(weight_s) as wait_s, count(distinct session_id) as sessions from wait group by all
),
said as (
  select e.wait_class, e.wait_event, arg_max(left(regexp_replace(s.query, '\s+', ' ', 'g'), 120), e.wait_s order by s.query) as query,
         to_json(list({wait_s: round(e.wait_s, 3), sessions: e.sessions, query: left(regexp_replace(s.query, '\s+', ' ', 'g'), 120)}
                      order by e.wait_s desc, e.statement_id)[:20]) as evidence
  from event_statement e left join statement s using (statement_id) group by all
),
found as (
  select wait_class, wait_event, sum(weight_s) as cost_s, sum(samples)::bigint as samples, count(distinct session_id) as sessions, min(ts) as ts_from, max(ts) as ts_to
  from wait group by all
),
counted as (  -- each new statement needs an entry, and a full table makes room for it while nobody else may look
  select (select count(*) from server_stat_delta where view = 'pg_stat_statements' and metric = 'calls' and before is null) as new_statements,
         (select max(setting) from setting where name = 'pg_stat_statements.max') as entries
),
named as (
  select f.*, s.query, s.evidence, c.*, f.cost_s / b.db_time_s as share, wait_class = 'LWLock' and wait_event = 'pg_stat_statements' as is_statements,
         wait_class = 'LWLock' and wait_event like 'pg_wait_sampling%' as is_sampling,
         starts_with(wait_event, 'unknown:') as is_nameless,
         wait_class = 'Extension' and (regexp_matches(wait_event, '(?i)^(extension|dblink|postgresfdw)')
           or (starts_with(wait_event, 'unknown:') and regexp_matches(s.query, '(?i)\bdblink'))) as is_remote
  from found f cross join base b cross join counted c join said s using (wait_class, wait_event)
)
select 'EXTENSION-WAIT' as id,
       severity_of(share, cost_s, c.window_s) as severity,
       confidence_of(c.tier, samples) as confidence,
       case when is_nameless then 'extension wait without a name, code ' || replace(wait_event, 'unknown:', '') when wait_class = 'Extension' then 'extension wait ' || wait_event else 'lock of an extension: ' || wait_event end as subject,
       format('{} sessions lost {:.1f} s ({:.1f} % of database time) waiting for {}{}{}', sessions, cost_s, 100 * share,
              case when is_nameless then 'something in the code of an extension, which gave it a name that cannot be read from outside'
                   when wait_class = 'Extension' then format('something in the code of an extension (Extension:{})', wait_event)
                   when wait_event = 'extension' then 'an LWLock of an extension that the server gives no name'
                   else 'the LWLock ' || wait_event || ', which is not the server''s own' end,
              case when is_statements then coalesce('; pg_stat_statements.max is ' || entries, '')
                     || case when new_statements > 0 then format(', and {} statements were new in the window', new_statements) else '' end else '' end,
              coalesce('; mostly in: ' || query, '')) as statement,
       cost_s, share as share_of_db_time, samples, ts_from, ts_to, evidence,
       to_json({is_statements: is_statements, is_sampling: is_sampling, is_remote: is_remote, is_other: not is_statements and not is_sampling and not is_remote and not is_nameless, is_nameless: is_nameless,
                event: wait_event}) as facts
from named cross join (select tier, window_s from capture) c
where share >= getvariable('min_share') and samples >= getvariable('min_samples')
order by cost_s desc, subject
