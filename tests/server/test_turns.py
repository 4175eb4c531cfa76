"""Whose turn it is: one template that asks for much keeps no other waiting."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from leadline.book.place import Place
from leadline.errors import LeadlineError
from leadline.server.launch import launch_queue, launcher, schedules
from leadline.server.launch.launch_queue import AT_ONCE, FOR_OTHERS
from test_stores import Team


@pytest.fixture
def team(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Team]:
    team = Team(place)
    monkeypatch.setattr(launcher, "start", lambda *_: None)
    yield team
    team.store.close()


def ask(team: Team, name: str, runs: int, at_once: int = 1) -> None:
    template = team.do("template.save", project="main", name=name, command="true", at_once=at_once)["template"]
    uid = team.do("template.start", template=template)["run"]
    with team.store.writing() as db:
        [row] = db.execute("select * from launch where uid = ?", (uid,)).fetchall()
        sql = f"insert into launch ({', '.join(row)}) values ({', '.join('?' * len(row))})"
        db.executemany(sql, [list((row | {"uid": f"{uid[:6]}{n:06}"}).values()) for n in range(1, runs)])


def under_way(team: Team) -> dict[str, int]:
    sql = "select t.name, count(*) as n from launch l join template t on t.uid = l.template where l.status = 'started' group by t.name"
    return {row["name"]: row["n"] for row in team.store.rows(sql)}


def test_many_queued_runs_of_one_template_do_not_starve_the_others(team: Team) -> None:
    ask(team, "greedy", 300)
    ask(team, "also", 150)
    ask(team, "late", 1)
    launch_queue.dispatch(team.place, team.store)
    assert under_way(team) == {"greedy": 1, "also": 1, "late": 1}


def test_a_template_with_many_places_leaves_some_to_others(team: Team) -> None:
    ask(team, "greedy", 300, at_once=100)
    launch_queue.dispatch(team.place, team.store)
    assert under_way(team) == {"greedy": AT_ONCE}
    for n in range(FOR_OTHERS + 1):
        ask(team, f"late{n}", 2)
    launch_queue.dispatch(team.place, team.store)
    assert under_way(team) == {"greedy": AT_ONCE} | {f"late{n}": 1 for n in range(FOR_OTHERS)}


def test_places_are_shared_out_by_turns(team: Team) -> None:
    ask(team, "first", 50, at_once=100)
    ask(team, "second", 50, at_once=100)
    launch_queue.dispatch(team.place, team.store)
    assert under_way(team) == {"first": AT_ONCE // 2, "second": AT_ONCE // 2}


def test_the_oldest_of_a_template_is_first(team: Team) -> None:
    ask(team, "one", 5)
    oldest = team.store.rows("select uid from launch order by asked, uid limit 1")[0]["uid"]
    launch_queue.dispatch(team.place, team.store)
    assert team.store.rows("select uid from launch where status = 'started'") == [{"uid": oldest}]


def test_a_run_that_cannot_be_ended_keeps_nothing_else_waiting(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(team, "gone", 1)
    uid = team.store.rows("select uid from launch")[0]["uid"]
    row = {
        "uid": uid, "kind": "template", "name": "gone", "status": "running", "user_name": "u", "host": "elsewhere", "cwd": "/",
        "argv_json": "[]", "started": 1, "version": "1", "pid": 1, "boot": "x", "project": "main",
    }  # fmt: skip
    with team.store.writing() as db:
        db.execute("update launch set status = 'cancelling', started = asked")
        db.execute(f"insert into run ({', '.join(row)}) values ({', '.join('?' * len(row))})", list(row.values()))
    ask(team, "other", 1)
    launch_queue.dispatch(team.place, team.store)
    assert under_way(team)["other"] == 1


def test_a_schedule_that_fails_keeps_no_other_from_its_time(team: Team) -> None:
    for name in ("broken", "sound"):
        template = team.do("template.save", project="main", name=name, command="true")["template"]
        team.do("schedule.save", template=template, cron="*/5 * * * *")
        with team.store.writing() as db:
            db.execute("update schedule set inputs_json = ?, next_due = 1, catch_up = 'last' where template = ?",
                       ("{" if name == "broken" else "{}", template))  # fmt: skip
    with pytest.raises((ValueError, LeadlineError)):
        schedules.fire(team.place, team.store)
    sql = "select t.name from schedule_fire f join schedule s on s.uid = f.schedule join template t on t.uid = s.template"
    assert team.store.rows(sql) == [{"name": "sound"}]
