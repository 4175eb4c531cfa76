"""Forms for people: text areas and fields in place of JSON. What a form shows and sends back unchanged changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from leadline.errors import LeadlineError
from leadline.server.launch.templates import _words
from leadline.server.table import BY_NAME, OPERATIONS
from leadline.server.web import forms
from leadline.server.web.forms import SHAPES
from serving import Client, Served, serving

SURVEY = {
    "steps": {"kind": "int", "help": "how many", "default": 5, "least": 1, "most": 1000},
    "who": {"kind": "str", "required": False}, "mode": {"kind": "enum", "choices": ["fast", "very slow"], "default": "fast"},
    "sure": {"kind": "bool", "default": True}, "note": {"kind": "str", "default": "100"}, "key": {"kind": "secret", "required": True},
}  # fmt: skip
SPECS: dict[str, dict[str, Any]] = {
    "plain": {"command": "sh -c 'for i in 1 2; do\n  echo \"$1\" $i\ndone' x {steps}", "survey": SURVEY, "about": "counts", "at_once": 3},
    "more": {"command": "echo", "secrets": {"password": "prod-db", "other": "k"}, "approval": True, "then":
             {"main/plain": {"when": "always", "pass": {}}}, "repository": {"url": "https://git.example/x.git", "ref": "v1", "key": "k"}},
    "played": {"kind": "ansible", "ansible": {"playbook": "/srv/site.yml", "inventory": "[a]\nweb1\nweb2", "limit": "{who}", "forks": 5,
               "check": True, "variables": {"rows": 10, "text": "10", "quoted": '"x"', "flag": False}}, "survey": {"who": {"kind": "str"}}},
    "compared": {"kind": "experiment", "experiment": {"baseline": "sleep 0.01", "variant": "sleep {n}", "pairs": "{n}", "metric": "seconds",
                 "better": "less", "margin": "2%", "warmup": 0, "keep_going": True}, "survey": {"n": {"kind": "int"}}},
}  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("forms")) as served:
        served.client().call("POST", "/secrets/key")
        yield served
        assert served.complaints() == ""


@pytest.fixture
def client(served: Served) -> Client:
    client = served.client(browser=True)
    for name, spec in SPECS.items():
        saved = client.call("PUT", f"/projects/main/templates/{name}", **spec)
        assert saved.status == 200, saved.text
    return client


class Fields(HTMLParser):
    """What a browser would send of each form of a page, as it is."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.forms: list[tuple[str, dict[str, str]]] = []
        self._area = self._select = ""
        self._takes = False
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        if tag == "form":
            self.forms.append((given.get("action", ""), {}))
        elif tag == "input" and "name" in given:
            self.forms[-1][1][given["name"]] = given.get("value", "")
        elif tag == "textarea":
            self._area = given["name"]
            self.forms[-1][1][self._area] = ""
        elif tag == "select":
            self._select = given["name"]
        elif tag == "option" and self._select:
            self._takes = "selected" in given or self._select not in self.forms[-1][1]
            if self._takes:
                self.forms[-1][1][self._select] = given.get("value", "")
                self._takes = "value" not in given

    def handle_data(self, data: str) -> None:
        if self._area:
            self.forms[-1][1][self._area] += data
        elif self._select and self._takes:
            self.forms[-1][1][self._select] = data.strip()
            self._takes = False

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self._area = ""
        elif tag == "select":
            self._select = ""


def form_of(client: Client, path: str, action: str) -> dict[str, str]:
    return next(fields for of, fields in Fields(client.get(path).text).forms if of == f"/form/{action}")


def named(client: Client, name: str) -> dict[str, Any]:
    return next(one for one in client.call("GET", "/templates").json["templates"] if one["name"] == name)


@pytest.mark.parametrize("name", SPECS)
def test_a_form_that_is_sent_as_it_was_shown_changes_nothing(client: Client, name: str) -> None:
    before = named(client, name)
    fields = form_of(client, f"/templates/{before['uid']}", "template.save")
    assert not any(value.lstrip().startswith("{\"") for value in fields.values())  # nobody is shown JSON
    crlf = {key: value.replace("\n", "\r\n") for key, value in fields.items()}  # as browsers send it
    answer = client.form("/form/template.save", **crlf)
    assert answer.status == 303, answer.text
    assert named(client, name) == before


def test_a_template_is_made_and_a_question_added_by_fields(client: Client) -> None:
    fields = form_of(client, "/templates", "template.save")
    fields |= {"project": "main", "name": "by form", "command": "seq 1 \\\r\n  {rows}", "survey.0.name": "rows", "survey.0.kind": "int",
               "survey.0.default": "10", "survey.0.most": "99", "secrets.lines": "password = prod-db\r\n\r\n"}  # fmt: skip
    assert client.form("/form/template.save", **fields).status == 303
    made = named(client, "by form")
    assert (made["command"], made["survey"], made["secrets"]) == (
        ["seq", "1", "{rows}"], {"rows": {"kind": "int", "default": 10, "most": 99}}, {"password": "prod-db"},
    )  # fmt: skip
    fields = form_of(client, f"/templates/{made['uid']}", "template.save")
    fields |= {"survey.1.name": "mode", "survey.1.kind": "enum", "survey.1.choices": "a, b", "survey.1.default": "a"}
    assert client.form("/form/template.save", **fields).status == 303
    assert named(client, "by form")["survey"]["mode"] == {"kind": "enum", "choices": ["a", "b"], "default": "a"}


def test_what_was_typed_for_another_kind_is_not_sent(client: Client) -> None:
    fields = form_of(client, "/templates", "template.save")
    fields |= {"project": "main", "name": "switched", "command": "true", "experiment.baseline": "sleep 1", "ansible.playbook": "x.yml"}
    assert client.form("/form/template.save", **fields).status == 303
    assert named(client, "switched")["kind"] == "command"


def shown_again(client: Client, action: str, **fields: str) -> tuple[int, dict[str, str], str]:
    answer = client.form(f"/form/{action}", **fields)
    found = [values for of, values in Fields(answer.text).forms if of == f"/form/{action}"]
    return answer.status, found[0] if found else {}, answer.text


SECRET = "typed-as-a-secret"


def test_every_form_shows_again_what_was_typed(client: Client) -> None:
    """Whatever it is that is wrong: no value is one that is there, so that no form does what it is for."""
    number, tried = 0, 0
    for operation in OPERATIONS:
        if not operation.writes or not operation.inputs or operation.method == "DELETE":
            continue
        typed, secrets = dict[str, str](), dict[str, str]()
        for one in operation.inputs:
            number += 1
            if one.kind == "secret":
                secrets[one.name] = SECRET
            elif shape := SHAPES.get(one.name) if one.kind == "json" or one.name == "command" else None:
                typed |= {
                    "pairs": {f"{one.name}.lines": f"a = {number}\nno pair"}, "lines": {one.name: f"'{number}\n x"},
                    "rows": {f"{one.name}.{row}.{part.name}": f"n{number}" for row in range(3) for part in shape.parts[:1]},
                    "parts": {f"{one.name}.{part.name}": f"u{number}" for part in shape.parts[:1]},
                }[shape.kind]  # fmt: skip
            else:
                text = {"int": str(number), "bool": "true", "enum": (one.choices or ("",))[-1], "json": "{"}
                typed[one.name] = text.get(one.kind, f"<typed> & {number}")
        status, again, text = shown_again(client, operation.name, **typed, **secrets)
        assert status in (403, 404, 422, 501), (operation.name, status)
        lost = {name: value for name, value in typed.items() if again.get(name) != value}
        assert lost == {}, operation.name
        assert SECRET not in text and 'role="alert"' in text, operation.name
        tried += 1
    assert tried > 25


def test_what_is_wrong_stands_at_its_field(client: Client) -> None:
    fields = {"project": "main", "name": "cut", "command": "seq 1", "survey.0.name": "n", "survey.0.kind": "int", "survey.0.least": "x"}
    status, again, text = shown_again(client, "template.save", **fields, then="/templates")
    assert status == 422 and {name: again[name] for name in (*fields, "then")} == fields | {"then": "/templates"}
    assert again["survey.1.name"] == ""  # room for one more
    at = text.index('<div class="wrong">')
    assert text.index("Survey", at) < text.index("Least of survey is not a whole number.", at)
    status, again, text = shown_again(client, "token.create", name="ci", days="99999", **{".fixed": "name"})
    assert (status, again["days"], again["name"], again[".fixed"]) == (422, "99999", "ci", "name")
    assert 'aria-invalid="true"' in text and text.count('id="token.create-ci-name"') == 0  # the reader did not see it before
    template = named(client, "plain")["uid"]
    status, again, text = shown_again(client, "template.start", template=template, **{".fixed": "template", "input.steps": "5000",
                                      "input.who": "me", "input.key": SECRET, "input.sure": "false"})  # fmt: skip
    assert status == 422 and SECRET not in text
    kept = {"steps": "5000", "who": "me", "sure": "false", "key": ""}
    assert {name: again[f"input.{name}"] for name in kept} == kept
    assert "steps is not from 1 to 1000" in text.lower()


def test_the_filters_of_a_page_are_kept_too(client: Client) -> None:
    answer = client.get("/runs?since_hours=yesterdayish&name=load&status=ok")
    fields = next((values for of, values in Fields(answer.text).forms if of == "/runs"), {})
    assert answer.status == 422 and {name: fields[name] for name in ("since_hours", "name", "status")} == {
        "since_hours": "yesterdayish", "name": "load", "status": "ok"}  # fmt: skip


def test_another_site_fills_in_no_form(client: Client) -> None:
    """Its form is refused before what it holds is read, so that nobody is shown our page with its words."""
    client.cookies["leadline"] = "x"
    sent = {"Sec-Fetch-Site": "cross-site", "Content-Type": "application/x-www-form-urlencoded"}
    answer = client.ask("POST", "/form/token.create", b"name=planted&days=99999", sent)
    assert (answer.status, b"planted" in answer.body) == (403, False)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"secrets.lines": "password"}, "line 1 of secrets is not name = value"),
        ({"survey.0.help": "x", "survey.0.kind": "str"}, "row 1 of survey has no name"),
        ({"survey.0.name": "a", "survey.1.name": "a"}, "a stands twice in survey"),
        ({"survey.0.name": "a", "survey.0.least": "x"}, "least of survey is not a whole number"),
    ],
)
def test_what_is_typed_wrong_is_told_by_its_place(fields: dict[str, str], told: str) -> None:
    with pytest.raises(LeadlineError, match=told):
        forms.read(BY_NAME["template.save"], fields)


@pytest.mark.parametrize("value", ["", "a", "10", "-3", "true", '"', '"x"', "a = b", " blank ", "two\nlines", "{x}", "é", 10, True, False])
def test_a_value_in_a_line_is_read_as_it_was(value: Any) -> None:
    lines = forms.lines_of({"name": value})
    assert forms.read(BY_NAME["variables.set"], {"values.lines": lines}) == {"values": {"name": value}}


def test_lines_that_a_backslash_joins_are_one_command() -> None:
    assert _words("a \\\n  b\\\nc 'd\\\ne' \\\\\n f \"g\\\nh\"") == ["a", "bc", "d\\\ne", "\\", "f", "gh"]


def test_schedules_hooks_and_variables_are_made_by_fields(client: Client) -> None:
    uid = named(client, "plain")["uid"]
    fields = form_of(client, f"/templates/{uid}", "schedule.save")
    assert {"input.steps", "input.mode", "input.sure"} <= fields.keys()
    assert "inputs.lines" not in fields
    compared = named(client, "compared")["uid"]
    fields = form_of(client, f"/templates/{compared}", "schedule.save") | {"cron": "0 0 1 1 *", "input.n": "4"}
    assert client.form("/form/schedule.save", **fields).status == 303
    [schedule] = [one for one in client.call("GET", "/schedules").json["schedules"] if one["template"] == compared]
    assert schedule["inputs"] == {"n": "4"}
    edit = form_of(client, "/schedules", "schedule.edit")
    assert (edit["cron"], edit["inputs.lines"]) == ("0 0 1 1 *", "n = 4")
    assert client.form("/form/schedule.edit", **(edit | {"cron": "0 3 * * *"})).status == 303
    [changed] = [one for one in client.call("GET", "/schedules").json["schedules"] if one["template"] == compared]
    assert (changed["cron"], changed["inputs"]) == ("0 3 * * *", {"n": "4"})
    asked = form_of(client, "/projects/main/variables", "variables.set") | {"group": "prod", "values.lines": "rows = 10\nname = x y"}
    assert client.form("/form/variables.set", **asked).status == 303
    assert client.call("GET", "/projects/main/variables").json["groups"][0]["values"] == {"rows": 10, "name": "x y"}
    client.call("PUT", "/projects/main/secrets/k", value="a key of hooks")
    given = {"project": "main", "name": "in", "template": uid, "secret": "k", "signed": "github", "inputs.lines": "steps = n"}
    hook = form_of(client, "/hooks", "hook.start") | given | {"only.lines": "ref = refs/heads/main\nn = 3"}
    assert client.form("/form/hook.start", **hook).status == 303
    assert client.call("GET", "/hooks").json["hooks"][0]["inputs"] == {"steps": "n"}


def test_the_list_starts_what_asks_nothing_and_leads_to_what_does(client: Client) -> None:
    client.call("PUT", "/projects/main/templates/now", command="true")
    page = client.get("/templates").text
    started = [fields["template"] for action, fields in Fields(page).forms if action == "/form/template.start"]
    assert named(client, "now")["uid"] in started
    assert named(client, "plain")["uid"] not in started  # it asks for a key
    assert f'href="/templates/{named(client, "plain")["uid"]}#start"' in page
    answer = client.form("/form/template.start", template=named(client, "now")["uid"], then="/runs/{run}")
    assert (answer.status, answer.header("location")[:6]) == (303, "/runs/")
    assert json.loads(client.get("/templates.json").body)["templates"]
