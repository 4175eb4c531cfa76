-- id: WIRE-MYSQL-HASH
-- title: The proof of a MySQL password was sent without encryption
-- question: Which users of MySQL or MariaDB prove their password by a quick hash, without encryption?
-- domain: wire
-- needs: wire_connection
-- unit: connections
-- cost: none
-- wrong when: the password is long and random, so that guessing has no hope
with login as (
  select user_name, database_name, client_addr, server_addr || ':' || server_port as server, auth, tls, count(*) as connections,
         min(ts) as ts_from, max(ts_to) as ts_to
  from wire_connection
  where tls <> 'accepted' and gss <> 'accepted'
    and auth in ('mysql_old_password', 'mysql_native_password', 'caching_sha2_password',
                 'sha1 scramble', 'sha256 scramble')  -- the last two in captures of older versions
  group by all
),
client as (
  select user_name, server, sum(connections)::bigint as connections, min(ts_from) as ts_from, max(ts_to) as ts_to,
         bool_and(auth in ('caching_sha2_password', 'sha256 scramble')) as is_sha2,
         string_agg(distinct auth, ', ' order by auth) as methods,
         to_json(list({client_addr: client_addr, database_name: database_name, auth: auth, tls: tls, connections: connections}
                      order by connections desc, client_addr, database_name, auth, tls)[:20]) as evidence
  from login group by all
)
select 'WIRE-MYSQL-HASH' as id, case when is_sha2 then 'low' else 'medium' end as severity, 'high' as confidence,
       format('user {} at {}', case when user_name = '' then 'unknown' else user_name end, server) as subject,
       format('{} connection{} proved the password by {}: who sees the packets can try passwords on it, {} for each',
              connections, case when connections = 1 then '' else 's' end, methods,
              case when is_sha2 then 'three SHA-256 hashes' else 'a hash or three' end) as statement,
       null::double as cost_s, null::double as share_of_db_time, connections as samples, ts_from, ts_to, evidence
from client order by subject
