"""What every character of every encoding of a server is in Unicode, as a server itself says.

    python tests/support/server_encodings.py > crates/postgres/rows/data/encodings.csv

Each line has the bytes of its first character, and code points: the last byte of each next one is one higher. A hole is `-`, several
code points that one character becomes are joined by `+`. ASCII is left out, and what the server converts nothing of.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path
from typing import Any

ON_A_LINE = 24
HIGH = range(0x80, 0x100)
EUC = range(0xA1, 0xFF)  # all bytes that may come behind the first one
PLANES = range(0xA1, 0xA8)
CONVERTED = """
create function pg_temp.converted(bytea, name) returns text language plpgsql as $$
begin
    return convert_from($1, $2);
exception when untranslatable_character or character_not_in_repertoire or undefined_function then
    return null;
end $$"""


def encodings(connection: Any) -> dict[str, int]:
    """Number by name of the encodings that a database may have, without the two that are converted from nothing."""
    names = connection.execute("select pg_encoding_to_char(i), i from generate_series(0, 34) i").fetchall()
    return {name: number for name, number in names if name not in ("UTF8", "SQL_ASCII")}


def candidates(name: str) -> Iterator[bytes]:
    """The bytes of every character that an encoding may have, with some that it does not have."""
    shapes: list[Any] = [product(HIGH)]
    if name.startswith("EUC_"):
        shapes += [product(EUC, EUC), product([0x8E, 0x8F], EUC)]
        shapes += [product([0x8E], PLANES, EUC, EUC)] if name == "EUC_TW" else [product([0x8F], EUC, EUC)]
    return map(bytes, chain(*shapes))


def characters(connection: Any, name: str) -> dict[bytes, str | None]:
    """What a server makes of each, None where it makes nothing of it."""
    connection.execute("drop function if exists pg_temp.converted(bytea, name)")
    connection.execute(CONVERTED)
    every = list(candidates(name))
    query = "select pg_temp.converted(b, %s) from unnest(%s::bytea[]) with ordinality as _ (b, i) order by i"
    return dict(zip(every, (text for (text,) in connection.execute(query, (name, every))), strict=True))


def lines(name: str, found: dict[bytes, str | None]) -> Iterator[str]:
    by_lead: dict[bytes, dict[int, str]] = {}
    for each, text in found.items():
        if text is not None:
            by_lead.setdefault(each[:-1], {})[each[-1]] = text
    for lead, there in sorted(by_lead.items()):
        start = min(there)
        while start <= max(there):
            row = [there.get(last) for last in range(start, min(start + ON_A_LINE, max(there) + 1))]
            codes = ["+".join(f"{ord(c):x}" for c in text) if text else "-" for text in row]
            yield f"{name},{lead.hex()}{start:02x},{' '.join(codes)}"
            start = min((last for last in there if last >= start + ON_A_LINE), default=0x100)


def main() -> None:
    sys.path.append(str(Path(__file__).parents[1]))
    from conftest import running

    with running(18) as server, server.connect() as connection:
        print("encoding,bytes,characters")
        for name in encodings(connection):
            for line in lines(name, characters(connection, name)):
                print(line)


if __name__ == "__main__":
    main()
