-- id: CONNECT-COST
-- title: Connections live so briefly that making them takes the time
-- question: Which clients spend a large share of the life of their connections on handshake, start-up and authentication?
-- domain: wire
-- needs: wire_connection
-- unit: seconds until the server took queries
-- cost: wall time
-- threshold: connect_cost_min = 20 (connections; fewer may be the start of a program)
-- threshold: connect_cost_share = 0.2 (of the life of the connections)
-- threshold: connect_cost_window = 0.01 (of the window; with less a pool has nothing to win)
-- wrong when: the connections are a test of connecting
with line as (  -- those whose beginning and end were seen
  select client_addr, server_addr || ':' || server_port as server, user_name, connection_id, connect_ns, ts_to - ts as life_ns, setup_round_trips,
         round_trips, auth, ts, ts_to
  from wire_connection where connect_ns is not null and from_start and ended <> 'open'
),
client as (
  select client_addr, server, user_name, count(*) as connections, sum(connect_ns) / 1e9 as connect_s, sum(life_ns) / 1e9 as life_s,
         avg(setup_round_trips) as setup, avg(round_trips) as round_trips, min(ts) as ts_from, max(ts_to) as ts_to, any_value(auth) as auth,
         to_json(list({connection_id: connection_id, connect_ms: round(connect_ns / 1e6, 3), life_ms: round(life_ns / 1e6, 3),
                       setup_round_trips: setup_round_trips, round_trips: round_trips} order by connect_ns desc, connection_id)[:20]) as evidence
  from line group by all
)
select 'CONNECT-COST' as id, severity_of(connect_s / nullif(life_s, 0), connect_s, c.window_s) as severity, 'high' as confidence,
       'client ' || client_addr || case when user_name = '' then '' else ', user ' || user_name end || ' at ' || server as subject,
       format('{} connections ({:.1f} a second) took {:.2f} ms each to be made, {:.0f} % of their life, for {:.1f} round trips with queries each',
              connections, connections / nullif(c.window_s, 0), 1000 * connect_s / connections, 100 * connect_s / life_s, round_trips) as statement,
       connect_s as cost_s, null::double as share_of_db_time, connections as samples, l.ts_from, l.ts_to, evidence
from client l cross join capture c
where connect_s > 0 and connections >= getvariable('connect_cost_min') and connect_s >= getvariable('connect_cost_share') * life_s
  and connect_s >= getvariable('connect_cost_window') * c.window_s
order by cost_s desc, subject
