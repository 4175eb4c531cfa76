"""Hooks of GitHub and GitLab: who may send, what is taken twice, which events start something."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from leadline.book.place import Place
from leadline.server.launch import hooks
from leadline.server.operation import Refused
from test_stores import Team

KEY = "It's a Secret to Everybody"
PUSH = json.dumps({"ref": "refs/heads/main", "commits": [{"id": "c1"}], "n": 3}).encode()


@pytest.fixture
def team(place: Place) -> Iterator[Team]:
    team = Team(place)
    team.do("secret.key")
    team.do("secret.set", project="main", secret="k", value=KEY)
    survey = {"branch": {"kind": "str", "default": "none"}, "commit": {"kind": "str", "default": "none"}}
    team.do("template.save", project="main", name="build", command="echo {branch} {commit}", survey=survey, approval=True)
    yield team
    team.store.close()


def made(team: Team, name: str, signed: str, **more: Any) -> str:
    inputs = {"branch": "ref", "commit": "commits.0.id"}
    given = {"template": "main/build", "secret": "k", "signed": signed, "inputs": inputs} | more
    return str(team.do("hook.start", project="main", name=name, **given)["hook"])


def send(team: Team, hook: str, body: bytes, **headers: str) -> Any:
    """What it started, or the status that it was refused with."""
    sent = {name.lower().replace("_", "-"): value for name, value in headers.items()}
    try:
        return hooks.receive(team.place, team.store, hook, sent, body, "192.0.2.1")
    except Refused as e:
        return e.status


def of_github(body: bytes, event: str = "push", key: str = KEY) -> dict[str, str]:
    return {"X_Hub_Signature_256": "sha256=" + hmac.new(key.encode(), body, hashlib.sha256).hexdigest(), "X_GitHub_Event": event}


def started(team: Team) -> list[dict[str, Any]]:
    return [json.loads(row["inputs_json"]) for row in team.store.rows("select inputs_json from launch order by asked, uid")]


def test_the_example_that_github_documents() -> None:
    given = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    from leadline.server.launch.signers import of_github as check

    assert check(KEY.encode(), {"x-hub-signature-256": given}, b"Hello, World!") is not None
    assert check(KEY.encode(), {"x-hub-signature-256": given}, b"Hello, World?") is None


def test_github_starts_it_with_values_of_the_body_and_each_body_once(team: Team) -> None:
    hook = made(team, "gh", "github")
    assert send(team, hook, PUSH, **of_github(PUSH))["run"]
    assert started(team) == [{"branch": "refs/heads/main", "commit": "c1"}]
    again = of_github(PUSH) | {"X_GitHub_Delivery": "another"}  # which is not signed
    with team.store.writing() as db:
        db.execute("update hook_seen set seen = 1")
    assert [send(team, hook, PUSH, **again) for _ in range(2)] == [403, 403]
    other = made(team, "gh2", "github")
    assert send(team, other, PUSH, **of_github(PUSH))["run"]
    form = urlencode({"payload": json.dumps({"ref": "v1"})}).encode()
    assert send(team, hook, form, Content_Type="application/x-www-form-urlencoded", **of_github(form))["run"]
    assert started(team)[-1] == {"branch": "v1", "commit": "none"}


WRONG = {
    "no signature": {"X_Hub_Signature_256": ""}, "no hash": {"X_Hub_Signature_256": "sha256="},
    "of another key": of_github(PUSH, key="another"), "of another body": of_github(b"{}"),
    "in capitals": {"X_Hub_Signature_256": of_github(PUSH)["X_Hub_Signature_256"].upper()},
    "the old one alone": {"X_Hub_Signature_256": "",
                          "X_Hub_Signature": "sha1=" + hmac.new(KEY.encode(), PUSH, hashlib.sha1).hexdigest()},
    "not text": {"X_Hub_Signature_256": "sha256=\udcff"}, "the key itself": {"X_Hub_Signature_256": "", "X_Gitlab_Token": KEY},
}  # fmt: skip


def test_what_github_has_not_signed_starts_nothing(team: Team) -> None:
    hook = made(team, "gh", "github")
    assert {name: send(team, hook, PUSH, **(of_github(PUSH) | change)) for name, change in WRONG.items()} == dict.fromkeys(WRONG, 403)
    assert started(team) == []


def test_gitlab_sends_the_key_and_a_delivery_is_taken_once(team: Team) -> None:
    hook = made(team, "gl", "gitlab")
    token = {"X_Gitlab_Token": KEY}
    assert send(team, hook, PUSH, **token, Idempotency_Key="1", X_Gitlab_Event_UUID="a")["run"]
    assert send(team, hook, PUSH, **token, Idempotency_Key="1", X_Gitlab_Event_UUID="a") == 403  # tried again
    assert send(team, hook, PUSH, **token, Idempotency_Key="2", X_Gitlab_Event_UUID="b")["run"]
    assert send(team, hook, PUSH, **token, X_Gitlab_Event_UUID="c")["run"]
    assert send(team, hook, PUSH, **token, X_Gitlab_Event_UUID="c") == 403
    # A script that sends the key has no numbers: AWX took such a body once and never again.
    assert send(team, hook, PUSH, **token)["run"]
    assert send(team, hook, PUSH, **token) == 403
    with team.store.writing() as db:
        db.execute("update hook_seen set until = until - 301000000")
    assert send(team, hook, PUSH, **token)["run"]
    assert send(team, hook, PUSH, **token, X_Gitlab_Event_UUID="c") == 403
    wrong: list[dict[str, str]] = [{}, {"X_Gitlab_Token": ""}, {"X_Gitlab_Token": KEY[:-1]}, {"X_Gitlab_Token": KEY + "x"}, of_github(PUSH)]
    assert [send(team, hook, PUSH, **one, Idempotency_Key="9") for one in wrong] == [403] * 5


WHSEC = "whsec_" + base64.b64encode(bytes(range(32))).decode()


def of_standard(body: bytes, number: str = "msg_1", ago_s: int = 0, key: bytes = bytes(range(32))) -> dict[str, str]:
    stamp = str(int(time.time()) - ago_s)
    signed = base64.b64encode(hmac.new(key, f"{number}.{stamp}.".encode() + body, hashlib.sha256).digest()).decode()
    return {"Webhook_Id": number, "Webhook_Timestamp": stamp, "Webhook_Signature": f"v1,{signed}"}


def test_the_example_of_standard_webhooks(monkeypatch: pytest.MonkeyPatch) -> None:
    from leadline.server.launch.signers import of_standard as check

    monkeypatch.setattr(time, "time", lambda: 1614265330.0)
    sent = {"webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330",
            "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}  # fmt: skip
    assert check(b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", sent, b'{"test": 2432232314}') is not None


@pytest.mark.parametrize("signed", ["gitlab", "standard"])
def test_a_signing_token_takes_what_is_signed_and_each_number_once(team: Team, signed: str) -> None:
    team.do("secret.set", project="main", secret="k", value=WHSEC)
    hook = made(team, signed, signed)
    assert send(team, hook, PUSH, **of_standard(PUSH))["run"]
    assert send(team, hook, PUSH, **of_standard(PUSH)) == 403  # tried again, or by an attacker
    assert send(team, hook, PUSH, **of_standard(PUSH, ago_s=60)) == 403
    assert send(team, hook, PUSH, **of_standard(PUSH, "msg_2"))["run"]
    rotated = of_standard(PUSH, "msg_3")
    rotated["Webhook_Signature"] = f"v1,AAAA v1a,BBBB {rotated['Webhook_Signature']}"
    assert send(team, hook, PUSH, **rotated)["run"]
    fresh = of_standard(PUSH, "msg_4")
    wrong: list[dict[str, str]] = [
        {}, {"X_Gitlab_Token": WHSEC}, of_standard(PUSH, "msg_4", ago_s=301), of_standard(PUSH, "msg_4", ago_s=-301),
        of_standard(PUSH, "msg_4", key=WHSEC.encode()), of_standard(PUSH, ""), of_standard(b"{}", "msg_4"), fresh | {"Webhook_Id": "msg_5"},
        fresh | {"Webhook_Timestamp": ""}, fresh | {"Webhook_Timestamp": f" {fresh['Webhook_Timestamp']}"},
        fresh | {"Webhook_Signature": fresh["Webhook_Signature"].removeprefix("v1,")}, fresh | {"Webhook_Signature": "v1,"},
        fresh | {"Webhook_Signature": fresh["Webhook_Signature"].replace("v1,", "v2,")}, fresh | {"Webhook_Signature": "v1,\udcff"},
    ]  # fmt: skip
    assert [send(team, hook, PUSH, **one) for one in wrong] == [403] * len(wrong)
    assert send(team, hook, PUSH, **fresh)["run"]


def test_events_of_gitlab_choose_also_where_it_signs(team: Team) -> None:
    team.do("secret.set", project="main", secret="k", value=WHSEC)
    hook = made(team, "gl", "gitlab", events="push")
    assert send(team, hook, PUSH, **of_standard(PUSH), X_Gitlab_Event="Issue Hook") == {"run": None, "ignored": "the event is issue"}
    assert send(team, hook, PUSH, **of_standard(PUSH, "b"), X_Gitlab_Event="Push Hook")["run"]


def test_events_and_places_choose_what_starts_something(team: Team) -> None:
    hook = made(team, "gh", "github", events="push, Tag Push", only={"ref": "refs/heads/main", "n": 3})
    other = PUSH.replace(b"main", b"side")
    assert send(team, hook, PUSH, **of_github(PUSH, "issues")) == {"run": None, "ignored": "the event is issues"}
    assert send(team, hook, b"{}", **of_github(b"{}", "ping")) == {"run": None, "ignored": "a ping"}
    assert send(team, hook, other, **of_github(other)) == {"run": None, "ignored": "ref is another"}
    fresh = PUSH + b" "
    assert send(team, hook, fresh, **of_github(fresh, "push"))["run"]
    lab = made(team, "gl", "gitlab", events="push,tag_push")
    assert send(team, lab, PUSH, X_Gitlab_Token=KEY, X_Gitlab_Event="Push Hook", Idempotency_Key="1")["run"]
    assert send(team, lab, PUSH, X_Gitlab_Token=KEY, X_Gitlab_Event="Note Hook", Idempotency_Key="2")["run"] is None
    assert len(started(team)) == 2


def test_a_signature_of_one_kind_opens_no_hook_of_another(team: Team) -> None:
    ours, theirs = made(team, "ours", "leadline"), made(team, "gl", "gitlab")
    assert [send(team, ours, PUSH, **of_github(PUSH)), send(team, ours, PUSH, X_Gitlab_Token=KEY)] == [403, 403]
    assert send(team, theirs, PUSH, **of_github(PUSH)) == 403
