-- id: POOLER-QUEUE
-- title: Clients wait in the pooler for a connection to the server
-- question: Which pool lets its clients wait, how long, and what keeps its connections to the server?
-- domain: pooler
-- needs: server_stat
-- unit: seconds that clients waited for a connection of the pool: total_wait_time of SHOW STATS, else clients in cl_waiting added up
-- cost: wall time
-- threshold: queue_min_s = 1 (seconds that clients waited together: less is a burst that nobody notices)
-- threshold: queue_high_clients = 1 (clients waiting on average)
-- threshold: queue_medium_clients = 0.1 (clients waiting on average)
-- threshold: held_part = 0.5 (of the connections: what most of them do is the reason)
-- threshold: full_part = 0.95 (of the pool's size: the pool is full)
-- silent unless: exists (from server_stat where (view = 'pooler_pools' and metric in ('cl_waiting', 'cl_waiting_cancel_req') and value > 0) or (view = 'pooler_stats' and metric = 'total_wait_time' and value > 0))
-- wrong when: a batch may wait, and the queue protects the server from it
with reading as (
  select ts, row_number() over (order by ts) as place, (lead(ts) over (order by ts) - ts) / 1e9 as dt_s from (select distinct ts from server_stat where view = 'pooler_pools')
),
pool as (  -- instances of one pool in several rows are one
  select ts, object, split_part(object, '/', 1) as database, sum(value) filter (metric = 'cl_waiting') as waiting, sum(value) filter (metric = 'cl_active') as active,
         coalesce(sum(value) filter (metric = 'sv_active'), 0) as sv_active,
         coalesce(sum(value) filter (metric in ('sv_active', 'sv_idle', 'sv_used', 'sv_tested', 'sv_login', 'sv_active_cancel', 'sv_being_canceled')), 0) as servers,
         coalesce(sum(value) filter (metric = 'sv_login'), 0) as logins, coalesce(sum(value) filter (metric = 'cl_waiting_cancel_req'), 0) as cancels,
         max(value) filter (metric = 'maxwait') + coalesce(max(value) filter (metric = 'maxwait_us'), 0) / 1e6 as maxwait_s,
         max(value) filter (metric = 'pool_mode') as mode
  from server_stat where view = 'pooler_pools' group by ts, object
),
queue as (
  select p.object, p.database, sum(p.waiting * r.dt_s) as waited_s, max(p.waiting) as most, count(*) filter (p.waiting > 0) as readings, count(*) as all_readings,
         max(p.maxwait_s) as maxwait_s, min(p.ts) filter (p.waiting > 0) as ts_from, max(p.ts) filter (p.waiting > 0) as ts_to,
         avg(p.servers) filter (p.waiting > 0) as servers, avg(p.sv_active) filter (p.waiting > 0) as sv_active, avg(p.logins) filter (p.waiting > 0) as logins,
         max(p.cancels) as cancels, max(p.active + p.waiting) as clients, max(p.mode) as mode
  from pool p join reading r using (ts) group by p.object, p.database
),
counted as (  -- exact, but of those only whose wait has ended; below 0 when the pooler was restarted
  select split_part(object, '/', 1) as database, sum(grown) / 1e6 as waited_s
  from (select object, arg_max(value, ts) - arg_min(value, ts) as grown from server_stat where view = 'pooler_stats' and metric = 'total_wait_time' group by object) group by 1
),
shared as (
  select *, waited_s / nullif(sum(waited_s) over (partition by database), 0) as part, sum(waited_s) over (partition by database) as database_s from queue
),
limits as (
  select object as database, max(value) filter (metric = 'pool_size') as pool_size, max(value) filter (metric = 'max_connections') as max_connections,
         max(value) filter (metric = 'current_connections') as connections, max(value) filter (metric = 'paused') as paused,
         max(value) filter (metric in ('reserve_pool', 'reserve_pool_size')) as reserve
  from server_stat where view = 'pooler_databases' group by object
),
config as (
  select max(value) filter (metric = 'default_pool_size') as default_pool_size, max(value) filter (metric = 'max_user_connections') as max_user_connections
  from server_stat where view = 'pooler_config'
),
work as (  -- what the server's sessions of the pool did while clients waited
  select q.object, sum(s.weight_s) as all_s, sum(s.weight_s) filter (s.state like 'idle in transaction%') as held_s,
         sum(s.weight_s) filter (s.state in ('active', 'fastpath function call')) as busy_s, sum(s.weight_s) filter (s.state = 'idle') as idle_s,
         mode(coalesce(s.wait_event_type || ':' || s.wait_event, 'CPU')) filter (s.state = 'active') as wait, count(distinct s.pid) as pids
  from queue q join (select distinct object, value::integer as pid from server_stat where view = 'pooler_servers') p using (object)
  join session_sample s using (pid) where s.ts between q.ts_from and q.ts_to group by q.object
),
found as (
  select s.*, coalesce(l.pool_size, c.default_pool_size) as size, l.max_connections, l.connections, l.paused, c.max_user_connections, w.all_s, w.held_s, w.busy_s, w.idle_s, w.wait, w.pids,
         2 * k.waited_s >= s.database_s and k.waited_s > 0 as is_exact, k.waited_s is not null as is_counted,
         case when is_exact then k.waited_s * s.part else s.waited_s end as cost_s
  from shared s left join counted k using (database) left join limits l using (database) cross join config c left join work w using (object)
),
reason as (
  select *, case when paused > 0 then 'paused'
                 when sv_active = 0 and logins > 0 then 'login'
                 when size is not null and servers >= getvariable('full_part') * size then 'full'
                 when max_connections > 0 and connections >= max_connections then 'database'
                 when max_user_connections > 0 and servers >= getvariable('full_part') * max_user_connections then 'user'
                 when cancels > 0 then 'cancels'
                 when size is null then 'full' else 'unknown' end as cause,
         case when mode = 1 and coalesce(idle_s, 0) + coalesce(held_s, 0) >= getvariable('held_part') * all_s then 'sessions'
              when held_s >= getvariable('held_part') * all_s then 'held'
              when busy_s >= getvariable('held_part') * all_s then 'busy' end as doing
  from found
)
select 'POOLER-QUEUE' as id,
       case when cost_s >= getvariable('queue_high_clients') * c.window_s then 'high'
            when cost_s >= getvariable('queue_medium_clients') * c.window_s then 'medium' else 'low' end as severity,
       case when is_exact then 'high' else 'medium' end as confidence,
       'pool ' || object as subject,
       format('Clients of pool {} waited {}{:.1f} s for a connection to the server, up to {:.0f} of {:.0f} at once{}; in {} of {} readings somebody waited. {}{}', object,
              case when is_exact then '' else 'about ' end, cost_s, most, clients,
              case when maxwait_s is null then '' else format(', {:.2f} s at the longest', maxwait_s) end, readings, all_readings,
              case cause when 'paused' then 'The database is paused in the pooler'
                         when 'login' then 'The server lets nobody in: logins of the pooler fail or hang'
                         when 'full' then format('The pool is full: {:.1f} of {} connections were open', servers, coalesce(size::integer::varchar, 'an unknown number of'))
                         when 'database' then format('max_db_connections is reached: {:.0f} of {:.0f} connections to the database are open', connections, max_connections)
                         when 'user' then format('max_user_connections = {:.0f} is reached', max_user_connections)
                         when 'cancels' then format('{:.0f} requests to cancel a statement waited for connections of their own', cancels)
                         else format('The pool has {:.1f} of {:.0f} connections open: why it opens no more cannot be seen here', servers, size) end,
              case when cause <> 'full' then ''
                   when doing = 'sessions' then format(', in pool_mode session: for {:.0f} % of the time their clients asked nothing', 100 * (coalesce(idle_s, 0) + coalesce(held_s, 0)) / all_s)
                   when doing = 'held' then format(', and transactions held them: for {:.0f} % of the time they were idle in transaction', 100 * held_s / all_s)
                   when doing = 'busy' then format(', and the server was busy with them: {:.0f} % of the time active, mostly {}', 100 * busy_s / all_s, wait)
                   when all_s is null then '; what they did on the server is not known' else '' end) as statement,
       cost_s, null::double as share_of_db_time, readings as samples, coalesce(r.ts_from, c.ts_from) as ts_from, coalesce(r.ts_to, c.ts_to) as ts_to,
       to_json([{pool: object, cause: cause, doing: doing, waited_s: round(waited_s, 3), most_waiting: most, maxwait_s: maxwait_s, servers: round(servers, 2), pool_size: size,
                 held_s: round(held_s, 3), busy_s: round(busy_s, 3), idle_s: round(idle_s, 3), max_connections: max_connections, connections: connections}]) as evidence,
       to_json({is_held: cause = 'full' and doing = 'held', is_busy: cause = 'full' and doing = 'busy', is_session_mode: cause = 'full' and doing = 'sessions',
                is_paused: cause = 'paused', is_login: cause = 'login', is_limited: cause in ('database', 'user'), is_cancelled: cause = 'cancels',
                is_full: cause = 'full' and doing is null, size: size::integer}) as facts
from reason r cross join (select window_s, ts_from, ts_to from capture) c
where cost_s >= getvariable('queue_min_s')
order by cost_s desc, subject
