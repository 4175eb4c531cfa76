-- id: WIRE-FETCH-SIZE
-- title: A client reads results a few rows at a time, counted in packets
-- question: Which connections read their results in parts so small that the round trips between them take the time?
-- domain: wire
-- needs: wire_connection, wire_part
-- unit: seconds on the way that a larger part saves
-- cost: round trips
-- threshold: wire_fetch_min = 20 (parts after which more rows were left; a few cost nothing that is noticed)
-- threshold: wire_fetch_share = 0.3 (of the reading time; with less the rows themselves are what takes it)
-- threshold: wire_fetch_s = 0.5 (seconds that can be saved; less is no reason to change a program)
-- threshold: wire_fetch_aim = 0.05 (round trips may take so much of the rest of the time: within 5 % of the best is enough)
-- wrong when: the client works on the rows between the parts and has no memory for more
with reader as (
  select client_addr, server_addr || ':' || server_port as server, application_name, way, any_value(rtt_ns) as rtt_ns, count(*) as parts,
         greatest(count(*) filter (where is_first), 1) as results, sum(p.rows)::bigint as rows, sum(took_ns) / 1e9 as read_s,
         sum(way_ns) / 1e9 as way_s, min(p.ts) as ts_from, max(p.ts_to) as ts_to, median(p.rows) as part_rows
  from wire_part p join wire_connection c using (connection_id) group by all
),
evidence as (
  select client_addr, server, application_name, way, to_json(list({connection_id: connection_id, parts: parts, rows: rows} order by parts desc, connection_id)[:20]) as evidence
  from (select client_addr, server_addr || ':' || server_port as server, application_name, way, connection_id, count(*) as parts, sum(p.rows)::bigint as rows
        from wire_part p join wire_connection using (connection_id) group by all) group by all
),
wanted as (
  select *, rows / results as result_rows,
         greatest(1, ceil(least(rows / results,
                                rows * rtt_ns / 1e9 / nullif(getvariable('wire_fetch_aim') * (read_s - way_s), 0)))) as enough_rows
  from reader where rows > 0
),
saving as (select *, way_s * greatest(1 - results * ceil(result_rows / enough_rows) / parts, 0) as saved_s from wanted)
select 'WIRE-FETCH-SIZE' as id, severity_of(saved_s / nullif(read_s, 0), saved_s, c.window_s) as severity, 'high' as confidence,
       'client ' || client_addr || ' of ' || server || case when application_name = '' then '' else ', application ' || application_name end
         || case way when 'cursor' then ', by FETCH' else '' end as subject,
       format('{} parts of {:.0f} rows were read{}, counted in packets: at {:.3f} ms for a round trip {:.1f} s of {:.1f} s were spent on the way; with {:.0f} rows{} it would be {:.1f} s less',
              parts, part_rows, case way when 'cursor' then ' from SQL cursors' else '' end, rtt_ns / 1e6, way_s, read_s, enough_rows,
              case way when 'cursor' then ' in each FETCH (itersize)' else '' end, saved_s) as statement,
       saved_s as cost_s, null::double as share_of_db_time, parts as samples, s.ts_from, s.ts_to, evidence
from saving s join evidence using (client_addr, server, application_name, way) cross join capture c
where parts - results >= getvariable('wire_fetch_min') and saved_s > 0 and way_s >= getvariable('wire_fetch_share') * read_s and saved_s >= getvariable('wire_fetch_s')
order by cost_s desc, subject
