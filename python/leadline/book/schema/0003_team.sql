-- Who may see and do what, what can be started, and the audit of every change. Times are microseconds since 1970, UTC.
-- A run belongs to a project and, if it was started from one, to a template. Null: not yet known, so shown to administrators alone.
alter table run add column project text;
alter table run add column template text;
create index run_project on run (project, started desc, id desc);
create index run_template on run (template, started desc) where template is not null;
create index run_by_host on run (host, started desc, id desc);
create index run_counts on run (kind, status);
create index run_project_counts on run (project, kind, status);
create index run_unassigned on run (id) where project is null;

create table project (
  name text primary key,
  created bigint not null
);
insert into project values ('main', 0);

create table account (
  name text primary key,
  password text,
  admin integer not null default 0,
  disabled integer not null default 0,
  created bigint not null
);

create table member (
  project text not null references project (name),
  account text not null references account (name) on delete cascade,
  role text not null,
  primary key (project, account)
);

-- Ids of sessions and tokens are stored as SHA-256; who reads the store cannot use them.
create table session (
  hash text primary key,
  account text not null references account (name) on delete cascade,
  created bigint not null,
  used bigint not null,
  address text not null
);

create table token (
  prefix text primary key,
  hash text not null,
  account text not null references account (name) on delete cascade,
  name text not null,
  scope text not null,
  project text,
  created bigint not null,
  expires bigint not null,
  used bigint
);

create table template (
  uid text primary key,
  project text not null references project (name),
  name text not null,
  version integer not null,
  spec_json text not null,
  changed bigint not null,
  changed_by text not null,
  unique (project, name)
);

create table template_version (
  template text not null references template (uid) on delete cascade,
  version integer not null,
  spec_json text not null,
  changed bigint not null,
  changed_by text not null,
  primary key (template, version)
);

create table template_grant (
  template text not null references template (uid) on delete cascade,
  account text not null references account (name) on delete cascade,
  role text not null,
  primary key (template, account)
);

-- A run that was asked for; uid is that of the run. status: waiting (for the run in `after`), approval, queued, started, cancelling, done,
-- cancelled, refused.
create table launch (
  uid text primary key,
  project text not null,
  template text not null,
  version integer not null,
  status text not null,
  inputs_json text not null,
  by_account text not null,
  cause text not null,
  after text,
  asked bigint not null,
  started bigint,
  note text not null default ''
);
create index launch_open on launch (status, asked) where status in ('waiting', 'approval', 'queued');
create index launch_template on launch (template, asked desc);

create table schedule (
  uid text primary key,
  project text not null references project (name),
  template text not null references template (uid) on delete cascade,
  cron text not null,
  zone text not null,
  overlap text not null,
  catch_up text not null,
  inputs_json text not null,
  active integer not null,
  next_due bigint,
  by_account text not null,
  created bigint not null
);
create index schedule_due on schedule (next_due) where active = 1;

-- One run for each slot of a schedule, however many servers look at it.
create table schedule_fire (
  schedule text not null references schedule (uid) on delete cascade,
  due bigint not null,
  launch text,
  note text not null default '',
  primary key (schedule, due)
);

create table secret (
  project text not null references project (name),
  name text not null,
  key_id text not null,
  nonce text not null,
  ciphertext text not null,
  changed bigint not null,
  changed_by text not null,
  primary key (project, name)
);

create table hook (
  uid text primary key,
  project text not null references project (name),
  direction text not null,
  name text not null,
  template text references template (uid) on delete cascade,
  url text,
  events text,
  secret_name text not null,
  inputs_json text not null default '{}',
  created bigint not null,
  unique (project, name)
);

create table hook_seen (
  hook text not null references hook (uid) on delete cascade,
  signature text not null,
  seen bigint not null,
  primary key (hook, signature)
);

create table hook_sent (
  hook text not null references hook (uid) on delete cascade,
  run text not null,
  event text not null,
  sent bigint not null,
  outcome text not null,
  primary key (hook, run, event)
);

-- Each row's hash covers the hash of the row before; audit_head has the newest, so that rows cannot be taken from the end either.
create table audit (
  n bigint primary key,
  ts bigint not null,
  account text not null,
  token text,
  address text not null,
  operation text not null,
  object text not null,
  detail_json text not null,
  outcome text not null,
  prev text not null,
  hash text not null
);
create index audit_ts on audit (ts);

create table audit_head (
  one integer primary key,
  n bigint not null,
  hash text not null
);
insert into audit_head values (1, 0, '');
