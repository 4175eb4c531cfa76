-- id: RETRANSMITS
-- title: Data for a client is retransmitted
-- question: On the way to which clients is data lost, so that the server sends it again?
-- domain: sockets
-- needs: tcp_delta
-- unit: part of the data that was retransmitted
-- cost: none
-- threshold: retransmits_part = 0.01 (of the bytes sent: at 1 % lost, a connection over 10 ms gets some 1.7 MB a second, by Mathis et al. 1997)
-- threshold: retransmits_min = 20 (segments in the window: fewer say nothing of a rate)
-- threshold: retransmits_high = 0.05 (of the bytes sent)
-- wrong when: segments came late and not at all in another order: the kernel then sends some again for nothing
with client as (
  select remote_addr, local_addr || ':' || local_port as server, sum(total_retrans)::bigint as again, sum(bytes_retrans)::bigint as again_bytes,
         sum(bytes_sent)::bigint as sent_bytes, count(distinct cookie) as connections, median(rtt) / 1000 as rtt_ms, count(*) as readings,
         min(ts) as ts_from, max(ts) as ts_to
  from tcp_delta group by all
),
proof as (
  select remote_addr, server, to_json(list({cookie: cookie, segments: again, bytes: again_bytes, of_bytes: sent_bytes} order by again desc, cookie)[:20]) as evidence
  from (select remote_addr, local_addr || ':' || local_port as server, cookie, sum(total_retrans)::bigint as again,
               sum(bytes_retrans)::bigint as again_bytes, sum(bytes_sent)::bigint as sent_bytes from tcp_delta group by all)
  where again > 0 group by all
)
select 'RETRANSMITS' as id, case when again_bytes >= getvariable('retransmits_high') * sent_bytes then 'high' else 'medium' end as severity,
       'high' as confidence, 'client ' || remote_addr || ' of ' || server as subject,
       format('{} segments, {:.1f} % of the bytes sent, were retransmitted on {} connection{} with a round trip of {:.1f} ms', again,
              100.0 * again_bytes / sent_bytes, connections, case when connections = 1 then '' else 's' end, rtt_ms) as statement,
       null::double as cost_s, null::double as share_of_db_time, readings as samples, ts_from, ts_to, evidence
from client join proof using (remote_addr, server)
where again >= getvariable('retransmits_min') and again_bytes >= getvariable('retransmits_part') * sent_bytes
order by again_bytes desc, subject
