"""leadline rows on random values of every type: what the files say is what the server says, as text and in Parquet."""

from __future__ import annotations

import json
import random
import struct
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from conftest import Server
from leadline._core.rows import RowScan
from servers import MAJORS
from test_rows import found, told

ROWS = 400
LETTERS = "abcXYZ019 _-.,;'\"\\{}()[]\n\t/éßΩ漢🐘"

Make = Callable[[random.Random], str]


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def words(r: random.Random, most: int = 30) -> str:
    return "".join(r.choices(LETTERS, k=r.choice([0, 1, 3, r.randrange(most)])))


def integer(bits: int) -> Make:
    return lambda r: quoted(str(r.choice([0, -1, 1, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, r.getrandbits(bits) - 2 ** (bits - 1)])))


def floating(form: str) -> Make:
    def make(r: random.Random) -> str:
        size = struct.calcsize(form)
        [value] = struct.unpack(form, r.randbytes(size))
        simple = r.choice([0.1, -0.0, 1e15, 1e-5, r.random(), r.randrange(10**6) / 100])
        return quoted(repr(r.choice([value, simple])).replace("inf", "Infinity"))

    return make


def numeric(digits: int, scale: int | None) -> Make:
    """Up to so many digits, `scale` of them behind the point; anywhere when it is None."""

    def make(r: random.Random) -> str:
        text = "".join(r.choices("0123456789", weights=[6, 1, 1, 1, 1, 1, 1, 1, 1, 3], k=r.randint(1, digits)))
        behind = r.randint(0, 40) if scale is None else scale
        text = text.rjust(behind + 1, "0")
        return quoted(r.choice(["", "-"]) + (text[:-behind] + "." + text[-behind:] if behind else text))

    return make


def moment(kind: str) -> Make:
    """From 4713 BC to the year 9999, often near to a round one."""

    def make(r: random.Random) -> str:
        us = r.choice([r.randint(-211_000_000_000_000_000, 252_000_000_000_000_000), r.randint(-10, 10), r.randint(-(10**15), 10**15)])
        return f"({kind} '2000-01-01' + make_interval(days => {us // 86_400_000_000}, secs => {us % 86_400_000_000}::numeric / 1000000))"

    return make


def interval(r: random.Random) -> str:
    parts = (r.randint(-3000, 3000), r.randint(-40, 40), r.randint(-(10**12), 10**12))
    months, days, us = (part if r.random() < 0.7 else 0 for part in parts)
    return f"make_interval(months => {months}, days => {days}, secs => {us}::numeric / 1000000)"


def document(r: random.Random, depth: int = 0) -> Any:
    kind = r.randrange(7 if depth < 4 else 5)
    if kind == 0:
        return r.choice([None, True, False])
    if kind in (1, 2):
        return r.choice([r.randint(-(10**12), 10**12), round(r.random() * 1000, 3)])
    if kind in (3, 4):
        return words(r)
    if kind == 5:
        return [document(r, depth + 1) for _ in range(r.randrange(6))]
    return {words(r): document(r, depth + 1) for _ in range(r.randrange(40))}


def array(element: Callable[[random.Random], str]) -> Make:
    def make(r: random.Random) -> str:
        items = (element(r) if r.random() < 0.8 else "null" for _ in range(r.randrange(9)))
        return f"array[{','.join(items)}]"

    return make


def span(low: int, high: int) -> Make:
    def make(r: random.Random) -> str:
        a, b = sorted((r.randint(low, high), r.randint(low, high)))
        return quoted(r.choice(["empty", f"{r.choice('[(')}{a},{b}{r.choice('])')}", f"[{a},)", f"(,{b}]", "(,)"]))

    return make


def network(r: random.Random) -> str:
    if r.random() < 0.5:
        return quoted(".".join(str(r.randrange(256)) for _ in range(4)) + r.choice(["", f"/{r.randint(0, 32)}"]))
    parts = [r.choice(["0", "0", f"{r.getrandbits(16):x}"]) for _ in range(8)]
    return quoted(":".join(parts) + r.choice(["", f"/{r.randint(0, 128)}"]))


TYPES: dict[str, Make] = {
    "bool": lambda r: r.choice(["true", "false"]),
    "int2": integer(16),
    "int4": integer(32),
    "int8": integer(64),
    "oid": lambda r: quoted(str(r.getrandbits(32))),
    "float4": floating("<f"),
    "float8": floating("<d"),
    "numeric": numeric(60, None),
    "numeric(9,0)": numeric(9, 0),
    "numeric(12,3)": numeric(12, 3),
    "numeric(38,9)": numeric(38, 9),
    "text": lambda r: quoted(words(r, 5000)),
    "varchar(40)": lambda r: quoted(words(r)),
    "char(40)": lambda r: quoted(words(r)),
    "bytea": lambda r: quoted("\\x" + r.randbytes(r.choice([0, 1, r.randrange(4000)])).hex()),
    "date": lambda r: f"(date '2000-01-01' + {r.choice([0, -1, r.randint(-2_451_000, 2_921_000)])})",
    "time": lambda r: f"(time '00:00' + make_interval(secs => {r.randrange(86_400_000_000)}::numeric / 1000000))",
    "timestamp": moment("timestamp"),
    "timestamptz": moment("timestamptz"),
    "interval": interval,
    "uuid": lambda r: quoted(str(uuid.UUID(int=r.getrandbits(128)))),
    "inet": network,
    "macaddr": lambda r: quoted(":".join(f"{b:02x}" for b in r.randbytes(6))),
    "money": lambda r: quoted(f"{r.randint(-(10**12), 10**12) / 100:.2f}"),
    "varbit": lambda r: "B" + quoted("".join(r.choices("01", k=r.randrange(40)))),
    "jsonb": lambda r: quoted(json.dumps(document(r), ensure_ascii=False)),
    "json": lambda r: quoted(json.dumps(document(r))),
    "int4[]": lambda r: array(integer(32))(r) + "::int4[]",
    "text[]": lambda r: array(lambda r: quoted(words(r)))(r) + "::text[]",
    "numeric[]": lambda r: array(numeric(30, None))(r) + "::numeric[]",
    "int8range": span(-(2**40), 2**40),
    "numrange": span(-1000, 1000),
    "point": lambda r: f"point({r.uniform(-1e9, 1e9)!r}, {r.random()!r})",
}
SINCE_1970 = "({0}::date - date '1970-01-01') * 86400000000 + (extract(epoch from {0}::time)::numeric * 1000000)::bigint"
# In DuckDB and in the server: values of columns whose Parquet type is not text, in a form that is the same in both.
TYPED = {
    "bool": ("{}", "{}"),
    "int2": ("{}", "{}"),
    "int4": ("{}", "{}"),
    "int8": ("{}", "{}"),
    "oid": ("{}", "{}"),
    "float4": ("{}::double", "{}::float8"),
    "float8": ("{}", "{}"),
    "numeric(9,0)": ("{}::varchar", "{}::text"),
    "numeric(12,3)": ("{}::varchar", "{}::text"),
    "numeric(38,9)": ("{}::varchar", "{}::text"),
    "bytea": ("{}", "{}"),
    "date": ("datediff('day', date '1970-01-01', {})", "{} - date '1970-01-01'"),
    "time": ("epoch_us({})", "(extract(epoch from {})::numeric * 1000000)::bigint"),
    "timestamp": ("epoch_us({})", SINCE_1970),
    "timestamptz": ("epoch_us({})", SINCE_1970),
    "uuid": ("{}::varchar", "{}::text"),
}


def test_the_typed_columns_are_columns_of_the_table() -> None:
    assert set(TYPED) <= set(TYPES)


@pytest.mark.parametrize("major", MAJORS)
def test_random_values_of_every_type(major: int, servers: Callable[[int], Server], tmp_path: Path) -> None:
    server = servers(major)
    r = random.Random(major)
    names = [f"c{i}" for i in range(len(TYPES))]
    with server.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.execute("drop table if exists random_values")
        columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, TYPES))
        connection.execute(f"create table random_values (n int, {columns}) with (autovacuum_enabled = off)")
        rows = []
        for n in range(ROWS):
            # A NUL and a lone surrogate are no text for the server; they are not among LETTERS.
            values = (make(r) + f"::{kind}" if r.random() < 0.9 else "null" for kind, make in TYPES.items())
            rows.append(f"({n}, {', '.join(values)})")
        for first in range(0, ROWS, 50):
            connection.execute(f"insert into random_values values {', '.join(rows[first : first + 50])}")
        connection.execute("checkpoint")
        ours, theirs = found(server, "random_values"), told(connection, "select ctid, * from random_values")
        kinds = ["ctid", "n", *TYPES]
        different = {kind: [(a[i], b[i]) for a, b in zip(ours, theirs) if a[i] != b[i]][:3] for i, kind in enumerate(kinds)}
        assert len(ours) == len(theirs) and not any(different.values()), {kind: of for kind, of in different.items() if of}

        out = tmp_path / "random.parquet"
        scan = RowScan(str(server.private.data_dir), relation="random_values", database="postgres")
        assert scan.export(str(out), 2, None) == (ROWS, [])
        of = dict(zip(TYPES, names))
        typed = ", ".join(form[0].format(of[kind]) for kind, form in TYPED.items())
        asked = ", ".join(form[1].format(of[kind]) for kind, form in TYPED.items())
        with duckdb.connect() as reader:
            reader.execute("set timezone = 'UTC'")
            numbers = reader.execute(f"select {typed} from '{out}' order by n").fetchall()
            plain = [name for kind, name in of.items() if kind not in TYPED]
            texts = reader.execute(f"select {', '.join(plain)} from '{out}' order by n").fetchall()
        expected = connection.execute(f"select {asked} from random_values order by n").fetchall()
        for i, kind in enumerate(TYPED):
            assert [repr(row[i]) for row in numbers] == [repr(row[i]) for row in expected], kind
        assert [list(row) for row in texts] == told(connection, f"select {', '.join(plain)} from random_values order by n")
