-- id: CPU-FREQUENCY
-- title: The CPUs run slower than they can
-- question: Did CPUs that had work run below their highest frequency, under a governor that saves power?
-- domain: host
-- needs: host_fact
-- unit: none
-- cost: none
-- threshold: slow_frequency = 0.8 (of the highest frequency; what runs then takes a quarter longer)
-- evaluable when: exists (from host_fact where name = 'cpu.governor') | the kernel does not set the frequency of the CPUs here (virtual machines seldom do)
-- silent unless: exists (from host_fact where name = 'cpu.governor' and value <> 'performance')
-- wrong when: the host was idle when it was asked, and the governor raises the frequency quickly enough
with fact as (
  select max(value) filter (where name = 'cpu.governor') as governor,
         try_cast(max(value) filter (where name = 'cpu.frequency_khz') as bigint) as now_khz,
         try_cast(max(value) filter (where name = 'cpu.max_frequency_khz') as bigint) as max_khz
  from host_fact
)
select 'CPU-FREQUENCY' as id, 'info' as severity, 'medium' as confidence, 'CPUs of the host' as subject,
       format('The frequency governor is {}, and the first CPU ran at {:.2f} of at most {:.2f} GHz', governor, now_khz / 1e6, max_khz / 1e6) as statement,
       null::double as cost_s, null::double as share_of_db_time, 1::bigint as samples, c.ts_from, c.ts_to,
       to_json([{governor: governor, frequency_khz: now_khz, max_frequency_khz: max_khz}]) as evidence
from fact cross join capture c
where governor <> 'performance' and now_khz < getvariable('slow_frequency') * max_khz
