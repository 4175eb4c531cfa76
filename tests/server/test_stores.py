"""The same on SQLite and PostgreSQL: each operation once, the audit, and runs that are started from both the shell and a server."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from leadline.book.place import VARIABLE, Place
from leadline.book.recorder import Recorder
from leadline.book.store import Store
from leadline.errors import LeadlineError
from leadline.server import audit, housekeeping
from leadline.server.accounts import login
from leadline.server.accounts.passwords import Throttle
from leadline.server.launch import schedules
from leadline.server.operation import perform, read_json
from leadline.server.rights import OWNER, Caller
from leadline.server.table import BY_NAME
from serving import PASSWORD, Served, wait_until


class Team:
    def __init__(self, place: Place) -> None:
        self.place, self.store = place, Store(place)

    def do(self, operation: str, /, caller: Caller = OWNER, **given: Any) -> Any:
        return perform(BY_NAME[operation], caller, self.store, self.place, given)

    def settle(self) -> None:
        """A round of what a server does beside."""
        for duty in housekeeping.duties():
            duty(self.place, self.store)


@pytest.fixture
def team(place: Place) -> Team:
    return Team(place)


def test_a_template_is_saved_started_followed_and_found(team: Team) -> None:
    survey = {"n": {"kind": "int", "default": 3}}
    saved = team.do("template.save", project="main", name="count", command="seq 1 {n}", survey=survey)
    assert team.do("template.save", project="main", name="count", command="seq 1 {n}", survey=survey) == saved
    uid = team.do("template.start", template="main/count", inputs={"n": 4})["run"]
    assert team.do("run.show", run=uid)["run"]["status"] == "queued"

    def ended() -> bool:
        team.settle()
        return bool(team.do("run.show", run=uid)["run"]["status"] == "ok")

    wait_until(ended, "the run")
    assert team.do("run.log", run=uid)["text"] == "1\n2\n3\n4\n"
    assert [run["uid"] for run in team.do("run.list", text="seq")["runs"]] == [uid]
    assert [run["uid"] for run in team.do("run.list", template=saved["template"], status="ok", limit=1)["runs"]] == [uid]
    assert [point["uid"] for point in team.do("template.history", metric="wall_s", template=saved["template"])["points"]] == [uid]
    assert team.do("run.search", text="3")["runs"][0]["line"] == "3"
    assert {m["metric"] for m in team.do("template.metrics")["metrics"]} >= {"wall_s", "cpu_s"}
    team.do("run.label", run=uid, key="release", value="7.2")
    assert [run["uid"] for run in team.do("run.list", label="release=7.2")["runs"]] == [uid]
    assert team.do("run.pin", run=uid)["pinned"] is True
    assert 'leadline_runs_total{kind="template",status="ok"} 1' in team.do("user.metrics").text
    team.do("template.delete", template=saved["template"])
    assert team.do("run.show", run=uid)["run"]["status"] == "ok"


def test_what_is_recorded_and_not_taken_in_is_a_figure(team: Team) -> None:
    def figures() -> dict[str, str]:
        return dict(line.split(" ") for line in team.do("user.metrics").text.splitlines() if not line.startswith("#"))

    assert figures()["leadline_spool_bytes"] == "0"
    recorder = Recorder(team.place)
    recorder.begin("command", "waits", ["waits"])
    waiting = team.place.spool_of(recorder.uid).stat().st_size
    assert figures()["leadline_spool_bytes"] == str(waiting)
    team.settle()
    assert figures()["leadline_spool_bytes"] == "0"
    assert ("leadline_store_bytes" in figures()) is (team.place.dsn is None)
    viewer = team.do("user.metrics", caller=Caller("bob", False, members={"main": "viewer"})).text
    assert "leadline_runs_total" in viewer and "_bytes" not in viewer


def test_users_roles_tokens_and_secrets(team: Team) -> None:
    team.do("user.create", user="ann", password=PASSWORD, admin=True)
    team.do("user.create", user="bob", password=PASSWORD)
    team.do("user.role", project="main", user="bob", role="viewer")
    team.do("user.role", project="main", user="bob", role="runner")
    template = team.do("template.save", project="main", name="t", command="true")["template"]
    team.do("template.grant", template=template, user="bob", role="viewer")
    assert team.do("user.list")["users"][1] | {"created": 0} == {
        "user": "bob",
        "admin": False,
        "disabled": False,
        "codes": False,
        "created": 0,
        "roles": {"main": "runner"},
    }
    assert team.do("template.grants", template=template)["grants"] == [{"user": "bob", "role": "viewer"}]
    token = team.do("token.create", name="t", user="bob", scope="editor")["token"]
    bob = login.caller_of_token(team.store, token, "127.0.0.1")
    assert bob is not None and (bob.account, bob.role("main"), bob.role("main", template)) == ("bob", "runner", "runner")
    with pytest.raises(LeadlineError, match="needs the role editor"):
        team.do("template.save", caller=bob, project="main", name="t", command="false")
    session = login.log_in(team.store, Throttle(), "bob", PASSWORD, "127.0.0.1")
    assert login.caller_of_session(team.store, session, "127.0.0.1") is not None
    team.do("secret.key")
    for value in ("one value", "another"):
        team.do("secret.set", project="main", secret="s", value=value)
    assert [row["secret"] for row in team.do("secret.list", project="main")["secrets"]] == ["s"]
    team.do("user.delete", user="bob")
    assert login.caller_of_session(team.store, session, "127.0.0.1") is None
    assert audit.verify(team.store) == ""
    assert [e["outcome"] for e in team.do("user.audit", limit=1000)["entries"]].count("refused") == 1


FORGED = [
    ("delete from audit where n = 2", "row 2 is missing"), ("delete from audit where n = 3", "rows after 2 are missing"),
    ("delete from audit", "rows after 0 are missing"), ("update audit set account = 'bob' where n = 1", "row 1 was changed"),
    ("update audit set prev = '' where n = 3", "row 3 was changed"),
    ("insert into audit select 4, ts, account, token, address, operation, object, detail_json, outcome, hash, prev from audit where n = 3",
     "row 4 was changed"),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "fault"), FORGED)
def test_a_row_of_the_audit_that_was_deleted_changed_or_added_is_named(team: Team, sql: str, fault: str) -> None:
    for name in ("ann", "bob", "carl"):
        team.do("user.create", user=name, password=PASSWORD, admin=True)
    assert team.do("user.verify") == {"whole": True, "fault": ""}
    with team.store.writing() as db:
        db.execute(sql)
    assert team.do("user.verify") == {"whole": False, "fault": fault}


def test_to_revoke_a_token_revokes_what_was_made_with_it(team: Team) -> None:
    team.do("user.create", user="ann", password=PASSWORD, admin=True)

    def made(by: Caller, name: str) -> Caller:
        caller = login.caller_of_token(team.store, team.do("token.create", caller=by, name=name, user="ann", scope="admin")["token"], "::1")
        assert caller is not None
        return caller

    other = made(OWNER, "other")
    first = made(OWNER, "first")
    second = made(first, "second")
    third = made(second, "third")
    assert team.do("token.revoke", token=first.token)["derived"] == sorted([str(second.token), str(third.token)])
    assert [token["token"] for token in team.do("token.list")["tokens"]] == [other.token]


def test_all_tokens_of_a_user_or_of_everyone_are_revoked_by_one_command(team: Team) -> None:
    def made(user: str, **more: Any) -> Caller:
        caller = login.caller_of_token(team.store, team.do("token.create", name="t", user=user, scope="admin", **more)["token"], "::1")
        assert caller is not None
        return caller

    def left() -> list[str]:
        return sorted(token["user"] for token in team.do("token.list")["tokens"])

    team.do("user.create", user="ann", password=PASSWORD, admin=True)
    team.do("user.create", user="bob", password=PASSWORD)
    ann, bob = made("ann"), made("bob")
    made("bob")
    for by in (ann, bob):
        team.do("token.create", by, name="child")
    assert left() == ["ann", "ann", "bob", "bob", "bob"]
    for wrong in ({}, {"user": "ann", "everyone": True}, {"user": "nobody-there"}):
        with pytest.raises(LeadlineError):
            team.do("token.revoke-all", **wrong)
    for others in ({"user": "ann"}, {"everyone": True}):
        with pytest.raises(LeadlineError, match="revoked by an administrator"):
            team.do("token.revoke-all", bob, **others)
    assert left() == ["ann", "ann", "bob", "bob", "bob"]
    assert len(team.do("token.revoke-all", bob)["revoked"]) == 3 and left() == ["ann", "ann"]
    made("bob")
    assert len(team.do("token.revoke-all", ann, user="bob")["revoked"]) == 1 and left() == ["ann", "ann"]
    made("bob")
    assert len(team.do("token.revoke-all", everyone=True)["revoked"]) == 3 and left() == []
    assert team.do("token.revoke-all", everyone=True) == {"revoked": []}
    assert login.caller_of_token(team.store, "ll_" + str(ann.token) + "_x", "") is None


def test_a_token_revokes_all_at_once_as_it_does_one_by_one(team: Team) -> None:
    team.do("user.create", user="ann", password=PASSWORD, admin=True)
    team.do("user.project", project="p")
    limited = login.caller_of_token(team.store, team.do("token.create", name="t", user="ann", scope="editor", project="p")["token"], "::1")
    weak = login.caller_of_token(team.store, team.do("token.create", name="t", user="ann", scope="viewer")["token"], "::1")
    assert limited is not None and weak is not None
    with pytest.raises(LeadlineError, match="cannot revoke one of more"):
        team.do("token.revoke-all", weak, user="ann")
    assert team.do("token.revoke-all", limited)["revoked"] == [limited.token]  # of its project alone
    assert [token["token"] for token in team.do("token.list")["tokens"]] == [weak.token]


def test_to_delete_a_user_revokes_what_was_made_with_their_tokens(team: Team) -> None:
    for name in ("ann", "bob"):
        team.do("user.create", user=name, password=PASSWORD, admin=True)

    def made(by: Caller, user: str) -> Caller:
        given = team.do("token.create", caller=by, name="of " + user, user=user, scope="admin")["token"]
        caller = login.caller_of_token(team.store, given, "::1")
        assert caller is not None
        return caller

    kept = made(OWNER, "bob")
    for_bob = made(made(OWNER, "ann"), "bob")
    by_bob = made(for_bob, "bob")
    revoked = team.do("user.delete", user="ann")["revoked"]
    assert len(revoked) == 3, revoked
    assert {for_bob.token, by_bob.token} < set(revoked)
    assert [token["token"] for token in team.do("token.list")["tokens"]] == [kept.token]


def test_a_refused_write_changes_nothing_but_the_audit(team: Team) -> None:
    before = team.do("template.list")
    with pytest.raises(LeadlineError):
        team.do("template.save", project="main", name="bad", command="echo {p}", survey={"p": {"kind": "secret"}})
    assert team.do("template.list") == before
    assert team.do("user.audit", limit=1)["entries"][0]["outcome"] == "refused"


@pytest.mark.parametrize("odd", ["\0", "\ud800"], ids=ascii)
def test_what_no_store_can_hold_is_refused_wherever_it_stands(team: Team, odd: str) -> None:
    for name, value in (("survey", {"q": {"help": odd}}), ("survey", {"q": {"kind": "enum", "choices": [odd]}}), ("secrets", {"a": odd})):
        with pytest.raises(LeadlineError) as refused:
            team.do("template.save", project="main", name="odd", command="true", **{name: value})
        assert refused.value.kind == "usage"


@pytest.mark.parametrize("text", ['{"a": [NaN]}', b'{"a": -Infinity}', "[" * 100_000, b"\xff", ""], ids=lambda text: repr(text)[:20])
def test_what_is_no_json_is_not_read(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        read_json(text)


def test_a_run_that_is_repeated_waits_for_the_approval_that_its_template_wants_by_now(team: Team) -> None:
    template = team.do("template.save", project="main", name="t", command="true")["template"]
    first = team.do("template.start", template=template)["run"]
    team.do("template.save", project="main", name="t", command="true", approval=True)
    again = team.do("template.rerun", run=first)
    assert again["status"] == "approval"


def test_the_clock_and_hooks(team: Team) -> None:
    template = team.do("template.save", project="main", name="t", command="true", approval=True)["template"]
    made = team.do("schedule.save", template=template, cron="*/5 * * * *")
    with team.store.writing() as db:
        db.execute("update schedule set next_due = ? where uid = ?", (time.time_ns() // 1000 - 1, made["schedule"]))
    for _ in range(2):
        schedules.fire(team.place, team.store)
    [shown] = team.do("schedule.list")["schedules"]
    assert len(shown["next"]) == 5
    assert team.do("run.list")["waiting"][0]["uid"] == shown["last_run"]
    team.do("secret.key")
    team.do("secret.set", project="main", secret="k", value="a value")
    team.do("hook.start", project="main", name="in", template=template, secret="k")
    team.do("hook.tell", project="main", name="out", url="https://pager.example/", secret="k")
    assert [hook["name"] for hook in team.do("hook.list")["hooks"]] == ["in", "out"]
    team.do("template.delete", template=template)
    assert team.do("schedule.list") == {"schedules": []}
    assert [hook["name"] for hook in team.do("hook.list")["hooks"]] == ["out"]


def test_two_servers_of_one_store_start_each_run_once(place: Place, tmp_path: Path) -> None:
    (tmp_path / "serve.err").touch()
    servers = [Served(tmp_path / "book", dict(os.environ) | {VARIABLE: place.variable}) for _ in range(2)]
    try:
        for one in servers:
            one.start()
        client = servers[0].client()
        template = client.call("PUT", "/projects/main/templates/once", command="true", at_once=20).json["template"]
        asked = [servers[n % 2].client().call("POST", f"/templates/{template}/start").json["run"] for n in range(20)]
        wait_until(lambda: len(client.get("/runs.json?status=ok&limit=100").json["runs"]) == 20, "all runs")
        assert {run["uid"] for run in client.get("/runs.json?limit=100").json["runs"]} == set(asked)
    finally:
        for one in servers:
            one.stop()
    assert servers[0].complaints() == ""
