-- id: MINI-LATCH
-- title: Sessions of a Mini wait for latches
-- question: Which user waits for latches?
-- domain: mini
-- needs: session_sample
-- unit: s
-- cost: database time
-- wrong when: never, it is made up
select 'MINI-LATCH' as id, 'high' as severity, 'high' as confidence, 'user ' || usename as subject,
       'user ' || usename || ' waits for latches' as statement, sum(weight_s)::double as cost_s,
       (sum(weight_s) / (select sum(weight_s) from session_sample where in_db_time))::double as share_of_db_time,
       count(*) as samples, min(ts) as ts_from, max(ts) as ts_to, '[]'::json as evidence
from session_sample where in_db_time and wait_class = 'Latch' group by usename
