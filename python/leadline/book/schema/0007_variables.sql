-- Values that templates of a project share. They are open; what nobody may see is a secret.
create table variable_group (
  project text not null references project (name),
  name text not null,
  values_json text not null,
  changed bigint not null,
  changed_by text not null,
  primary key (project, name)
);
