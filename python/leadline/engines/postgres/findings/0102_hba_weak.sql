-- id: HBA-WEAK
-- title: pg_hba.conf lets other hosts in by a weak method
-- question: Which rules let other hosts in without a password, or with one that can be read or guessed on the way?
-- domain: postgres
-- needs: hba_rule
-- unit: rules
-- cost: none
-- evaluable when: exists (from hba_rule) | the rules of pg_hba.conf could not be read: only a superuser with a connection may
-- silent unless: exists (from hba_rule where type like 'host%' and auth_method in ('trust', 'password', 'md5', 'ldap', 'pam', 'radius', 'bsd', 'oauth'))
-- wrong when: an earlier rule rejects the same clients, or a firewall keeps them out
with weak as (
  select *, case when auth_method = 'trust' then 'trust' when auth_method = 'md5' then 'md5' else 'password' end as weakness
  from hba_rule
  where error = '' and auth_method in ('trust', 'password', 'md5', 'ldap', 'pam', 'radius', 'bsd', 'oauth')
    and (type in ('host', 'hostnossl', 'hostnogssenc') or (type in ('hostssl', 'hostgssenc') and auth_method = 'trust'))
    and not is_rule_of_this_host(address, netmask)
)
select 'HBA-WEAK' as id, case weakness when 'trust' then 'high' when 'password' then 'high' else 'medium' end as severity, 'high' as confidence,
       format('rule {} {} {} {} {}', type, database, user_name, hba_address(address, netmask), auth_method) as subject,
       format('line {} lets {} of {} in {}', line_number, case when user_name = 'all' then 'every user' else 'user ' || user_name end,
              case when address = 'all' or mask_bits(netmask) = 0 then 'every host' else hba_address(address, netmask) end,
              case weakness when 'trust' then 'without a password'
                            when 'password' then format('by {}: the ' || case auth_method when 'oauth' then 'token' else 'password' end || ' itself crosses the network where the client does not use TLS', auth_method)
                            else 'by md5: the password can be guessed offline from what is sent, where the client does not use TLS' end) as statement,
       null::double as cost_s, null::double as share_of_db_time, 1::bigint as samples, c.ts_from, c.ts_to,
       to_json([{line_number: line_number, type: type, database: database, user_name: user_name, address: address, netmask: netmask,
                 auth_method: auth_method}]) as evidence
from weak cross join capture c order by line_number, subject
