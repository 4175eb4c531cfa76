-- Browsers in which a user has logged in: a password may be tried there while others may not try. As for sessions, only the SHA-256 of what
-- the browser holds is stored. One browser may be that of several users.
create table device (
  hash text not null,
  account text not null references account (name) on delete cascade,
  used bigint not null,
  primary key (hash, account)
);
create index device_account on device (account, used);
