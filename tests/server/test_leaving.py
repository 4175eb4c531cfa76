"""What a user has asked for ends with the user, and with the right to it; who gets the name later inherits nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from leadline.book.place import Place
from leadline.errors import LeadlineError
from leadline.server.accounts import login
from leadline.server.launch import hooks, launch_queue, launcher, schedules
from leadline.server.launch.notifications import signature
from leadline.server.rights import Caller
from serving import PASSWORD
from test_stores import Team

KEY = "the key of a hook"


@pytest.fixture
def team(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Team]:
    """With ann, an administrator, and bob and eve, editors. What would be started is only noted: `started`."""
    team = Team(place)
    team.do("user.create", user="ann", password=PASSWORD, admin=True)
    for name in ("bob", "eve"):
        join(team, name)
    team.do("secret.key")
    team.do("secret.set", project="main", secret="k", value=KEY)
    monkeypatch.setattr(launcher, "start", lambda _place, uid, *_more: started(team).append(uid))
    yield team
    team.store.close()


def join(team: Team, name: str) -> None:
    team.do("user.create", user=name, password=PASSWORD)
    team.do("user.role", project="main", user=name, role="editor")


def started(team: Team) -> list[str]:
    found: list[str] = team.__dict__.setdefault("started", [])
    return found


def caller(team: Team, name: str) -> Caller:
    found = login.caller_of_token(team.store, team.do("token.create", name="t", user=name, scope="admin")["token"], "")
    assert found is not None
    return found


def status(team: Team, uid: str) -> str:
    return str(team.do("run.show", run=uid)["run"]["status"])


def template(team: Team, name: str, **more: Any) -> str:
    return str(team.do("template.save", project="main", name=name, command="true", **more)["template"])


def due(team: Team) -> None:
    with team.store.writing() as db:
        db.execute("update schedule set next_due = ?", (time.time_ns() // 1000 - 1,))
    schedules.fire(team.place, team.store)
    launch_queue.dispatch(team.place, team.store)


@pytest.mark.parametrize("how", ["user.delete", "user.disable"])
def test_what_has_not_begun_ends_with_the_user(team: Team, how: str) -> None:
    plain, asks = template(team, "plain"), template(team, "asks", approval=True)
    bob, eve = caller(team, "bob"), caller(team, "eve")
    schedule = team.do("schedule.save", bob, template=plain, cron="0 0 1 1 *")["schedule"]
    kept = team.do("schedule.save", eve, template=plain, cron="0 0 1 1 *")["schedule"]
    queued, waits = (team.do("template.start", bob, template=one)["run"] for one in (plain, asks))
    after = team.do("template.start", bob, template=plain, after=waits)["run"]
    approved, of_eve = team.do("template.start", eve, template=asks)["run"], team.do("template.start", eve, template=plain)["run"]
    team.do("template.approve", bob, run=approved)
    link = team.do("user.login-link", user="bob")["link"].partition("key=")[2]
    done = team.do(how, user="bob")
    assert done["schedules"] == [schedule]
    assert done["cancelled"] == sorted([queued, waits, after])
    assert done["approve_again"] == [approved]
    assert json.loads(team.do("user.audit", limit=1)["entries"][0]["detail_json"])["cancelled"] == done["cancelled"]
    word = "removed" if how == "user.delete" else "disabled"
    shown = team.do("run.show", run=queued)["run"]
    assert (shown["status"], shown["launch"]["note"]) == ("cancelled", f"bob was {word}")
    assert status(team, approved) == "approval"
    due(team)
    assert [row["active"] for row in sorted(team.do("schedule.list")["schedules"], key=lambda row: row["uid"] != schedule)] == [False, True]
    fired = next(row["last_run"] for row in team.do("schedule.list")["schedules"] if row["uid"] == kept)
    assert started(team) == [of_eve]  # at_once is 1
    assert status(team, fired) == "queued"
    if how == "user.disable":
        team.do("user.disable", user="bob", disabled=False)
        due(team)
        assert status(team, queued) == "cancelled"
    assert team.store.rows("select count(*) as n from login_link") == [{"n": 0}], link


def test_a_namesake_inherits_nothing(team: Team) -> None:
    last = template(team, "last")
    first = template(team, "first", then={"main/last": {"when": "always"}})
    bob = caller(team, "bob")
    hook = team.do("hook.start", bob, project="main", name="in", template=last, secret="k")["hook"]
    team.do("hook.after", bob, project="main", name="after", template=last, events="ok")
    schedule = team.do("schedule.save", bob, template=last, cron="0 0 1 1 *")["schedule"]
    under_way = team.do("template.start", bob, template=first)["run"]
    launch_queue.dispatch(team.place, team.store)
    assert started(team) == [under_way]
    assert team.do("user.delete", user="bob")["hooks"] == sorted([hook, *hooks_named(team, "after")])
    join(team, "bob")
    namesake = caller(team, "bob")
    assert namesake.identity != bob.identity
    ended(team, under_way, first)
    launch_queue.dispatch(team.place, team.store)
    hooks.start_after(team.place, team.store)
    with team.store.writing() as db:
        db.execute("update schedule set active = 1")
    due(team)
    assert started(team) == [under_way]
    assert team.store.rows("select count(*) as n from launch") == [{"n": 1}]
    assert [row["note"] for row in team.store.rows("select note from schedule_fire")] == ["bob may not start it any more"]
    with pytest.raises(LeadlineError, match="bob, who made this hook, may not start the template any more"):
        send(team, hook)
    refused = [e for e in team.do("user.audit", limit=50)["entries"] if e["outcome"] == "refused"]
    assert {e["operation"] for e in refused} == {"template.start"}
    # Until he takes it over himself.
    team.do("schedule.set", namesake, schedule=schedule, active=True)
    due(team)
    assert len(started(team)) == 2


def hooks_named(team: Team, name: str) -> list[str]:
    return [hook["uid"] for hook in team.do("hook.list")["hooks"] if hook["name"] == name]


def send(team: Team, hook: str) -> Any:
    stamp = str(int(time.time()))
    headers = {"x-leadline-timestamp": stamp, "x-leadline-signature": signature(KEY.encode(), stamp, b"{}")}
    return hooks.receive(team.place, team.store, hook, headers, b"{}", "192.0.2.1")


def ended(team: Team, uid: str, of: str) -> None:
    """As if it had run."""
    row = {
        "uid": uid, "kind": "template", "name": "first", "status": "ok", "user_name": "u", "host": "h", "cwd": "/", "argv_json": "[]",
        "started": time.time_ns() // 1000, "ended": time.time_ns() // 1000, "rc": 0, "version": "1", "pid": 1, "boot": "",
        "project": "main", "template": of,
    }  # fmt: skip
    with team.store.writing() as db:
        db.execute(f"insert into run ({', '.join(row)}) values ({', '.join('?' * len(row))})", list(row.values()))


def test_what_is_queued_needs_the_right_to_it_when_its_turn_comes(team: Team) -> None:
    plain, asks = template(team, "plain"), template(team, "asks", approval=True)
    bob, eve = caller(team, "bob"), caller(team, "eve")
    own, approved = team.do("template.start", bob, template=plain)["run"], team.do("template.start", eve, template=asks)["run"]
    team.do("template.approve", bob, run=approved)
    team.do("user.role", project="main", user="bob", role="none")
    launch_queue.dispatch(team.place, team.store)
    assert started(team) == []
    notes = [team.do("run.show", run=uid)["run"]["launch"]["note"] for uid in (own, approved)]
    assert notes == ["bob may not start it any more", "who approved it may not do that any more"]
    assert [e["outcome"] for e in team.do("user.audit", limit=2)["entries"]] == ["refused"] * 2


def test_who_asked_does_not_approve_whatever_way_he_asked(team: Team) -> None:
    asks = template(team, "asks", approval=True)
    bob, eve = caller(team, "bob"), caller(team, "eve")
    hook = team.do("hook.start", bob, project="main", name="in", template=asks, secret="k")["hook"]
    team.do("schedule.save", bob, template=asks, cron="0 0 1 1 *")
    by_hand = team.do("template.start", bob, template=asks)["run"]
    again, by_hook = team.do("template.rerun", bob, run=by_hand)["run"], send(team, hook)["run"]
    due(team)
    by_clock = team.do("schedule.list")["schedules"][0]["last_run"]
    for uid in (by_hand, again, by_hook, by_clock):
        with pytest.raises(LeadlineError, match="who asked for a run cannot approve it"):
            team.do("template.approve", bob, run=uid)
        with pytest.raises(LeadlineError, match="who asked for a run cannot approve it"):
            team.do("template.approve", caller(team, "bob"), run=uid)  # another token of his
        team.do("template.approve", eve, run=uid)
    team.do("template.approve", bob, run=team.do("template.start", bob, template=asks)["run"], approved=False)
