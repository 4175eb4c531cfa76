"""A cluster with a relation for each damage, and the table of what finds which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import psycopg

import damages.heap
import damages.indexes
from damages.pages import Damage, Made

ALL: Sequence[Damage] = [*damages.heap.DAMAGES, *damages.indexes.DAMAGES]

COLUMNS = """id int, b bool, d date, ts timestamptz, e mood, n numeric, t text collate "C", a int[], j jsonb, v text"""
# Rows in no order of their ids; some have nulls, and some a value outside, packed or not.
ROWS = """
select (n * 7919) % 100003, n % 2 = 0, date '2020-01-01' + n % 900, timestamptz '2021-01-01' + n * interval '1 minute',
       case when n % 2 = 0 then 'sad'::mood else 'happy' end, n * 1.25 + 1000, md5(n::text), array[n, n % 7, n % 11],
       jsonb_build_object('n', n), case n % 40 when 0 then (select string_agg(md5((n * i)::text), '') from generate_series(1, 200) i)
                   when 20 then (select string_agg(repeat(md5((n * i)::text), 2), '') from generate_series(1, 400) i) else 'short' end
from generate_series(1, {rows}) n
"""
INDEXES = {
    "rows": {"btree id": "using btree (id)", "btree text": "using btree (t)"},
    "btree": {"btree": "using btree (k) with (fillfactor = 20)", "btree dup": "using btree (few)"},
    "hash": {"hash": "using hash (t)"},
    "gin": {"gin": "using gin (a) with (fastupdate = off)"},
    "gist": {"gist": "using gist (p)"},
    "spgist": {"spgist": "using spgist (p)"},
    "brin": {"brin": "using brin (id) with (pages_per_range = 2)"},
}


def create(db: psycopg.Connection[None], name: str, template: str) -> None:
    """The table of a template with its indexes, or a sequence."""
    if template == "sequence":
        db.execute(f"create sequence {name} maxvalue 1000000".encode())
        db.execute(f"select nextval('{name}') from generate_series(1, 40)".encode())
        return
    if template in ("rows", "plain", "aborted"):
        db.execute(f"create table {name} ({COLUMNS}) with (fillfactor = 80, autovacuum_enabled = off)".encode())
        db.execute(f"insert into {name} {ROWS.format(rows=600)}".encode())
        db.execute(f"update {name} set b = null, d = null where id % 9 = 0".encode())
    elif template == "gin":
        db.execute(f"create table {name} (a int[]) with (autovacuum_enabled = off)".encode())
        db.execute(f"insert into {name} select array[n % 3, n % 2000 + 10, n % 1777 + 5000] from generate_series(1, 24000) n".encode())
    elif template in ("gist", "spgist"):
        db.execute(f"create table {name} (p point) with (autovacuum_enabled = off)".encode())
        db.execute(f"insert into {name} select point(n * 7919 % 10007, n * 104729 % 9973) from generate_series(1, 3000) n".encode())
    elif template == "btree":
        db.execute(f'create table {name} (k text collate "C", few int) with (autovacuum_enabled = off)'.encode())
        db.execute(f"insert into {name} select repeat('x', 150) || md5(n::text), n % 5 from generate_series(1, 3000) n".encode())
    else:
        db.execute(f"create table {name} (id int, t text) with (autovacuum_enabled = off)".encode())
        db.execute(
            f"insert into {name} select n, case when n % 4 = 0 then 'often' else md5(n::text) end from generate_series(1, 6000) n".encode()
        )
    for number, how in enumerate(INDEXES.get(template, {}).values()):
        db.execute(f"create index {name}_{number} on {name} {how}".encode())
    if template in ("rows", "plain"):
        db.execute(f"vacuum {name}".encode())
        db.execute(f"update {name} set b = not b where id % 5 = 0".encode())
        db.execute(f"update {name} set t = t || 'x' where id % 17 = 0".encode())
        db.execute(f"delete from {name} where id % 13 = 0".encode())
    elif template == "aborted":
        db.execute(f"begin; insert into {name} {ROWS.format(rows=60)}; rollback".encode())
    db.execute(f"select count(*) from {name}".encode())  # sets hint bits


def files(db: psycopg.Connection[None], data_dir: Path, name: str, template: str) -> dict[str, Path]:
    def path(relation: str) -> Path:
        row = db.execute("select pg_relation_filepath(%s::regclass)", [relation]).fetchone()
        assert row is not None
        return data_dir / str(row[0])

    if template == "sequence":
        return {"sequence": path(name)}
    found = {"table": path(name)}
    found["vm"] = found["table"].with_name(found["table"].name + "_vm")
    toast = db.execute("select reltoastrelid from pg_class where oid = %s::regclass and reltoastrelid <> 0", [name]).fetchone()
    if toast is not None:
        found["toast"] = path(str(toast[0]))
    for number, of in enumerate(INDEXES.get(template, {})):
        found[of] = path(f"{name}_{number}")
    return found


def planned(times: int) -> list[tuple[str, Damage]]:
    """A relation for each damage; times: how often each is made."""
    wanted = [damage for damage in ALL for _ in range(times)]
    return [(f"d{number:04}", damage) for number, damage in enumerate(wanted)]


def make_all(db: psycopg.Connection[None], plan: Sequence[tuple[str, Damage]]) -> None:
    db.execute("create type mood as enum ('sad', 'happy')")
    for name, damage in plan:
        create(db, name, damage.template)
    db.execute("checkpoint")


def damage_all(made: Sequence[tuple[Made, Damage]], seed: int) -> Iterator[tuple[Made, Damage]]:
    """Each in its own relation, with random numbers of its own: what one does is the same without the others."""
    for one, damage in made:
        damage.do(one, Random(f"{seed} {one.name}"))
        yield one, damage
