-- id: WIRE-NONTLS
-- title: Database connections cross a public network without encryption
-- question: Which clients from outside talk to the database without TLS, by the packets?
-- domain: wire
-- needs: wire_connection
-- unit: connections
-- cost: none
-- threshold: wire_nontls_private = 0 (1: also between private addresses of different hosts; there much traffic is left plain on purpose)
-- wrong when: the packets go through a tunnel that is encrypted below TCP (VPN, WireGuard)
with line as (
  select client_addr, server_addr || ':' || server_port as server, protocol, tls, count(*) as connections,
         sum(round_trips)::bigint as round_trips, min(ts) as ts_from, max(ts_to) as ts_to
  from wire_connection
  where messages_read and protocol in ('postgresql', 'mysql') and tls not in ('accepted', 'asked') and gss <> 'accepted' and client_addr <> server_addr
    and not is_of_this_host(client_addr)
    and (getvariable('wire_nontls_private') > 0 or not is_private(client_addr) or not is_private(server_addr))
  group by all
),
client as (
  select client_addr, server, sum(connections)::bigint as connections, sum(connections) filter (where tls = 'refused') as refused,
         min(ts_from) as ts_from, max(ts_to) as ts_to,
         to_json(list({protocol: protocol, tls: tls, connections: connections, round_trips: round_trips} order by connections desc, tls, protocol)) as evidence
  from line group by all
)
select 'WIRE-NONTLS' as id, 'medium' as severity, 'high' as confidence, 'client ' || client_addr || ' of ' || server as subject,
       format('{} connection{} carried queries and results that anyone on the way can read{}', connections, case when connections = 1 then '' else 's' end,
              case when refused > 0 then format('; the server refused TLS {} times', refused::bigint) else '' end) as statement,
       null::double as cost_s, null::double as share_of_db_time, connections as samples, ts_from, ts_to, evidence
from client order by connections desc, subject
