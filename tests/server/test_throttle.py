"""How often passwords may be tried, and that an answer takes as long whether the account is there or not."""

from __future__ import annotations

import hmac
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import leadline
import pytest
from leadline.book.place import Place
from leadline.book.store import Store
from leadline.errors import LeadlineError
from leadline.server.accounts import login, passwords, totp, users
from leadline.server.accounts.passwords import OF_ACCOUNT, TRIES, Throttle
from leadline.server.launch import hooks
from leadline.server.operation import Refused, perform
from leadline.server.rights import OWNER, Caller
from leadline.server.table import BY_NAME
from serving import PASSWORD, Served, book


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    opened = Store(place)
    for user, admin in (("ann", True), ("bob", False), ("gone", False)):
        perform(BY_NAME["user.create"], OWNER, opened, place, {"user": user, "password": PASSWORD, "admin": admin})
    perform(BY_NAME["user.disable"], OWNER, opened, place, {"user": "gone"})
    yield opened
    opened.close()

def refused(do: Callable[[], Any]) -> int:
    with pytest.raises(LeadlineError) as e:
        do()
    return e.value.status if isinstance(e.value, Refused) else 0

NAMES = ("ann", "bob", "gone", "nobody", "", "a\0b", "A", "é" * 100_000, "' or 1=1 --", "\ud800")

@pytest.mark.parametrize("account", NAMES, ids=lambda name: ascii(name)[:12])
def test_each_wrong_login_costs_one_hash_of_the_same_strength(store: Store, account: str, monkeypatch: pytest.MonkeyPatch) -> None:
    passwords._nobody()
    hasher, verified = passwords._hasher(), list[str]()

    class Counting:
        def verify(self, stored: str, password: str) -> bool:
            verified.append(stored.rpartition("$")[0].rpartition("$")[0])  # kind, version, cost
            return hasher.verify(stored, password)

        hash = hasher.hash

    monkeypatch.setattr(passwords, "_hasher", Counting)
    assert refused(lambda: login.log_in(store, Throttle(), account, "not the password", "192.0.2.1")) == 401
    assert verified == ["$argon2id$v=19$m=19456,t=2,p=1"]

def test_what_is_no_name_is_not_kept(store: Store) -> None:
    refused(lambda: login.log_in(store, Throttle(), "x" * 1_000_000, "not the password", "192.0.2.1"))
    entry = store.rows("select account, object from audit order by n desc limit 1")
    assert entry == [{"account": "?", "object": "?"}]

def test_tries_at_the_same_time_are_no_more_than_others() -> None:
    throttle, may, all_at_once = Throttle(), list[int](), threading.Barrier(40)

    def attempt(_n: int) -> None:
        all_at_once.wait()
        may.append(throttle.begin("bob", "192.0.2.1"))

    with ThreadPoolExecutor(40) as threads:
        list(threads.map(attempt, range(40)))
    assert may.count(0) == TRIES

def test_an_account_and_an_address_are_counted_each_for_itself() -> None:
    throttle = Throttle()
    assert [throttle.begin("bob", "192.0.2.1") for _ in range(TRIES)] == [0] * TRIES
    assert throttle.begin("bob", "192.0.2.1") > 60
    assert throttle.begin("bob", "198.51.100.1") == 0  # strangers elsewhere have closed nothing here
    assert throttle.begin("ann", "192.0.2.1") > 60
    assert [throttle.begin("bob", f"203.0.113.{n}") for n in range(OF_ACCOUNT - TRIES - 1)] == [0] * (OF_ACCOUNT - TRIES - 1)
    assert throttle.begin("bob", "198.51.100.2") > 60
    assert throttle.begin("ann", "198.51.100.2") == 0
    assert throttle.closed("bob", "192.0.2.1") == ["account bob", "address 192.0.2.1"]

def test_who_is_counted_apart_is_kept_out_by_nobody_else() -> None:
    throttle = Throttle()
    for n in range(OF_ACCOUNT):
        throttle.begin("bob", f"192.0.2.{n % 9}")
    assert [throttle.begin("bob", "192.0.2.1", "device x") for _ in range(TRIES)] == [0] * TRIES
    assert throttle.begin("bob", "192.0.2.1", "device x") > 60
    assert throttle.closed("bob", "192.0.2.1", "device x") == ["device x"]
    assert throttle.begin("bob", "192.0.2.1", "device y") == 0

def test_a_network_of_ipv6_is_one_address() -> None:
    throttle = Throttle()
    assert [throttle.begin(f"u{n}", f"2001:db8::{n:x}") for n in range(TRIES)] == [0] * TRIES
    assert throttle.begin("new", "2001:db8::ffff:1%eth0") > 60
    assert throttle.begin("new", "2001:db8:0:1::1") == 0
    assert throttle.begin("new", "::ffff:192.0.2.1") == 0

def test_the_right_password_takes_back_its_own_try_alone() -> None:
    throttle = Throttle()
    for n in range(TRIES - 1):
        throttle.begin(f"u{n}", "192.0.2.1")
    for _ in range(3):
        assert throttle.begin("bob", "192.0.2.1") == 0
        throttle.was_right("bob", "192.0.2.1")
    assert throttle.begin("eve", "192.0.2.1") == 0
    assert throttle.begin("bob", "192.0.2.1") > 60

def test_many_names_take_no_endless_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "MOST_KEYS", 1000)
    throttle = Throttle()
    for n in range(1000):
        throttle.begin(f"u{n}", f"192.0.2.{n}")
    assert len(throttle._tries) <= 1002
    for n in range(OF_ACCOUNT - 1):
        assert throttle.begin("u999", f"198.51.100.{n}") == 0
    assert throttle.begin("u999", "203.0.113.1") > 60

def test_the_old_password_cannot_be_found_out_with_a_session(store: Store, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "OLD_PASSWORDS", Throttle())
    bob = Caller("bob", False, session="x", address="192.0.2.1")

    def change(old: str) -> Any:
        given = {"user": "bob", "password": "another long password", "old_password": old}
        return perform(BY_NAME["user.password"], bob, store, place, given)

    assert [refused(lambda n=n: change(f"wrong {n}")) for n in range(TRIES)] == [0] * TRIES  # type: ignore[misc]
    assert refused(lambda: change(PASSWORD)) == 429

def test_a_wrong_old_password_again_and_again_is_told_to_wait(tmp_path_factory: pytest.TempPathFactory) -> None:
    with book(tmp_path_factory.mktemp("old")) as served:
        served.user("ann", "--admin")
        served.start()
        assert old_passwords(served) == [403] * TRIES + [429]

def old_passwords(served: Served) -> list[int]:
    client = served.client()
    client.log_in("ann")
    wanted = {"password": "another long password"}
    answers = [client.call("PUT", "/users/ann/password", old_password=f"wrong {n}", **wanted) for n in range(TRIES)]
    last = client.call("PUT", "/users/ann/password", old_password=PASSWORD, **wanted)
    assert int(last.header("retry-after")) > 60
    return [answer.status for answer in [*answers, last]]


def test_secrets_are_compared_in_constant_time(store: Store, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that a request has: a token, the signature of a hook, a code."""
    compared, real = list[object](), hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda one, other: compared.append(other) or real(one, other))

    def do(operation: str, **given: Any) -> Any:
        return perform(BY_NAME[operation], OWNER, store, place, given)

    token = str(do("token.create", name="t", user="bob")["token"])
    wrong = token[:-1] + ("x" if token[-1] != "x" else "y")
    assert login.caller_of_token(store, wrong, "") is None
    assert len(compared) == 1
    do("secret.key")
    do("secret.set", project="main", secret="k", value="the key of a hook")
    template = do("template.save", project="main", name="t", command="true")["template"]
    hook = do("hook.start", project="main", name="in", template=template, secret="k")["hook"]
    sent = {"x-leadline-timestamp": str(int(time.time())), "x-leadline-signature": "sha256=" + "0" * 64}
    assert refused(lambda: hooks.receive(place, store, hook, sent, b"{}", "")) == 403
    assert compared[1:] == [sent["x-leadline-signature"].encode()]
    assert totp.step_of(b"secret", "000000", 59) is None
    assert len(compared) > 3


def test_no_password_is_written_in_the_program() -> None:
    """No account, password or token comes with it: what looks like one is a name, an example or a hint."""

    folder = Path(leadline.__file__).parent
    found = [
        (file.name, line.strip())
        for file in [*folder.glob("server/**/*.py"), *folder.glob("book/**/*.py")]
        for line in file.read_text().splitlines()
        if re.search(r"""(?i)(password|passwd|secret|token)\w*\s*[=:]\s*["'](?!LEADLINE_)[^"'{ ]{6,}["']""", line)
    ]
    assert found == []
