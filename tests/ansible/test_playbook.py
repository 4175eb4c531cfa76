"""A playbook that is started from a template: what Ansible is given, what nobody sees, and what is refused."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_runs import SLEEPY, TIMEOUT_S, Site, site
from conftest import background, is_running, wait_until
from leadline.book.ansible import query
from leadline.book.ansible.installed import install
from leadline.book.ansible.playbook import Playbook, memory_directory, prepare, prepared, sweep, variables_text
from leadline.book.place import Place
from leadline.book.query import Book
from leadline.errors import LeadlineError
from leadline.host import proc

__all__ = ["site"]
pytestmark = pytest.mark.timeout(1500)  # a busy host is slow
PASSWORD = "p4ssw0rd of the test"
VAULT = "v4ult of the test"


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)


def playbook_file(tmp_path: Path) -> str:
    path = tmp_path / "site.yml"
    path.write_text("- hosts: localhost\n")
    return str(path)


def test_options_become_arguments_and_secrets_files(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a\n")
    what = Playbook(
        playbook_file(tmp_path), inventories=[str(tmp_path / "hosts")], limit="web:!web9", tags=["a", "b"], skip_tags=["c"],
        check=True, diff=True, forks=7, user="deploy", become=True, become_user="postgres", verbosity=2, variables={"x": 1},
        inputs={"y": "z"}, secrets={"token_of_y": PASSWORD}, vault_passwords={"default": VAULT}, become_password=PASSWORD,
        connection_password=PASSWORD, private_key="KEY\n" * 10,
    )  # fmt: skip
    with prepared(what) as ready:
        at = ready.directory
        assert ready.argv == [
            "ansible-playbook", "-i", str(tmp_path / "hosts"), "--limit=web:!web9", "--tags=a,b", "--skip-tags=c", "--check", "--diff",
            "--become", "--become-user=postgres", "--user=deploy", "--forks=7", "-vv", f"--vault-id=default@{at}/vault0",
            f"--become-password-file={at}/become", f"--connection-password-file={at}/connection", f"--private-key={at}/key",
            "-e", f"@{at}/variables.yml", "-e", f"@{at}/inputs.yml", "-e", f"@{at}/secrets.yml", "--", what.path,
        ]  # fmt: skip
        assert at.stat().st_mode & 0o777 == 0o700
        assert {path.name: path.stat().st_mode & 0o777 for path in at.iterdir()} == dict.fromkeys(
            ("vault0", "become", "connection", "key", "variables.yml", "inputs.yml", "secrets.yml", "known.json"), 0o600
        )
        seen = json.dumps([ready.argv, ready.environment])
        assert (PASSWORD in seen, VAULT in seen, "KEY" in seen) == (False, False, False)
        assert {PASSWORD, VAULT} <= set(ready.secrets)
    assert not at.exists()


@pytest.mark.parametrize("more, message", [
    ({"limit": "-x"}, "the limit must not begin with - or hold control characters"),
    ({"limit": "@/etc/passwd"}, "the limit must not name a file"),
    ({"limit": "a,@/etc/passwd"}, "the limit must not name a file"),
    ({"limit": "a\n-e x=1"}, "the limit must not begin with - or hold control characters"),
    ({"tags": ["--step"]}, "the tag 1 must not begin with - or hold control characters"),
    ({"tags": ["a,b"]}, "a tag has no comma"),
    ({"user": "-o ProxyCommand=x"}, "the user must not begin with - or hold control characters"),
    ({"user": "a b"}, "that is no name of a user"),
    ({"inventories": ["--list-hosts"]}, "the inventory 1 must not begin with - or hold control characters"),
    ({"inventories": ["/no/such"]}, "there is no such inventory"),
    ({"inputs": {"a b": "1"}}, "that is no name of a variable"),
    ({"inputs": {"x: !!python/object": "1"}}, "that is no name of a variable"),
    ({"vault_passwords": {"a@b": "x"}}, "that is no vault id"),
    ({"become_password": "two\nlines"}, "a password is one line"),
    ({"forks": 0}, "forks are 1 to 10000"),
])  # fmt: skip
def test_what_could_be_an_option_or_a_file_is_refused(tmp_path: Path, more: dict[str, Any], message: str) -> None:
    with pytest.raises(LeadlineError) as caught:
        prepare(Playbook(playbook_file(tmp_path), **more))
    assert caught.value.message == message
    assert not list(Path(memory_directory()).glob(f"leadline-playbook-{os.getpid()}-*"))


def test_a_playbook_that_is_none_is_refused(tmp_path: Path) -> None:
    for path, kind in (("--version", "usage"), (str(tmp_path / "none.yml"), "not_found"), (str(tmp_path), "not_found")):
        with pytest.raises(LeadlineError) as caught:
            prepare(Playbook(path))
        assert caught.value.kind == kind


def test_a_playbook_of_a_repository_need_not_be_there_yet(tmp_path: Path) -> None:
    spec = {"playbook": "deploy/site.yml", "inventory": "hosts"}
    with prepared(Playbook.of_template(spec, {}, {}, in_checkout=True)) as ready:
        assert ready.argv == ["ansible-playbook", "-i", "hosts", "--", "deploy/site.yml"]
    with pytest.raises(LeadlineError, match="must not begin with -"), prepared(Playbook("--help", in_checkout=True)):
        pass


def test_a_template_says_what_to_run(tmp_path: Path) -> None:
    path = playbook_file(tmp_path)
    spec = {"playbook": path, "inventory": "a\nb\n", "limit": "a", "tags": "x, y", "check": True, "variables": {"v": 1}}
    secrets = {"vault_password": VAULT, "private_key": "KEY", "db_password": PASSWORD}
    what = Playbook.of_template(spec, {"size": 3}, secrets)
    assert (what.inventory_text, what.limit, list(what.tags), what.check, what.variables) == ("a\nb\n", "a", ["x", "y"], True, {"v": 1})
    assert (what.inputs, what.secrets) == ({"size": 3}, {"db_password": PASSWORD})
    assert (what.vault_passwords, what.private_key) == ({"default": VAULT}, "KEY")
    with pytest.raises(LeadlineError, match="a template of Ansible has no command"):
        Playbook.of_template({"playbook": path, "command": "x"}, {}, {})


def test_what_a_killed_process_left_is_removed_when_nothing_uses_it_any_more(tmp_path: Path) -> None:
    """Whoever asked for a run, and the process that supervises it, are killed while the program that reads the files is being started."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ansible-playbook").write_text("#!/bin/sh\necho $$ $LEADLINE_SECRETS\nexec sleep 250\n")
    (tmp_path / "bin/ansible-playbook").chmod(0o755)
    (tmp_path / "word").write_text(PASSWORD)
    environment = os.environ | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "LEADLINE_BOOK": str(tmp_path / "book")}
    line = [sys.executable, "-m", "leadline", "ansible", "run", playbook_file(tmp_path), "--secret", f"w={tmp_path}/word"]
    with subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout is not None
        program, secrets = asking.stdout.readline().split()
        left = Path(secrets).parent
        sweep()
        assert left.exists()
        supervisor = proc.parent_of(int(program))
        assert supervisor != asking.pid
        asking.kill()
        asking.wait()
        os.kill(supervisor, signal.SIGKILL)
        wait_until(lambda: not is_running(supervisor))
        # Tests in other processes sweep the same folder, at any time.
        sweep()
        assert left.exists()  # Ansible itself still runs
        os.kill(int(program), signal.SIGKILL)
        wait_until(lambda: not is_running(int(program)))
    sweep()
    assert not left.exists()


def test_any_text_reaches_ansible_as_it_is(site: Site) -> None:
    odd = ["{{ 1 + 1 }}", "{% raw %}", "'\"\\", "a: b # c", "\u2028\x85", "\U0001f600 \xe4", "tab\tline\nend", "!unsafe x", "", "\x7f\x01"]
    values = {"odd": odd, "deep": {"a b": [1, True, None, {"c": "{{ d }}"}]}}
    program = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin.read())))"
    python = str(site.core.bin_dir / "python")
    done = subprocess.run([python, "-c", program], input=variables_text(values, trusted=True), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == values


SHOWING = """
- hosts: localhost
  gather_facts: false
  tasks:
    - copy:
        content: "{{ {'typed': typed, 'made': made, 'nested': nested} | to_json }}"
        dest: "{{ out }}"
    - name: "Use {{ my_word }}"
      shell: "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ > {{ out }}.seen 2>/dev/null; true"
    - name: Say it
      debug: {msg: "it is {{ my_word }} and {{ vaulted_word }}"}
"""


@pytest.fixture
def started(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Site, str]:
    """A run with everything secret; what Ansible printed."""
    for name in [n for n in os.environ if n.startswith(("ANSIBLE_", "LEADLINE_"))]:
        monkeypatch.delenv(name)
    site.write("vault-password", VAULT)
    words = ("encrypt_string", "--vault-password-file", "vault-password", "--name", "vaulted_word", "in-the-v4ult")
    encrypted = site.run(*words, program="ansible-vault")
    site.write("group_vars/all.yml", encrypted.stdout)
    (site.folder / "vault-password").unlink()
    what = Playbook(
        str(site.write("showing.yml", SHOWING)), inventory_text="localhost ansible_connection=local\n",
        variables={"made": "{{ 'a' ~ 'b' }}"},
        inputs={"typed": "{{ lookup('pipe', 'id') }}", "nested": {"a": ["{{ 1 }}"]}, "out": str(tmp_path / "shown")},
        secrets={"my_word": PASSWORD}, vault_passwords={"default": VAULT}, program=str(site.core.bin_dir / "ansible-playbook"),
    )  # fmt: skip
    with prepared(what) as ready:
        site.more |= {name: value for name, value in ready.environment.items() if name != "ANSIBLE_CALLBACK_PLUGINS"}
        given: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": TIMEOUT_S}
        done = subprocess.run(ready.argv, cwd=site.folder, env=site.environment, check=False, **given)
    assert done.returncode == 0, done.stdout + done.stderr
    return site, done.stdout


def test_nothing_secret_is_seen_and_nothing_typed_is_evaluated(started: tuple[Site, str], tmp_path: Path) -> None:
    shown = json.loads((tmp_path / "shown").read_text())
    assert shown == {"typed": "{{ lookup('pipe', 'id') }}", "made": "ab", "nested": {"a": ["{{ 1 }}"]}}
    seen = (tmp_path / "shown.seen").read_bytes()
    assert b"showing.yml" in seen
    assert [word for word in (PASSWORD, VAULT, "in-the-v4ult") if word.encode() in seen] == []
    assert f"it is {PASSWORD} and in-the-v4ult" in started[1]
    text = started[0].spool_text()
    assert [word for word in (PASSWORD, VAULT, "in-the-v4ult") if word in text] == []
    assert "it is *** and ***" in text


HIDING = """
- hosts: localhost
  gather_facts: false
  tasks:
    - name: Hidden
      command: echo inline-w0rd
      no_log: true
    - name: "Say {{ my_word }}"
      command: "echo {{ my_word }}; false"
      ignore_errors: true
"""


def test_leadline_ansible_run_keeps_output_and_tasks_in_one_run(site: Site, tmp_path: Path) -> None:
    """Without the secret, and without what the playbook has under no_log."""
    site.write("hiding.yml", HIDING)
    site.write("word", PASSWORD)
    site.more |= {"XDG_DATA_HOME": str(tmp_path / "data")}
    words = ["ansible", "run", "hiding.yml", "--name", "deploy", "--label", "to=test", "--secret", "my_word=word", "--limit", "localhost"]
    done = subprocess.run(
        [sys.executable, "-m", "leadline", *words], cwd=site.folder, env=site.environment, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("Say ***" in done.stdout, PASSWORD in done.stdout) == (True, False)
    book = Book(Place(site.book))
    [run] = book.runs()
    assert (run["kind"], run["name"], run["rc"], run["status"]) == ("ansible", "deploy", 0, "ok")
    assert run["summary"] == "1 host, 2 tasks, 2 changed"
    assert book.details(run)["labels"] == {"to": "test", "limit": "localhost"}
    assert [(t["name"], t["results"]) for t in query.tasks(book, run)] == [("Hidden", 1), ("Say ***", 1)]
    assert query.playbook(book, run)["has_totals"]
    [file] = book.details(run)["files"]
    assert file["path"] == str(site.folder / "hiding.yml")
    assert "***" in (book.content(file["hash"]) or "")
    assert b"Say ***" in book.place.log_of(run["uid"]).read_bytes()
    book.close()
    stored = b"".join(path.read_bytes() for path in site.book.rglob("*") if path.is_file())
    assert [word for word in (PASSWORD, "inline-w0rd") if word.encode() in stored] == []
    assert not list(Path(memory_directory()).glob(f"leadline-playbook-{os.getpid()}-*"))


def test_ctrl_c_is_a_run_that_was_cancelled_and_its_tasks_are_kept(site: Site, tmp_path: Path) -> None:
    site.write("sleepy.yml", SLEEPY.format(folder=site.folder))
    site.more |= {"XDG_DATA_HOME": str(tmp_path / "data")}
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

    def heard() -> None:  # who runs the tests may ignore it
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    line = [sys.executable, "-m", "leadline", "ansible", "run", "sleepy.yml"]
    with background(line, cwd=site.folder, env=site.environment, preexec_fn=heard, **quiet) as process:
        wait_until((site.folder / "sleeping").exists, TIMEOUT_S, "the task that sleeps")
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 99
    book = Book(Place(site.book))
    [run] = book.runs()
    assert (run["kind"], run["status"], run["rc"], run["summary"]) == ("ansible", "cancelled", 99, "interrupted")
    assert [(t["name"], t["results"]) for t in query.tasks(book, run)] == [("Before", 1), ("Sleep", 0)]
    book.close()


def test_the_plugin_is_installed_where_upgrades_do_not_move_it(tmp_path: Path) -> None:
    at = install()
    assert at == tmp_path / "data" / "leadline" / "ansible"
    assert not re.search(r"python3|site-packages|\d+\.\d+", str(at.relative_to(tmp_path)))
    (at / "leadline_book.py").write_text("old")
    install()
    assert (at / "leadline_book.py").read_text() != "old"
    assert sorted(path.name for path in at.iterdir()) == ["leadline_book.py"]
