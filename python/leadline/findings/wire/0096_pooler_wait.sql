-- id: POOLER-WAIT
-- title: Requests wait in the pooler
-- question: How long do requests stay in a pooler before the server gets them, and has it too few connections to the server?
-- domain: wire
-- needs: wire_connection
-- unit: seconds in the pooler
-- cost: wall time
-- threshold: pooler_min = 50 (transactions: with fewer, two ports that have as many may be chance)
-- threshold: pooler_match = 0.05 (of the transactions: a pooler passes on as many as it gets, but for those at both ends of the window)
-- threshold: pooler_wait_share = 0.2 (of the time of answers as clients see it; a pooler's own work takes some 0.05 ms for each)
-- threshold: pooler_wait_s = 1.0 (seconds in the window; with less there is little to gain)
-- wrong when: two servers on one address happen to get as many transactions from that same address, and neither is a pooler
with port as (
  select server_addr, server_port, count(*) as connections, sum(transactions)::bigint as transactions, sum(answer_ns + transfer_ns) / 1e9 as answer_s,
         sum(answer_ns + transfer_ns) / nullif(sum(ts_to - ts), 0) as busy, min(ts) as ts_from, max(ts_to) as ts_to,
         list(distinct client_addr) as clients
  from wire_connection where protocol = 'postgresql' and round_trips > 0 group by all
),
pair as (
  select front.*, back.answer_s as back_s, back.connections as back_connections, back.busy as back_busy, back.transactions as back_transactions,
         back.server_addr || ':' || back.server_port as behind, front.answer_s - back.answer_s as wait_s
  from port front join port back on back.clients = [front.server_addr] and (front.server_addr, front.server_port) <> (back.server_addr, back.server_port)
  where front.transactions >= getvariable('pooler_min')
    and abs(front.transactions - back.transactions) <= getvariable('pooler_match') * front.transactions
)
select 'POOLER-WAIT' as id, severity_of(wait_s / nullif(answer_s, 0), wait_s, c.window_s) as severity, 'high' as confidence,
       'pooler ' || server_addr || ':' || server_port || ' of ' || behind as subject,
       format('answers took {:.1f} s for clients and {:.1f} s at the server: {:.1f} s ({:.0f} %), {:.1f} ms for each of {} transactions, went to the pooler; {} connections of clients shared {} to the server, which had a request {:.0f} % of the time',
              answer_s, back_s, wait_s, 100 * wait_s / answer_s, 1000 * wait_s / transactions, transactions, connections, back_connections,
              100 * back_busy) as statement,
       wait_s as cost_s, null::double as share_of_db_time, transactions as samples, p.ts_from, p.ts_to,
       to_json([{port: server_addr || ':' || server_port, connections: connections, transactions: transactions, answer_s: round(answer_s, 3)},
                {port: behind, connections: back_connections, transactions: back_transactions, answer_s: round(back_s, 3)}]) as evidence
from pair p cross join capture c
where wait_s >= getvariable('pooler_wait_s') and wait_s >= getvariable('pooler_wait_share') * answer_s
order by cost_s desc, subject
