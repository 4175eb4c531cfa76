-- id: WIRE-CLEARTEXT
-- title: A password went over the wire in clear text
-- question: Which users sent a password that anyone on the way could read?
-- domain: wire
-- needs: wire_connection
-- unit: connections
-- cost: none
-- wrong when: the packets never left the host or a network that is encrypted below TCP (VPN, WireGuard)
with login as (
  select user_name, database_name, client_addr, server_addr || ':' || server_port as server, auth, tls, count(*) as connections,
         min(ts) as ts_from, max(ts_to) as ts_to
  from wire_connection where password_readable group by all
),
client as (
  select user_name, server, sum(connections)::bigint as connections,
         coalesce(sum(connections) filter (where auth in ('oauthbearer', 'xoauth2', 'authentication_openid_connect_client')), 0) as tokens, min(ts_from) as ts_from, max(ts_to) as ts_to,
         to_json(list({client_addr: client_addr, database_name: database_name, auth: auth, tls: tls, connections: connections}
                      order by connections desc, client_addr, database_name, auth, tls)[:20]) as evidence
  from login group by all
)
select 'WIRE-CLEARTEXT' as id, 'critical' as severity, 'high' as confidence,
       format('user {} at {}', case when user_name = '' then 'unknown' else user_name end, server) as subject,
       format('{} connection{} sent the {} itself without encryption', connections, case when connections = 1 then '' else 's' end,
              case when tokens = connections then 'token' when tokens > 0 then 'password or token' else 'password' end) as statement,
       null::double as cost_s, null::double as share_of_db_time, connections as samples, ts_from, ts_to, evidence
from client order by subject
