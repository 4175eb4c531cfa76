"""Real runs of Ansible with the plugin: every version that this host can run, interrupted, unwritable, ad hoc, switched off."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_cores import runnable
from ansible_replays import HOSTS, SECRETS, TASKS
from ansible_runs import PLUGIN, SLEEPY, TIMEOUT_S, Site, core_or_skip, make_shop, make_site, run_shop, site
from conftest import wait_until
from leadline.book.ansible import query
from leadline.book.ansible.plugin.leadline_book import Hider
from leadline.book.place import Place
from leadline.book.query import Book
from real_names import ENVIRONMENT

__all__ = ["site"]


pytestmark = pytest.mark.timeout(1500)  # a busy host is slow


def opened(site: Site) -> Book:
    return Book(Place(site.book))


@pytest.fixture(scope="module", params=runnable() or [""])
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, str]:
    """A run of the playbook that has everything; what Ansible printed."""
    made = make_shop(tmp_path_factory.mktemp("shop"), core_or_skip(request.param))
    done = run_shop(made)
    assert done.returncode == 4, done.stdout + done.stderr
    assert [secret for secret in SECRETS if secret in made.spool_text()] == []
    return made, done.stdout


def test_every_version_gives_the_same_tasks_and_results(shop: tuple[Site, str]) -> None:
    book = opened(shop[0])
    run = query.find_run(book, "last")
    tasks = query.tasks(book, run)
    assert [(t["n"], t["name"], t["action"], t["line"], {o: t[o] for o in query.OUTCOMES if t[o]}, t["items"]) for t in tasks] == TASKS
    assert (run["name"], run["status"], run["events_lost"]) == ("nightly", "failed", 0)
    retries = query.results(book, run, task=6, host="web2", parts=("retry",))
    assert [(r["attempts"], r["outcome"]) for r in retries] == [(1, "failed"), (2, "failed")]
    [last] = query.results(book, run, task=6, host="web2")
    assert (last["attempts"], last["outcome"]) == (3, "ignored")
    book.close()


def test_the_totals_are_those_of_the_recap(shop: tuple[Site, str]) -> None:
    book = opened(shop[0])
    hosts = query.hosts(book, query.find_run(book, "last"))
    book.close()
    printed = {}
    for line in shop[1].partition("PLAY RECAP")[2].splitlines()[1:]:
        host, colon, counts = line.partition(":")
        if colon:
            printed[host.strip()] = {name: int(n) for name, n in (pair.split("=") for pair in counts.split())}
    assert printed.keys() == HOSTS.keys()
    assert {h["host"]: {name: h[name] for name in HOSTS["web1"]} for h in hosts} == printed


def test_ctrl_c_is_a_run_that_was_cancelled(site: Site) -> None:
    playbook = site.write("sleepy.yml", SLEEPY.format(folder=site.folder))
    assert site.interrupted(playbook, signal.SIGINT) == 99
    book = opened(site)
    run = query.find_run(book, "last")
    assert (run["status"], run["summary"]) == ("cancelled", "interrupted")
    assert [(t["name"], t["results"]) for t in query.tasks(book, run)] == [("Before", 1), ("Sleep", 0)]
    assert [h["ok"] for h in query.hosts(book, run)] == [1]
    book.close()


def test_a_run_that_was_terminated_is_lost(site: Site) -> None:
    """Nothing in Ansible can say its end."""
    playbook = site.write("sleepy.yml", SLEEPY.format(folder=site.folder))
    assert site.interrupted(playbook, signal.SIGTERM) == -signal.SIGTERM
    book = opened(site)
    run = query.find_run(book, "last")
    assert (run["status"], run["rc"]) == ("lost", None)
    assert [(t["name"], t["results"]) for t in query.tasks(book, run)] == [("Before", 1), ("Sleep", 0)]
    book.close()


def test_an_error_that_ends_ansible_is_the_summary(site: Site) -> None:
    playbook = site.write("bad.yml", "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - include_tasks: missing.yml\n")
    done = site.run(playbook)
    assert done.returncode != 0
    book = opened(site)
    run = query.find_run(book, "last")
    assert run["status"] == "failed"
    assert run["summary"] == "failed on localhost"
    book.close()


OF_THE_RUN = ("HOME", "PATH", "LANG", "LC_ALL", "PYTHONPATH", "TZ", "PWD", "OLDPWD")
FACTS_USED = """
- hosts: localhost
  tasks:
    - debug: {msg: "in {{ ansible_env.PWD }} of {{ ansible_env.OLDPWD }}, {{ ansible_env.MAX_TOKEN }}, {{ ansible_env.MYSQL_PWD }}"}
- hosts: localhost
  gather_facts: false
  tasks:
    - debug: {msg: "still in {{ ansible_env.PWD }}"}
    - command: pwd
"""


def test_facts_of_this_host_are_no_secrets_unless_they_are(site: Site) -> None:
    site.more = {name: value for name, value in ENVIRONMENT.items() if name not in OF_THE_RUN and not name.startswith("ANSIBLE_")}
    site.more |= {"MYSQL_PWD": "hunter2-of-env", "PWD": str(site.folder), "OLDPWD": "/var/tmp/before"}
    done = site.run("localhost", "-c", "local", "-m", "setup", program="ansible")
    facts = json.loads(done.stdout.partition("=>")[2])["ansible_facts"]
    names = set()

    def walk(value: Any) -> None:
        for name, held in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
            names.add(str(name))
            walk(held)

    walk(facts)
    assert len(names) > 200 and {"PWD", "MAX_TOKEN", "SSH_ASKPASS"} <= set(facts["ansible_env"])
    hider = Hider()
    hider.learn_from({"ansible_facts": {name.removeprefix("ansible_"): value for name, value in facts.items()}, **facts})
    assert hider._known == {"hunter2-of-env"}
    done = site.run(site.write("facts.yml", FACTS_USED))
    assert done.returncode == 0, done.stdout
    book = opened(site)
    results = query.results(book, query.find_run(book, "last"))
    said = [result["message"] for result in results if result["task_name"] != "Gathering Facts"]
    assert said == [f"in {site.folder} of /var/tmp/before, 4096, ***", f"still in {site.folder}", str(site.folder)]
    assert "hunter2" not in site.spool_text()
    book.close()


PLAIN = """
- hosts: localhost
  gather_facts: false
  tasks:
    - command: echo one
    - command: "false"
      ignore_errors: true
    - debug: {msg: two}
"""


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    """What a run without the plugin prints."""
    site = make_site(tmp_path_factory.mktemp("without"), core_or_skip())
    site.plugins = [site.folder / "none"]
    return _printed(site)


def _printed(site: Site) -> tuple[Any, ...]:
    """By a run of PLAIN, without what differs between two runs of the same; and its exit code."""
    done = site.run(site.write("plain.yml", PLAIN))
    texts = [text.replace(str(site.folder), "") for text in (done.stdout, done.stderr)]
    return re.sub(r'"(?:delta|start|end)": "[^"]*"', "", texts[0]), texts[1], done.returncode


@pytest.mark.parametrize("book", ["off", "a file", "no room"])
def test_what_cannot_be_recorded_changes_nothing(site: Site, book: str, without: tuple[Any, ...]) -> None:
    if book == "a file":
        site.book.write_text("")
    elif book == "no room":
        site.more["LEADLINE_BOOK"] = "/dev/full/book"
    else:
        site.more["LEADLINE_BOOK"] = "off"
    assert _printed(site) == without
    assert without[2] == 0
    assert not site.book.is_dir()


def test_an_ad_hoc_run_is_recorded_where_callbacks_are_loaded(site: Site) -> None:
    site.more["ANSIBLE_LOAD_CALLBACK_PLUGINS"] = "1"
    done = site.run("localhost", "-m", "command", "-a", "echo hello", program="ansible")
    assert "hello" in done.stdout
    book = opened(site)
    run = query.find_run(book, "last")
    assert (run["name"], run["status"]) == ("ansible command", "ok")
    [result] = query.results(book, run)
    assert (result["host"], result["outcome"], result["message"]) == ("localhost", "changed", "hello")
    book.close()


def test_the_lines_for_ansible_cfg_record_every_run(site: Site) -> None:
    site.more["XDG_DATA_HOME"] = str(site.folder / "data")
    command = [sys.executable, "-m", "leadline", "ansible", "env", "--ini"]
    lines = subprocess.run(command, env=site.environment, capture_output=True, text=True, check=True).stdout
    site.write("ansible.cfg", lines)
    site.more["ANSIBLE_CONFIG"] = str(site.folder / "ansible.cfg")
    environment = {name: value for name, value in site.environment.items() if name != "ANSIBLE_CALLBACK_PLUGINS"}
    assert site.run(site.write("plain.yml", PLAIN), env=environment).returncode == 0
    assert site.run("localhost", "-m", "command", "-a", "echo hello", program="ansible", env=environment).returncode == 0
    book = opened(site)
    assert sorted((run["name"], run["status"]) for run in book.runs()) == [("ansible command", "ok"), ("plain.yml", "ok")]
    book.close()


def test_the_plugin_in_two_folders_records_once(site: Site, tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    (second / "leadline_book.py").write_bytes((PLUGIN / "leadline_book.py").read_bytes())
    (second / "of_another_name.py").write_bytes((PLUGIN / "leadline_book.py").read_bytes())
    site.plugins.append(second)
    assert site.run(site.write("plain.yml", PLAIN)).returncode == 0
    assert len(site.spools()) == 1
    assert site.spool_text().count('"kind":"begin"') == 1


def test_a_recorded_run_costs_little_of_its_time(site: Site) -> None:
    """The plugin's own time, by its own clock: 2 ms an event would be far too much on any machine."""
    assert site.run(site.write("plain.yml", PLAIN)).returncode == 0
    events = [json.loads(line) for line in site.spool_text().splitlines()]
    assert 0 < events[-1]["metrics"]["record_s"] < 0.002 * len(events) + 0.2


VAULTED = """
- hosts: localhost
  gather_facts: false
  vars:
    stored: !vault |
{vault}
    words:
      api_key: not-in-a-vault-but-named-so
  tasks:
    - name: "Say {{{{ stored }}}} and {{{{ words.api_key }}}}"
      debug: {{msg: "{{{{ stored }}}} {{{{ stored | b64encode }}}} {{{{ words.api_key | urlencode }}}}"}}
    - set_fact: {{session_token: "made-at-run-time"}}
    - name: "Later {{{{ session_token }}}}"
      command: "echo {{{{ session_token }}}}"
"""


def test_vaulted_values_and_values_named_as_secrets_are_nowhere(site: Site) -> None:
    password = site.write("password", "of the vault")
    made = site.run("encrypt_string", "--vault-password-file", password, "vaulted-s3cret/+", program="ansible-vault")
    vault = "\n".join(f"      {line.strip()}" for line in made.stdout.strip().splitlines()[1:])
    playbook = site.write("vaulted.yml", VAULTED.format(vault=vault))
    done = site.run(playbook, "--vault-password-file", password)
    assert (done.returncode, "vaulted-s3cret/+" in done.stdout) == (0, True), done.stdout
    text = site.spool_text()
    assert [w for w in ("vaulted-s3cret", "dmF1bHRlZC1zM2NyZXQ", "not-in-a-vault", "made-at-run-time", "of the vault") if w in text] == []
    names = [json.loads(line)["name"] for line in text.splitlines() if '"kind":"ansible.task"' in line]
    assert names == ["Say *** and ***", "set_fact", "Later ***"]


WHOLE = """
- hosts: localhost
  gather_facts: false
  vars_files: [whole.yml]
  tasks:
    - name: "Say {{ plain_name }}"
      debug: {msg: "{{ nested.deep[0] }} {{ of_the_group }} {{ number }} {{ where }}"}
"""


@pytest.mark.parametrize("version", sorted({*runnable()[:1], *runnable()[-1:]}) or [""])
def test_values_of_files_that_are_encrypted_as_a_whole_are_nowhere(tmp_path: Path, version: str) -> None:
    """Their values do not show it in any version. Names of hosts stay."""
    site = make_site(tmp_path, core_or_skip(version))
    site.write("password", "of the vault")
    site.write("whole.yml", "plain_name: whole-f1le-value\nnested: {deep: [in-a-l1st-too]}\nnumber: 4711081512\nwhere: localhost\n")
    site.write("group_vars/all.yml", "of_the_group: gr0up-value\n")
    for name in ("whole.yml", "group_vars/all.yml"):
        assert site.run("encrypt", "--vault-password-file", "password", name, program="ansible-vault").returncode == 0
    done = site.run(site.write("whole-file.yml", WHOLE), "--vault-password-file", "password")
    assert ("in-a-l1st-too gr0up-value 4711081512 localhost" in done.stdout, done.returncode) == (True, 0)
    text = site.spool_text()
    assert [word for word in ("whole-f1le", "in-a-l1st", "gr0up-value", "4711081512") if word in text] == []
    assert "*** *** *** localhost" in text


def test_a_run_within_a_run_of_leadline_is_its_part(site: Site, tmp_path: Path) -> None:
    site.more["LEADLINE_RUN"] = "0123456789ab"
    assert site.run(site.write("plain.yml", PLAIN)).returncode == 0
    book = opened(site)
    assert query.find_run(book, "last")["parent"] == "0123456789ab"
    book.close()


def test_serial_batches_are_plays_of_their_own(site: Site) -> None:
    site.write("hosts", "a ansible_connection=local\nb ansible_connection=local\n")
    site.write("serial.yml", "- hosts: all\n  serial: 1\n  gather_facts: false\n  tasks:\n    - command: echo one\n")
    assert site.run("-i", "hosts", "serial.yml").returncode == 0
    book = opened(site)
    run = query.find_run(book, "last")
    assert [(p["n"], p["tasks"]) for p in query.plays(book, run)] == [(1, 1), (2, 1)]
    assert [(r["play"], r["host"]) for r in query.results(book, run)] == [(1, "a"), (2, "b")]
    book.close()


def test_while_it_runs_the_book_has_what_was_done(tmp_path: Path, site: Site) -> None:
    playbook = site.write("sleepy.yml", SLEEPY.format(folder=site.folder))
    with site.running(playbook):
        wait_until((site.folder / "sleeping").exists, 120, "the task that sleeps")
        book = opened(site)
        run = query.find_run(book, "last")
        found: list[Any] = [run["status"], [t["name"] for t in query.tasks(book, run)], [r["outcome"] for r in query.results(book, run)]]
        book.close()
    assert found == ["running", ["Before", "Sleep"], ["changed"]]


def test_other_sites_do_not_share_anything(tmp_path: Path) -> None:
    """Two runs at once, one book."""
    core = core_or_skip()
    one, other = make_site(tmp_path / "one", core), make_site(tmp_path / "other", core)
    other.book = one.book
    for made in (one, other):
        made.write("plain.yml", PLAIN)
    with one.running("plain.yml") as first, other.running("plain.yml") as second:
        assert (first.wait(TIMEOUT_S), second.wait(TIMEOUT_S)) == (0, 0)
    book = opened(one)
    assert sorted((run["status"], len(query.results(book, run))) for run in book.runs()) == [("ok", 3), ("ok", 3)]
    book.close()
