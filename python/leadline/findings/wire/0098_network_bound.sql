-- id: NETWORK-BOUND
-- title: Transactions spend most of their time on the network
-- question: For which clients do round trips take most of the time, though they make few of them?
-- domain: wire
-- needs: wire_connection, wire_roundtrip, wire_path, wire_part
-- unit: seconds on the way
-- cost: round trips
-- threshold: network_bound_share = 0.5 (of the time of requests, answers and the client between them: the network takes more than all else)
-- threshold: network_bound_s = 1.0 (seconds on the way; with less there is little to gain)
-- threshold: network_bound_rtt_us = 50 (a round trip on one machine or through one switch takes fewer microseconds; no place is closer)
-- threshold: network_chatty_trips = 5 (round trips for each transaction: with as many, WIRE-CHATTY says what to do)
-- threshold: network_chatty_min = 50 (transactions, as of WIRE-CHATTY)
-- wrong when: the packets were captured before a proxy that answers the handshake itself
with trip as (  -- as the round-trip budget counts them; parts of results are WIRE-FETCH-SIZE's
  select connection_id, count(*) as trips, any_value(rtt_ns) as rtt_ns, least(sum(took_ns), any_value(life_ns)) as took_ns,
         least(sum(least(rtt_ns, took_ns)), any_value(life_ns)) as way_ns  -- the way is a part of what a round trip took
  from (
    select t.connection_id, coalesce(client_gap_ns, 0) + last_ns as took_ns, rtt_ns, c.ts_to - c.ts as life_ns
    from wire_roundtrip t join wire_connection c using (connection_id) join wire_path using (client_addr, server_addr, server_port)
      anti join wire_part p on t.connection_id = p.connection_id and t.ts = p.ts
    where last_ns is not null and purpose not in ('start-up', 'authentication', 'encryption request', 'cancel', 'terminate')
  )
  group by all
),
client as (
  select client_addr, server_addr || ':' || server_port as server, application_name, sum(trips)::bigint as trips, sum(took_ns) / 1e9 as took_s,
         sum(way_ns) / 1e9 as way_s, sum(transactions)::bigint as transactions, any_value(rtt_ns) as rtt_ns, count(*) as connections,
         min(ts) as ts_from, max(ts_to) as ts_to,
         to_json(list({connection_id: connection_id, round_trips: trips, transactions: transactions, took_s: round(took_ns / 1e9, 3)}
                      order by trips desc, connection_id)[:20]) as evidence
  from trip join wire_connection using (connection_id) group by all
)
select 'NETWORK-BOUND' as id, severity_of(way_s / nullif(took_s, 0), way_s, c.window_s) as severity, 'high' as confidence,
       'client ' || client_addr || ' of ' || server as subject,
       format('{} round trips of {:.3f} ms took {:.1f} s of {:.1f} s ({:.0f} %){}', trips, rtt_ns / 1e6, way_s, took_s, 100 * way_s / took_s,
              case when transactions > 0 then format('; {:.1f} for each of {} transactions', trips / transactions, transactions) else '' end) as statement,
       way_s as cost_s, null::double as share_of_db_time, trips as samples, f.ts_from, f.ts_to, evidence
from client f cross join capture c
where way_s > 0 and way_s >= getvariable('network_bound_share') * took_s and way_s >= getvariable('network_bound_s')
  and rtt_ns >= getvariable('network_bound_rtt_us') * 1000
  and not coalesce(trips >= getvariable('network_chatty_trips') * transactions and transactions >= getvariable('network_chatty_min'), false)
order by cost_s desc, subject
