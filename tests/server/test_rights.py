"""Every operation as every role, on the wire: who may do what, and what does not exist for whom.

The table of what is expected is written here a second time, apart from the code: each operation's least role on its object.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from leadline.book.ingest import ingest
from leadline.book.place import Place
from leadline.book.recorder import Recorder
from leadline.book.store import Store
from leadline.recorder.pieces import first_second, read_piece
from leadline.server.operation import Operation, perform
from leadline.server.read import runs
from leadline.server.rights import OWNER
from leadline.server.table import BY_NAME, OPERATIONS
from leadline.server.web.answers import ANSWERS
from serving import PASSWORD, Client, Served, book

# For each: whose role on which object is asked. ANYONE: who is logged in. SITE: an administrator of the server.
ANYONE, SITE = "anyone", "site"
LEAST = {
    "run.list": (ANYONE, ""), "run.days": (ANYONE, ""), "run.search": (ANYONE, ""), "run.compare": ("viewer", "run"),
    "run.show": ("viewer", "run"),
    "run.log": ("viewer", "run"), "run.output": ("viewer", "run"), "run.stream": ("viewer", "run"), "run.file": ("viewer", "run"),
    "run.report": ("viewer", "run"), "run.explore": ("viewer", "run"), "run.verify": ("viewer", "run"), "run.given": ("viewer", "run"),
    "run.playbook": ("viewer", "run"), "run.results": ("viewer", "run"), "run.result": ("viewer", "run"), "run.facts": ("viewer", "run"),
    "run.hosts": (ANYONE, ""), "run.host": ("viewer", "run"),
    "run.label": ("runner", "run"), "run.pin": ("editor", "run"), "run.export": ("viewer", "run"),
    "template.history": (ANYONE, ""), "template.metrics": (ANYONE, ""), "template.list": (ANYONE, ""),
    "template.show": ("viewer", "template"), "template.baseline": ("editor", "template"),
    "template.save": ("editor", "project"), "template.delete": ("editor", "template"), "template.start": ("runner", "template"),
    "template.cancel": ("runner", "run"), "template.rerun": ("runner", "run"), "template.approve": ("editor", "run"),
    "template.grants": ("admin", "template"), "template.grant": ("admin", "template"),
    "schedule.list": (ANYONE, ""), "schedule.save": ("runner", "template+project"), "schedule.set": ("runner", "project"),
    "schedule.edit": ("runner", "project"), "schedule.delete": ("runner", "project"),
    "recorder.list": (ANYONE, ""), "recorder.register": (SITE, ""), "recorder.remove": (SITE, ""), "recorder.begin": ("viewer", "recorder"),
    "recorder.explore": ("viewer", "recorder"),
    "hook.list": (ANYONE, ""),
    "hook.start": ("editor", "project"), "hook.tell": ("editor", "project"), "hook.mail": ("editor", "project"),
    "hook.after": ("editor", "project"), "hook.delete": ("editor", "project"),
    "variables.list": ("viewer", "project"), "variables.set": ("editor", "project"), "variables.delete": ("editor", "project"),
    "secret.list": ("editor", "project"),
    "secret.set": ("editor", "project"), "secret.delete": ("editor", "project"), "secret.key": (SITE, ""),
    "user.list": (SITE, ""), "user.create": (SITE, ""), "user.disable": (SITE, ""), "user.delete": (SITE, ""), "user.password": (SITE, ""),
    "user.codes": (SITE, ""), "user.confirm-codes": (SITE, ""), "user.forget-codes": (SITE, ""), "user.me": (ANYONE, ""),
    "user.login-link": (SITE, ""),
    "user.link": (SITE, ""),
    "user.projects": (ANYONE, ""), "user.project": (SITE, ""), "user.delete-project": (SITE, ""),
    "user.members": ("viewer", "project"), "user.role": ("admin", "project"),
    "user.audit": (SITE, ""), "user.verify": (SITE, ""), "user.metrics": (ANYONE, ""),
    "token.list": (ANYONE, ""), "token.create": (ANYONE, ""), "token.revoke": ("owner", ""), "token.revoke-all": (SITE, ""),
}  # fmt: skip
RANK = {"viewer": 0, "runner": 1, "editor": 2, "admin": 3}
# Role in the project, and role on the one template and its runs by a grant.
CALLERS: dict[str, tuple[str | None, str | None]] = {
    "nobody": (None, None), "viewer": ("viewer", None), "runner": ("runner", None), "editor": ("editor", None), "admin": ("admin", None),
    "sees-one": (None, "viewer"), "starts-one": (None, "runner"), "elsewhere": (None, None), "ann": ("admin", None),
    "ann-viewer": ("viewer", None), "ann-runner": ("runner", None), "ann-other-project": (None, None), "anonymous": (None, None),
}  # fmt: skip
ODD = {
    ("user.password", "ann"): 403,  # by a token, nobody changes a password
    ("user.codes", "ann"): 403,
    ("user.confirm-codes", "ann"): 403,
    ("user.forget-codes", "ann"): 403,
    ("token.create", "ann-other-project"): 403,  # for more than its own project
    ("token.revoke", "ann-other-project"): 404,
    ("schedule.save", "sees-one"): 403,  # the template is seen, but has to be started
}
OF_A_USER = (
    "user.create", "user.delete", "user.disable", "user.password", "user.codes", "user.confirm-codes", "user.forget-codes", "user.link",
    "user.login-link", "token.revoke-all",
)  # fmt: skip
OF_ANN = ("ann", "ann-viewer", "ann-runner", "ann-other-project")


def recorder_directory(place: Path, capture: Path) -> Path:
    """A recorder's directory with this capture as its one piece."""
    place.mkdir()
    shutil.copytree(capture, place / f"{datetime.fromtimestamp(read_piece(capture).wall_from / 1e9, UTC):%Y%m%dT%H%M%S}Z.leadline")
    return place.resolve()


class World:
    """A server with users of each kind, and a way to make a fresh object for each call."""

    def __init__(self, served: Served) -> None:
        self.served, self.place = served, Place(served.book)
        self.store, self.number = Store(self.place), itertools.count()
        self.do("user.create", user="ann", password=PASSWORD, admin=True)
        self.do("secret.key")
        for project in ("alpha", "beta"):
            self.do("user.project", project=project)
        self.do("secret.set", project="alpha", secret="key", value="the key of hooks")
        self.template = self.do("template.save", project="alpha", name="granted", command="true", approval=True)["template"]
        self.other = self.do("template.save", project="alpha", name="other", command="true", approval=True)["template"]
        for name, (role, grant) in CALLERS.items():
            if name not in (*OF_ANN, "anonymous"):
                self.do("user.create", user=name, password=PASSWORD)
                if role:
                    self.do("user.role", project="alpha", user=name, role=role)
                if grant:
                    self.do("template.grant", template=self.template, user=name, role=grant)
        self.do("user.role", project="beta", user="elsewhere", role="admin")
        self.capture = shutil.copytree(
            Path(__file__).resolve().parents[2] / "testdata" / "capture" / "format1", served.book.parent / "kept.leadline"
        )
        self.recorder = recorder_directory(served.book.parent / "recorded", self.capture)
        self.do("recorder.register", recorder="shop", project="alpha", directory=str(self.recorder))
        self.numbers: dict[str, int] = {}
        self.run, self.hidden_run = self.recorded(self.template), self.recorded(self.other)
        self.played = self.of_ansible()
        served.start()
        self.clients = {name: self.client(name) for name in CALLERS}

    def do(self, operation: str, **given: Any) -> Any:
        return perform(BY_NAME[operation], OWNER, self.store, self.place, given)

    def client(self, name: str) -> Client:
        if name == "anonymous":
            return self.served.client()
        more = {
            "ann-viewer": {"scope": "viewer"},
            "ann-runner": {"scope": "runner"},
            "ann-other-project": {"scope": "admin", "project": "beta"},
        }
        token = self.do("token.create", **({"name": "t", "user": "ann" if name in OF_ANN else name, "scope": "admin"} | more.get(name, {})))
        return self.served.client(token=token["token"])

    def recorded(self, template: str) -> str:
        """A run of the template that has ended, with output, a file and a capture that is gone."""
        uid = self.asked(template, status="done")
        recorder = Recorder(self.place, uid)
        file = self.place.root.parent / f"{uid}.txt"
        file.write_text("made\n")
        recorder.begin("template", "granted", ["true"], labels={"needle": uid}, files=[str(file)])
        self.place.log_of(uid).write_text(f"needle {uid}\n")
        recorder.artifact("file", os.path.realpath(file))
        recorder.artifact("capture", self.capture)
        recorder.end(0)
        ingest(self.place, self.store)
        runs.assign(self.store)
        self.numbers = {file["kind"]: file["n"] for file in self.do("run.show", run=uid)["run"]["artifacts"]}
        assert self.numbers.keys() == {"file", "capture"}
        return uid

    def of_ansible(self) -> str:
        """A run of the same template whose kind is ansible, with one result and the facts of one host."""
        uid = self.recorded(self.template)
        with self.store.writing() as db:
            db.execute("update run set kind = 'ansible', name = 'played' where uid = ?", (uid,))
            [run] = self.store.rows("select id from run where uid = ?", (uid,))
            for table, row in {
                "task": (1, 1, "u", "a task", "debug", "/site.yml", 3, "", "[]", "{}", 0, 0, 5, 6),
                "result": (7, 1, "web1", "result", None, None, None, None, "ok", 0, 0, 0, 5, 6, "", 0, 0, "fine"),
                "result_body": (7, '{"msg": "fine"}'),
                "run_host": ("web1", 1, 0, 0, 0, 0, 0, 0, "factshash", None),
            }.items():
                db.execute(f"insert into {table} values ({', '.join('?' * (len(row) + 1))})", (run["id"], *row))
            db.execute("insert into host_facts values ('factshash', '{}')")
        return uid

    def asked(self, template: str, status: str = "approval") -> str:
        uid = str(self.do("template.start", template=template)["run"])
        with self.store.writing() as db:
            db.execute("update launch set status = ? where uid = ?", (status, uid))
        return uid

    def fresh(self, operation: Operation) -> dict[str, Any]:
        """Inputs with which it would be done, on objects of their own where it changes them."""
        n, name = next(self.number), operation.name
        template = self.template if name not in ("template.delete",) else ""
        if name == "template.delete":
            template = self.do("template.save", project="alpha", name=f"t{n}", command="true", approval=True)["template"]
            for user, (_, grant) in CALLERS.items():
                if grant:
                    self.do("template.grant", template=template, user=user, role=grant)
        made: dict[str, Any] = {
            "run": self.run, "template": template, "project": "alpha", "user": "nobody", "name": f"n{n}", "role": "none", "one": self.run,
            "other": self.run,
            "n": self.numbers["file" if name == "run.file" else "capture"], "key": "k",
            "metric": "wall_s", "text": "needle", "password": PASSWORD, "value": "a value",
            "secret": "key", "group": f"g{n}", "values": {"rows": n},
            "to": "ann@example.org", "sender": "leadline@example.org", "host": "web1", "code": "123456", "question": "opening",
            "cron": "0 0 1 1 *", "command": "true", "url": "https://pager.example/",
        }  # fmt: skip
        if name in ("template.cancel", "template.rerun", "template.approve"):
            made["run"] = self.asked(self.template)
        if name == "run.given":
            made["n"] = 0
        if operation.group == "recorder":
            made |= {"recorder": "shop" if name in ("recorder.begin", "recorder.explore") else f"r{n}", "directory": str(self.recorder)}
            made["window"] = str(first_second(self.recorder))
        if name == "recorder.remove":
            self.do("recorder.register", recorder=f"r{n}", project="alpha", directory=str(self.recorder))
        if name in ("run.playbook", "run.results", "run.result", "run.facts"):
            made |= {"run": self.played, "host": "web1", "n": 7}
        if name in ("schedule.set", "schedule.edit", "schedule.delete"):
            made["schedule"] = self.do("schedule.save", template=self.template, cron="0 0 1 1 *")["schedule"]
        if name == "hook.delete":
            made["hook"] = self.do("hook.tell", project="alpha", name=f"h{n}", url="https://pager.example/", secret="key")["hook"]
        if name == "variables.delete":
            self.do("variables.set", project="alpha", group=f"g{n}", values={})
        if name in ("secret.set", "secret.delete"):
            made["secret"] = f"s{n}"
            self.do("secret.set", project="alpha", secret=f"s{n}", value="a value")
        if name in OF_A_USER:
            made["user"] = f"u{n}"
            if name != "user.create":
                self.do("user.create", user=f"u{n}", password=PASSWORD)
        if name in ("user.project", "user.delete-project"):
            made["project"] = f"p{n}"
        if name == "user.delete-project":
            self.do("user.project", project=f"p{n}")
        if name in ("user.role", "template.grant"):
            made["user"] = "nobody"
        if name == "token.revoke":
            made["token"] = self.do("token.create", name="x", user="ann")["prefix"]
        if name == "secret.key":
            (self.place.root / "secrets.key").replace(self.place.root / "kept.key")
        needed = {i.name for i in operation.inputs if i.required} | {
            i for i in ("cron", "command") if i in {j.name for j in operation.inputs}
        }
        needed |= {"user"} if name == "token.revoke-all" else set()  # whose: without, the caller's own, which is asked with
        return {key: made[key] for key in needed}

    def after(self, operation: Operation) -> None:
        if operation.name == "secret.key":
            (self.place.root / "kept.key").replace(self.place.root / "secrets.key")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with book(tmp_path_factory.mktemp("rights")) as served:
        yield World(served)


def expected(name: str, caller: str) -> int:
    """The status that the caller must get."""
    least, on = LEAST[name]
    project, template = CALLERS[caller]
    if caller == "anonymous":
        return 401
    if (name, caller) in ODD:
        return ODD[name, caller]
    if least == ANYONE:
        return 200
    if least == "owner":
        return 200 if caller in OF_ANN else 404
    if least == SITE:
        return 200 if caller == "ann" else 403
    role = project
    if on in ("run", "template") and template is not None:
        role = template
    if role is None:
        return 404
    return 200 if RANK[role] >= RANK[least] else 403


def call(client: Client, operation: Operation, given: dict[str, Any]) -> tuple[int, bytes]:
    path, rest = operation.path, dict(given)
    for name in operation.in_path:
        path = path.replace("{" + name + "}", str(rest.pop(name)))
    if operation.writes:
        body = json.dumps(rest).encode() if rest else None
        answer = client.ask(operation.method, f"/api/v1{path}", body, {"Content-Type": "application/json"})
        return answer.status, answer.body
    address = f"/api/v1{path}" + (f"?{urlencode(rest)}" if rest else "")
    answer = client.ask("GET", address)
    assert client.ask("HEAD", address).status == answer.status
    return answer.status, answer.body


def test_the_table_is_whole() -> None:
    assert {operation.name for operation in OPERATIONS} - LEAST.keys() == set()


@pytest.mark.parametrize("name", [operation.name for operation in OPERATIONS])
def test_each_role_may_do_what_it_may_and_nothing_else(world: World, name: str) -> None:
    operation, wrong = BY_NAME[name], []
    for caller, client in world.clients.items():
        given = world.fresh(operation)
        try:
            status, body = call(client, operation, given)
        finally:
            world.after(operation)
        if status != expected(name, caller):
            wrong.append((caller, f"expected {expected(name, caller)}", status, body[:200]))
    assert wrong == []


def fits(schemas: dict[str, Any], schema: dict[str, Any], value: Any, where: str) -> list[str]:
    """Where a value is not as a schema of our own OpenAPI says: of what that uses, and of nothing else."""
    if "$ref" in schema:
        return fits(schemas, schemas[schema["$ref"].rpartition("/")[2]], value, where)
    if "anyOf" in schema:
        return [] if value is None else fits(schemas, schema["anyOf"][0], value, where)
    kinds: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}
    if "type" in schema and (not isinstance(value, kinds[schema["type"]]) or (schema["type"] != "boolean" and isinstance(value, bool))):
        return [f"{where} is {value!r}, not {schema['type']}"]
    if schema.get("type") == "array":
        return [fault for n, one in enumerate(value) for fault in fits(schemas, schema["items"], one, f"{where}[{n}]")]
    if schema.get("type") != "object" or "properties" not in schema:
        return []
    out = [f"{where} has no {name}" for name in schema.get("required", []) if name not in value]
    for name, one in value.items():
        if name in schema["properties"]:
            out += fits(schemas, schema["properties"][name], one, f"{where}.{name}")
        elif schema.get("additionalProperties") is False:
            out.append(f"{where} has {name} too")
    return out


def test_each_answer_has_the_form_that_openapi_says(world: World) -> None:
    """Of an administrator, with a session, who gets the most."""
    document = world.clients["ann"].get("/openapi.json").json
    schemas, session, wrong, seen = document["components"]["schemas"], world.served.client(), list[object](), set[str]()
    session.log_in("ann")
    for operation in OPERATIONS:
        content = document["paths"][f"/api/v1{operation.path}"][operation.method.lower()]["responses"]["200"]["content"]
        if "application/json" not in content:
            continue
        given = world.fresh(operation)
        if operation.name == "user.codes" or operation.name == "user.forget-codes":
            given.pop("password", None)
        status, body = call(session, operation, given)
        world.after(operation)
        if status == 200:
            seen.add(operation.name)
            wrong += fits(schemas, content["application/json"]["schema"], json.loads(body), operation.name)
    assert wrong == []
    strict = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a", "b"], "additionalProperties": False}
    assert fits({}, strict, {"a": "x", "c": 1}, "it") == ["it has no b", "it.a is 'x', not integer", "it has c too"]
    assert set(ANSWERS) - seen <= {"user.confirm-codes", "token.revoke"}
    listed = {o.name for o in OPERATIONS if o.name not in ANSWERS}
    assert listed <= {"run.output", "run.stream", "run.file", "run.report", "run.explore", "run.export", "user.metrics", "recorder.explore"}


# Of the two runs, that of the granted template and that of another.
SEEN_BY = {"viewer": 2, "runner": 2, "editor": 2, "admin": 2, "ann": 2, "ann-viewer": 2, "ann-runner": 2, "sees-one": 1, "starts-one": 1}


@pytest.mark.parametrize("caller", [name for name in CALLERS if name != "anonymous"])
def test_what_one_may_not_see_is_in_no_list_search_page_or_figure(world: World, caller: str) -> None:
    client, both = world.clients[caller], (world.run, world.hidden_run)
    seen = both[: SEEN_BY.get(caller, 0)]
    listed = [run["uid"] for run in client.call("GET", "/runs?label=needle&limit=1000").json["runs"]]
    assert set(listed) & set(both) == set(seen)
    found = client.call("GET", "/search?text=needle").json["runs"]
    assert {run["uid"] for run in found} & set(both) == set(seen)
    points = client.call("GET", "/history?metric=wall_s&name=granted&limit=5000").json["points"]
    assert {point["uid"] for point in points} & set(both) == set(seen)
    templates = {template["uid"] for template in client.call("GET", "/templates").json["templates"]}
    assert templates & {world.template, world.other} == {(world.template, world.other)[both.index(uid)] for uid in seen}
    least = len(client.call("GET", "/runs?limit=1000").json["runs"])  # a launch of the tests before may still begin
    total = [line for line in client.get("/metrics").text.splitlines() if line.startswith("leadline_runs_total")]
    by_day = sum(day["runs"] for day in client.call("GET", "/days").json["days"])
    most = len(client.call("GET", "/runs?limit=1000").json["runs"])
    assert least <= sum(int(line.split()[-1]) for line in total) <= most
    assert least <= by_day <= most
    hidden = [uid for uid in both if uid not in seen]
    for path in ("/runs", "/runs.json", "/search?text=needle", "/templates", "/schedules", "/hooks", "/metrics", "/history?metric=wall_s"):
        page = client.get(path).text
        assert [uid for uid in hidden if uid in page] == [], path
    for uid in hidden:
        of_capture = f"/files/{world.numbers['capture']}"
        of_files = (f"/files/{world.numbers['file']}", f"{of_capture}/report", f"{of_capture}/explore/about")
        for path in ("", "/log", "/output", "/stream", *of_files, "/export", "/evidence", "/given/0", "/results", "/playbook"):
            assert client.call("GET", f"/runs/{uid}{path}").status == 404, path
        assert client.call("GET", f"/compare?one={world.run}&other={uid}").status == 404
        assert client.get(f"/runs/{uid}").status == 404
        assert client.call("GET", f"/runs/{uid}").body.replace(uid.encode(), b"") == client.call("GET", "/runs/000000000000").body.replace(
            b"000000000000", b""
        )


@pytest.mark.parametrize("caller", list(CALLERS))
def test_the_page_of_explore_needs_the_right_to_see_its_run(world: World, caller: str) -> None:
    """The page itself, and each of its questions: with the right, without it, and not logged in."""
    client, below = world.clients[caller], f"/files/{world.numbers['capture']}/"
    seen = (world.run, world.hidden_run)[: SEEN_BY.get(caller, 0)]
    for uid in (world.run, world.hidden_run):
        page, about = client.get(f"/runs/{uid}{below}explore?by=statement"), client.get(f"/runs/{uid}{below}api/about")
        if caller == "anonymous":
            assert (page.status, about.status) == (303, 401)
            assert page.header("location") == f"/login?{urlencode({'next': f'/runs/{uid}{below}explore?by=statement'})}"
        elif uid in seen:
            assert (page.status, about.status) == (200, 200)
            assert f'<a class="up" href="/runs/{uid}">' in page.text and about.json["name"] == world.capture.name
        else:
            never = client.get(f"/runs/000000000000{below}api/about")
            assert (page.status, about.status, never.status) == (404, 404, 404)
            assert about.body.replace(uid.encode(), b"") == never.body.replace(b"000000000000", b"")
            assert world.capture.name not in page.text


@pytest.mark.parametrize("caller", list(CALLERS))
def test_the_page_of_a_recorder_needs_the_right_to_see_its_project(world: World, caller: str) -> None:
    """Its list, the page of all of it and of a window, and each question: with the right, without it, and not logged in."""
    client, second = world.clients[caller], first_second(world.recorder)
    window = f"{second}.000-{second + 2}.500"
    role = "viewer" if caller == "ann" else CALLERS[caller][0]
    for of in (f"from/{second}", f"at/{window}"):
        page, about = client.get(f"/recorders/shop/{of}/explore?from=1"), client.get(f"/recorders/shop/{of}/api/about")
        if caller == "anonymous":
            assert (page.status, about.status) == (303, 401)
            assert page.header("location") == f"/login?{urlencode({'next': f'/recorders/shop/{of}/explore?from=1'})}"
        elif role is not None:
            assert (page.status, about.status) == (200, 200), about.text
            assert about.json["window_s"] > 1 and 'href="/recorders/shop"' in page.text and "/recorders/shop/at/" in page.text
        else:
            never = client.get(f"/recorders/none/{of}/api/about")
            assert (page.status, about.status, never.status) == (404, 404, 404)
            assert about.body.replace(b"shop", b"") == never.body.replace(b"none", b"") and str(world.recorder) not in page.text
    start, listed = client.get("/recorders/shop"), client.get("/recorders")
    if role is not None:
        assert (start.status, start.header("location")) == (303, f"/recorders/shop/from/{second}/explore")
        assert '<a href="/recorders/shop">' in listed.text
    else:
        assert start.status == (303 if caller == "anonymous" else 404)
        assert "shop" not in listed.text


def test_nobody_makes_himself_more_than_he_is(world: World) -> None:
    editor, admin, starter = (world.clients[name] for name in ("editor", "admin", "starts-one"))
    assert editor.call("PUT", "/projects/alpha/members/editor", role="admin").status == 403
    assert admin.call("PUT", "/projects/beta/members/admin", role="viewer").status == 404
    assert admin.call("POST", "/users", user="eve", password=PASSWORD, admin=True).status == 403
    assert starter.call("PUT", f"/templates/{world.template}/grants/starts-one", role="runner").status == 403
    assert editor.call("POST", "/tokens", name="for ann", user="ann").status == 403
    assert world.clients["ann-runner"].call("POST", "/tokens", name="more", scope="editor").status == 403
    assert world.clients["ann-other-project"].call("POST", "/tokens", name="wider", scope="admin").status == 403
    for name in ("owner", "system", "Ann", "a/b", "..", ""):
        assert world.clients["ann"].call("POST", "/users", user=name, password=PASSWORD).status == 422, name
    for role in ("owner", "root", "", "Admin"):
        assert admin.call("PUT", "/projects/alpha/members/nobody", role=role).status == 422, role


def test_a_chain_into_a_project_that_one_may_not_start_in_is_refused(world: World) -> None:
    foreign = world.do("template.save", project="beta", name="foreign", command="true")["template"]
    answer = world.clients["editor"].call("PUT", "/projects/alpha/templates/chain", command="true", then={foreign: {}})
    assert answer.status == 404


def test_what_follows_in_a_project_that_one_does_not_see_is_not_shown(world: World) -> None:
    hidden = world.do("template.save", project="beta", name="hidden", command="true")["template"]
    chain = world.do("template.save", project="alpha", name="chain", command="true", then={hidden: {}, world.other: {}})["template"]
    try:
        for caller, seen in (("viewer", {world.other}), ("admin", {world.other}), ("ann", {world.other, hidden})):
            client = world.clients[caller]
            assert set(client.call("GET", f"/templates/{chain}").json["template"]["then"]) == seen, caller
            assert (hidden in client.call("GET", "/templates").text) is (hidden in seen), caller
            assert (hidden in client.get(f"/templates/{chain}").text) is (hidden in seen), caller
    finally:
        world.do("template.delete", template=chain)


def test_a_run_that_belongs_to_no_project_yet_is_seen_by_administrators_alone(world: World) -> None:
    """Between being taken in and being given its project."""
    uid = world.recorded(world.template)
    with world.store.writing() as db:
        db.execute("delete from launch where uid = ?", (uid,))
        db.execute(
            "update run set project = null, template = null, parent = 'nowhere00000', started = 9000000000000000 where uid = ?", (uid,)
        )
    try:
        assert {name for name, client in world.clients.items() if client.call("GET", f"/runs/{uid}").status == 200} == {
            "ann",
            "ann-viewer",
            "ann-runner",
        }
    finally:
        with world.store.writing() as db:
            db.execute("delete from run where uid = ?", (uid,))


def test_the_server_had_nothing_to_complain_of(world: World) -> None:
    assert world.served.complaints() == ""
