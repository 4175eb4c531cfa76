"""Templates: started, followed, cancelled, repeated, approved, chained; and what their runs are given."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from conftest import is_running
from leadline.book.place import Place
from leadline.errors import LeadlineError
from leadline.server.launch import launcher
from serving import Client, Served, serving, wait_until

SECRET = "s3cr3t-that-nobody-sees"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("templates")) as served:
        yield served


@pytest.fixture
def client(served: Served) -> Client:
    return served.client()


def save(client: Client, name: str, command: str, **more: Any) -> str:
    """The id of the template."""
    answer = client.call("PUT", f"/projects/main/templates/{name}", command=command, **more)
    assert answer.status == 200, answer.text
    return str(answer.json["template"])


def start(client: Client, template: str, **inputs: Any) -> str:
    answer = client.call("POST", f"/templates/{template}/start", inputs=inputs)
    assert answer.status == 200, answer.text
    return str(answer.json["run"])


def run_of(client: Client, uid: str) -> dict[str, Any]:
    found: dict[str, Any] = client.call("GET", f"/runs/{uid}").json["run"]
    return found


def wait_for(client: Client, uid: str, *statuses: str) -> dict[str, Any]:
    """The run, when it has one of these statuses (ok, failed, cancelled, lost) and was given its project."""
    wanted = statuses or ("ok", "failed", "cancelled", "lost", "refused")

    def look() -> dict[str, Any] | None:
        run = run_of(client, uid)
        return run if run["status"] in wanted and run["project"] else None

    found: dict[str, Any] = wait_until(look, f"run {uid} {wanted}")
    return found


def output(client: Client, uid: str) -> str:
    return client.get(f"/api/v1/runs/{uid}/output").text


def test_a_run_of_a_template_has_its_output_and_end(client: Client) -> None:
    uid = start(client, save(client, "hello", "sh -c 'echo hello; exit 3'"))
    run = wait_for(client, uid)
    assert (run["uid"], run["name"], run["status"], run["rc"], run["project"]) == (uid, "hello", "failed", 3, "main")
    assert output(client, uid) == "hello\n"


def test_a_command_of_leadline_is_a_run_with_parts(client: Client) -> None:
    uid = start(client, save(client, "tables", "tables session", kind="leadline"))
    run = wait_for(client, uid)
    assert run["status"] == "ok"
    assert "session" in output(client, uid)
    parts = wait_until(lambda: run_of(client, uid)["children"], "the part")
    assert [(part["name"], part["project"], part["template"]) for part in parts] == [("tables", "main", run["template"])]


def group(client: Client, name: str, **values: Any) -> None:
    answer = client.call("PUT", f"/projects/main/variables/{name}", values=values)
    assert answer.status == 200, answer.text


def test_templates_share_variables(client: Client) -> None:
    """A later group stands before an earlier one, and an answer before both. A change is for runs that begin later; again is as it was."""
    group(client, "common", place="here", rows=10, dry=True)
    group(client, "prod", place="there")
    survey = {"rows": {"kind": "int", "required": False}}
    template = save(client, "shares", "echo {place} {rows} {dry}", survey=survey, variables="common, prod")
    first = start(client, template)
    assert (wait_for(client, first)["inputs"], output(client, first)) == ({"place": "there", "rows": 10, "dry": True}, "there 10 true\n")
    group(client, "prod", place="elsewhere")
    second = start(client, template, rows=7)
    wait_for(client, second)
    assert output(client, second) == "elsewhere 7 true\n"
    again = client.call("POST", f"/runs/{first}/rerun").json["run"]
    wait_for(client, again)
    assert output(client, again) == "there 10 true\n"


def test_a_template_whose_variables_are_gone_is_not_started(client: Client) -> None:
    group(client, "short-lived", a="b")
    template = save(client, "orphan", "echo {a}", variables="short-lived")
    assert client.call("DELETE", "/projects/main/variables/short-lived").status == 200
    answer = client.call("POST", f"/templates/{template}/start")
    assert (answer.status, answer.json["error"]["message"]) == (404, "there is no group of variables short-lived in main")
    answer = client.call("PUT", "/projects/main/templates/other", command="true", variables="short-lived")
    assert answer.status == 404


@pytest.mark.parametrize("values", [{"db_password": "x"}, {"A": 1}, {"a": [1]}, {"a": 1.5}, {"a": None}])
def test_variables_are_open_and_plain(client: Client, values: dict[str, Any]) -> None:
    assert client.call("PUT", "/projects/main/variables/wrong", values=values).status == 422
    names = [row["group"] for row in client.call("GET", "/projects/main/variables").json["groups"]]
    assert "wrong" not in names


SURVEY = {
    "size": {"kind": "int", "least": 1, "most": 10, "default": 3},
    "mode": {"kind": "enum", "choices": ["fast", "safe"], "default": "safe"},
    "dry": {"kind": "bool", "default": False},
    "note": {"kind": "str", "required": False},
    "password": {"kind": "secret", "required": False},
}


def test_values_reach_the_command_each_in_its_own_word(client: Client) -> None:
    template = save(client, "words", "printf '<%s>' {size} --mode={mode} {dry} {note} {other}", survey=SURVEY)
    assert output(client, wait_for(client, start(client, template))["uid"]) == "<3><--mode=safe><false><{other}>"
    uid = start(client, template, size="7", mode="fast", dry=True, note="a b; $(id) {size}")
    assert output(client, wait_for(client, uid)["uid"]) == "<7><--mode=fast><true><a b; $(id) {size}><{other}>"
    assert run_of(client, uid)["inputs"] == {"size": 7, "mode": "fast", "dry": True, "note": "a b; $(id) {size}"}


@pytest.mark.parametrize(
    "inputs",
    [
        {"size": 0},
        {"size": 11},
        {"size": "x"},
        {"size": 1.5},
        {"mode": "other"},
        {"dry": "perhaps"},
        {"note": 5},
        {"note": "--help"},
        {"more": 1},
        {"note": "a\0b"},
    ],
    ids=str,
)
def test_a_wrong_value_starts_nothing(client: Client, inputs: dict[str, Any]) -> None:
    template = save(client, "wrong", "echo {size} {note}", survey=SURVEY)
    before = len(client.get("/runs.json?limit=1000").json["runs"])
    assert client.call("POST", f"/templates/{template}/start", inputs=inputs).status == 422
    answer = client.get("/runs.json?limit=1000").json
    assert (len(answer["runs"]), answer["waiting"]) == (before, [])


@pytest.mark.parametrize(
    "spec",
    [
        {"command": ""},
        {"command": "{program} x", "survey": {"program": {"kind": "str"}}},
        {"command": "echo 'open"},
        {"command": "echo {p}", "survey": {"p": {"kind": "secret"}}},
        {"command": "echo {p}", "secrets": {"p": "prod"}},
        {"command": "echo", "survey": {"x": {"kind": "list"}}},
        {"command": "echo", "survey": {"x": {"kind": "enum"}}},
        {"command": "echo", "survey": {"x": {"kind": "int", "default": "many"}}},
        {"command": "echo", "survey": {"X y": {"kind": "int"}}},
        {"command": "user create eve", "kind": "leadline"},
        {"command": "echo", "folder": "relative"},
        {"command": "echo", "then": {"main/nothing": {}}},
    ],
    ids=str,
)
def test_a_template_that_cannot_be_meant_is_refused(client: Client, spec: dict[str, Any]) -> None:
    assert client.call("PUT", "/projects/main/templates/bad", **spec).status in (404, 422)
    assert client.call("GET", "/templates/main%2Fbad").status == 404


def test_secrets_are_in_the_file_of_inputs_and_nowhere_else(served: Served, client: Client, tmp_path: Path) -> None:
    client.call("POST", "/secrets/key")
    assert client.call("PUT", "/projects/main/secrets/prod-db", value=SECRET).status == 200
    go = tmp_path / "go"
    command = f"sh -c 'cat $LEADLINE_INPUTS; echo; stat -c %a $LEADLINE_INPUTS; until [ -e {go} ]; do sleep 0.05; done'"
    survey = {"password": {"kind": "secret"}, "size": {"kind": "int", "default": 1}}
    template = save(client, "secret", command, survey=survey, secrets={"db": "prod-db"})
    uid = start(client, template, password=SECRET + "-typed")
    wait_until(lambda: output(client, uid).count("\n") == 2, "its output")
    seen = "".join(_of_processes())
    file = Path(f"/dev/shm/leadline-{os.getuid()}/{uid}/inputs.json")
    assert json.loads(file.read_text()) == {"size": 1, "password": SECRET + "-typed", "db": SECRET}
    printed, mode = output(client, uid).splitlines()
    assert json.loads(printed) == {"size": 1, "password": "***", "db": "***"}  # the log does not have them either
    assert mode == "600"
    go.touch()
    wait_for(client, uid, "ok")
    assert not file.exists()
    assert SECRET not in seen
    everything = subprocess.run(["grep", "-rlF", SECRET, str(served.book)], capture_output=True, text=True)
    assert everything.stdout == ""
    pages = [f"/runs/{uid}", f"/runs/{uid}.json", "/audit", "/audit.json?limit=1000", f"/templates/{template}", "/projects/main/secrets"]
    assert [path for path in pages if SECRET in client.get(path).text] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_inputs_of_runs_go_to_no_folder_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As /dev/shm/leadline-0 that somebody made before us."""
    monkeypatch.setattr(launcher, "inputs_of", lambda uid: tmp_path / "shm" / uid)
    (tmp_path / "shm").mkdir(mode=0o700)
    assert launcher._write_private("a", "inputs.json", "{}").stat().st_mode & 0o777 == 0o600
    for mode, owner in ((0o700, 65534), (0o777, 0), (0o770, 0)):
        os.chown(tmp_path / "shm", owner, owner)
        (tmp_path / "shm").chmod(mode)
        with pytest.raises(LeadlineError, match="the directory for inputs of runs is not safe"):
            launcher._write_private("b", "inputs.json", "{}")
        launcher.tidy(Place(tmp_path / "book"), "a")
        assert (tmp_path / "shm/a/inputs.json").exists()
    assert not (tmp_path / "shm/b").exists()


def _of_processes() -> Iterator[str]:
    for folder in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                yield (folder / name).read_bytes().decode("utf-8", "replace")
            except OSError:
                continue


def test_a_secret_is_hidden_in_other_forms_and_refused_when_it_cannot_be(served: Served, client: Client, tmp_path: Path) -> None:
    client.call("POST", "/secrets/key")
    key = "-----BEGIN KEY-----\nMIIEpAIBAAKCAQEA0xyz\nAQIDBAUGBwgJ\n-----END KEY-----\n"
    assert client.call("PUT", "/projects/main/secrets/ssh", value=key).status == 200
    script = tmp_path / "forms.py"
    script.write_text(
        "import base64, json, os, urllib.parse\n"
        "given = json.load(open(os.environ['LEADLINE_INPUTS']))\n"
        "print(base64.b64encode(('me:' + given['password']).encode()).decode(), given['password'].encode().hex())\n"
        "print(urllib.parse.quote(given['password']), json.dumps(given['password']))\n"
        "print(*('| ' + line for line in given['key'].splitlines()), sep='\\n')\n"
    )
    template = save(client, "forms", f"{sys.executable} {script}", survey={"password": {"kind": "secret"}}, secrets={"key": "ssh"})
    uid = start(client, template, password='p"ss/wörd')
    wait_for(client, uid, "ok")
    first, second, *lines = output(client, uid).splitlines()
    assert (first[:4], first.count("***"), second) == ("bWU6", 2, '*** "***"')
    assert lines == ["| -----BEGIN KEY-----", "| ***", "| ***", "| -----END KEY-----"]
    for refused in (
        client.call("PUT", "/projects/main/secrets/short", value="abc"),
        client.call("POST", f"/templates/{template}/start", inputs={"password": "abc"}),
    ):
        assert (refused.status, refused.json["error"]["message"]) == (422, "the secret is shorter than 4 characters")


def test_without_a_key_no_secret_is_taken(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("keyless")) as served:
        refused = served.client().call("PUT", "/projects/main/secrets/prod-db", value=SECRET)
        assert (refused.status, refused.json["error"]["message"]) == (422, "there is no key for secrets yet")
        served.do("secret", "key")
        assert (served.book / "secrets.key").stat().st_mode & 0o777 == 0o600
        (served.book / "secrets.key").chmod(0o640)
        assert served.client().call("PUT", "/projects/main/secrets/prod-db", value=SECRET).status == 403


def test_a_cancelled_run_leaves_no_process(client: Client) -> None:
    """Not even one that ignores SIGTERM in a session of its own."""
    command = """sh -c 'trap "" TERM; setsid sh -c "trap \\"\\" TERM; echo \\$\\$; exec sleep 1000" & echo $$; wait; sleep 1000'"""
    uid = start(client, save(client, "stubborn", command))
    pids = wait_until(lambda: (words := output(client, uid).split()) and len(words) == 2 and words, "both processes")
    assert client.call("POST", f"/runs/{uid}/cancel").status == 200
    run = wait_for(client, uid)
    assert (run["status"], run["launch"]["note"]) == ("cancelled", "cancelled by owner")
    assert [pid for pid in pids if is_running(int(pid))] == []


def test_what_has_not_begun_is_cancelled_too(client: Client) -> None:
    template = save(client, "twice", "sleep 1000")
    first, second = start(client, template), start(client, template)
    wait_for(client, first, "running")
    assert run_of(client, second)["status"] == "queued"  # at_once is 1
    assert client.call("POST", f"/runs/{second}/cancel").json["status"] == "cancelled"
    client.call("POST", f"/runs/{first}/cancel")
    wait_for(client, first, "cancelled")
    assert run_of(client, second)["status"] == "cancelled"
    assert client.call("POST", f"/runs/{first}/cancel").status == 422


def test_a_run_is_repeated_with_the_same_inputs_and_version(client: Client) -> None:
    template = save(client, "again", "echo first {size}", survey=SURVEY)
    one = wait_for(client, start(client, template, size=9, password=SECRET))
    save(client, "again", "echo second {size}", survey=SURVEY)
    two = wait_for(client, client.call("POST", f"/runs/{one['uid']}/rerun").json["run"])
    assert (two["argv"], two["inputs"]) == (one["argv"], one["inputs"])
    assert output(client, two["uid"]) == "first 9\n"
    same = client.call("POST", f"/runs/{start(client, template, size=1, password=SECRET)}/rerun").json
    assert same["version"] == 2 and "note" not in same
    told = client.call("POST", f"/runs/{one['uid']}/rerun").json
    assert told["version"] == 1
    assert told["note"] == (
        "this runs version 1 of the template, as it was then: the template has version 2 now; "
        "to run that: leadline template start main/again"
    )
    waited = wait_for(client, told["run"])
    assert waited["launch"]["note"] == "version 1 of the template, as it was then: the template has version 2 now"
    assert "Run again: version 1, not 2" in client.get(f"/runs/{one['uid']}").text


def test_figures_of_a_template_over_time_are_those_of_its_runs(served: Served, client: Client) -> None:
    template = save(client, "timed", "true")
    for _ in range(3):
        wait_for(client, start(client, template))
    start(client, save(client, "not-timed", "true"))
    links = [unescape(link) for link in re.findall(r'href="(/history[^"]*metric=[^"]*)"', client.get(f"/history?template={template}").text)]
    [link] = [link for link in links if "metric=wall_s" in link]
    points = client.get(link.replace("/history?", "/history.json?")).json["points"]
    with sqlite3.connect(served.book / "book.sqlite") as db:
        sql = "select r.uid, m.value from metric m join run r on r.id = m.run where r.template = ? and m.name = 'wall_s' order by r.started"
        expected = db.execute(sql, (template,)).fetchall()
    assert len(expected) == 3
    assert [(point["uid"], point["value"]) for point in points] == expected
    drawn = client.get(link).text
    heights = [float(y) for y in re.findall(r'<circle [^>]*cy="([\d.]+)"', drawn)]
    values = [value for _, value in expected]
    assert len(heights) == 3
    assert all((heights[a] - heights[b]) * (values[b] - values[a]) >= 0 for a in range(3) for b in range(a))  # y grows downwards
    assert re.findall(r'<a href="/runs/(\w+)"><circle', drawn) == [uid for uid, _ in expected]


def test_a_run_waits_for_approval_by_somebody_else(client: Client) -> None:
    template = save(client, "approved", "echo done", approval=True)
    one, two = start(client, template), start(client, template)
    assert [run_of(client, uid)["status"] for uid in (one, two)] == ["approval", "approval"]
    own = client.call("POST", f"/runs/{one}/approval", approved=True)
    assert (own.status, own.json["error"]["message"]) == (403, "who asked for a run cannot approve it")
    client.call("POST", f"/runs/{two}/approval", approved=False)
    assert [run_of(client, uid)["status"] for uid in (one, two)] == ["approval", "refused"]


def test_a_chain_of_three_goes_on_by_how_each_ends(client: Client) -> None:
    last = save(client, "c-last", "echo last {of}", survey={"of": {"kind": "str"}})
    never = save(client, "c-never", "echo never")
    middle = save(
        client,
        "c-middle",
        "sh -c 'exit 5'",
        survey={"n": {"kind": "int"}},
        then={last: {"when": "failed", "pass": {"of": "n"}}, never: {"when": "ok"}},
    )
    first = save(client, "c-first", "echo {n}", survey={"n": {"kind": "int"}}, then={"main/c-middle": {"when": "ok", "pass": {"n": "n"}}})
    wait_for(client, start(client, first, n=4), "ok")
    ended = wait_until(lambda: client.get(f"/runs.json?template={last}&status=ok").json["runs"], "the third")
    assert output(client, ended[0]["uid"]) == "last 4\n"
    assert run_of(client, ended[0]["uid"])["launch"]["after"] == client.get(f"/runs.json?template={middle}").json["runs"][0]["uid"]
    assert client.get(f"/runs.json?template={never}").json["runs"] == []


def test_a_run_begins_after_another_has_ended_well(client: Client) -> None:
    good, bad = save(client, "good", "true"), save(client, "bad", "false")
    for template, expected in ((good, "ok"), (bad, "refused")):
        before = start(client, template)
        after = client.call("POST", f"/templates/{good}/start", after=before).json["run"]
        assert wait_for(client, after)["status"] == expected


def test_a_program_that_is_not_there_is_a_failed_run(client: Client) -> None:
    run = wait_for(client, start(client, save(client, "missing", "/no/such/program")))
    assert (run["status"], run["rc"], run["summary"]) == ("failed", 127, "not started: No such file or directory")


def test_a_run_whose_watcher_was_killed_is_lost(client: Client) -> None:
    uid = start(client, save(client, "killed", "sleep 30"))
    pid = wait_for(client, uid, "running")["pid"]
    os.kill(pid, signal.SIGKILL)
    assert wait_for(client, uid)["status"] == "lost"


def test_runs_go_on_while_the_server_is_away(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("away")) as served:
        uid = start(served.client(), save(served.client(), "long", "sh -c 'for i in 1 2 3 4 5; do echo $i; sleep 0.3; done'"))
        wait_for(served.client(), uid, "running")
        served.stop(signal.SIGKILL)
        served.start()
        assert wait_for(served.client(), uid)["status"] == "ok"
        assert output(served.client(), uid) == "1\n2\n3\n4\n5\n"
        assert len(served.client().get("/runs.json").json["runs"]) == 1


def test_a_run_is_started_from_the_shell_without_a_server(tmp_path_factory: pytest.TempPathFactory) -> None:
    from serving import book

    with book(tmp_path_factory.mktemp("shell")) as served:
        served.do("template", "save", "main", "hello", "--command", "echo hello {name}", "--survey", '{"name": {"kind": "str"}}')
        started = served.do("template", "start", "main/hello", "--inputs", '{"name": "world"}')
        found = wait_until(lambda: (run := served.do("book", "show", started["run"]))["status"] == "ok" and run, "the run")
        assert found["argv"] == ["echo", "hello", "world"]


def test_the_server_had_nothing_to_complain_of(served: Served) -> None:
    assert served.complaints() == ""
