-- What Ansible did in a run of kind `ansible`. Plays and tasks are counted within their run; the number of a result is that of its event.
create table playbook (
  run bigint primary key references run (id) on delete cascade,
  path text not null,
  ansible_version text not null,
  python_version text not null,
  arguments_json text not null,
  has_totals bigint not null default 0
);

create table play (
  run bigint not null references run (id) on delete cascade,
  n bigint not null,
  uuid text not null,
  name text not null,
  hosts text not null,
  strategy text not null,
  place text not null,
  started bigint not null,
  ended bigint,
  primary key (run, n)
);

create table task (
  run bigint not null references run (id) on delete cascade,
  n bigint not null,
  play bigint not null,
  uuid text not null,
  name text not null,
  action text not null,
  file text not null,
  line bigint,
  role text not null,
  tags_json text not null,
  args_json text not null,
  handler bigint not null,
  no_log bigint not null,
  started bigint not null,
  ended bigint,
  primary key (run, n)
);
create index task_action on task (action, run desc);

-- part: result (of a task on a host), item (of one item of its loop), retry (an attempt that was made again).
-- status: ok, failed, skipped, unreachable; a failure may be ignored, or rescued by its block. changed: of any status.
create table result (
  run bigint not null references run (id) on delete cascade,
  n bigint not null,
  task bigint not null,
  host text not null,
  part text not null,
  item_n bigint,
  item text,
  items bigint,
  attempts bigint,
  status text not null,
  changed bigint not null,
  ignored bigint not null,
  rescued bigint not null,
  started bigint,
  ended bigint not null,
  delegated_to text not null,
  warnings bigint not null,
  deprecations bigint not null,
  message text not null,
  primary key (run, n)
);
create index result_task on result (run, task, host, n);
create index result_host on result (host, run desc, n);

-- What the module returned, as JSON, without secrets and facts.
create table result_body (
  run bigint not null references run (id) on delete cascade,
  n bigint not null,
  body_json text not null,
  primary key (run, n)
);

-- Totals by Ansible; of a run that was interrupted, counted from its results. facts: what stays, facts_now: what changes all the time.
create table run_host (
  run bigint not null references run (id) on delete cascade,
  host text not null,
  ok bigint not null default 0,
  changed bigint not null default 0,
  failed bigint not null default 0,
  unreachable bigint not null default 0,
  skipped bigint not null default 0,
  rescued bigint not null default 0,
  ignored bigint not null default 0,
  facts text,
  facts_now text,
  primary key (run, host)
);
create index run_host_host on run_host (host, run desc);

-- Facts as JSON by the SHA-256 of their text, each once.
create table host_facts (
  hash text primary key,
  body_json text not null
);

-- What else Ansible said: handlers notified, files included, plays without hosts.
create table ansible_note (
  run bigint not null references run (id) on delete cascade,
  n bigint not null,
  ts bigint not null,
  what text not null,
  host text not null,
  body text not null,
  primary key (run, n)
);

-- Values that a playbook kept with set_stats, or Ara's ara_record; host is empty for those of the run.
create table record (
  run bigint not null references run (id) on delete cascade,
  host text not null,
  key text not null,
  type text not null,
  value_json text not null,
  primary key (run, host, key)
);
