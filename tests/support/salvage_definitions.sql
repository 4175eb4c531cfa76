select 'schema ' || nspname, '' from pg_namespace where oid >= 16384 and nspname !~ '^pg_'
union all select 'column ' || a.attrelid::regclass || '.' || a.attname, concat_ws(' ', format_type(a.atttypid, a.atttypmod), a.attcollation::regcollation,
  a.attnotnull, a.attidentity, a.attgenerated, a.attstorage, (select pg_get_expr(adbin, adrelid) from pg_attrdef where adrelid = a.attrelid and adnum = a.attnum))
  from pg_attribute a join pg_class c on c.oid = a.attrelid where c.oid >= 16384 and relkind in ('r', 'p', 'v', 'm', 'c') and attnum > 0 and not attisdropped
union all select 'table ' || oid::regclass, concat_ws(' ', relkind, relpersistence, reloptions, relrowsecurity, relreplident, pg_get_expr(relpartbound, oid),
  pg_get_partkeydef(oid), (select string_agg(inhparent::regclass::text, ',' order by inhseqno) from pg_inherits where inhrelid = c.oid))
  from pg_class c where oid >= 16384 and relkind in ('r', 'p', 'v', 'm', 'S')
union all select 'constraint ' || coalesce(nullif(conrelid, 0)::regclass::text, contypid::regtype::text) || '.' || conname, pg_get_constraintdef(oid)
  from pg_constraint where oid >= 16384
union all select 'index ' || indexrelid::regclass, pg_get_indexdef(indexrelid) from pg_index where indexrelid >= 16384 and indrelid >= 16384
  and not exists (select from pg_class t where t.reltoastrelid = indrelid)
union all select 'view ' || oid::regclass, pg_get_viewdef(oid) from pg_class where oid >= 16384 and relkind in ('v', 'm')
union all select 'function ' || oid::regprocedure, case when prokind = 'a' then prosrc else pg_get_functiondef(oid) end from pg_proc where oid >= 16384
union all select 'aggregate ' || aggfnoid::regprocedure, concat_ws(' ', aggtransfn, aggtranstype::regtype, agginitval) from pg_aggregate where aggfnoid >= 16384
union all select 'trigger ' || tgname, pg_get_triggerdef(oid) from pg_trigger where not tgisinternal
union all select 'policy ' || polname, concat_ws(' ', polcmd, polroles::regrole[], pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid)) from pg_policy
union all select 'enum ' || enumtypid::regtype, string_agg(enumlabel, ',' order by enumsortorder) from pg_enum group by enumtypid
union all select 'domain ' || oid::regtype, concat_ws(' ', format_type(typbasetype, typtypmod), typnotnull, typdefault, typcollation::regcollation)
  from pg_type where oid >= 16384 and typtype = 'd'
union all select 'range ' || rngtypid::regtype, concat_ws(' ', rngsubtype::regtype, rngsubdiff) from pg_range where rngtypid >= 16384
union all select 'sequence ' || seqrelid::regclass, concat_ws(' ', seqtypid::regtype, seqstart, seqincrement, seqmin, seqmax, seqcache, seqcycle) from pg_sequence
union all select 'comment ' || pg_describe_object(classoid, objoid, objsubid), description from pg_description where objoid >= 16384
union all select 'owner ' || oid::regclass, relowner::regrole::text from pg_class where oid >= 16384 and relkind in ('r', 'p', 'v', 'm', 'S')
union all select 'right on ' || oid::regclass, string_agg(item::text, ',' order by item::text) from pg_class, unnest(relacl) item where oid >= 16384
  and relkind in ('r', 'p', 'v', 'm', 'S') and not starts_with(item::text, relowner::regrole || '=') group by oid
union all select 'right on ' || attrelid::regclass || '.' || attname, string_agg(item::text, ',' order by item::text) from pg_attribute, unnest(attacl) item
  where attrelid >= 16384 group by attrelid, attname
union all select 'right on ' || oid::regprocedure, string_agg(item::text, ',' order by item::text) from pg_proc, unnest(proacl) item where oid >= 16384 group by oid
union all select 'extension ' || extname, extversion from pg_extension
union all select 'operator ' || oid::regoperator, concat_ws(' ', oprcode, oprcom::regoperator, oprnegate::regoperator, oprrest, oprjoin, oprcanhash)
  from pg_operator where oid >= 16384
union all select 'cast ' || castsource::regtype || ' as ' || casttarget::regtype, concat_ws(' ', castfunc::regprocedure, castcontext, castmethod)
  from pg_cast where oid >= 16384
union all select 'right on schema ' || oid::regnamespace, string_agg(item::text, ',' order by item::text) from pg_namespace, unnest(nspacl) item
  where nspname !~ '^(pg_|information)' group by oid
union all select 'statistics ' || stxname, pg_get_statisticsobjdef(oid) from pg_statistic_ext
union all select 'publication ' || pubname, concat_ws(' ', puballtables, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot) from pg_publication
union all select 'published by ' || pubname || ' ' || schemaname || '.' || tablename, to_jsonb(p)::text from pg_publication_tables p
union all select 'subscription ' || subname, concat_ws(' ', regexp_replace(subconninfo, 'password=''.*'' ', ''), subslotname, subsynccommit, subpublications, subenabled) from pg_subscription
union all select 'dictionary ' || oid::regdictionary, concat_ws(' ', dicttemplate, dictinitoption) from pg_ts_dict where oid >= 16384
union all select 'words of ' || mapcfg::regconfig || ' ' || maptokentype || ' ' || mapseqno, mapdict::regdictionary::text from pg_ts_config_map where mapcfg >= 16384
union all select 'wrapper ' || fdwname, array_to_string(fdwoptions, ',') from pg_foreign_data_wrapper
union all select 'server ' || srvname, concat_ws(' ', srvtype, srvversion, array(select o from unnest(srvoptions) o where o !~ '^password'), srvacl) from pg_foreign_server
union all select 'mapping of ' || usename || ' ' || srvname, array(select o from unnest(umoptions) o where o !~ '^password')::text from pg_user_mappings
union all select 'foreign table ' || ftrelid::regclass, concat_ws(' ', ftoptions, (select string_agg(concat_ws(' ', attname, format_type(atttypid, atttypmod), attnotnull, attfdwoptions,
  (select pg_get_expr(adbin, adrelid) from pg_attrdef where adrelid = attrelid and adnum = attnum)), ',' order by attnum) from pg_attribute where attrelid = ftrelid and attnum > 0),
  (select concat_ws(' ', relacl, pg_get_expr(relpartbound, oid)) from pg_class where oid = ftrelid)) from pg_foreign_table
union all select 'event trigger ' || evtname, concat_ws(' ', evtevent, evtfoid::regproc, evtenabled, evttags) from pg_event_trigger
union all select 'default privileges ' || defaclrole::regrole || ' ' || defaclnamespace::regnamespace || ' ' || defaclobjtype::text,
  (select string_agg(item::text, ',' order by item::text) from unnest(defaclacl) item) from pg_default_acl
