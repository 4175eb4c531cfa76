"""`leadline alter resolve`: the order in which rows are taken, and the pace."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from leadline.errors import LeadlineError
from leadline.files.alter import session
from leadline.files.alter.order import Page, blocks_between, passes
from leadline.files.alter.pacing import Pacer


def test_rows_are_taken_as_they_fit_and_moved_where_nothing_does() -> None:
    rows = [(lp, 1, 60, 60) for lp in range(1, 17)]
    roomy, full = Page(5, 3 * 68, list(rows)), Page(6, 0, list(rows))
    taken = list(passes([roomy, full], can_prune=True))
    assert taken[0] == [(5, 1), (5, 2), (5, 3), (6, 1), (6, 2)]
    assert sorted(place for each in taken for place in each) == [(block, lp) for block in (5, 6) for lp in range(1, 17)]
    without = list(passes([Page(5, 3 * 68, list(rows)), Page(6, 0, list(rows))], can_prune=False))
    assert [len(each) for each in without] == [3 + 16, 13]
    assert blocks_between([(7, 1), (5, 2), (6, 1), (9, 1), (7, 3)]) == [(5, 7), (9, 9)]


class Answers:
    """A connection that gives these answers in turn, whatever it is asked."""

    def __init__(self, *answers: tuple[Any, ...]) -> None:
        self.answers = list(answers)

    def execute(self, _query: str, _parameters: Any = None) -> Answers:
        return self

    def fetchone(self) -> tuple[Any, ...]:
        return self.answers.pop(0)


def test_it_waits_for_those_who_wait_and_for_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    clock = [100.0]
    time = SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    monkeypatch.setattr("leadline.files.alter.pacing.time", time)
    connection: Any = Answers((2,), (1,), (0,), (0, 9 << 20), (0, 1 << 20), ("away", 5 << 20), (0, 0), ("away", 1 << 20))
    pacer = Pacer(connection, 1 << 20, 4 << 20, said.append)
    pacer.wrote(3 << 20)
    pacer.wait(1)
    waits = ["another session is waiting for the table"] * 2 + ["a replica is 9 MB behind"]
    assert said == [*waits, "inactive replication slot away is 5 MB behind"]
    assert connection.answers == [] and 103.0 <= clock[0] <= 103.1
    hidden: Any = Answers((0,), (1, 0))
    with pytest.raises(LeadlineError, match="the lag of replicas"):
        Pacer(hidden, None, 1, said.append).wait(1)


def test_nothing_of_the_session_waits_long(servers: Any) -> None:
    with session.open_session(servers(18).dsn) as connection:
        shown = {name: connection.execute(f"show {name}").fetchone()[0] for name in session.SETTINGS}
    assert shown == session.SETTINGS
