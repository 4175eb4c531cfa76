-- The token with which a token was made: to revoke that one revokes this one.
alter table token add column made_by text;
create index token_made_by on token (made_by) where made_by is not null;

-- The run (uid) that others of the template are compared with; it is not pruned.
alter table template add column baseline text;
create index template_baseline on template (baseline) where baseline is not null;
