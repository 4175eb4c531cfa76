-- id: WIRE-RETRANSMITS
-- title: Data is lost on the way and retransmitted
-- question: Between which clients and servers is data lost, and how long did data wait that was sent again?
-- domain: wire
-- needs: wire_connection
-- unit: seconds from the first sending of lost data to its acknowledgement
-- cost: wall time
-- threshold: wire_again_part = 0.01 (of the segments with data: at 1 % lost, a connection over 10 ms gets some 1.7 MB a second, by Mathis et al. 1997)
-- threshold: wire_again_min = 20 (segments sent again: fewer say nothing of a rate)
-- wrong when: the capture was made twice on the way of each packet, at places more than 0.1 s apart: then copies are not recognised
with line as (
  select client_addr, server_addr || ':' || server_port as server, sum(client_retransmits + client_late)::bigint as up,
         sum(server_retransmits + server_late)::bigint as down, sum(client_segments + server_segments)::bigint as segments,
         sum(again_ns) / 1e9 as waited_s, sum(answer_ns + transfer_ns) / 1e9 as answer_s, min(ts) as ts_from, max(ts_to) as ts_to,
         to_json(list({connection_id: connection_id, client_sent_again: client_retransmits, server_sent_again: server_retransmits,
                       lost_before_capture: client_late + server_late, out_of_order: client_out_of_order + server_out_of_order,
                       waited_ms: round(again_ns / 1e6, 1)}
                      order by again_ns desc, client_retransmits + server_retransmits desc, connection_id)[:20]) as evidence
  from wire_connection where ended <> 'no answer' group by all
)
select 'WIRE-RETRANSMITS' as id,
       severity_of(waited_s / greatest(answer_s, waited_s), waited_s, c.window_s) as severity,
       'high' as confidence, 'client ' || client_addr || ' of ' || server as subject,
       format('{} segments of the client and {} of the server, {:.1f} % of all with data, were retransmitted; from the first sending to the acknowledgement that data waited {:.1f} s',
              up, down, 100.0 * (up + down) / greatest(segments, up + down), waited_s) as statement,
       waited_s as cost_s, null::double as share_of_db_time, up + down as samples, l.ts_from, l.ts_to, evidence
from line l cross join capture c
where segments > 0 and up + down > 0 and up + down >= getvariable('wire_again_min') and up + down >= getvariable('wire_again_part') * segments
order by waited_s desc, up + down desc, subject
