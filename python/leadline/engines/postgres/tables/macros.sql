-- threshold: default_block_bytes = 8192 (BLCKSZ unless the server was built otherwise)

-- Bytes of a block from the value of the setting block_size; when it is not known, of a server that was not built otherwise.
create or replace macro block_bytes_of(block_size) as coalesce(try_cast(block_size as bigint), getvariable('default_block_bytes')::bigint);

-- An identifier of PostgreSQL as a command needs it: quoted unless it is a plain word that is not reserved.
create or replace macro pg_ident(name) as
  case when regexp_full_match(name, '[a-z_][a-z0-9_$]*') and not regexp_full_match(name,
         'all|analyse|analyze|and|any|array|as|asc|asymmetric|authorization|binary|both|case|cast|check|collate|collation|'
         || 'column|concurrently|constraint|create|cross|current_catalog|current_date|current_role|current_schema|'
         || 'current_time|current_timestamp|current_user|default|deferrable|desc|distinct|do|else|end|except|false|fetch|for|'
         || 'foreign|freeze|from|full|grant|group|having|ilike|in|initially|inner|intersect|into|is|isnull|join|lateral|'
         || 'leading|left|like|limit|localtime|localtimestamp|natural|not|notnull|null|offset|on|only|or|order|outer|'
         || 'overlaps|placing|primary|references|returning|right|select|session_user|similar|some|symmetric|system_user|'
         || 'table|tablesample|then|to|trailing|true|union|unique|user|using|variadic|verbose|when|where|window|with')
       then name else '"' || replace(name, '"', '""') || '"' end;
-- A text of PostgreSQL as a command needs it.
create or replace macro pg_literal(value) as '''' || replace(value, '''', '''''') || '''';

-- A word for pg_class.relkind.
create or replace macro relation_kind(relkind) as
  case relkind when 'r' then 'table' when 'i' then 'index' when 'S' then 'sequence' when 't' then 'TOAST table' when 'm' then 'materialized view'
               when 'p' then 'partitioned table' when 'I' then 'partitioned index' end;

-- An LWLock that an extension made: the server's own are words in capitals like WALWrite (from 13 on), or a number not known.
create or replace macro is_extension_lock(wait_event) as regexp_matches(wait_event, '^[a-z]|[_ -]') and not starts_with(wait_event, 'unknown:');

-- A command that keeps others out of a table while it works; null for all others, and for the forms that let others work.
create or replace macro blocking_command(query) as case
  when regexp_matches(query, '(?i)\bconcurrently\b') then null
  when begins_with(without_comments(query), 'vacuum\s*(full|\([^)]*\bfull)') and not regexp_matches(query, '(?i)\bfull\s+(off|false|no|0)\b') then 'VACUUM FULL'
  when begins_with(without_comments(query), 'cluster') then 'CLUSTER'
  when begins_with(without_comments(query), 'reindex') then 'REINDEX'
  when begins_with(without_comments(query), 'create (unique )?index') then 'CREATE INDEX'
  when begins_with(without_comments(query), 'refresh materialized view') then 'REFRESH MATERIALIZED VIEW'
  when begins_with(without_comments(query), 'truncate') then 'TRUNCATE'
  when begins_with(without_comments(query), 'alter (table|index|materialized view)') then 'ALTER TABLE'
  when begins_with(without_comments(query), 'drop (table|index|materialized view|trigger)') then 'DROP'
  when begins_with(without_comments(query), 'create (or replace )?(constraint )?trigger') then 'CREATE TRIGGER'
  when begins_with(without_comments(query), 'lock') then 'LOCK TABLE' end;

-- Bits of a mask as pg_hba_file_rules writes it; null without one.
create or replace macro mask_bits(netmask) as
  case when netmask = '' then null
       when contains(netmask, ':') then list_sum(list_transform(string_split(netmask, ':'), lambda part: bit_count(coalesce(try_cast('0x' || part as integer), 0))))::integer
       else list_sum(list_transform(string_split(netmask, '.'), lambda part: bit_count(coalesce(try_cast(part as utinyint), 0))))::integer end;
-- Where a rule of pg_hba.conf applies, as the file has it.
create or replace macro hba_address(address, netmask) as address || coalesce('/' || mask_bits(netmask), '');
-- The rule lets in nobody but the host itself.
create or replace macro is_rule_of_this_host(address, netmask) as
  is_of_this_host(address) and coalesce(mask_bits(netmask) >= case when contains(netmask, ':') then 128 else 8 end, true);

-- Seconds of a wait of one process without its part of the run queue. A process that was woken and has no CPU yet still shows its wait. The
-- scheduler counts that time: what the samples without a wait do not have of queue_s fell into waits, in proportion. seen_s: samples of
-- this wait; waits_s: of all its waits; no_wait_s: samples without one. Where nobody knows run_s and queue_s, they are seen_s.
create or replace macro waited_without_queue(seen_s, waits_s, no_wait_s, run_s, queue_s) as
  seen_s * (1 - least(greatest(coalesce(queue_s - greatest(coalesce(no_wait_s, 0) - run_s, 0), 0), 0) / waits_s, 1));
