-- What is asked of a book of a million runs is answered by walking an index in its order, or by counters.
-- A label knows when its run began, so that the newest runs with a label are read first.
alter table label add column started bigint not null default 0;
update label set started = (select run.started from run where run.id = label.run);
drop index label_value;
create index label_value on label (key, value, started desc, run desc);
create index label_key on label (key, started desc, run desc);

drop index run_counts;
drop index run_project_counts;
drop index run_template;
create index run_template on run (template, started desc, id desc) where template is not null;
create index run_project_status on run (project, status, started desc, id desc) where status <> 'ok';
create index run_project_name_status on run (project, name, status, started desc, id desc) where status <> 'ok';
create index run_project_name on run (project, name, started desc, id desc);
create index run_template_status on run (template, status, started desc, id desc) where template is not null and status <> 'ok';
create index run_template_kind on run (template, kind, started desc, id desc) where template is not null;
create index run_template_name on run (template, name, started desc, id desc) where template is not null;
create index run_running on run (status, host) where status = 'running';

-- What goes on is looked at twice a second: not in all that ever was.
drop index launch_open;
create index launch_status on launch (status, asked);

-- Whose server started it: that host alone can tell whether it has begun.
alter table launch add column host text;

-- Links that log a user in once; as for tokens, only the SHA-256 of the key is stored.
create table login_link (
  hash text primary key,
  account text not null references account (name) on delete cascade,
  expires bigint not null
);

-- How many runs there are, kept by triggers. day: since 1970, UTC; project and template are empty for runs that have none.
create table run_count (
  day bigint not null,
  project text not null,
  template text not null,
  kind text not null,
  status text not null,
  n bigint not null,
  primary key (day, project, template, kind, status)
);
insert into run_count
  select started / 86400000000, coalesce(project, ''), coalesce(template, ''), kind, status, count(*) from run group by 1, 2, 3, 4, 5;
[sqlite] create trigger run_added after insert on run begin
  insert into run_count values (new.started / 86400000000, coalesce(new.project, ''), coalesce(new.template, ''), new.kind, new.status, 1)
  on conflict (day, project, template, kind, status) do update set n = n + 1; end;
[sqlite] create trigger run_removed after delete on run begin
  update run_count set n = n - 1 where day = old.started / 86400000000 and project = coalesce(old.project, '')
  and template = coalesce(old.template, '') and kind = old.kind and status = old.status; end;
[sqlite] create trigger run_was after update of started, project, template, kind, status on run begin
  update run_count set n = n - 1 where day = old.started / 86400000000 and project = coalesce(old.project, '')
  and template = coalesce(old.template, '') and kind = old.kind and status = old.status; end;
[sqlite] create trigger run_is after update of started, project, template, kind, status on run begin
  insert into run_count values (new.started / 86400000000, coalesce(new.project, ''), coalesce(new.template, ''), new.kind, new.status, 1)
  on conflict (day, project, template, kind, status) do update set n = n + 1; end;
-- For each statement, not for each row: a count that changes again and again in a transaction would become slow.
[postgresql] create function count_runs() returns trigger language plpgsql as $$ declare counted text := case tg_op
  when 'INSERT' then 'select *, 1 as one from fresh' when 'DELETE' then 'select *, -1 as one from gone'
  else 'select *, 1 as one from fresh union all select *, -1 as one from gone' end; begin
  execute 'insert into ' || quote_ident(tg_table_schema) || '.run_count as c (day, project, template, kind, status, n) '
  'select started / 86400000000, coalesce(project, ''''), coalesce(template, ''''), kind, status, sum(one) from (' || counted || ') r '
  'group by 1, 2, 3, 4, 5 having sum(one) <> 0 '
  'on conflict (day, project, template, kind, status) do update set n = c.n + excluded.n'; return null; end $$;
[postgresql] create trigger run_added after insert on run referencing new table as fresh for each statement execute function count_runs();
[postgresql] create trigger run_removed after delete on run referencing old table as gone for each statement execute function count_runs();
[postgresql] create trigger run_changed after update on run referencing old table as gone new table as fresh
  for each statement execute function count_runs();
