-- What a command printed until it ended: SHA-256 of the first log_hashed bytes of its log.
alter table run add column log_hash text;
alter table run add column log_hashed bigint;

-- Experiments. What is in design_json was written down before the first leg began; seal: sha256 of the run's uid, `registered` and it.
-- question: the same for designs that ask the same of the same commands. earlier_json: uids of those that were registered before.
create table experiment (
  run bigint primary key references run (id) on delete cascade,
  question text not null,
  registered bigint not null,
  design_json text not null,
  seal text not null,
  earlier_json text not null,
  verdict text,
  good bigint,
  text text not null default '',
  ratio double precision,
  low double precision,
  high double precision,
  pairs bigint,
  differs_json text not null default '[]'
);
create index experiment_question on experiment (question, registered);

-- part: leg, warmup or prepare; n counts legs from 0, others from 0 by themselves. problem: why it has no value.
create table experiment_leg (
  run bigint not null references run (id) on delete cascade,
  part text not null,
  n bigint not null,
  side text not null,
  leg text not null,
  started bigint not null,
  value double precision,
  problem text not null default '',
  primary key (run, part, n)
);
