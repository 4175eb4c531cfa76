"""Templates of kind experiment: their answers stand in both commands, and their runs have design, verdict and history."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from leadline.book.place import Place
from leadline.book.recorder import Recorder
from serving import Client, Served, book, wait_until

SPEC = {"baseline": "echo {word} value=10", "variant": "echo {word} value={n}", "metric": "value=([0-9]+)", "better": "less", "pairs": 6}
SURVEY = {"n": {"kind": "int", "default": 9}, "word": {"kind": "str", "required": False}}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with book(tmp_path_factory.mktemp("experiments")) as served:
        served.start()
        yield served


@pytest.fixture
def client(served: Served) -> Client:
    return served.client()


def save(client: Client, name: str, **more: Any) -> str:
    values = {"kind": "experiment", "survey": SURVEY, "experiment": SPEC} | more
    answer = client.call("PUT", f"/projects/main/templates/{name}", **values)
    assert answer.status == 200, answer.text
    return str(answer.json["template"])


def parts_of(client: Client, uid: str, template: str) -> list[dict[str, Any]]:
    """Empty until all of them have their template."""
    parts: list[dict[str, Any]] = client.call("GET", f"/runs/{uid}").json["run"]["children"]
    return parts if {part["template"] for part in parts} == {template} else []


def ended(client: Client, uid: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        run = client.call("GET", f"/runs/{uid}").json["run"]
        return run if run["status"] in ("ok", "failed", "cancelled", "lost", "refused") else None

    found: dict[str, Any] = wait_until(look, uid)
    return found


def test_answers_stand_in_both_commands_and_again_is_another_try(client: Client) -> None:
    template = save(client, "words")
    first = client.call("POST", f"/templates/{template}/start", inputs={"n": 8, "word": "two words; $(x)"}).json["run"]
    run = ended(client, first)
    e = run["experiment"]
    assert (run["status"], run["kind"], e["verdict"], e["try"]) == ("ok", "experiment", "less", 1)
    assert e["design"]["baseline"] == "echo 'two words; $(x)' value=10"
    assert e["design"]["variant"] == "echo 'two words; $(x)' value=8"
    trials = wait_until(lambda: parts_of(client, first, template), "the trials")
    assert len(trials) == 12
    assert "faster" not in client.get(f"/api/v1/runs/{trials[0]['uid']}/output").text
    again = client.call("POST", f"/runs/{first}/rerun").json["run"]
    e = ended(client, again)["experiment"]
    assert (e["try"], [one["uid"] for one in e["earlier"]]) == (2, [first])
    points = client.call("GET", f"/history?metric=ratio&template={template}").json["points"]
    assert [(p["uid"], p["verdict"]) for p in points] == [(first, "less"), (again, "less")]
    assert [p[name] for p in points for name in ("value", "low", "high")] == pytest.approx([0.8] * 6)
    # Trials are parts of it, and no runs of the template beside it.
    of_template = f"template={template}"
    assert [p["uid"] for p in client.call("GET", f"/history?metric=wall_s&{of_template}").json["points"]] == [first, again]
    assert [run["uid"] for run in client.call("GET", f"/runs?{of_template}").json["runs"]] == [again, first]
    assert len(client.call("GET", f"/history?metric=wall_s&name=words:%20variant&{of_template}").json["points"]) == 12
    [shown] = [row for row in client.call("GET", "/templates").json["templates"] if row["uid"] == template]
    assert (shown["last_run"], shown["last_status"]) == (again, "ok")


def test_the_pages_show_design_pairs_and_verdict(client: Client) -> None:
    template = save(client, "shown", about="Nine or ten?", experiment=SPEC | {"hypothesis": "<b>nine</b>"})
    uid = client.call("POST", f"/templates/{template}/start").json["run"]
    ended(client, uid)
    page = client.get(f"/runs/{uid}").text
    assert "&lt;b&gt;nine&lt;/b&gt;" in page and "<b>nine" not in page
    for text in ('<p class="verdict good">less</p>', 'class="interval"', "Registered before the first trial", "echo value=10"):
        assert text in page, text
    twin = client.get(f"/runs/{uid}.json").json["run"]["experiment"]
    assert (twin["verdict"], twin["whole_pairs"]) == ("less", 6)
    assert "echo {word} value=10" in client.get(f"/templates/{template}").text
    history = client.get(f"/history?metric=ratio&template={template}").text
    assert f'<a href="/runs/{uid}#verdict">less</a>' in history and '<line class="interval"' in history
    export = client.get(f"/api/v1/runs/{uid}/export").text
    assert "less: the variant has 0.9" in export and 'class="margin"' in export


def test_a_template_is_saved_and_changed_by_its_form(client: Client) -> None:
    client.browser = True
    asked = json.dumps({"baseline": "true", "variant": "true 1"})
    fields = {"project": "main", "name": "by form", "kind": "experiment", "experiment": asked, "approval": "false", "then": "/templates"}
    assert client.form("/form/template.save", **fields).status == 303
    [row] = [row for row in client.call("GET", "/templates").json["templates"] if row["name"] == "by form"]
    page = client.get(f"/templates/{row['uid']}").text
    assert re.search(r'<textarea[^>]* name="experiment.variant"[^>]*>true 1</textarea>', page)


@pytest.mark.parametrize(
    ("experiment", "said"),
    [
        ({}, "the experiment has no baseline"), (SPEC | {"pairs": "6"}, "pairs of an experiment is no whole number"),
        (SPEC | {"variant": "a | b"}, "variant has |, which is for a shell"), (SPEC | {"more": 1}, "an experiment has no more"),
        (SPEC | {"baseline": "{word} 1"}, "the program of baseline cannot be asked for"),
        (SPEC | {"margin": 2}, "margin of an experiment is no text"),
        (SPEC | {"pairs": "{typo}"}, "typo stands in pairs, and is neither asked for nor a variable"),
        (SPEC | {"pairs": "{word}"}, "pairs of an experiment is one value of kind int"),
        (SPEC | {"pairs": "1{n}"}, "pairs of an experiment is one value of kind int"),
        (SPEC | {"keep_going": "{n}"}, "keep_going of an experiment is one value of kind bool"),
        (SPEC | {"hypothesis": "{hidden}"}, "hidden is a secret: it cannot be part of a command, which every user of the host can see"),
        (SPEC | {"variant": "x {hidden}"}, "hidden is a secret: it cannot be part of a command, which every user of the host can see"),
    ],
)  # fmt: skip
def test_what_makes_no_experiment_is_refused(client: Client, experiment: dict[str, Any], said: str) -> None:
    survey = SURVEY | {"hidden": {"kind": "secret", "required": False}}
    answer = client.call("PUT", "/projects/main/templates/wrong", kind="experiment", survey=survey, experiment=experiment)
    assert (answer.status, answer.json["error"]["message"]) == (422, said)


def test_answers_and_variables_stand_in_options(client: Client) -> None:
    """Those that are not given leave the option as it is by default; and what makes no experiment is refused before it starts."""
    survey = SURVEY | {
        "pairs": {"kind": "int", "required": False}, "margin": {"kind": "int", "default": 5}, "go": {"kind": "bool", "default": True},
        "why": {"kind": "str", "required": False},
    }  # fmt: skip
    assert client.call("PUT", "/projects/main/variables/common", values={"first": 41}).status == 200
    options = {"pairs": "{pairs}", "margin": "{margin}%", "keep_going": "{go}", "hypothesis": "{n} is less: {why}", "seed": "{first}"}
    template = save(client, "options-asked-for", survey=survey, experiment=SPEC | options, variables="common")
    assert "{pairs}" in client.get(f"/templates/{template}").text
    given = {"n": 8, "pairs": 7, "margin": 3, "go": False, "why": "-because"}
    uid = client.call("POST", f"/templates/{template}/start", inputs=given).json["run"]
    design = ended(client, uid)["experiment"]["design"]
    assert {name: design[name] for name in ("pairs", "margin", "keep_going", "hypothesis", "seed")} == {
        "pairs": 7, "margin": 0.03, "keep_going": False, "hypothesis": "8 is less: -because", "seed": 41,
    }  # fmt: skip
    without = client.call("POST", f"/templates/{template}/start").json["run"]
    design = ended(client, without)["experiment"]["design"]
    assert (design["pairs"], design["margin"], design["keep_going"], design["hypothesis"]) == (10, 0.05, True, "9 is less: ")
    for wrong, said in (({"pairs": 0}, "pairs is not from 1 to "), ({"margin": 100}, "'100%' is not a margin")):
        answer = client.call("POST", f"/templates/{template}/start", inputs=wrong)
        assert (answer.status, answer.json["error"]["message"][: len(said)]) == (422, said)
    assert client.get("/runs.json").json["waiting"] == []


def test_a_value_that_would_be_an_option_is_refused(client: Client) -> None:
    template = save(client, "options")
    answer = client.call("POST", f"/templates/{template}/start", inputs={"word": "--version"})
    assert (answer.status, answer.json["error"]["message"]) == (422, "word begins with -, which a command takes for an option")


def test_a_schedule_starts_it_and_cancel_ends_it(client: Client, served: Served) -> None:
    template = save(client, "naps", survey={}, experiment={"baseline": "sleep 60", "variant": "sleep 61"})
    answer = client.call("POST", f"/templates/{template}/schedules", cron="0 0 1 1 *")
    assert answer.status == 200
    served_id = answer.json["schedule"]
    import sqlite3

    with sqlite3.connect(served.book / "book.sqlite") as db:
        db.execute("update schedule set next_due = next_due - next_due + strftime('%s', 'now') * 1000000 where uid = ?", (served_id,))
    uid = wait_until(lambda: client.call("GET", f"/runs?template={template}").json["runs"], "the run")[-1]["uid"]
    trials = wait_until(lambda: client.call("GET", f"/runs/{uid}").json["run"]["children"], "a trial")
    assert client.call("GET", f"/runs/{uid}").json["run"]["experiment"]["verdict"] is None
    assert "There is none yet: 0 of 10 pairs" in client.get(f"/runs/{uid}").text
    assert client.call("POST", f"/runs/{uid}/cancel").status == 200
    assert ended(client, uid)["status"] == "cancelled"
    assert ended(client, trials[0]["uid"])["status"] in ("cancelled", "lost")
    assert re.match("no verdict: it ended after 0 of 20 trials", client.call("GET", f"/runs/{uid}").json["run"]["experiment"]["text"])


def test_earlier_tries_that_one_may_not_see_are_counted_and_not_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    with book(tmp_path_factory.mktemp("seen")) as served:
        served.user("ann", "--admin")
        served.user("bob")
        for project in ("alpha", "beta"):
            served.do("user", "project", project)
        served.do("user", "role", "beta", "bob", "--role", "runner")
        spec = json.dumps({**SPEC, "baseline": "echo value=10", "variant": "echo value=9"})
        for project in ("alpha", "beta"):
            served.do("template", "save", project, "t", "--kind", "experiment", "--experiment", spec)
        served.start()
        ann, bob = (served.client(token=served.token_of(name)) for name in ("ann", "bob"))
        uids = []
        for project in ("alpha", "beta"):
            [template] = [t["uid"] for t in ann.call("GET", "/templates").json["templates"] if t["project"] == project]
            uids.append(ann.call("POST", f"/templates/{template}/start").json["run"])
            ended(ann, uids[-1])
        assert [one["uid"] for one in ended(ann, uids[1])["experiment"]["earlier"]] == [uids[0]]
        seen = ended(bob, uids[1])["experiment"]
        assert (seen["try"], seen["earlier"]) == (2, [])
        assert uids[0] not in bob.get(f"/runs/{uids[1]}").text + bob.get(f"/api/v1/runs/{uids[1]}/export").text
        assert bob.call("GET", f"/runs/{uids[0]}").status == 404


HOSTILE = "<script>zq7()</script>\"'><img src=x>{{7*7}}\x1b[2J\u202e"


@pytest.mark.parametrize("odd", [{}, {"ratio": 1e308, "low": -5.0, "high": 1e300}, {"ratio": 1e-300, "low": 1e-300, "high": 1e-300}])
def test_whatever_a_spool_says_of_an_experiment_is_shown_as_text(served: Served, client: Client, odd: dict[str, float]) -> None:
    place, x = Place(served.book), HOSTILE
    recorder = Recorder(place)
    recorder.begin("experiment", "hostile", ["x"])
    texts = dict.fromkeys(("baseline", "variant", "hypothesis", "metric", "better", "prepare", "folder"), x)
    design = json.dumps({**texts, "order": "BVVB", "pairs": 2, "warmup": 1, "seed": 1, "margin": 0.5, "keep_going": True})
    recorder.event("experiment.design", design=design, question=x, registered=1, seal=x, earlier=["zzzz", x])
    for n, value in enumerate((1e-300, 1e300, 5.0, None)):
        side = ("baseline", "variant", "variant", "baseline")[n]
        recorder.event("experiment.leg", part="leg", number=n, side=side, leg=x, started=2, value=value, problem=x)
    said = {"ratio": 1.0, "low": 0.5, "high": 2.0} | odd
    recorder.event("experiment.verdict", verdict=x, good=True, text=x, pairs=2, differs=[[x, x, x]], **said)
    recorder.end(0)
    wait_until(lambda: client.call("GET", f"/runs/{recorder.uid}").status == 200, "the run")
    assert ended(client, recorder.uid)["experiment"]["design"]["hypothesis"] == x
    uid = recorder.uid
    for path in (f"/runs/{uid}", f"/api/v1/runs/{uid}/export", "/history?metric=ratio&name=hostile", f"/runs/{uid}.json"):
        answer = client.get(path)
        assert answer.status == 200, path
        if not path.endswith(".json"):
            assert not any(text in answer.text for text in ("<script>zq7", "<img", "\x1b", "\u202e", "{{7*7}}<", ">49<")), path
    shown = served.leadline("book", "show", recorder.uid)
    assert (shown.returncode, "\x1b" in shown.stdout) == (0, False), shown.stderr
    assert served.leadline("book", "verify", recorder.uid).returncode == 1
