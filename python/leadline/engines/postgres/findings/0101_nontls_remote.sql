-- id: NONTLS-REMOTE
-- title: Sessions come over a public network without encryption
-- question: Which sessions of clients from outside are not encrypted?
-- domain: postgres
-- needs: session
-- unit: sessions
-- cost: none
-- threshold: nontls_private = 0 (1: also from private addresses of other hosts; there much traffic is left plain on purpose)
-- silent unless: exists (from session where not ssl and client_addr not in ('', 'local'))
-- wrong when: the client comes through a tunnel or a proxy of its own network that encrypts
with remote as (  -- the last description of each session
  select session_id, max_by(client_addr, ts) as client_addr, max_by(application_name, ts) as application_name, max_by(pid, ts) as pid,
         max_by(usesysid, ts) as usesysid, max_by(ssl, ts) as ssl, min(ts) as ts_from
  from session where backend_type in ('client backend', 'walsender') group by session_id
),
client as (
  select client_addr, count(*) as sessions, min(ts_from) as ts_from,
         to_json(list({pid: pid, application_name: application_name, usesysid: usesysid} order by pid)[:20]) as evidence
  from remote
  where not ssl and client_addr not in ('', 'local') and not is_of_this_host(client_addr)
    and (getvariable('nontls_private') > 0 or not is_private(client_addr))
  group by all
)
select 'NONTLS-REMOTE' as id, 'medium' as severity, 'high' as confidence, 'client ' || client_addr as subject,
       format('{} session{} from {} without TLS: what they ask and get can be read on the way', sessions, case when sessions = 1 then '' else 's' end, client_addr) as statement,
       null::double as cost_s, null::double as share_of_db_time, sessions as samples, l.ts_from, c.ts_to, evidence
from client l cross join capture c order by sessions desc, subject
