-- id: DELAYED-ACK
-- title: Data waits for acknowledgements that are delayed
-- question: Which connections send a request or an answer in small pieces, and wait for an acknowledgement between them?
-- domain: wire
-- needs: wire_connection
-- unit: seconds for which data was held back
-- cost: wall time
-- threshold: delayed_ack_min = 10 (times in the window: a few may be chance)
-- threshold: delayed_ack_share = 0.01 (of the window)
-- wrong when: the way itself takes longer than 20 ms, so that every acknowledgement comes late
with line as (
  select client_addr, server_addr || ':' || server_port as server, sum(held)::bigint as held, sum(least(held_ns, ts_to - ts)) / 1e9 as held_s,
         min(ts) as ts_from, max(ts_to) as ts_to,
         to_json(list({connection_id: connection_id, held: held, held_ms: round(held_ns / 1e6, 1), round_trips: round_trips}
                      order by held_ns desc, connection_id)[:20]) as evidence
  from wire_connection where held > 0 and (least_ack_ns is null or least_ack_ns * held < held_ns / 2) group by all
)
select 'DELAYED-ACK' as id, severity_of(held_s / nullif(c.window_s, 0), held_s, c.window_s) as severity, 'high' as confidence,
       'client ' || client_addr || ' of ' || server as subject,
       format('data was held back {} times until a delayed acknowledgement came, {:.0f} ms each, {:.1f} s together', held, 1000 * held_s / held, held_s) as statement,
       held_s as cost_s, null::double as share_of_db_time, held as samples, l.ts_from, l.ts_to, evidence
from line l cross join capture c
where held >= getvariable('delayed_ack_min') and held_s >= getvariable('delayed_ack_share') * c.window_s
order by cost_s desc, subject
