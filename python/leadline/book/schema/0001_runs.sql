-- Runs, what they were given, made and cost. Times are microseconds since 1970, UTC; columns that end in _json hold JSON.
-- Every statement must mean the same to SQLite and PostgreSQL; one that begins with [sqlite] or [postgresql] is for that store alone.
create table run (
  id integer primary key,
  uid text not null unique,
  kind text not null,
  name text not null,
  status text not null,
  parent text,
  user_name text not null,
  host text not null,
  cwd text not null,
  argv_json text not null,
  inputs_json text not null default '{}',
  started bigint not null,
  ended bigint,
  rc bigint,
  signal bigint,
  summary text not null default '',
  version text not null,
  facts text,
  pid bigint not null,
  pid_start bigint,
  boot text not null,
  pinned bigint not null default 0,
  log_bytes bigint,
  log_lost_bytes bigint not null default 0,
  events_lost bigint not null default 0
);
create index run_started on run (started desc, id desc);
create index run_kind on run (kind, started desc, id desc);
create index run_status on run (status, started desc, id desc) where status <> 'ok';
create index run_name on run (name, started desc, id desc);
create index run_name_status on run (name, status, started desc, id desc) where status <> 'ok';
create index run_parent on run (parent) where parent is not null;

create table label (
  run bigint not null references run (id) on delete cascade,
  key text not null,
  value text not null,
  primary key (run, key)
);
create index label_value on label (key, value, run desc);

-- What a run made. hash: sha256 of a file; of a folder, of the names and hashes of its files; null if it is large.
create table artifact (
  run bigint not null references run (id) on delete cascade,
  n bigint not null,
  kind text not null,
  path text not null,
  size bigint,
  hash text,
  primary key (run, path)
);

-- Files that a run was given. hash: of its bytes; null if they were too many to read.
create table run_file (
  run bigint not null references run (id) on delete cascade,
  path text not null,
  size bigint not null,
  modified bigint not null,
  hash text,
  primary key (run, path)
);

-- Texts by the hash of their bytes, each once: facts of hosts (JSON), small files.
create table content (
  hash text primary key,
  size bigint not null,
  body text not null
);

create table metric (
  run bigint not null references run (id) on delete cascade,
  name text not null,
  value double precision not null,
  primary key (run, name)
);
create index metric_name on metric (name, run desc);

-- Words of names, commands and summaries, to search by.
[sqlite] create virtual table run_words using fts5 (words, detail = none, prefix = '2 3', tokenize = 'unicode61 remove_diacritics 0');
[postgresql] create table run_words (run bigint primary key references run (id) on delete cascade, words tsvector not null);
[postgresql] create index run_words_words on run_words using gin (words) with (fastupdate = off);

-- How far each spool was taken in: the next event to come is at this byte of the file.
create table ingest_state (
  uid text primary key,
  place bigint not null
);
