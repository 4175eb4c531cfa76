"""One-time codes as a second factor: those of RFC 6238, each taken once, in the same words as a wrong password."""

from __future__ import annotations

import base64
import re
import sqlite3
import time
from collections.abc import Iterator

import pytest
from leadline.server.accounts import totp
from serving import PASSWORD, Client, Served, book

# RFC 6238, appendix B: times, and the last six of the eight digits that SHA-1 gives for the secret 12345678901234567890.
RFC = (
    (59, "287082"), (1111111109, "081804"), (1111111111, "050471"), (1234567890, "005924"), (2000000000, "279037"), (20000000000, "353130"),
)  # fmt: skip
RFC_SECRET = b"12345678901234567890"


@pytest.mark.parametrize(("now_s", "code"), RFC)
def test_codes_are_those_of_the_standard(now_s: int, code: str) -> None:
    assert totp.code_at(RFC_SECRET, now_s // 30) == code
    assert totp.step_of(RFC_SECRET, f"{code[:3]} {code[3:]}", now_s) == now_s // 30
    assert totp.step_of(RFC_SECRET, code, now_s + 30) == now_s // 30  # a clock that is behind
    assert totp.step_of(RFC_SECRET, code, now_s + 60) is None


@pytest.mark.parametrize("code", ["", "12345", "1234567", "28708a", "\uff12\uff18\uff17\uff10\uff18\uff12"])
def test_what_is_no_code_is_none(code: str) -> None:
    assert totp.step_of(RFC_SECRET, code, 59) is None


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with book(tmp_path_factory.mktemp("codes")) as served:
        served.user("ann", "--admin")
        served.user("bob")
        served.do("secret", "key")
        served.start()
        yield served
        assert served.complaints() == ""


def code(secret: str, steps: int = 0) -> str:
    return totp.code_at(base64.b32decode(secret), int(time.time()) // 30 + steps)


def log_in(served: Served, given: str) -> Client:
    client = served.client(browser=True)
    client.form("/login", account="bob", password=PASSWORD, code=given)
    return client


def is_in(client: Client) -> bool:
    return client.get("/account").status == 200


def test_one_sets_it_up_on_the_page_and_is_asked_from_then_on(served: Served) -> None:
    client = log_in(served, "")
    assert client.form("/form/user.codes", user="bob", password="not the password", then="/account").status == 403
    page = client.form("/form/user.codes", user="bob", password=PASSWORD, then="/account")
    secret = re.search(r'aria-label="Secret">([A-Z2-7]{32})<', page.text)
    assert secret is not None, page.text
    assert is_in(log_in(served, ""))  # not yet: no code has shown that the device has the secret
    assert client.form("/form/user.confirm-codes", user="bob", code="000000", then="/account").status == 403
    assert client.form("/form/user.confirm-codes", user="bob", code=code(secret[1]), then="/account").status == 303
    assert "asks you for a code" in client.get("/account").text
    assert [is_in(log_in(served, given)) for given in ("", "000000", code(secret[1]))] == [False, False, False]
    fresh = code(secret[1], 1)  # of a clock that is ahead
    assert is_in(log_in(served, fresh))
    assert not is_in(log_in(served, fresh))  # each is taken once
    wrong = served.client(browser=True).form("/login", account="bob", password="not the password", code="000000")
    missing = served.client(browser=True).form("/login", account="bob", password=PASSWORD)
    assert (wrong.status, wrong.body) == (missing.status, missing.body)
    stored = b"".join(path.read_bytes() for path in served.book.rglob("*") if path.is_file())
    assert secret[1].encode() not in stored
    assert client.form("/form/user.forget-codes", user="bob", then="/account").status == 403  # a session alone is not enough
    assert client.form("/form/user.forget-codes", user="bob", password=PASSWORD, then="/account").status == 303
    assert is_in(log_in(served, ""))


def test_wrong_codes_close_the_account_for_a_while(served: Served) -> None:
    set_up(served)
    assert [served.client().log_in("bob").status for _ in range(10)] == [401] * 10
    assert served.client().log_in("bob").status == 429


def set_up(served: Served) -> str:
    secret = str(served.do("user", "codes", "bob")["secret"])
    served.do("user", "confirm-codes", "bob", code(secret))
    return secret


def test_who_runs_the_server_can_take_it_away(served: Served) -> None:
    """For who has lost the device."""
    set_up(served)
    assert [user["codes"] for user in served.do("user", "list")["users"]] == [False, True]
    assert served.leadline("user", "codes", "bob").returncode == 2  # there is one
    assert served.do("user", "forget-codes", "bob") == {"user": "bob", "codes": False}
    assert is_in(log_in(served, ""))


def test_nobody_changes_another_s_and_no_token_changes_any(served: Served) -> None:
    bob, token = log_in(served, ""), served.client(token=served.token_of("bob"))
    assert bob.form("/form/user.codes", user="ann", password=PASSWORD, then="/account").status == 403
    assert token.call("POST", "/users/bob/codes", password=PASSWORD).status == 403
    assert token.call("PUT", "/users/bob/codes/forgotten", password=PASSWORD).status == 403
    with sqlite3.connect(served.book / "book.sqlite") as db:
        assert db.execute("select count(*) from account where totp_json is not null").fetchone() == (0,)


def test_a_link_asks_for_the_code_too(served: Served) -> None:
    """Whoever has got hold of the link has only one of two things."""
    secret = set_up(served)
    key = str(served.do("user", "login-link", "bob")["link"]).partition("key=")[2]
    for given in ("", "000000"):
        client = served.client(browser=True)
        refused = client.form("/login/once", key=key, code=given)
        assert (refused.status, "the code is missing or wrong" in refused.text.lower(), is_in(client)) == (401, True, False)
        assert f'value="{key}"' in refused.text  # the link is still there to be used
    client = served.client(browser=True)
    assert client.form("/login/once", key=key, code=code(secret, 1)).status == 303
    assert is_in(client)
    assert served.client(browser=True).form("/login/once", key=key, code=code(secret, 1)).status == 403
    entries = served.do("user", "audit")["entries"][:3]
    assert [(e["object"], e["outcome"], e["detail_json"]) for e in entries] == [
        ("bob", "done", '{"by": "link"}'), ("bob", "refused", '{"by": "link"}'), ("bob", "refused", '{"by": "link"}'),
    ]  # fmt: skip


def test_codes_cannot_be_tried_out_by_a_link(served: Served) -> None:
    set_up(served)
    key = str(served.do("user", "login-link", "bob")["link"]).partition("key=")[2]
    client = served.client(browser=True)
    assert [client.form("/login/once", key=key, code=f"{n:06}").status for n in range(11)] == [401] * 10 + [429]


def test_a_session_finds_out_neither_password_nor_codes(served: Served) -> None:
    """By trying them where they are asked again."""
    client = log_in(served, "")
    wrong = [client.form("/form/user.forget-codes", user="bob", password=f"wrong {n}", then="/account").status for n in range(10)]
    assert wrong == [403] * 10
    assert client.form("/form/user.forget-codes", user="bob", password=PASSWORD, then="/account").status == 429
    assert client.form("/form/user.codes", user="bob", password=PASSWORD, then="/account").status == 429
    secret = set_up(served)
    client = log_in(served, code(secret, 1))
    right = client.form("/form/user.confirm-codes", user="bob", code=code(secret), then="/account")
    assert (right.status, "has one already" in right.text) == (422, True)
