"""A playbook as a template: started under rights, its results on pages, its secrets nowhere."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_runs import core_or_skip
from serving import Client, Served, book, wait_until

SECRET = "s3cr3t-of-the-database"
PLAYBOOK = """
- name: All of it
  hosts: all
  gather_facts: false
  tasks:
    - name: Say the size
      debug: {msg: "size {{ size }} {{ note }}"}
    - name: Write a file
      copy: {content: "{{ size }}\\n", dest: "{{ playbook_dir }}/out-{{ inventory_hostname }}"}
    - name: Use the password
      command: "sh -c 'test -n \\"$P\\" && echo it is $P'"
      environment: {P: "{{ db }}"}
    - name: Fails and is ignored
      command: "false"
      ignore_errors: true
"""
SURVEY = {"size": {"kind": "int", "default": 3}, "note": {"kind": "str", "default": "plain"}}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    core, folder = core_or_skip(), tmp_path_factory.mktemp("playbooks")
    (folder / "site.yml").write_text(PLAYBOOK)
    (folder / "hosts").write_text("web1 ansible_connection=local\nweb2 ansible_connection=local\n")
    with book(folder) as served:
        path = f"{core.bin_dir}:{served.environment['PATH']}"
        served.environment |= {"PATH": path, "HOME": str(folder), "ANSIBLE_PYTHON_INTERPRETER": str(core.bin_dir / "python")}
        served.start()
        yield served


@pytest.fixture(scope="module")
def run(served: Served) -> dict[str, Any]:
    client, folder = served.client(), served.book.parent
    client.call("POST", "/secrets/key")
    client.call("PUT", "/projects/main/secrets/prod-db", value=SECRET)
    saved = client.call(
        "PUT", "/projects/main/templates/site", kind="ansible",
        ansible={"playbook": str(folder / "site.yml"), "inventory": str(folder / "hosts")},
        survey=SURVEY, secrets={"db": "prod-db"},
    )  # fmt: skip
    assert saved.status == 200, saved.text
    started = client.call("POST", f"/templates/{saved.json['template']}/start", inputs={"size": 7, "note": "{{ lookup('pipe', 'id') }}"})
    assert started.status == 200, started.text
    return ended(client, started.json["run"])


def ended(client: Client, uid: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        run = client.call("GET", f"/runs/{uid}").json["run"]
        return run if run["status"] in ("ok", "failed", "cancelled", "lost", "refused") else None

    found: dict[str, Any] = wait_until(look, "the playbook", patience_s=200)
    return found


def test_a_playbook_is_run_with_the_values_that_were_given(served: Served, run: dict[str, Any]) -> None:
    assert (run["status"], run["kind"], run["name"], run["project"]) == ("ok", "ansible", "site", "main"), run
    assert [(served.book.parent / f"out-{host}").read_text() for host in ("web1", "web2")] == ["7", "7"]


def test_hosts_tasks_and_results_are_on_its_page(served: Served, run: dict[str, Any]) -> None:
    client = served.client()
    shown = client.call("GET", f"/runs/{run['uid']}/playbook").json
    assert [(h["host"], h["ok"], h["ignored"]) for h in shown["hosts"]] == [("web1", 4, 1), ("web2", 4, 1)]
    assert [task["name"] for task in shown["tasks"]] == ["Say the size", "Write a file", "Use the password", "Fails and is ignored"]
    page = client.get(f"/runs/{run['uid']}")
    assert page.status == 200
    for text in ("web1", "Write a file", "All of it", "2 ignored"):
        assert text in page.text
    results = client.call("GET", f"/runs/{run['uid']}/results?host=web1&outcome=ignored").json["results"]
    assert [result["task_name"] for result in results] == ["Fails and is ignored"]
    assert client.get(f"/runs/{run['uid']}/results?host=web1").status == 200
    one = client.get(f"/runs/{run['uid']}/results/{results[0]['n']}")
    assert (one.status, "What the module returned" in one.text) == (200, True)


def test_what_was_typed_is_never_evaluated(served: Served, run: dict[str, Any]) -> None:
    output = served.client().get(f"/api/v1/runs/{run['uid']}/output").text
    assert "uid=" not in output
    assert "lookup(" in output


def test_the_secret_is_in_no_file_page_export_or_process(served: Served, run: dict[str, Any]) -> None:
    client = served.client()
    assert subprocess.run(["grep", "-rlF", SECRET, str(served.book)], capture_output=True, text=True).stdout == ""
    results = client.call("GET", f"/runs/{run['uid']}/results").json["results"]
    paths = [f"/runs/{run['uid']}", f"/api/v1/runs/{run['uid']}/output", f"/api/v1/runs/{run['uid']}/export", "/audit.json?limit=1000"]
    paths += [f"/runs/{run['uid']}/results/{result['n']}" for result in results]
    assert [path for path in paths if SECRET in client.get(path).text] == []
    assert (
        "it is ***"
        in client.get(f"/runs/{run['uid']}/results/{next(r['n'] for r in results if r['task_name'] == 'Use the password')}").text
    )


def test_what_was_asked_for_stands_in_options(served: Served, run: dict[str, Any]) -> None:
    client, folder = served.client(), served.book.parent
    client.call("PUT", "/projects/main/variables/shared", values={"without": "slow"})
    options = {"limit": "{where}", "check": "{dry}", "skip_tags": "{without}"}
    saved = client.call(
        "PUT", "/projects/main/templates/asked", kind="ansible", variables="shared",
        ansible={"playbook": str(folder / "site.yml"), "inventory": str(folder / "hosts"), **options},
        survey=SURVEY | {"where": {"kind": "enum", "choices": ["web1", "web2"]}, "dry": {"kind": "bool", "default": True}},
        secrets={"db": "prod-db"},
    )  # fmt: skip
    assert saved.status == 200, saved.text
    started = client.call("POST", f"/templates/{saved.json['template']}/start", inputs={"where": "web2"})
    found = ended(client, started.json["run"])
    assert (found["status"], found["labels"]) == ("ok", {"limit": "web2", "check": "True", "skip_tags": "slow"}), found
    assert found["inputs"]["without"] == "slow"
    shown = client.call("GET", f"/runs/{found['uid']}/playbook").json
    assert [h["host"] for h in shown["hosts"]] == ["web2"]


@pytest.mark.parametrize(
    "ansible",
    [
        {"playbook": "/x.yml", "limit": "{nobody}"},
        {},
        {"playbook": "--help"},
        {"playbook": "/x.yml", "inventory": "-i"},
        {"playbook": "/x.yml", "limit": "--foo"},
        {"playbook": "/x.yml", "odd": 1},
        {"playbook": 5},
    ],
    ids=str,
)
def test_options_are_not_smuggled_in(served: Served, ansible: dict[str, Any]) -> None:
    answer = served.client().call("PUT", "/projects/main/templates/bad", kind="ansible", ansible=ansible)
    assert answer.status == 422


def test_the_server_had_nothing_to_complain_of(served: Served) -> None:
    assert served.complaints() == ""
