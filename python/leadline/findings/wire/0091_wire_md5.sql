-- id: WIRE-MD5
-- title: A password was sent as a hash that can be guessed
-- question: Which users log in with md5 or crypt, without encryption?
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
    and auth in ('md5', 'crypt', 'cram-md5', 'digest-md5')
  group by all
),
client as (
  select user_name, server, sum(connections)::bigint as connections, min(ts_from) as ts_from, max(ts_to) as ts_to,
         to_json(list({client_addr: client_addr, database_name: database_name, auth: auth, tls: tls, connections: connections}
                      order by connections desc, client_addr, database_name, auth, tls)[:20]) as evidence
  from login group by all
)
select 'WIRE-MD5' as id, 'medium' as severity, 'high' as confidence,
       format('user {} at {}', case when user_name = '' then 'unknown' else user_name end, server) as subject,
       format('{} connection{} sent a hash of the password that can be guessed offline', connections, case when connections = 1 then '' else 's' end) as statement,
       null::double as cost_s, null::double as share_of_db_time, connections as samples, ts_from, ts_to, evidence
from client order by subject
