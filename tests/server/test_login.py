"""Sessions, tokens, passwords and where requests come from."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterator

import pytest
from serving import PASSWORD, Client, Served, book, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with book(tmp_path_factory.mktemp("login")) as served:
        served.user("ann", "--admin")
        served.user("bob")
        served.record("echo", "hello", name="greeting")
        served.start()
        yield served


def logged_in(served: Served, account: str = "ann") -> Client:
    client = served.client()
    assert client.log_in(account).status == 303
    return client


def rows(served: Served, sql: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(served.book / "book.sqlite") as db:
        return db.execute(sql).fetchall()


def test_who_is_not_logged_in_gets_the_login_page_and_programs_an_error(served: Served) -> None:
    page = served.client().get("/runs?status=failed")
    assert (page.status, page.header("location")) == (303, "/login?next=%2Fruns%3Fstatus%3Dfailed")
    answer = served.client().call("GET", "/runs")
    assert (answer.status, answer.header("www-authenticate")) == (401, "Bearer")


def test_a_session_is_new_at_login_and_hidden_from_scripts(served: Served) -> None:
    client = served.client(cookies={"leadline_session": "planted"})
    answer = client.log_in("ann")
    cookie = answer.header("set-cookie").lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert "secure" not in cookie  # of http
    assert client.cookies["leadline_session"] != "planted"
    assert client.get("/runs").status == 200
    assert served.client(cookies={"leadline_session": "planted"}).get("/runs").status == 303


def test_logging_out_ends_the_session_for_good(served: Served) -> None:
    client = logged_in(served)
    kept = dict(client.cookies)
    assert client.form("/logout").status == 303
    assert served.client(cookies=kept).get("/runs").status == 303


def test_a_session_is_not_in_the_store_as_it_is(served: Served) -> None:
    client = logged_in(served)
    assert client.cookies["leadline_session"] not in {str(row[0]) for row in rows(served, "select hash from session")}


def test_wrong_passwords_and_unknown_users_get_the_same_answer(served: Served) -> None:
    wrong, unknown = served.client().log_in("bob", "not the password"), served.client().log_in("nobody", "not the password")
    assert (wrong.status, unknown.status) == (401, 401)
    assert wrong.body.replace(b'value="bob"', b'value="nobody"') == unknown.body  # what was typed is shown again


def test_a_login_ends_the_session_that_the_browser_had(served: Served) -> None:
    """Whoever planted it, or has seen it, has nothing by it."""
    first = served.client()
    first.log_in("ann")
    before = served.client(browser=True, cookies=dict(first.cookies))
    assert before.get("/runs").status == 200
    assert first.log_in("bob").status == 303
    assert (first.get("/runs").status, before.get("/runs").status) == (200, 303)


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example", "https://evil.example/", "javascript:alert(1)", "/\t/evil.example"])
def test_login_goes_on_to_pages_of_this_site_alone(served: Served, path: str) -> None:
    client = served.client(browser=True)
    answer = client.form("/login", account="ann", password=PASSWORD, next=path)
    assert (answer.status, answer.header("location")) == (303, "/")


def test_ten_wrong_passwords_close_the_account_for_a_while(tmp_path_factory: pytest.TempPathFactory) -> None:
    with book(tmp_path_factory.mktemp("throttle")) as served:
        served.user("ann", "--admin")
        served.user("bob")
        served.start()
        assert [served.client().log_in("bob", f"wrong {n}").status for n in range(10)] == [401] * 10
        refused = served.client().log_in("bob")
        assert refused.status == 429
        assert int(refused.header("retry-after")) > 60
        spoofed = served.client().ask(
            "POST", "/login", b"account=bob&password=x",
            {"Content-Type": "application/x-www-form-urlencoded", "X-Forwarded-For": "192.0.2.7", "Sec-Fetch-Site": "same-origin"},
        )  # fmt: skip
        assert spoofed.status == 429


WRITES = ("/form/token.create", "/form/user.create", "/logout")
FOREIGN = (
    {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {},
)  # fmt: skip


@pytest.mark.parametrize("path", WRITES)
@pytest.mark.parametrize("headers", FOREIGN, ids=str)
@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x"])
def test_another_site_cannot_write_with_my_session(served: Served, path: str, headers: dict[str, str], kind: str) -> None:
    client = logged_in(served)
    client.browser = False
    before = rows(served, "select count(*) from token union all select count(*) from account union all select count(*) from session")
    answer = client.ask("POST", path, b"name=x&user=mallory&password=long+enough+password", headers | {"Content-Type": kind})
    assert answer.status == 403
    assert (
        rows(served, "select count(*) from token union all select count(*) from account union all select count(*) from session") == before
    )


def key_of(served: Served, user: str) -> str:
    link = str(served.do("user", "login-link", user)["link"])
    assert link.startswith(f"{served.url}/login/once?key=")
    return link.partition("key=")[2]


def test_a_link_logs_in_once(served: Served) -> None:
    key = key_of(served, "bob")
    for _ in range(2):  # to look at it is not to use it
        assert f'value="{key}"' in served.client().get(f"/login/once?key={key}").text
    client = served.client(browser=True, cookies={"leadline_session": "planted"})
    answer = client.form("/login/once", key=key)
    assert (answer.status, answer.header("location")) == (303, "/")
    assert "httponly" in answer.header("set-cookie").lower()
    assert client.get("/runs").status == 200
    assert client.call("GET", "/users").status == 403  # it is bob who came in
    again = served.client(browser=True).form("/login/once", key=key)
    assert (again.status, "link is not valid" in again.text, again.header("set-cookie")) == (403, True, "")
    dump = "\n".join(sqlite3.connect(served.book / "book.sqlite").iterdump())
    assert key not in dump


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_another_site_cannot_log_somebody_in(served: Served, headers: dict[str, str]) -> None:
    key = key_of(served, "bob")
    sent = headers | {"Content-Type": "application/x-www-form-urlencoded"}
    assert served.client().ask("POST", "/login/once", f"key={key}".encode(), sent).status == 403
    assert served.client(browser=True).form("/login/once", key=key).status == 303


def test_a_link_that_is_old_or_of_who_was_disabled_is_not_valid(served: Served) -> None:
    served.user("dora")
    old, disabled = key_of(served, "dora"), key_of(served, "dora")
    with sqlite3.connect(served.book / "book.sqlite") as db:
        minutes = db.execute("select max(expires) from login_link").fetchone()[0] / 60e6 - time.time() / 60
        assert 9 < minutes <= 10
        db.execute("update login_link set expires = ? where hash = ?", (time.time_ns() // 1000, hashlib.sha256(old.encode()).hexdigest()))
    assert served.client(browser=True).form("/login/once", key=old).status == 403
    served.do("user", "disable", "dora", "--disabled")
    assert served.client(browser=True).form("/login/once", key=disabled).status == 403
    assert "dora is disabled" in served.leadline("user", "login-link", "dora").stderr
    for key in ("", "x", "' or 1=1 --", "\0", "a" * 100_000):
        assert served.client(browser=True).form("/login/once", key=key).status == 403


def test_another_site_cannot_call_rest_with_my_session(served: Served) -> None:
    client = logged_in(served)
    client.browser = False
    for headers in FOREIGN:
        sent = headers | {"Content-Type": "application/json"}
        assert client.ask("POST", "/api/v1/tokens", b'{"name": "x"}', sent).status == 403, headers
    assert client.ask("GET", "/api/v1/runs", headers={"Origin": "https://evil.example"}).status == 403


def test_a_form_with_my_session_from_here_is_taken(served: Served) -> None:
    client = logged_in(served)
    page = client.form("/form/token.create", name="from the form", scope="viewer", then="/tokens")
    assert page.status == 200
    assert "ll_" in page.text


def test_a_token_works_as_it_is_and_in_no_other_form(served: Served) -> None:
    token = served.token_of("ann", "viewer")
    assert served.client(token=token).call("GET", "/runs").status == 200
    wrong = (token.upper(), token.lower(), token[:-1], token + "x", token[:13], "ll__", "")
    assert [served.client().get("/api/v1/runs", Authorization=f"Bearer {text}").status for text in wrong if text != token] == [401] * 7
    for scheme in ("Basic", "Token", ""):
        assert served.client().get("/api/v1/runs", Authorization=f"{scheme} {token}").status == 401
    assert served.client().get(f"/api/v1/runs?token={token}").status == 401


def test_a_token_is_shown_once_and_stored_as_a_hash(served: Served) -> None:
    token = served.token_of("ann", "viewer")
    listed = served.client(token=token).call("GET", "/tokens").text
    assert token[3:13] in listed
    assert token not in listed
    dump = "\n".join(sqlite3.connect(served.book / "book.sqlite").iterdump())
    assert token not in dump
    assert token[14:] not in dump  # it may have a _ itself


def test_a_revoked_an_expired_and_a_disabled_ones_token_end(served: Served) -> None:
    served.user("eve")
    tokens = [served.token_of("eve", "viewer") for _ in range(3)]
    clients = [served.client(token=token) for token in tokens]
    assert [client.call("GET", "/runs").status for client in clients] == [200] * 3
    served.do("token", "revoke", tokens[0][3:13])
    with sqlite3.connect(served.book / "book.sqlite") as db:
        db.execute("update token set expires = ? where prefix = ?", (time.time_ns() // 1000, tokens[1][3:13]))
    assert [client.call("GET", "/runs").status for client in clients] == [401, 401, 200]
    served.do("user", "disable", "eve", "--disabled")
    assert clients[2].call("GET", "/runs").status == 401
    assert served.client().log_in("eve").status == 401
    served.do("user", "delete", "eve")
    assert clients[2].call("GET", "/runs").status == 401


def test_a_token_gives_no_more_than_its_scope_and_its_user_have(served: Served) -> None:
    viewer = served.client(token=served.token_of("ann", "viewer"))
    assert viewer.call("GET", "/users").status == 403
    assert viewer.call("PUT", "/runs/last/pin", pinned=True).status == 403
    assert viewer.call("POST", "/tokens", name="more", scope="admin").status == 403
    bob = served.client(token=served.token_of("bob", "admin"))
    assert bob.call("GET", "/users").status == 403
    assert bob.call("GET", "/runs/last").status == 404
    assert bob.call("POST", "/tokens", name="for ann", user="ann").status == 403


def test_a_token_hands_on_no_more_than_it_has(served: Served) -> None:
    """Neither time nor reach: who has found one has not got more than was lost."""
    served.user("hans")
    for project in ("one", "two"):
        served.do("user", "project", project)
        served.do("user", "role", project, "hans", "--role", "editor")
    short, wide = served.token_of("hans", "editor", "--project", "one", "--days", "1"), served.token_of("hans", "admin")
    client = served.client(token=short)
    made = client.call("POST", "/tokens", name="child", scope="viewer", project="one", days=90)
    assert made.json["expires"] <= (time.time() + 86400) * 1e6
    listed = {token["token"] for token in client.call("GET", "/tokens").json["tokens"]}
    assert listed == {short[3:13], made.json["prefix"]}  # of the other project it does not know
    assert client.call("DELETE", f"/tokens/{wide[3:13]}").status == 404
    viewer = served.client(token=served.token_of("hans", "viewer"))
    assert viewer.call("DELETE", f"/tokens/{wide[3:13]}").status == 403
    assert client.call("DELETE", f"/tokens/{made.json['prefix']}").status == 200
    assert served.client(token=wide).call("DELETE", f"/tokens/{short[3:13]}").status == 200


def test_a_password_is_changed_with_the_old_one_and_ends_other_sessions(served: Served) -> None:
    served.user("carl")
    here, elsewhere = logged_in(served, "carl"), logged_in(served, "carl")
    assert here.call("PUT", "/users/carl/password", password="another long password").status == 403
    assert here.call("PUT", "/users/carl/password", password="short", old_password=PASSWORD).status == 422
    assert here.call("PUT", "/users/carl/password", password="another long password", old_password=PASSWORD).status == 200
    assert (here.get("/runs").status, elsewhere.get("/runs").status) == (200, 303)
    assert (served.client().log_in("carl").status, served.client().log_in("carl", "another long password").status) == (401, 303)
    token = served.client(token=served.token_of("carl"))
    assert token.call("PUT", "/users/carl/password", password="a third long password", old_password="another long password").status == 403


def test_no_account_and_no_password_are_there_from_the_start(tmp_path: object, tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("fresh")) as served:
        assert served.client().call("GET", "/users").json == {"users": []}


def test_without_users_only_loopback_is_served(tmp_path_factory: pytest.TempPathFactory) -> None:
    with book(tmp_path_factory.mktemp("bind")) as served:
        for address in ("0.0.0.0:0", "[::]:0"):
            done = served.leadline("serve", "--listen", address)
            assert done.returncode == 2
            assert "without users the server listens on loopback alone" in done.stderr


def test_without_users_another_name_of_the_host_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A page of another site whose name is made to lead here (DNS rebinding)."""
    with serving(tmp_path_factory.mktemp("rebinding")) as served:
        port = served.url.rpartition(":")[2]
        assert served.client().get("/runs.json", Host=f"evil.example:{port}").status == 403
        assert served.client().get("/runs.json", Host=f"localhost:{port}").status == 200
        assert (
            served.client()
            .ask(
                "POST",
                "/form/token.create",
                b"name=x",
                {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "cross-site"},
            )
            .status
            == 403
        )


def test_with_the_first_user_everybody_must_log_in(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("first")) as served:
        assert served.client().get("/runs").status == 200
        refused = served.leadline("user", "create", "bob", "--password-file", "-", given=PASSWORD)
        assert "the first user must be an administrator" in refused.stderr
        served.user("ann", "--admin")
        assert served.client().get("/runs").status == 303
        assert logged_in(served).get("/users").status == 200


def test_a_body_of_more_than_a_megabyte_is_refused(served: Served) -> None:
    client = served.client(token=served.token_of("ann", "admin"))
    sent = {"Content-Type": "application/json"}
    assert client.ask("POST", "/api/v1/tokens", b'{"name": "' + b"x" * (1 << 20) + b'"}', sent).status == 413
    assert client.ask("POST", "/api/v1/tokens", b'{"name": ' + b"[" * 100_000, sent).status == 422
    assert client.ask("POST", "/api/v1/tokens", b"name=x", {"Content-Type": "text/plain"}).status == 415


def test_the_audit_names_who_did_what_and_cannot_be_cut(served: Served) -> None:
    ann = served.client(token=served.token_of("ann", "admin"))
    ann.call("PUT", "/runs/last/labels/checked", value="yes")
    served.client(token=served.token_of("bob", "admin")).call("DELETE", "/users/ann")
    entries = ann.call("GET", "/audit?limit=3").json["entries"]
    assert [(e["account"], e["operation"], e["outcome"]) for e in entries[:3:2]] == [
        ("bob", "user.delete", "refused"),
        ("ann", "run.label", "done"),
    ]
    assert PASSWORD not in ann.call("GET", "/audit?limit=1000").text
    assert served.do("user", "verify") == {"whole": True, "fault": ""}


@pytest.mark.parametrize(
    "sql",
    [
        "delete from audit where n = 2",
        "delete from audit where n = (select max(n) from audit)",
        "update audit set account = 'bob' where n = 1",
        "delete from audit",
    ],
)
def test_an_audit_that_was_changed_is_seen(sql: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    with book(tmp_path_factory.mktemp("audit")) as served:
        served.user("ann", "--admin")
        for name in ("bob", "carl"):
            served.user(name)
        assert served.do("user", "verify")["whole"] is True
        with sqlite3.connect(served.book / "book.sqlite") as db:
            db.execute(sql)
        assert served.do("user", "verify")["whole"] is False


def test_the_server_had_nothing_to_complain_of(served: Served) -> None:
    assert served.complaints() == ""
