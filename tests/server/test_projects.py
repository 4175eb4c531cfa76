"""A project that is deleted: what goes, what stays, and what a project of the same name inherits, which is nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from leadline.book.place import Place
from leadline.errors import LeadlineError
from leadline.server.accounts import login
from leadline.server.launch import launch_queue, launcher
from serving import PASSWORD
from test_stores import Team


@pytest.fixture
def team(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Team]:
    team = Team(place)
    monkeypatch.setattr(launcher, "start", lambda *_: None)
    team.do("user.create", user="ann", password=PASSWORD, admin=True)
    team.do("user.create", user="bob", password=PASSWORD)
    team.do("secret.key")
    fill(team)
    yield team
    team.store.close()


def fill(team: Team) -> None:
    team.do("user.project", project="lab")
    team.do("user.role", project="lab", user="bob", role="admin")


def recorded(team: Team, uid: str, status: str) -> None:
    row = {
        "uid": uid, "kind": "template", "name": "t", "status": status, "user_name": "u", "host": "h", "cwd": "/", "argv_json": "[]",
        "started": time.time_ns() // 1000, "version": "1", "pid": 1, "boot": "", "project": "lab",
    }  # fmt: skip
    with team.store.writing() as db:
        db.execute(f"insert into run ({', '.join(row)}) values ({', '.join('?' * len(row))})", list(row.values()))


def test_a_project_goes_with_all_it_has_and_its_runs_stay_for_administrators(team: Team) -> None:
    team.do("secret.set", project="lab", secret="k", value="a key of hooks")
    team.do("variables.set", project="lab", group="g", values={"a": 1})
    template = team.do("template.save", project="lab", name="t", command="true")["template"]
    team.do("template.grant", template=template, user="bob", role="runner")
    team.do("schedule.save", template=template, cron="0 0 1 1 *")
    team.do("hook.start", project="lab", name="in", template=template, secret="k")
    team.do("hook.tell", project="lab", name="out", url="https://pager.example/", secret="k")
    token = team.do("token.create", name="t", user="ann", project="lab")["token"]
    first, queued = (team.do("template.start", template=template)["run"] for _ in range(2))
    launch_queue.dispatch(team.place, team.store)
    recorded(team, first, "running")
    with pytest.raises(LeadlineError, match="1 runs of lab go on"):
        team.do("user.delete-project", project="lab")
    with team.store.writing() as db:
        db.execute("update run set status = 'ok', ended = started where uid = ?", (first,))
    done = team.do("user.delete-project", project="lab")
    assert (done["deleted"], done["templates"], len(done["revoked"])) == ("lab", 1, 1)
    assert login.caller_of_token(team.store, token, "") is None
    tables = ("template", "template_version", "template_grant", "schedule", "hook", "secret", "variable_group", "member")
    assert {table: team.store.rows(f"select count(*) as n from {table}")[0]["n"] for table in tables} == dict.fromkeys(tables, 0)
    assert [row["project"] for row in team.do("user.projects")["projects"]] == ["main"]
    assert team.do("run.show", run=queued)["run"]["status"] == "cancelled"
    assert team.do("run.show", run=first)["run"]["project"] == done["runs"]
    fill(team)  # another one of that name
    bob = login.caller_of_token(team.store, team.do("token.create", name="t", user="bob", scope="admin")["token"], "")
    assert bob is not None
    assert team.do("run.list", bob)["runs"] == []
    for uid in (first, queued):
        with pytest.raises(LeadlineError, match="there is no run"):
            team.do("run.show", bob, run=uid)
    assert [run["uid"] for run in team.do("run.list", project=done["runs"])["runs"]] == [first]
    assert [(day["runs"]) for day in team.do("run.days")["days"]] == [1]


def test_what_cannot_be_deleted(team: Team) -> None:
    bob = login.caller_of_token(team.store, team.do("token.create", name="t", user="bob", scope="admin")["token"], "")
    assert bob is not None
    with pytest.raises(LeadlineError, match="needs an administrator of the server"):
        team.do("user.delete-project", bob, project="lab")
    with pytest.raises(LeadlineError, match="main cannot be deleted"):
        team.do("user.delete-project", project="main")
    with pytest.raises(LeadlineError, match="there is no project nowhere"):
        team.do("user.delete-project", project="nowhere")


def test_a_new_password_revokes_the_tokens_and_what_was_made_with_them(team: Team) -> None:
    def caller(token: str) -> object:
        return login.caller_of_token(team.store, token, "")

    own, other = (team.do("token.create", name="t", user=user, scope="admin")["token"] for user in ("bob", "ann"))
    of_bob = login.caller_of_token(team.store, own, "")
    assert of_bob is not None
    child = team.do("token.create", of_bob, name="child")["token"]
    done = team.do("user.password", user="bob", password="another long password")
    assert done["revoked"] == sorted([own[3:13], child[3:13]])
    assert [caller(token) is None for token in (own, child, other)] == [True, True, False]
