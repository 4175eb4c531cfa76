-- id: WINDOW-LIMITED
-- title: A TCP window is too small for the way
-- question: For which clients does the receive window or the send buffer, and not the network, limit how fast results go?
-- domain: sockets
-- needs: tcp_delta
-- unit: seconds in which the window let no more be sent
-- cost: wall time
-- threshold: window_limited_s = 1.0 (seconds in the window; less is the start of connections)
-- threshold: window_limited_share = 0.3 (of the time with data to send)
-- threshold: window_pace = 0.5 (of the rate that the window allows at the shortest round trip; with less the client is slow to read, or data queues on the way: a larger window is full as soon)
-- wrong when: the client reads slowly over a long way: its window is then full for two reasons
with flow as (  -- rwnd_limited alone says too little: the congestion window grows no further than the receive window and limits then, too
  select cookie, remote_addr, local_addr, local_port, sum(busy_time) / 1e6 as busy_s, sum(sndbuf_limited) / 1e6 as buffer_s,
         sum(bytes_acked) filter (where rwnd_limited > 0) as moved, sum(busy_time) filter (where rwnd_limited > 0) / 1e6 as moving_s,
         max(snd_wnd) as window_bytes, max(snd_mss) as segment_bytes, min(min_rtt) / 1e6 as rtt_s, max(send_queue) as send_queue,
         min(ts) as ts_from, max(ts) as ts_to, count(*) as readings
  from tcp_delta group by all
),
held as (  -- the client's part counts only if its window is open and it reads as fast as that lets it
  select *, 'receive window of client ' || remote_addr as what, moving_s as held_s from flow
  where window_bytes >= segment_bytes and moved >= getvariable('window_pace') * window_bytes / rtt_s * moving_s
  union all
  select *, 'send buffer of the server for client ' || remote_addr, buffer_s from flow
),
found as (
  select what, local_addr || ':' || local_port as server, sum(held_s) as held_s, sum(busy_s) as busy_s, count(*) as connections,
         median(window_bytes) as window_bytes, median(rtt_s) as rtt_s, sum(moved) / nullif(sum(moving_s), 0) as bytes_s, max(send_queue) as send_queue,
         sum(readings)::bigint as readings, min(ts_from) as ts_from, max(ts_to) as ts_to,
         to_json(list({cookie: cookie, limited_s: round(held_s, 3), busy_s: round(busy_s, 3), window_bytes: window_bytes, rtt_ms: round(1000 * rtt_s, 3),
                       send_queue: send_queue} order by held_s desc, cookie)[:20]) as evidence
  from held where held_s > 0 group by all
)
select 'WINDOW-LIMITED' as id, severity_of(held_s / nullif(busy_s, 0), held_s, c.window_s) as severity, 'high' as confidence,
       what || ' of ' || server as subject,
       case when what like 'receive%' then
         format('for {:.1f} of {:.1f} s with data to send, no more than {:.1f} MB/s went: the receive window is {:.0f} kB, and a round trip takes {:.1f} ms',
                held_s, busy_s, bytes_s / 1048576.0, window_bytes / 1024, 1000 * rtt_s)
       else format('for {:.1f} of {:.1f} s with data to send, the send buffer was full of data on the way: at most {:.0f} kB, and a round trip takes {:.1f} ms',
                   held_s, busy_s, send_queue / 1024, 1000 * rtt_s) end as statement,
       held_s as cost_s, null::double as share_of_db_time, readings as samples, f.ts_from, f.ts_to, evidence
from found f cross join capture c
where held_s >= getvariable('window_limited_s') and held_s >= getvariable('window_limited_share') * busy_s
order by cost_s desc, subject
