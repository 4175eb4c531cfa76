"""Groups of an identity provider: an account at the first login, roles that follow the groups, and no way to become somebody else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from leadline.server.accounts import oidc
from leadline.server.accounts.groups import Groups
from leadline.server.operation import Refused
from serving import PASSWORD, Answer, Client, Served, book
from test_provider import SECRET, Provider, back, begin, by_rsa, issuer  # noqa: F401

ROLES = {"dba": {"main": "editor", "lab": "viewer"}, "ops": {"main": "runner", "gone": "admin"}, "/root": "admin"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, issuer: str) -> Iterator[Served]:  # noqa: F811
    folder = tmp_path_factory.mktemp("groups")
    about = {"issuer": issuer, "client_id": "leadline", "client_secret": SECRET, "roles": ROLES}
    (file := folder / "provider.json").write_text(json.dumps(about))
    file.chmod(0o600)
    with book(folder) as served:
        served.user("ann", "--admin")
        served.do("user", "project", "lab")
        served.start("--provider", str(file))
        yield served
        assert served.complaints() == ""


def log_in(served: Served, subject: str, **claims: Any) -> tuple[Answer, Client]:
    Provider.change, Provider.sign = staticmethod(lambda _header, told: told.update(sub=subject, **claims)), staticmethod(by_rsa)
    client = served.client()
    asked = begin(client)
    return back(client, asked["state"], asked["code"]), client


def me(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/account.json").json
    return {name: found[name] for name in ("user", "admin", "roles")}


def test_the_first_login_makes_an_account_and_each_gives_the_roles_of_the_groups(served: Served) -> None:
    answer, client = log_in(served, "s1", preferred_username="Carl@example.org", groups=["dba", "ops", "others", 5])
    assert answer.status == 303, answer.text
    assert me(client) == {"user": "carl", "admin": False, "roles": {"main": "editor", "lab": "viewer"}}
    assert served.client().log_in("carl", "").status == 401  # it has no password
    served.do("user", "project", "by-hand")
    served.do("user", "role", "by-hand", "carl", "--role", "viewer")
    _, client = log_in(served, "s1", preferred_username="another", groups=["ops"])
    assert me(client) == {"user": "carl", "admin": False, "roles": {"by-hand": "viewer", "main": "runner"}}
    _, client = log_in(served, "s1", groups="/root")
    assert me(client)["admin"] is True
    _, client = log_in(served, "s1", groups=[])
    assert me(client) == {"user": "carl", "admin": False, "roles": {"by-hand": "viewer"}}
    served.do("user", "role", "by-hand", "carl", "--role", "none")
    refused, _ = log_in(served, "s1")
    assert (refused.status, "None of your groups has a role here any more" in refused.text) == (403, True)
    told = [(e["operation"], e["outcome"]) for e in served.do("user", "audit", "--limit", "1")["entries"]]
    assert told == [("login", "refused")]


@pytest.mark.parametrize(
    ("name", "member", "told"),
    [
        ("ann", ["dba"], "There is another user ann here"), ("ann@evil.example", ["/root"], "There is another user ann here"),
        ("owner", ["dba"], "tells no name"), ("../x", ["dba"], "tells no name"), ("", ["dba"], "tells no name"),
        ("a" * 65, ["dba"], "tells no name"), (["ann"], ["dba"], "tells no name"),
        ("dora", ["others"], "None of your groups has a role"), ("dora", None, "None of your groups has a role"),
        ("dora", {"dba": 1}, "None of your groups has a role"), ("dora", ["DBA", "dba "], "None of your groups has a role"),
    ],
    ids=str,
)  # fmt: skip
def test_who_gets_no_account(served: Served, name: Any, member: Any, told: str) -> None:
    answer, client = log_in(served, "stranger", preferred_username=name, groups=member)
    assert (answer.status, told in answer.text.replace("&#39;", "'")) == (403, True), answer.text
    assert "leadline_session" not in client.cookies
    assert [user["user"] for user in served.do("user", "list")["users"] if user["user"] in ("dora", "owner", "x")] == []


def test_who_was_disabled_or_deleted_here_is_not_let_in_as_before(served: Served) -> None:
    log_in(served, "s2", preferred_username="erik", groups=["dba"])
    served.do("user", "disable", "erik")
    answer, _ = log_in(served, "s2", preferred_username="erik2", groups=["dba"])
    assert answer.status == 403
    assert "erik2" not in [user["user"] for user in served.do("user", "list")["users"]]
    served.do("user", "delete", "erik")
    answer, client = log_in(served, "s2", preferred_username="erik", groups=["ops"])
    assert (answer.status, me(client)["roles"]) == (303, {"main": "runner"})


def test_groups_that_are_not_told_are_not_none() -> None:
    mapped = Groups({"dba": {"main": "editor"}})
    with pytest.raises(Refused, match="does not tell all your groups"):
        mapped.given({"_claim_names": {"groups": "src1"}})
    assert mapped.given({}) == (False, {})


@pytest.mark.parametrize(
    "given",
    [
        {"roles": []}, {"roles": {"a": "editor"}}, {"roles": {"a": {}}}, {"roles": {"a": {"main": "owner"}}},
        {"roles": {"a": {"Main": "admin"}}},
        {"roles": {"a": {"main": None}}}, {"roles": {"a": {"main": "admin"}}, "groups_claim": ""}, {"groups_claim": 5}, {"scope": ""},
    ],
    ids=str,
)  # fmt: skip
def test_a_file_whose_roles_cannot_be_meant_is_one_error(tmp_path: Path, given: dict[str, Any]) -> None:
    (file := tmp_path / "provider.json").write_text(
        json.dumps({"issuer": "https://login.example", "client_id": "x", "client_secret": PASSWORD} | given)
    )
    file.chmod(0o600)
    with pytest.raises(Exception, match=r"do not have their form|does not have its form"):
        oidc.read_client(str(file))
