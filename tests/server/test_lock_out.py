"""Strangers who try passwords lock nobody out: not elsewhere, not in a browser that is known, not from a login link."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from leadline.server.accounts.passwords import TRIES
from serving import PASSWORD, Client, Served, book


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with book(tmp_path_factory.mktemp("locked")) as served:
        served.user("ann", "--admin")
        served.user("bob")
        served.start()
        yield served
        assert served.complaints() == ""


def try_from(served: Served, address: str, account: str, password: str = PASSWORD) -> int:
    """The status of a login from another address of this host."""
    parts = urlsplit(served.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20, source_address=(address, 0))
    sent = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
    connection.request("POST", "/login", urlencode({"account": account, "password": password}), sent)
    status = connection.getresponse().status
    connection.close()
    return status


def link_of(served: Served, user: str) -> str:
    return str(served.do("user", "login-link", user)["link"]).partition("key=")[2]


def audit(served: Served) -> list[dict[str, Any]]:
    entries = served.do("user", "audit", "--limit", "200")["entries"]
    return [e | {"detail": json.loads(e["detail_json"])} for e in entries if e["operation"] == "login"]


def test_ten_wrong_passwords_close_their_address_and_nothing_else(served: Served) -> None:
    at_home = served.client()
    assert at_home.log_in("bob").status == 303
    at_home.form("/logout")
    assert [served.client().log_in("bob", f"wrong {n}").status for n in range(TRIES)] == [401] * TRIES
    assert served.client().log_in("bob").status == 429
    assert served.client().log_in("ann").status == 429  # the address is closed, for whoever comes from it
    assert try_from(served, "127.0.0.2", "bob") == 303
    assert at_home.log_in("bob").status == 303
    assert served.client(browser=True).form("/login/once", key=link_of(served, "bob")).status == 303
    told = [(e["outcome"], e["detail"]) for e in audit(served)]
    assert told[:4] == [
        ("done", {"by": "link"}),
        ("done", {"by": "password, in a browser that is known"}),
        ("done", {}),
        ("refused", {"closed": ["address 127.0.0.1"], "for_s": 900}),
    ]
    assert told[4] == ("refused", {})


def test_a_browser_is_known_for_its_own_users_alone_and_has_ten_tries_itself(served: Served) -> None:
    bob = served.client()
    bob.log_in("bob")
    for n in range(TRIES):
        served.client().log_in("ann", f"wrong {n}")
    assert bob.log_in("ann").status == 429  # it is not a browser of ann
    assert [bob.log_in("bob", f"wrong {n}").status for n in range(TRIES)] == [401] * TRIES
    assert bob.log_in("bob").status == 429
    assert audit(served)[0]["detail"] == {"closed": ["this browser"], "for_s": 900}
    assert try_from(served, "127.0.0.2", "bob") == 303


def test_a_browser_of_two_users_is_known_for_both(served: Served) -> None:
    shared = served.client()
    assert [shared.log_in(name).status for name in ("ann", "bob", "ann")] == [303] * 3
    for n in range(TRIES):
        served.client().log_in("nobody", f"wrong {n}")
    assert [shared.log_in(name).status for name in ("bob", "ann")] == [303] * 2


def test_a_proxy_that_is_not_named_is_warned_of_once(served: Served) -> None:
    sent = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin", "X-Forwarded-For": "192.0.2.7"}
    for _ in range(3):
        served.client().ask("POST", "/login", b"account=bob&password=x", sent)
    assert (served.book.parent / "serve.err").read_text().count("warning: requests come by a proxy at 127.0.0.1 that is not named") == 1


def test_an_id_that_somebody_planted_is_not_known(served: Served) -> None:
    victim = served.client(cookies={"leadline_device": "planted"})
    assert victim.log_in("bob").status == 303
    for n in range(TRIES):
        served.client().log_in("bob", f"wrong {n}")
    for planted in ("planted", "", "x", "a" * 5000, '"', "\\" * 100):
        assert served.client(cookies={"leadline_device": planted}).log_in("bob").status == 429
    assert victim.log_in("bob").status == 303


def test_a_browser_is_known_no_more_with_a_new_password_or_for_a_namesake(served: Served) -> None:
    def keep(client: Client) -> Client:
        return served.client(cookies={"leadline_device": client.cookies["leadline_device"]})

    bob, ann = served.client(), served.client()
    bob.log_in("bob")
    ann.log_in("ann")
    new = {"password": "another long password", "old_password": PASSWORD}
    assert ann.call("PUT", "/users/ann/password", **new).status == 200
    served.do("user", "delete", "bob")
    served.user("bob")
    for n in range(TRIES):
        served.client().log_in("nobody", f"wrong {n}")
    assert keep(bob).log_in("bob").status == 429
    assert keep(ann).log_in("ann", "another long password").status == 429
