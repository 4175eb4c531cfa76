-- id: WIRE-CHATTY
-- title: Transactions take many round trips
-- question: Which clients take many round trips for a transaction, and how much of the time is spent on the way?
-- domain: wire
-- needs: wire_connection, wire_path
-- unit: seconds on the way
-- cost: round trips
-- threshold: wire_chatty_trips = 5 (round trips for each transaction: begin, one statement and commit take three, two more are common)
-- threshold: wire_chatty_min = 50 (transactions, so that their mean says something)
-- threshold: wire_chatty_share = 0.2 (of the time that the connections were busy; with less the network is not what costs)
-- wrong when: the statements depend on each other by decisions that only the client can make
with line as (  -- the way is a part of the time that a connection was busy
  select *, least(round_trips * rtt_ns, busy_ns) as way_ns
  from (
    select c.*, rtt_ns, least(answer_ns + transfer_ns + client_ns, ts_to - ts) as busy_ns
    from wire_connection c join wire_path using (client_addr, server_addr, server_port) where transactions > 0
  )
),
client as (
  select client_addr, server_addr || ':' || server_port as server, application_name, sum(round_trips)::bigint as trips,
         sum(transactions)::bigint as transactions, sum(busy_ns) / 1e9 as busy_s, sum(way_ns) / 1e9 as way_s, count(*) as connections,
         any_value(rtt_ns) as rtt_ns, min(ts) as ts_from, max(ts_to) as ts_to,
         to_json(list({connection_id: connection_id, round_trips: round_trips, transactions: transactions, pipelined: pipelined}
                      order by round_trips desc, connection_id)[:20]) as evidence
  from line group by all
),
found as (select *, trips / transactions as each from client)
select 'WIRE-CHATTY' as id, severity_of(way_s / nullif(busy_s, 0), way_s, c.window_s) as severity, 'high' as confidence,
       'client ' || client_addr || ' of ' || server as subject,
       format('{} transactions took {:.1f} round trips each, counted in packets: at {:.3f} ms for a round trip {:.1f} s of {:.1f} s were spent on the way',
              transactions, each, rtt_ns / 1e6, way_s, busy_s) as statement,
       way_s as cost_s, null::double as share_of_db_time, trips as samples, f.ts_from, f.ts_to, evidence
from found f cross join capture c
where way_s > 0 and each >= getvariable('wire_chatty_trips') and transactions >= getvariable('wire_chatty_min')
  and way_s >= getvariable('wire_chatty_share') * busy_s
order by cost_s desc, subject
