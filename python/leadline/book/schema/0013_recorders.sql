-- Directories of `leadline record` that an administrator of the server has registered: whoever may see the project may look into them.
create table recorder (
  name text primary key,
  project text not null,
  directory text not null,
  created bigint not null,
  by_account text not null,
  by_uid text not null
);
