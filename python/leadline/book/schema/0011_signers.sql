-- Who signs the requests of a hook (leadline, github, gitlab), which events it takes, and what must stand in the body.
alter table hook add column signed text not null default 'leadline';
alter table hook add column only_json text not null default '{}';

-- Until when a request is remembered, so that it is not taken twice.
alter table hook_seen add column until bigint not null default 0;
update hook_seen set until = seen + 600000000;
