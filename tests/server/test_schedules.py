"""Schedules: times by a table, one run for each slot, what overlaps and what was missed. The clock is the store: next_due is set back."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from leadline.book.place import Place
from leadline.book.store import Store
from leadline.errors import LeadlineError
from leadline.server.launch import schedules
from leadline.server.operation import perform
from leadline.server.rights import OWNER
from leadline.server.table import BY_NAME

MINUTE_US = 60_000_000


def us(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1e6)


def utc(at: int | None) -> str:
    assert at is not None
    return datetime.fromtimestamp(at / 1e6, UTC).strftime("%Y-%m-%d %H:%M")


# Prague: clocks go forward on 2026-03-29 at 02:00 and back on 2026-10-25 at 03:00.
CASES = [
    ("30 2 * * *", "Europe/Prague", "2026-03-28 12:00", ["2026-03-29 01:00", "2026-03-30 00:30"]),  # 02:30 does not exist: at 03:00
    ("30 2 * * *", "Europe/Prague", "2026-10-24 12:00", ["2026-10-25 00:30", "2026-10-26 01:30"]),  # 02:30 comes twice: once
    ("0 * * * *", "Europe/Prague", "2026-10-24 23:30", ["2026-10-25 00:00", "2026-10-25 01:00", "2026-10-25 02:00"]),
    ("* 4 * * *", "UTC", "2026-11-24 03:58", ["2026-11-24 04:00", "2026-11-24 04:01"]),
    ("0 8 * * 1-5", "UTC", "2026-11-27 09:00", ["2026-11-30 08:00"]),
    ("0 0 29 2 *", "UTC", "2026-01-01 00:00", ["2028-02-29 00:00"]),
]


@pytest.mark.parametrize(("cron", "zone", "after", "expected"), CASES)
def test_times_of_a_schedule(cron: str, zone: str, after: str, expected: list[str]) -> None:
    at, found = us(after + "+00:00"), []
    for _ in expected:
        at = schedules.next_slot(cron, zone, at) or 0
        found.append(utc(at))
    assert found == expected


@pytest.mark.parametrize("cron", ["", "* * * *", "61 * * * *", "@daily", "* * * * * *; rm", "x", "* * * * * *", "0 30 2 * * 1-5"])
def test_what_is_no_schedule_is_refused(cron: str) -> None:
    with pytest.raises(LeadlineError):
        schedules.next_slot(cron, "UTC", 0)


class Book:
    """A store with a template, driven without a server."""

    def __init__(self, folder: Path) -> None:
        self.place = Place(folder)
        self.store = Store(self.place)
        self.template = self.do("template.save", project="main", name="tick", command="true")["template"]

    def do(self, operation: str, /, **given: Any) -> Any:
        return perform(BY_NAME[operation], OWNER, self.store, self.place, given)

    def schedule(self, due_us_ago: int, cron: str = "*/5 * * * *", **more: Any) -> str:
        uid = str(self.do("schedule.save", template=self.template, cron=cron, **more)["schedule"])
        self.set(uid, next_due=time.time_ns() // 1000 - due_us_ago)
        return uid

    def set(self, uid: str, **columns: Any) -> None:
        with self.store.writing() as db:
            for name, value in columns.items():
                db.execute(f"update schedule set {name} = ? where uid = ?", (value, uid))

    def fire(self) -> None:
        schedules.fire(self.place, self.store)

    def launches(self) -> list[dict[str, Any]]:
        return self.store.rows("select * from launch order by asked")

    def fired(self) -> list[dict[str, Any]]:
        return self.store.rows("select * from schedule_fire order by due")


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    book = Book(tmp_path / "book")
    yield book
    book.store.close()


def test_a_slot_that_has_come_is_one_run_and_the_next_is_set(book: Book) -> None:
    uid = book.schedule(1000)
    for _ in range(3):
        book.fire()
    assert [launch["cause"] for launch in book.launches()] == [f"schedule {uid}"]
    [row] = book.store.rows("select * from schedule")
    assert 0 < row["next_due"] - time.time_ns() // 1000 <= 5 * MINUTE_US


def test_many_servers_ask_for_one_run(book: Book) -> None:
    book.schedule(1000)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: schedules.fire(book.place, Store(book.place)), range(16)))
    assert len(book.launches()) == 1


def test_a_missed_slot_is_not_caught_up_unless_asked(book: Book) -> None:
    book.schedule(60 * MINUTE_US, cron="0 0 1 1 *")
    book.fire()
    assert book.launches() == []
    assert [row["note"] for row in book.fired()] == ["missed: no server was running then, or the clock was set past it"]


def test_the_last_of_many_missed_slots_is_caught_up(book: Book) -> None:
    book.schedule(60 * MINUTE_US, catch_up="last")
    book.fire()
    assert len(book.launches()) == 1
    [row] = book.fired()
    assert time.time_ns() // 1000 - row["due"] <= 5 * MINUTE_US + 10_000_000


def test_a_slot_is_skipped_while_the_one_before_runs_or_queued_if_so_wished(book: Book) -> None:
    for overlap, expected in (("skip", 1), ("queue", 2)):
        uid = book.schedule(1000, overlap=overlap)
        book.fire()
        book.set(uid, next_due=time.time_ns() // 1000 - 500)
        book.fire()
        assert len([launch for launch in book.launches() if launch["cause"] == f"schedule {uid}"]) == expected


def test_a_paused_schedule_does_nothing_and_goes_on_from_now(book: Book) -> None:
    uid = book.schedule(1000)
    book.do("schedule.set", schedule=uid, active=False)
    book.fire()
    assert book.launches() == []
    book.do("schedule.set", schedule=uid, active=True)
    book.fire()
    assert book.launches() == []


def test_a_time_that_comes_once_is_done_once(book: Book) -> None:
    uid = str(book.do("schedule.save", template=book.template, at="2099-12-24 18:30", zone="Europe/Prague")["schedule"])
    [shown] = book.do("schedule.list")["schedules"]
    assert [utc(at) for at in shown["next"]] == ["2099-12-24 17:30"]
    book.set(uid, next_due=time.time_ns() // 1000 - 1)
    book.fire()
    book.fire()
    assert len(book.launches()) == 1
    assert book.do("schedule.list")["schedules"][0]["active"] is False


def test_the_next_five_times_are_shown(book: Book) -> None:
    book.do("schedule.save", template=book.template, cron="0 12 * * *", zone="UTC")
    [shown] = book.do("schedule.list")["schedules"]
    assert len(shown["next"]) == 5
    assert {utc(at)[11:] for at in shown["next"]} == {"12:00"}
    assert shown["next"][4] - shown["next"][0] == 4 * 24 * 60 * MINUTE_US


SLOT_US, HOUR_US = 86_400_000_000, 3_600_000_000


def test_slots_are_spread_the_same_way_for_all_who_look(book: Book) -> None:
    uid = str(book.do("schedule.save", template=book.template, cron="0 0 * * *", jitter_s=3600)["schedule"])
    [shown] = book.do("schedule.list")["schedules"]
    late = [at % SLOT_US for at in shown["next"]]
    assert len(set(late)) == 5 and max(late) <= HOUR_US
    assert book.do("schedule.list")["schedules"] == [shown]
    book.set(uid, next_due=time.time_ns() // 1000 - 1)
    book.fire()
    [row] = book.store.rows("select * from schedule")
    assert row["next_due"] == shown["next"][0]
    assert len(book.launches()) == 1


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"cron": "* * * * *", "at": "2099-01-01"},
        {"at": "2020-01-01"},
        {"at": "soon"},
        {"cron": "* * * * *", "zone": "Mars/Base"},
        {"cron": "0 0 30 2 *"},
        {"at": "9999-12-31 23:59", "zone": "America/Los_Angeles"},  # in UTC it is in no year
    ],
    ids=str,
)
def test_a_schedule_that_cannot_be_meant_is_refused(book: Book, given: dict[str, Any]) -> None:
    with pytest.raises(LeadlineError):
        book.do("schedule.save", template=book.template, **given)


def test_whoever_lost_the_right_starts_nothing_by_the_clock(book: Book) -> None:
    uid = book.schedule(1000)
    book.set(uid, by_account="gone")
    book.fire()
    assert book.launches() == []
    assert [row["note"] for row in book.fired()] == ["gone may not start it any more"]
    [entry] = book.store.rows("select account, outcome, detail_json from audit where outcome = 'refused'")
    assert (entry["account"], json.loads(entry["detail_json"])["error"]) == ("gone", "gone may not start it any more")


def test_a_server_that_starts_late_runs_the_slot_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    from serving import book, wait_until

    with book(tmp_path_factory.mktemp("late")) as served:
        served.do("template", "save", "main", "tick", "--command", "true")
        served.do("schedule", "save", "main/tick", "--cron", "*/5 * * * *")
        with sqlite3.connect(served.book / "book.sqlite") as db:
            db.execute("update schedule set next_due = ?", (time.time_ns() // 1000 - 1000,))
        served.start()
        runs = wait_until(lambda: served.client().get("/runs.json?status=ok").json["runs"], "the run")
        assert [run["name"] for run in runs] == ["tick"]
        assert served.complaints() == ""


class Clock:
    """A wall clock that a test sets."""

    def __init__(self, at: str) -> None:
        self.us = us(at)

    def time_ns(self) -> int:
        return self.us * 1000

    def set(self, at: str) -> None:
        self.us = us(at)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock("2026-11-24 11:58+00:00")
    monkeypatch.setattr("time.time_ns", clock.time_ns)
    return clock


def at_minutes(book: Book, clock: Clock, *times: str) -> list[str]:
    """Starts at these times of the clock: the times at which a run was asked for."""
    started = []
    for text in times:
        clock.set(f"2026-11-24 {text}+00:00")
        before = len(book.launches())
        book.fire()
        started += [text] * (len(book.launches()) - before)
        with book.store.writing() as db:
            db.execute("update launch set status = 'ended'")
    return started


def test_a_clock_that_is_set_back_keeps_no_schedule_silent(book: Book, clock: Clock) -> None:
    uid = str(book.do("schedule.save", template=book.template, cron="*/5 * * * *")["schedule"])
    assert at_minutes(book, clock, "11:59", "12:00:01", "12:00:02", "12:05:01") == ["12:00:01", "12:05:01"]
    assert at_minutes(book, clock, "09:01", "09:04:59", "09:05:01", "09:05:02", "09:10:01") == ["09:05:01", "09:10:01"]
    [row] = book.store.rows("select * from schedule")
    assert utc(row["next_due"]) == "2026-11-24 09:15"
    notes = [fired["note"] for fired in book.fired() if fired["note"]]
    assert notes == ["the clock was set back: next at 2026-11-24T09:05+00:00, not at 2026-11-24T12:10+00:00"]
    assert [e["object"] for e in book.do("user.audit", limit=10)["entries"] if "set back" in str(e)] == [uid]
    assert at_minutes(book, clock, "11:58", "12:00:01") == ["12:00:01"]  # put right: the old times come again


def test_the_list_says_that_the_clock_was_set_back(book: Book, clock: Clock) -> None:
    book.do("schedule.save", template=book.template, cron="0 * * * *")
    assert at_minutes(book, clock, "12:00:01", "10:30") == ["12:00:01"]
    [shown] = book.do("schedule.list")["schedules"]
    assert shown["last_note"].startswith("the clock was set back: next at 2026-11-24T11:00+00:00")
    assert [utc(at)[11:] for at in shown["next"][:2]] == ["11:00", "12:00"]


@pytest.mark.parametrize("steps", [("12:00:00.5", "11:59:59.5", "12:00:00.2"), ("12:00:30", "11:59:40", "12:00:01")])
def test_a_small_step_back_starts_nothing_twice(book: Book, clock: Clock, steps: tuple[str, ...]) -> None:
    book.do("schedule.save", template=book.template, cron="*/5 * * * *")
    assert at_minutes(book, clock, *steps, "12:05:01") == [steps[0], "12:05:01"]


def test_a_clock_that_was_set_back_while_no_server_ran_is_noticed(book: Book, clock: Clock) -> None:
    uid = str(book.do("schedule.save", template=book.template, cron="0 0 * * *")["schedule"])
    book.set(uid, next_due=us("2031-01-01 00:00+00:00"))
    book.fire()
    [row] = book.store.rows("select * from schedule")
    assert utc(row["next_due"]) == "2026-11-25 00:00"


def test_times_that_are_spread_and_times_that_come_once_stay_as_they_are(book: Book, clock: Clock) -> None:
    book.do("schedule.save", template=book.template, cron="* * * * *", jitter_s=86400)
    book.do("schedule.save", template=book.template, at="2026-12-01 10:00")
    before = book.store.rows("select uid, next_due from schedule order by uid")
    start, end = clock.us, min(row["next_due"] for row in before) - 1
    for step in range(31):  # to the last moment before the first is due, whatever delay was drawn
        clock.us = start + (end - start) * step // 30
        book.fire()
    after = book.store.rows("select uid, next_due from schedule order by uid")
    assert [row["next_due"] for row in after if row["uid"] in {r["uid"] for r in before}] == [row["next_due"] for row in before]


def test_a_clock_that_is_set_forward_misses_what_it_passed(book: Book, clock: Clock) -> None:
    book.do("schedule.save", template=book.template, cron="0 * * * *")
    assert at_minutes(book, clock, "11:59", "15:30", "16:00:01") == ["16:00:01"]
    assert "missed: no server was running then, or the clock was set past it" in [fired["note"] for fired in book.fired()]


def shown(book: Book, uid: str) -> dict[str, Any]:
    return next(row for row in book.do("schedule.list")["schedules"] if row["uid"] == uid)


def test_a_schedule_is_changed_and_what_is_not_given_stays(book: Book) -> None:
    uid = book.do("schedule.save", template=book.template, cron="0 8 * * *", zone="Europe/Prague", overlap="queue", jitter_s=60)["schedule"]
    before = shown(book, uid)
    changed = book.do("schedule.edit", schedule=uid, cron="30 9 * * *")
    after = shown(book, uid)
    assert [at[11:16] for at in changed["next"]] != []
    kept = ("zone", "overlap", "jitter_s", "catch_up", "active", "inputs", "created")
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert after["cron"] == "30 9 * * *"
    book.do("schedule.edit", schedule=uid, at="2099-12-24 18:30")
    once = shown(book, uid)
    assert (once["cron"], once["at"], once["jitter_s"]) == ("", "2099-12-24T18:30+01:00", 0)
    book.do("schedule.edit", schedule=uid, overlap="skip")
    assert shown(book, uid)["next_due"] == once["next_due"]
    book.do("schedule.edit", schedule=uid, cron="0 0 * * *")
    assert shown(book, uid)["at"] == ""
    entry = json.loads(book.do("user.audit", limit=1)["entries"][0]["detail_json"])
    assert (entry["before"], entry["after"]) == ({"cron": ""}, {"cron": "0 0 * * *"})


def test_a_schedule_that_is_paused_stays_so_when_it_is_changed(book: Book) -> None:
    uid = book.do("schedule.save", template=book.template, cron="0 8 * * *")["schedule"]
    book.do("schedule.set", schedule=uid, active=False)
    book.do("schedule.edit", schedule=uid, cron="0 9 * * *")
    assert shown(book, uid)["active"] is False


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"cron": "0 8 * * *", "at": "2099-01-01 08:00"}, "has either cron or at"),
        ({"cron": "61 * * * *"}, "is no schedule"), ({"zone": "Nowhere/City"}, "is no time zone"), ({"at": "2001-01-01 08:00"}, "is over"),
        ({"inputs": {"x": 1}}, "asks for no x"), ({"overlap": "both"}, "is none of"),
    ],
)  # fmt: skip
def test_a_change_that_is_wrong_changes_nothing(book: Book, given: dict[str, Any], told: str) -> None:
    uid = book.do("schedule.save", template=book.template, cron="0 8 * * *")["schedule"]
    before = shown(book, uid)
    with pytest.raises(LeadlineError, match=told):
        book.do("schedule.edit", schedule=uid, **given)
    assert shown(book, uid) == before
