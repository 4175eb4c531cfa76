-- One-time codes of accounts (TOTP). totp_json: key id, nonce and ciphertext of the secret; totp_active: a code has confirmed it;
-- totp_step: that of the last code that was taken, so that none is taken twice.
alter table account add column totp_json text;
alter table account add column totp_active integer not null default 0;
alter table account add column totp_step bigint not null default 0;

-- hook.direction: in, out, mail, after. by_account: in whose name a hook starts a template when a run has ended.
alter table hook add column by_account text not null default 'owner';

-- A slot of a schedule begins up to so many seconds later, so that not all begin at once.
alter table schedule add column jitter_s bigint not null default 0;

-- What an identity provider calls a user.
alter table account add column oidc_issuer text;
alter table account add column oidc_subject text;
create unique index account_oidc on account (oidc_issuer, oidc_subject) where oidc_subject is not null;
