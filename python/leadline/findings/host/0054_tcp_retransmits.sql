-- id: TCP-RETRANSMITS
-- title: TCP segments are retransmitted
-- question: Which part of the segments sent had to be sent again, and how much waiting is that at least?
-- domain: host
-- needs: host_stat
-- unit: retransmitted segments, per segment sent
-- cost: wall time
-- threshold: retransmitted_part = 0.01 (of segments sent: at 1 % lost, a connection over 10 ms gets some 1.7 MB a second, by Mathis et al. 1997)
-- threshold: retransmitted_min = 20 (segments in the window: fewer say nothing of a rate)
-- threshold: retransmitted_part_high = 0.05 (of segments sent)
-- threshold: shortest_timeout_s = 0.2 (the least time for which the kernel waits before it sends again, TCP_RTO_MIN)
-- threshold: confident_readings = 10 (readings of the counters)
-- evaluable when: (select count(distinct ts) from host_stat where metric = 'tcp.segments_out') >= 2 | the TCP counters could not be read
-- silent unless: (select max(value) - min(value) from host_stat where metric = 'tcp.segments_retransmitted') >= getvariable('retransmitted_min')
-- wrong when: a scan or a client tries addresses that do not answer: connection attempts sent again count too (see the evidence)
with counted as (select metric, sum(grown) as grown from host_rate where metric like 'tcp.%' group by metric),
found as (
  select coalesce(max(grown) filter (where metric = 'tcp.segments_retransmitted'), 0) as again,
         coalesce(max(grown) filter (where metric = 'tcp.segments_out'), 0) as sent,
         coalesce(max(grown) filter (where metric = 'tcp.timeouts'), 0) as timeouts,
         coalesce(max(grown) filter (where metric = 'tcp.syn_retransmits'), 0) as syn,
         to_json(list({counter: metric, grown: grown::bigint} order by metric) filter (where grown <> 0)) as evidence
  from counted
),
span as (select count(distinct ts) as readings, min(ts - dt_ns) as ts_from, max(ts) as ts_to, (max(ts) - min(ts - dt_ns)) / 1e9 as span_s from host_rate),
interface as (
  select string_agg(format('{} ({} errors, {} dropped)', interface, errors, dropped), ', ' order by errors + dropped desc, interface) as bad
  from (select interface, sum(rx_errors + tx_errors)::bigint as errors, sum(rx_dropped + tx_dropped)::bigint as dropped from net_delta group by interface)
  where errors + dropped > 0
)
select 'TCP-RETRANSMITS' as id, case when again >= getvariable('retransmitted_part_high') * sent then 'high' else 'medium' end as severity,
       case when readings >= getvariable('confident_readings') then 'high' else 'medium' end as confidence,
       'TCP of the host' as subject,
       format('{} of {} segments ({:.1f} %) were retransmitted in {:.0f} s, {} after a timeout; {} of the retransmitted segments were to open a connection; interfaces: {}; the kernel does not count them by process',
              again::bigint, sent::bigint, 100.0 * again / greatest(sent, 1), span_s, timeouts::bigint, syn::bigint,
              coalesce(bad, 'no errors, nothing dropped')) as statement,
       timeouts * getvariable('shortest_timeout_s') as cost_s, null::double as share_of_db_time, readings as samples, ts_from, ts_to, evidence
from found cross join span cross join interface
where again >= greatest(getvariable('retransmitted_min'), getvariable('retransmitted_part') * sent)
order by subject
