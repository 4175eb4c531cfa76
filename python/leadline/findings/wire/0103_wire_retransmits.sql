-- id: WIRE-RETRANSMITS
-- title: Data is lost on the way and sent again
-- question: Between which clients and servers is data lost, and how long did requests and answers wait for what was sent again?
-- domain: wire
-- needs: wire_connection, wire_roundtrip
-- unit: seconds of the round trips with lost data, beyond their usual time
-- cost: wall time
-- threshold: wire_again_part = 0.01 (of the segments with data: at 1 % lost, a connection over 10 ms gets some 1.7 MB a second, by Mathis et al. 1997)
-- threshold: wire_again_min = 20 (segments sent again: fewer say nothing of a rate)
-- threshold: wire_again_high = 0.05 (of the segments with data)
-- wrong when: the capture was made twice on the way of each packet (two interfaces, a mirror port with both directions): the copies look the same
with line as (
  select client_addr, server_addr || ':' || server_port as server, count(*) as connections,
         sum(client_retransmits)::bigint as up, sum(server_retransmits)::bigint as down, min(ts) as ts_from, max(ts_to) as ts_to,
         to_json(list({connection_id: connection_id, client_sent_again: client_retransmits, server_sent_again: server_retransmits,
                       out_of_order: client_out_of_order + server_out_of_order}
                      order by client_retransmits + server_retransmits desc, connection_id)[:20]) as evidence
  from wire_connection group by all
),
trip as (  -- the usual time of a purpose is that of the round trips without loss
  select client_addr, server_addr || ':' || server_port as server, purpose, retransmits, last_ns, request_segments + response_segments as segments
  from wire_roundtrip t join wire_connection c using (connection_id) where last_ns is not null
),
usual as (select client_addr, server, purpose, median(last_ns) as usual_ns from trip where retransmits = 0 group by all),
waited as (
  select client_addr, server, sum(segments)::bigint as segments, count(*) filter (where retransmits > 0) as trips,
         sum(case when retransmits > 0 then greatest(last_ns - usual_ns, 0) end) / 1e9 as waited_s
  from trip left join usual using (client_addr, server, purpose) group by all
)
select 'WIRE-RETRANSMITS' as id,
       case when up + down >= getvariable('wire_again_high') * (segments + up + down) then 'high' else 'medium' end as severity,
       'high' as confidence, 'client ' || client_addr || ' of ' || server as subject,
       format('{} segments of the client and {} of the server, {:.1f} % of all with data, were sent again; {} round trips with them took {:.1f} s longer than usual',
              up, down, 100.0 * (up + down) / (segments + up + down), trips, coalesce(waited_s, 0)) as statement,
       waited_s as cost_s, null::double as share_of_db_time, up + down as samples, ts_from, ts_to, evidence
from line join waited using (client_addr, server)
where up + down >= getvariable('wire_again_min') and up + down >= getvariable('wire_again_part') * (segments + up + down)
order by up + down desc, subject
