"""Every operation of OpenAPI, and every page, as everybody who may ask: what may be seen, what may not, and what was never there.

Nothing here knows an operation by its name. What it is to be given follows from its inputs, and what must hold is the same for all:

- What one may not see is answered word for word as what was never there, and no word of it comes back from anywhere.
- What is refused changes nothing, and what is done needs at least the role that the operation says; reading changes nothing.
- No answer is a failure of the server; each has its headers; nothing that was seeded as a secret comes back.

The application is asked without a network, and nothing runs beside it, so that what has changed is what was asked for.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
import pytest
from leadline.book.ingest import ingest
from leadline.book.place import Place
from leadline.book.recorder import Recorder
from leadline.book.store import Store
from leadline.server.accounts import login
from leadline.server.operation import perform
from leadline.server.read import runs
from leadline.server.rights import OWNER, RANK
from leadline.server.table import BY_NAME, OPERATIONS
from leadline.server.web import app, pages
from leadline.server.web.site import COOKIE, Site
from serving import PASSWORD
from test_crawler import HEADERS

MARK = "zq.9"  # in all that belongs to the other project, and in no id
PLANTED = "planted-7f3a-secret"
MINE, THEIRS = "alpha", f"{MARK}-beta"
NEVER = {"project": "nowhere", "n": 97, "name": "never", "host": "never", "secret": "never", "key": "never", "group": "never"}
LISTENS_S = 0.3  # to a stream that does not end
NUMBERS = {"run.result": 7, "run.given": 0}  # of what is numbered otherwise than files that a run made
UID, PREFIX = "zzzzzzzzzzzz", "zzzzzzzzzz"
RUNS = ("run", "one", "other", "parent", "after")
NOTED = (("session", "used"), ("token", "used"))  # columns
OWN = {"account": "name", "session": "account", "token": "account"}  # tables in which everybody may change what is his, and whose it is
ODD = (
    "", "\0", "\ud800", "..", "%2e%2e/", "' or 1=1 --", "<img src=x>", "\u202e", "9" * 40, "-1", "a" * 70_000, "{{7*7}}", "--upload-pack=x",
    None, True, 1.5, [], {}, "http://[", "9999-12-31 23:59",
)  # fmt: skip
ODD_OBJECTS = (
    "{", [], {"\ud800": 1}, {"a": "\0"}, {"a": ["\ud800"]}, {"a": float("nan")}, {"playbook": "\udfff"},
    {"a": {"kind": "str", "help": "\ud800"}}, {"a": {"default": 10**400}}, {"url": "/srv/x", "ref": "\ud800"},
)  # fmt: skip


@dataclass
class Caller:
    headers: dict[str, str]
    account: str = ""
    roles: dict[str, str] = field(default_factory=dict)  # by project; of one whose grants are more, what he may at most
    is_admin: bool = False

    def sees(self, project: str) -> bool:
        return self.is_admin or project in self.roles


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: str


class SqliteFile:
    """The tables of a store beside the store itself, and a copy of them to go back to."""

    def __init__(self, place: Place) -> None:
        self.db = sqlite3.connect(place.store, isolation_level=None)
        self.db.execute("pragma synchronous = off")
        self.kept = sqlite3.connect(":memory:")

    def tables(self) -> list[str]:
        return [name for (name,) in self.rows("select name from sqlite_master where type = 'table'")]

    @cache  # noqa: B019
    def columns(self, table: str) -> list[str]:
        return [column[1] for column in self.rows(f"pragma table_info({table})")]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.db.execute(sql).fetchall()

    def keep(self) -> None:
        self.db.backup(self.kept)

    def restore(self) -> None:
        self.kept.backup(self.db)


class PostgresFile:
    """The same of a store in PostgreSQL."""

    def __init__(self, place: Place) -> None:
        self.db = psycopg.connect(place.dsn or "", autocommit=True, options="-c search_path=leadline_book")

    def tables(self) -> list[str]:
        return [name for (name,) in self.rows("select tablename from pg_tables where schemaname = 'leadline_book'")]

    @cache  # noqa: B019
    def columns(self, table: str) -> list[str]:
        sql = "select column_name from information_schema.columns where table_schema = 'leadline_book' and table_name = %s"
        found = self.db.execute(sql, (table,))
        return [name for (name,) in found]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.db.execute(sql).fetchall()  # type: ignore[arg-type]

    def keep(self) -> None:
        self.db.execute("drop schema if exists kept cascade; create schema kept; set session_replication_role = replica")
        for name in self.tables():
            self.db.execute(f"create table kept.{name} as table {name}")

    def restore(self) -> None:
        self.db.execute("; ".join(f"delete from {name}; insert into {name} select * from kept.{name}" for name in self.tables()))


class World:
    """Two projects with one of everything in each, and everybody who may ask."""

    def __init__(self, place: Place) -> None:
        self.place, self.store = place, Store(place)
        self.do("user.create", user="ann", password=PASSWORD, admin=True)
        self.do("secret.key")
        self.mine, self.theirs = self.project(MINE, "a"), self.project(THEIRS, MARK)
        everybody = {
            "viewer": {MINE: "viewer"}, "runner": {MINE: "runner"}, "editor": {MINE: "editor"}, "admin": {MINE: "admin"}, "outsider": {},
            "of-theirs": {THEIRS: "admin"},
        }  # fmt: skip
        for name, roles in everybody.items():
            self.do("user.create", user=name, password=PASSWORD)
            for project, role in roles.items():
                self.do("user.role", project=project, user=name, role=role)
        self.do("user.create", user="granted", password=PASSWORD)
        self.do("template.grant", template=self.mine["template"], user="granted", role="runner")
        self.callers = {
            "anonymous": Caller({}),
            **{name: Caller(self.session(name), name, roles) for name, roles in everybody.items()},
            "granted": Caller(self.session("granted"), "granted", {MINE: "runner"}),
            "ann": Caller(self.session("ann"), "ann", is_admin=True),
            "ann-of-mine": Caller(self.token("ann", scope="admin", project=MINE), "ann", {MINE: "admin"}),
            "admin-viewing": Caller(self.token("admin", scope="viewer"), "admin", {MINE: "viewer"}),
            "expired": Caller(self.token("ann", scope="admin")),
            "revoked": Caller({"authorization": "Bearer ll_" + "a" * 10 + "_" + "b" * 43}),
        }
        with self.store.writing() as db:
            db.execute("update token set expires = 1 where prefix = ?", (self.callers["expired"].headers["authorization"][10:20],))
        self.site = Site(place, loopback=False)
        self.app = app.build(self.site)
        self.file = SqliteFile(place) if place.dsn is None else PostgresFile(place)
        self.before = self.state()
        self.file.keep()

    def do(self, operation: str, **given: Any) -> Any:
        return perform(BY_NAME[operation], OWNER, self.store, self.place, given)

    def project(self, name: str, word: str) -> dict[str, Any]:
        """What there is in it, by the inputs that take it."""
        self.do("user.project", project=name)
        self.do("user.create", user=f"{word}-member", password=PLANTED)
        self.do("user.role", project=name, user=f"{word}-member", role="admin")
        secret = f"{word}-key"
        self.do("secret.set", project=name, secret=secret, value=PLANTED)
        self.do("variables.set", project=name, group=f"{word}-group", values={"shared": word})
        survey = {"p": {"kind": "secret", "required": False}, "q": {"kind": "str", "default": word, "help": word}}
        spec = {"command": f"echo {word} {{q}}", "about": word, "survey": survey, "approval": True, "variables": f"{word}-group"}
        template = self.do("template.save", project=name, name=f"{word}-load", **spec)["template"]
        waiting = self.do("template.start", template=template, inputs={"p": PLANTED, "q": word})["run"]
        made = {
            "project": name, "template": template, "secret": secret, "name": f"{word}-load", "host": f"{word}-host", "waiting": waiting,
            "group": f"{word}-group",
            "key": f"{word}-label", "token": self.do("token.create", name=word, user=f"{word}-member", project=name)["prefix"],
            "schedule": self.do("schedule.save", template=template, cron="0 0 1 1 *", inputs={"q": word})["schedule"],
            "hook": self.do("hook.start", project=name, name=f"{word}-in", template=template, secret=secret)["hook"],
        }  # fmt: skip
        for verb, more in (("tell", {"url": f"https://{word}.example/"}), ("mail", {"to": f"{word}@x.y", "sender": "a@x.y"})):
            self.do(f"hook.{verb}", project=name, name=f"{word}-{verb}", **more, **({"secret": secret} if verb == "tell" else {}))
        return made | self.run(template, word)

    def run(self, template: str, word: str) -> dict[str, Any]:
        """A run of Ansible with output, a file, a label, a figure, a result and facts."""
        uid = self.do("template.start", template=template)["run"]
        with self.store.writing() as db:
            db.execute("update launch set status = 'done' where uid = ?", (uid,))
        recorder = Recorder(self.place, uid)
        file = self.place.root.parent / f"{word}.txt"
        file.write_text(word)
        given = {"labels": {f"{word}-label": word}, "inputs": {"q": word}, "files": [str(file)]}
        recorder.begin("ansible", f"{word}-load", ["echo", word], **given)
        recorder.summary(f"a summary {word}")
        self.place.log_of(uid).write_text(f"needle {word}\n")
        recorder.artifact("file", os.path.realpath(file))
        recorder.end(0)
        ingest(self.place, self.store)
        runs.assign(self.store)
        with self.store.writing() as db:
            [run] = self.store.rows("select id from run where uid = ?", (uid,))
            db.execute("update run set host = ? where id = ?", (f"{word}-host", run["id"]))
            for table, row in {
                "metric": (f"{word}_s", 1.5), "task": (1, 1, "u", word, "debug", f"/{word}.yml", 3, "", "[]", "{}", 0, 0, 5, 6),
                "result": (7, 1, f"{word}-host", "result", None, None, None, None, "ok", 0, 0, 0, 5, 6, "", 0, 0, word),
                "result_body": (7, json.dumps({"msg": word})), "run_host": (f"{word}-host", 1, 0, 0, 0, 0, 0, 0, word, None),
            }.items():
                db.execute(f"insert into {table} values ({', '.join('?' * (len(row) + 1))})", (run["id"], *row))
            db.execute("insert into host_facts values (?, ?)", (word, json.dumps({word: word})))
        [n] = [a["n"] for a in self.do("run.show", run=uid)["run"]["artifacts"]]
        return {"run": uid, "n": n, "metric": f"{word}_s", "text": word, "label": f"{word}-label"}

    def session(self, account: str) -> dict[str, str]:
        session = login.new_session(self.store, account, "192.0.2.1")
        return {"cookie": f"{COOKIE}={session}", "sec-fetch-site": "same-origin"}

    def token(self, account: str, **more: Any) -> dict[str, str]:
        return {"authorization": f"Bearer {self.do('token.create', name='t', user=account, **more)['token']}"}

    def state(self) -> dict[str, set[tuple[Any, ...]]]:
        """The rows of all tables but those that note who asked."""
        names = [name for name in self.file.tables() if not name.startswith(("run_words", "audit"))]
        return {name: set(self.file.rows(f"select {', '.join(self.columns(name))} from {name}")) for name in names}

    def columns(self, table: str) -> list[str]:
        return [column for column in self.file.columns(table) if (table, column) not in NOTED]

    def changed(self) -> dict[str, set[tuple[Any, ...]]]:
        """What was changed since, by tables; all is then as it was."""
        now = self.state()
        found = {name: rows ^ self.before.get(name, set()) for name, rows in now.items() if rows != self.before.get(name)}
        if found:
            self.file.restore()
        return found

    async def ask(self, method: str, path: str, caller: Caller, body: Any = None) -> Answer:
        address, _, query = path.partition("?")
        raw = b"" if body is None else json.dumps(body).encode("utf-8", "surrogatepass")
        sent = {"host": "book.example", **caller.headers, **({"content-type": "application/json"} if body is not None else {})}
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http", "root_path": "",
            "path": re.sub("(%..)+", lambda found: bytes.fromhex(found[0].replace("%", "")).decode("utf-8", "replace"), address),
            "raw_path": address.encode(), "query_string": query.encode(), "client": ("192.0.2.1", 5), "server": ("book.example", 80),
            "headers": [(k.encode(), v.encode()) for k, v in sent.items()],
        }  # fmt: skip
        pieces = iter([{"type": "http.request", "body": raw, "more_body": False}])
        got: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if (piece := next(pieces, None)) is not None:
                return piece
            await asyncio.sleep(LISTENS_S)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            got.append(message)

        await self.app(scope, receive, send)
        headers = {k.decode().lower(): v.decode() for k, v in got[0]["headers"]}
        return Answer(got[0]["status"], headers, b"".join(m.get("body", b"") for m in got[1:]).decode("utf-8", "replace"))


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory, servers: Callable[[int], Any]) -> Callable[[str], World]:
    """worlds(store): the one of a store, made when it is first asked for."""

    @cache
    def get(store: str) -> World:
        folder = tmp_path_factory.mktemp("crawled") / "book"
        if store == "sqlite":
            return World(Place(folder))
        server = servers(18)
        server.sql("drop schema if exists leadline_book cascade")
        return World(Place(folder, f"postgresql://postgres@/postgres?host={server.private.socket_dir}&port={server.private.port}"))

    return get


CALLERS = (
    "anonymous", "viewer", "runner", "editor", "admin", "outsider", "of-theirs", "granted", "ann", "ann-of-mine", "admin-viewing",
    "expired", "revoked",
)  # fmt: skip
# In PostgreSQL those who are sent odd values, too, and one who may see little: what is asked by whom is the same code for both stores.
CRAWLS = [("sqlite", name) for name in CALLERS] + [("postgresql", name) for name in ("editor", "ann", "outsider")]


def of_schema(name: str, schema: Mapping[str, Any]) -> Any:
    """A value for an input that is nobody's id."""
    if "enum" in schema:
        return schema["enum"][0]
    known = {
        "command": "true", "password": PASSWORD, "old_password": PASSWORD, "cron": "0 0 1 1 *", "url": "https://pager.example/",
        "to": "a@x.y", "sender": "a@x.y", "code": "123456", "inputs": {}, "user": "outsider", "value": "a value",
    }  # fmt: skip
    return known.get(name, {"integer": schema.get("minimum", 1), "boolean": True, "object": {}}.get(schema["type"], "x"))


def inputs_of(described: Mapping[str, Any]) -> dict[str, tuple[Mapping[str, Any], bool]]:
    """The form of each, and whether it is needed."""
    body = described.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {"properties": {}, "required": []})
    inputs = {p["name"]: (p["schema"], p["required"]) for p in described["parameters"]}
    return inputs | {name: (schema, name in body["required"]) for name, schema in body["properties"].items()}


def given_to(described: Mapping[str, Any], of: Mapping[str, Any], *, new_names: bool) -> tuple[dict[str, Any], set[str]]:
    """Good values for all inputs that are needed, with ids of one project; and the names of those that take an id."""
    inputs = inputs_of(described)
    ids = {name for name in inputs if name in of or name in RUNS} - ({"name"} if new_names else set())
    wanted = {name for name, (_, needed) in inputs.items() if needed or name in ("command", "cron", "old_password")}
    values = {name: of_schema(name, inputs[name][0]) for name in inputs if name in wanted}
    for name in ids & (values.keys() | {"template", "project", "host", "label", "parent", "after", "text"}):
        values[name] = of["run" if name in RUNS else name]
    if (number := NUMBERS.get(described["operationId"])) is not None:
        values["n"] = number
    return values, ids


def address_of(path: str, method: str, values: Mapping[str, Any]) -> tuple[str, dict[str, Any] | None]:
    left = dict(values)

    def text(value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value)

    for name in re.findall(r"{(\w+)}", path):
        path = path.replace("{" + name + "}", quote(text(left.pop(name, "x")), safe="", errors="replace"))
    if method != "get":
        return path, left or None
    wanted = urlencode({k: text(v) for k, v in left.items()}, errors="replace")
    return path + (f"?{wanted}" if wanted else ""), None


def check(answer: Answer, where: object) -> None:
    assert answer.status < 500, (where, answer.status, answer.body[:300])
    assert answer.headers.keys() >= HEADERS, (where, HEADERS - answer.headers.keys())
    assert "set-cookie" not in answer.headers, where
    assert PLANTED not in answer.body, where
    assert PASSWORD not in answer.body, where
    assert "Traceback" not in answer.body, where
    if answer.status >= 400 and answer.headers["content-type"].startswith("application/json"):
        assert set(json.loads(answer.body)["error"]) == {"kind", "message", "detail", "hint", "where"}, where


def never(name: str) -> Any:
    return NEVER.get(name, PREFIX if name == "token" else "never" if name in ("label", "metric", "text") else UID)


def without(body: str, values: Mapping[str, Any]) -> str:
    """What was answered, without the words that were asked with."""
    for value in sorted(map(str, values.values()), key=len, reverse=True):
        for form in (value, quote(value, safe=""), value[:5]) if len(value) > 4 else (value,):
            body = body.replace(form, "_")
    return body


def allowed(described: Mapping[str, Any], caller: Caller, changes: Mapping[str, set[tuple[Any, ...]]], world: World) -> bool:
    """Whether the caller may have changed that by this operation."""
    if caller.is_admin:
        return True
    if not caller.account:
        return False
    right = described["x-right"]
    if right in RANK:  # in the one project of which he has a role, or he has seen nothing of it
        return any(RANK[role] >= RANK[right] for role in caller.roles.values())
    if right != "anyone":
        return False
    for table, rows in changes.items():
        if table not in OWN:
            return False
        columns = world.columns(table)
        if {row[columns.index(OWN[table])] for row in rows} != {caller.account}:
            return False
    return True


@pytest.mark.parametrize(("store", "name"), CRAWLS)
def test_every_operation(worlds: Callable[[str], World], store: str, name: str) -> None:
    world = worlds(store)
    asyncio.run(crawl(world, world.callers[name], random.Random(name), {"editor": 2, "ann": 1}.get(name, 0)))


async def crawl(world: World, caller: Caller, chance: random.Random, odd: int) -> None:
    paths = json.loads((await world.ask("GET", "/openapi.json", caller)).body)["paths"]
    described = [(path, method, one) for path, methods in paths.items() for method, one in methods.items()]
    assert {one["operationId"] for _, _, one in described} == {operation.name for operation in OPERATIONS}
    secret_words = [MARK, *(str(world.theirs[key]) for key in ("run", "template", "schedule", "hook", "token", "waiting"))]
    hidden = not caller.sees(THEIRS)
    for path, method, one in described:
        good, ids = given_to(one, world.mine, new_names=method != "get")
        for _, values in cases(one, good, ids, world, lambda of: of if odd > 1 and of is ODD_OBJECTS else chance.sample(of, odd)):
            address, body = address_of(path, method, values)
            where = (one["operationId"], address[:200], str(body)[:200])
            answer = await world.ask(method.upper(), address, caller, body)
            check(answer, where)
            if not caller.account:
                assert answer.status in (401, 404), (where, answer.status)  # 404: a path with / in it
            if method != "get" and caller.account and (changes := world.changed()):
                assert answer.status < 400, (where, answer.status, changes.keys())
                assert allowed(one, caller, changes, world), (where, answer.status, changes.keys())
            if hidden:
                left = without(answer.body, values)
                assert [word for word in secret_words if word in left] == [], where
        if hidden and caller.account:
            await same_as_never(world, caller, path, method, one, good, ids)
    assert world.changed() == {}  # nor did reading anything change something


def cases(
    one: Mapping[str, Any], good: dict[str, Any], ids: set[str], world: World, odd: Callable[[Sequence[Any]], Sequence[Any]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "good", good
    yield "waiting", good | {name: world.mine["waiting"] for name in ids if name in RUNS}
    yield "theirs", good | {name: world.theirs["run" if name in RUNS else name] for name in ids if name != "n"}
    yield "unknown", good | {"nothing_takes_this": 1}
    inputs = inputs_of(one)
    for account in ("ann", "viewer") if "user" in inputs else ():
        yield "another's", good | {"user": account}
    for name, (schema, _) in inputs.items():
        for value in odd(ODD_OBJECTS if schema["type"] == "object" else ODD):
            yield "odd", good | {name: value}


async def same_as_never(
    world: World, caller: Caller, path: str, method: str, one: Mapping[str, Any], good: dict[str, Any], ids: set[str]
) -> None:
    for name in ids - {"n", "key", "name"}:
        answers = []
        for value in (world.theirs["run" if name in RUNS else name], never(name)):
            values = good | {name: value}
            answer = await world.ask(method.upper(), *split(address_of(path, method, values), caller))
            world.changed()
            answers.append((answer.status, without(answer.body, {name: value})))
        assert answers[0] == answers[1], (one["operationId"], name)


def split(address: tuple[str, Any], caller: Caller) -> tuple[str, Caller, Any]:
    return address[0], caller, address[1]


@pytest.mark.parametrize(("store", "name"), CRAWLS)
def test_every_page_and_its_twin(worlds: Callable[[str], World], store: str, name: str) -> None:
    world = worlds(store)
    asyncio.run(crawl_pages(world, world.callers[name]))


async def crawl_pages(world: World, caller: Caller) -> None:
    hidden = not caller.sees(THEIRS)
    secret_words = [MARK, *(str(world.theirs[key]) for key in ("run", "template", "schedule", "hook", "token", "waiting"))]
    for page, twin in itertools.product(pages.PAGES, ("", ".json")):
        names = re.findall(r"{(\w+)}", page.path)
        answers = []
        for of in (world.mine, world.theirs, {key: never(key) for key in world.mine}):
            address = page.path
            for key in names:
                address = address.replace("{" + key + "}", str(NUMBERS[page.operation] if key == "n" else of[key]))
            answer = await world.ask("GET", address + twin, caller)
            check(answer, (address, twin))
            left = without(answer.body, {key: of[key] for key in names})
            answers.append((answer.status, left))
            if hidden:
                assert [word for word in secret_words if word in left] == [], (address, twin)
        if hidden and names:
            assert answers[1] == answers[2], (page.path, twin)
    assert world.changed() == {}


def test_what_has_no_operation_tells_nothing_either(worlds: Callable[[str], World]) -> None:
    world = worlds("sqlite")

    async def ask() -> list[tuple[int, str]]:
        out = []
        for path in (f"/hooks/{world.theirs['hook']}", f"/hooks/{UID}"):
            answer = await world.ask("POST", path, world.callers["anonymous"], {})
            check(answer, path)
            out.append((answer.status, answer.body))
        return out

    one, other = asyncio.run(ask())
    assert one == other
    assert one[0] == 403


