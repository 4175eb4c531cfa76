-- Studies: their designs and legs are those of experiments; a leg of theirs may have several figures, under the name of each metric.
-- n: of the leg, as in experiment_leg with part 'leg'. value: null where there is none.
create table study_figure (
  run bigint not null references run (id) on delete cascade,
  n bigint not null,
  metric text not null,
  value double precision,
  primary key (run, n, metric)
);
