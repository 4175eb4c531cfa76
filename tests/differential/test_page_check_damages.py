"""leadline page check beside amcheck: damages of every kind of relation, with checksums made right, each in a relation of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import LONG, Server
from damages.cluster import damage_all, files, make_all, planned
from damages.found import Found, found_by_amcheck, problems, summed, table
from damages.pages import Made
from recovery import ChecksummedServer, loaded

# Each damage once, or five times: seeds of the long run of which the guide has the table.
TIMES = 5 if LONG else 1
SEED = 1
SETTINGS: dict[str, object] = {"autovacuum": "off", "fsync": "off", "max_locks_per_transaction": 1000}
MAJORS = [14, 18] if LONG else [18]


@pytest.fixture(scope="module", params=MAJORS, ids=[f"pg{major}" for major in MAJORS])
def found(request: pytest.FixtureRequest) -> Iterator[list[Found]]:
    major = request.param
    with loaded(major, ChecksummedServer, **SETTINGS) as server:
        yield damaged(server, major)


def damaged(server: Server, major: int) -> list[Found]:
    plan = planned(TIMES)
    with server.connect() as db:
        make_all(db, plan)
        made = [(Made(name, files(db, server.private.data_dir, name, damage.template)), damage) for name, damage in plan]
        db.execute("create extension amcheck")
    server.private.stop()
    assert problems(server.private.data_dir, "values") == {}, "before anything was damaged"
    for _ in damage_all(made, SEED):
        pass
    pages, values = (problems(server.private.data_dir, level) for level in ("pages", "values"))
    server.private.start()
    return summed(made, pages, values, [found_by_amcheck(server, one, damage.template, major) for one, damage in made])


@pytest.mark.timeout(900)
def test_all_that_amcheck_finds_is_found(found: list[Found]) -> None:
    print(table(found))
    assert sum(of.by_amcheck for of in found) > 30 * TIMES
    assert [missed for of in found for missed in of.only_amcheck] == []


@pytest.mark.timeout(900)
def test_most_that_contradicts_itself_is_found(found: list[Found]) -> None:
    contradicting = [of for of in found if of.damage.contradicts]
    made, seen = sum(of.made for of in contradicting), sum(of.by_leadline for of in contradicting)
    assert seen / made >= 0.85, table(contradicting)
    assert sum(of.by_leadline for of in found) > 2 * sum(of.by_pages for of in found)
