"""The plugin's own parts, without Ansible: where the book is, what it takes out of texts and files, what it shows of a command line."""

from __future__ import annotations

import ast
import base64
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from leadline.book.ansible.plugin import leadline_book as plugin
from leadline.book.place import find_place
from real_names import ENVIRONMENT, VARIABLES

SOURCE = Path(plugin.__file__)


def test_it_imports_the_standard_library_and_ansible_alone() -> None:
    """It runs where leadline is not installed."""
    names = set()
    for node in ast.walk(ast.parse(SOURCE.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(str(node.module).partition(".")[0])
    assert names - {"ansible"} <= set(sys.stdlib_module_names)
    assert {"ansible", "json", "os"} <= names


def test_it_is_alone_in_its_folder() -> None:
    """Ansible loads every file of a folder with plugins."""
    assert {path.name for path in SOURCE.parent.glob("*.py")} == {"leadline_book.py"}


@pytest.mark.parametrize("book", [
    "", "off", "OFF", "/srv/book", "~/book", "book", "postgresql://me:secret@db/x", "postgres://db/x?password=abc", "postgresql:///x",
    "postgresql://db/x?user=me&passphrase=abc&sslmode=require",
])  # fmt: skip
@pytest.mark.parametrize("state", ["", "/var/state", "relative"])
def test_the_book_is_where_leadline_looks_for_it(book: str, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADLINE_BOOK", book)
    monkeypatch.setenv("XDG_STATE_HOME", state)
    place = find_place()
    assert plugin.find_place() == (place and place.root)


def test_a_known_secret_is_found_in_all_its_forms() -> None:
    hider = plugin.Hider()
    hider.learn('pass/w"ord ä')
    hider.learn("-----BEGIN KEY-----\nMIIEpAIBAAKCAQEA0\n-----END KEY-----")
    whole = json.dumps({"a": 'pass/w"ord ä'}), json.dumps({"a": 'pass/w"ord ä'}, ensure_ascii=False), "x=pass%2Fw%22ord%20%C3%A4"
    encoded = base64.b64encode('pass/w"ord ä'.encode()).decode()
    for text in (*whole, encoded, "only MIIEpAIBAAKCAQEA0 of it"):
        assert plugin.HIDDEN in hider.text(text)
    assert hider.text("pass and word, and MIIEp") == "pass and word, and MIIEp"


@pytest.mark.parametrize("value", ["abc", "true", "always", "{{ vault_it }}", "present", ""])
def test_what_would_hide_everything_is_no_secret(value: str) -> None:
    hider = plugin.Hider()
    hider.learn_from({"db_password": value})
    assert hider.forms == []


def test_secrets_are_learned_from_variables_by_their_names() -> None:
    hider = plugin.Hider()
    hider.learn_from({
        "db_password": "one-secret", "deep": {"api_token": "4711-0815x"}, "users": [{"name": "a", "passwd": "two-secret"}],
        "update_password": "on-create!", "tokens_of_all": "kept", "passwords": "kept too", "ssh_private_key": "three-secret",
    })  # fmt: skip
    assert hider.text("one-secret 4711-0815x two-secret three-secret on-create! kept") == "*** *** *** *** on-create! kept"


def test_json_stays_json_whatever_is_hidden_in_it() -> None:
    hider = plugin.Hider()
    for secret in ("name", "1234", "kind", '"},{"'):
        hider.learn(secret)
    body = {"name": "my name", "n": 1234, "list": [{"kind": '"},{"'}], "ok": True, "nothing": None, "url": "https://me:pw@host/"}
    assert json.loads(hider.line(body)) == {
        "***": "my ***", "n": "***", "list": [{"***": "***"}], "ok": True, "nothing": None, "url": "https://me:***@host/"
    }  # fmt: skip


def test_values_of_secret_names_are_hidden_in_events() -> None:
    body = {"password": "x1", "update_password": "always", "login": {"api_key": 5, "token": "", "secret": None, "user": "u"}}
    assert json.loads(plugin.Hider().line(body)) == {
        "password": "***", "update_password": "always", "login": {"api_key": "***", "token": "", "secret": None, "user": "u"}
    }  # fmt: skip


def test_any_value_becomes_json() -> None:
    class Odd:
        def __str__(self) -> str:
            return "odd"

    deep: list[Any] = []
    for _ in range(60):
        deep = [deep]
    line = plugin.Hider().line({"odd": Odd(), (1, 2): "skipped", "bytes": b"x", "deep": deep, "token": "\udc80abcd", "nan": float("nan")})
    assert json.loads(line)["odd"] == "odd"


@pytest.mark.parametrize("piece", ["a://b:", "a_", "password_", "://", "token: ", "x" * 10, "-a=", "\\"])
def test_no_text_takes_long(piece: str) -> None:
    """A megabyte of output that looks like the beginning of a secret, again and again; and a file of the longest that is kept."""
    hider = plugin.Hider()
    hider.learn("one-s3cret")
    began = time.process_time()
    hider.line({"stdout": piece * ((1 << 20) // len(piece)), "password": ""})
    hider.file(piece * (plugin.LONGEST_FILE // len(piece)))
    assert time.process_time() - began < 5


FILE = """\
- hosts: all
  vars:
    db_password: plain-one
    other: "{{ db_password }}"
    url: postgres://me:plain-two@db/x
  tasks:
    - name: Make a user
      user: name=app password=plain-three update_password=always
    - name: Hidden
      shell: |
        echo plain-four
        echo plain-five
      when: ready
      no_log: true
    - no_log: yes
      command: echo plain-six
      name: Dash first
    - name: Not hidden
      command: echo kept-one
      no_log: false
    - name: A block
      no_log: "{{ hide }}"
      block:
        - name: Inner
          command: echo plain-seven
    - debug: {msg: kept-two}
"""


def test_a_playbook_is_kept_without_secrets_and_what_no_log_covers() -> None:
    assert plugin.Hider().file(FILE) == """\
- hosts: all
  vars:
    db_password: ***
    other: "{{ db_password }}"
    url: postgres://me:***@db/x
  tasks:
    - name: Make a user
      user: name=app password=*** update_password=always
    - name: Hidden
      ***
        ***
        ***
      when: ready
      no_log: true
    - no_log: yes
      ***
      name: Dash first
    - name: Not hidden
      command: echo kept-one
      no_log: false
    - name: A block
      no_log: "{{ hide }}"
      block:
        - name: Inner
          ***
    - debug: {msg: kept-two}
"""


@pytest.mark.parametrize("given, shown", [
    (["-e", "a=1 b='x y'"], ["-e", "a=*** b=***"]),
    (["--extra-vars", '{"a": {"b": 1}}'], ["--extra-vars", '{"a": "***"}']),
    (["--extra-vars=a=1"], ["--extra-vars=a=***"]),
    (["-ea=1"], ["-ea=***"]),
    (["-e", "@vars.yml"], ["-e", "@vars.yml"]),
    (["-e", "{broken"], ["-e", "***"]),
    (["-i", "hosts", "--limit", "a"], ["-i", "hosts", "--limit", "a"]),
    (["-a", "user=x password=y"], ["-a", "user=x password=***"]),
])  # fmt: skip
def test_of_extra_variables_only_names_are_shown(given: list[str], shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["ansible-playbook", *given])
    assert plugin.CallbackModule()._argv() == ["ansible-playbook", *shown]


def test_what_cannot_be_written_is_counted_and_nothing_raised(tmp_path: Path) -> None:
    spool = plugin.Spool(tmp_path / "book")
    os.close(spool._fd)
    spool.append("x", "{}")
    spool.append("x", json.dumps({"long": "x" * plugin.LONGEST_EVENT}))
    assert (spool.lost, bool(spool.why)) == (2, True)
    (tmp_path / "file").write_text("")
    assert plugin.Spool(tmp_path / "file").lost == 1


def test_times_do_not_follow_a_clock_that_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = plugin.Spool(tmp_path)
    before = spool.now_us()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert 0 <= spool.now_us() - before < 60_000_000


def test_events_join_the_run_that_started_ansible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "0123456789ab.jsonl").write_text('{"n":1}\n')
    monkeypatch.setenv("LEADLINE_ANSIBLE_RUN", "0123456789ab")
    spool = plugin.Spool(tmp_path)
    spool.append("ansible.x", '{"a": 1}')
    lines = (tmp_path / "spool" / "0123456789ab.jsonl").read_text().splitlines()
    assert [json.loads(line)["n"] for line in lines] == [1, plugin.FIRST_JOINED + 1]
    assert "LEADLINE_ANSIBLE_RUN" not in os.environ  # Ansible within Ansible is a run of its own


@pytest.mark.parametrize("uid", ["", "../../etc/pw", "0123456789a", "0123456789AB", "zzzzzzzzzzzz"])
def test_a_run_that_is_not_there_is_not_joined(uid: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if len(uid) == 12 and uid != "zzzzzzzzzzzz":  # what is no id is not even looked for
        (tmp_path / "book" / "spool").mkdir(parents=True)
        (tmp_path / "etc").mkdir()
        (tmp_path / "book" / "spool" / f"{uid}.jsonl").write_text("")
    monkeypatch.setenv("LEADLINE_ANSIBLE_RUN", uid)
    spool = plugin.Spool(tmp_path / "book")
    assert (spool.joined, spool.uid == uid, len(spool.uid)) == (False, False, 12)


def test_nothing_that_hosts_have_is_learned_as_a_secret_unless_it_is_one() -> None:
    """Names and values of environments and variables; test_live_runs.py adds what Ansible's setup tells of this host."""
    hider = plugin.Hider()
    hider.learn_from({"ansible_env": ENVIRONMENT, "ansible_facts": {"env": ENVIRONMENT}, **VARIABLES})
    assert hider._known == set()
    assert len(ENVIRONMENT) + len(VARIABLES) > 140
    path = "/srv/shop/releases/2026-11/site.yml"
    assert hider.file(f"cd {path}; PWD={ENVIRONMENT['PWD']} max_token: 4096") == f"cd {path}; PWD={ENVIRONMENT['PWD']} max_token: 4096"
    assert hider.clean({"PWD": "/srv/x", "pwd": "/opt/app", "max_token": 4096}) == {"PWD": "/srv/x", "pwd": "/opt/app", "max_token": 4096}


@pytest.mark.parametrize("name", ["MYSQL_PWD", "pwd", "db_password", "GITHUB_TOKEN", "api-key", "min_io_secret", "oauth.token"])
@pytest.mark.parametrize("value", [
    "hunter2", "correct horse", "x9$!", "A1b2", "postgres", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "/9j4AAQSkZJRgABAQEAYABgAAD/2wBD",
    "ghp_0123456789abcdef", "4711-ab", "https://hooks.example.org/T0/B0/xyz", "$6$salt$hash/of.it", "s3cret/with/slashes",
])  # fmt: skip
def test_a_secret_is_learned_whatever_signs_it_has(name: str, value: str) -> None:
    hider = plugin.Hider()
    hider.learn_from({"host": {name: value}})
    assert hider.text(f"<{value}>") == "<***>"


def test_what_leadline_was_told_or_a_vault_held_is_a_secret_whatever_it_looks_like() -> None:
    hider = plugin.Hider()
    for secret in ("47110815", "/run/it", "password", "{{ x }}y", "root"):
        hider.learn(secret)
    assert hider.text("47110815 /run/it password {{ x }}y /root") == "*** *** *** *** /***"
    hider = plugin.Hider()
    hider.learn_all({"port": 5432, "path": "/var/lib/shop", "pin": 48291307, "word": "s3cret"})
    assert hider.text("5432 /var/lib/shop 48291307 s3cret") == "5432 /var/lib/shop *** ***"
