-- Who somebody is, whoever gets the same name later. What is asked for keeps this, beside the name; '' is nobody who is still there.
-- by_uid: in whose name, and with whose rights, it is started; 'owner' is the user of the book.
alter table account add column uid text not null default '';
update account set uid = name || '.' || created;
create unique index account_uid on account (uid);
alter table launch add column by_uid text not null default '';
alter table schedule add column by_uid text not null default '';
alter table hook add column by_uid text not null default '';
update launch set by_uid = coalesce((select a.uid from account a where a.name = launch.by_account and a.created <= launch.asked), '');
update schedule set by_uid = coalesce((select a.uid from account a where a.name = schedule.by_account and a.created <= schedule.created), '');
update hook set by_uid = coalesce((select a.uid from account a where a.name = hook.by_account and a.created <= hook.created), '');
update launch set by_uid = 'owner' where by_account = 'owner';
update schedule set by_uid = 'owner' where by_account = 'owner';
update hook set by_uid = 'owner' where by_account = 'owner';
update launch set by_uid = coalesce(
  (select h.by_uid from hook h where h.project = launch.project and 'hook ' || h.name = launch.cause), '') where by_account = 'hook';

-- Who approved it.
alter table launch add column approved_uid text not null default '';
