"""Operations on templates: what can be started, by whom, with which questions. What starts it is launch_queue.py."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection
from typing import Any

from leadline.book.query import NO_TRIAL
from leadline.book.spool import new_uid
from leadline.errors import LeadlineError
from leadline.server.accounts.users import PROJECT
from leadline.server.launch import code_words, survey, variables
from leadline.server.operation import Call, Input, Operation, finder
from leadline.server.read.runs import RUN, find_run
from leadline.server.rights import NAME as SECRET_NAME

KINDS = ("command", "leadline", "ansible", "experiment")
WHEN = ("ok", "failed", "always")
MOST_WORDS = 1000
# Commands of leadline that would change who may do what, or start what is not watched.
NOT_FROM_TEMPLATES = ("serve", "user", "token", "secret", "variables", "template", "schedule", "hook", "book")


LAUNCHES_END = """
    update launch set status = 'cancelled', note = ?
    where template = ? and status in ('waiting', 'approval', 'queued')"""


@finder("template")
def find_template(call: Call, text: str) -> dict[str, Any]:
    """By its id, or by project/name."""
    project, slash, name = text.partition("/")
    row = (
        call.one("select * from template where project = ? and name = ?", project, name)
        if slash
        else call.one("select * from template where uid = ?", text)
    )
    if row is None or call.caller.role(row["project"], row["uid"]) is None:
        raise LeadlineError("not_found", f"there is no template {text[:80]}", hint="leadline template list")
    call.object = row["uid"]
    return row | {"template": row["uid"]}


def spec_of(row: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(row["spec_json"])
    return spec


def shown(call: Call, row: dict[str, Any]) -> dict[str, Any]:
    """Without what follows it in projects that the caller does not see."""
    names = ("uid", "project", "name", "version", "changed", "changed_by", "baseline")
    out = {name: row[name] for name in names} | spec_of(row)
    out["then"] = {uid: about for uid, about in out["then"].items() if _is_seen(call, uid)}
    return out


def _is_seen(call: Call, uid: str) -> bool:
    row = call.one("select project from template where uid = ?", uid)
    return row is not None and call.caller.role(row["project"], uid) is not None


def _list(call: Call, inputs: dict[str, Any]) -> Any:
    rows = call.rows("select * from template order by project, name")
    found = []
    for row in rows:
        if call.caller.role(row["project"], row["uid"]) is None or inputs["project"] not in (None, row["project"]):
            continue
        sql = f"select uid, status, started from run where template = ? and {NO_TRIAL} order by started desc limit 1"
        last = call.one(sql, row["uid"])
        found.append(shown(call, row) | {"last_run": last["uid"] if last else None, "last_status": last["status"] if last else None})
    return {"templates": found}


def _show(call: Call, _inputs: dict[str, Any]) -> Any:
    row = call.found
    role = call.caller.role(row["project"], row["uid"])
    return {"template": shown(call, row), "role": role}


def _save(call: Call, inputs: dict[str, Any]) -> Any:
    project, name = inputs["project"], inputs["name"]
    call.object = f"{project}/{name}"
    spec = read_spec(call, inputs)
    text = json.dumps(spec, ensure_ascii=False)
    old = call.one("select * from template where project = ? and name = ?", project, name)
    uid, version = (old["uid"], old["version"] + 1) if old else (new_uid(), 1)
    if old and spec_of(old) == spec and list(spec_of(old)["survey"]) == list(spec["survey"]):
        return {"template": uid, "version": old["version"]}
    if old:
        call.execute(
            "update template set version = ?, spec_json = ?, changed = ?, changed_by = ? where uid = ?",
            version,
            text,
            call.now,
            call.caller.name,
            uid,
        )
    else:
        columns = "uid, project, name, version, spec_json, changed, changed_by"
        values = uid, project, name, version, text, call.now, call.caller.name
        call.execute(f"insert into template ({columns}) values (?, ?, ?, ?, ?, ?, ?)", *values)
    call.execute("insert into template_version values (?, ?, ?, ?, ?)", uid, version, text, call.now, call.caller.name)
    call.detail = {"template": uid, "version": version, "before": spec_of(old) if old else None, "after": spec}
    return {"template": uid, "version": version}


def read_spec(call: Call, inputs: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a template. Raises LeadlineError."""
    kind = inputs["kind"]
    questions = survey.read_survey(inputs["survey"] or {})
    groups = variables.read_names(inputs["variables"] or "")
    shared = variables.of_groups(call, inputs["project"], groups)
    secrets = _secrets(inputs["secrets"] or {}, questions)
    repository = _repository(inputs["repository"], inputs["folder"] or "")
    spec: dict[str, Any] = {
        "kind": kind, "repository": repository, "about": inputs["about"] or "", "survey": inputs["survey"] or {}, "secrets": secrets,
        "variables": groups,
        "approval": inputs["approval"],
        "at_once": inputs["at_once"], "then": _then(call, inputs["then"] or {}, questions),
    }  # fmt: skip
    if kind == "ansible":
        return spec | {"command": [], "folder": inputs["folder"] or "", "ansible": _ansible(inputs["ansible"] or {}, questions, shared)}
    directory = inputs["folder"] or ""
    if directory and not directory.startswith("/"):
        raise LeadlineError("usage", "the directory does not begin with /", where="folder")
    if kind == "experiment":
        design = _experiment(inputs["experiment"] or {}, questions, shared)
        _without_secrets([text for text in design.values() if isinstance(text, str)], questions, secrets)
        for name in survey.COMMANDS:
            code_words.check(shlex.split(design.get(name) or ""), questions, name)
        return spec | {"command": [], "folder": directory, "ansible": {}, "experiment": design}
    words = _words(inputs["command"] or "")
    if kind == "leadline" and words[0] in NOT_FROM_TEMPLATES:
        raise LeadlineError("usage", f"a template cannot start leadline {words[0]}", where="command")
    _without_secrets(words, questions, secrets)
    code_words.check(words, questions)
    return spec | {"command": words, "folder": directory, "ansible": {}}


def _without_secrets(words: list[str], questions: dict[str, Input], secrets: dict[str, str]) -> None:
    for name in sorted(survey.placeholders(words)):
        if name in secrets or name in survey.secret_names(questions):
            raise LeadlineError(
                "usage", f"{name} is a secret: it cannot be part of a command, which every user of the host can see",
                hint="read it from the JSON file that LEADLINE_INPUTS names", where="command",
            )  # fmt: skip


def _experiment(given: dict[str, Any], questions: dict[str, Input], shared: Collection[str]) -> dict[str, Any]:
    """What an experiment is made of; a name in braces may stand in its commands and in most options."""
    from leadline.book.experiments.design import make

    asked = {name for name in survey.OF_EXPERIMENTS if isinstance(given.get(name), str) and survey.placeholders([given[name]])}
    for name in sorted(asked):
        _asked_for(name, given[name], questions, shared)
    make({name: value for name, value in given.items() if name not in asked})
    for name in survey.COMMANDS:
        if survey.placeholders(shlex.split(given.get(name) or "")[:1]):
            hint = "begin with a program, as in ./load.sh {size}"
            raise LeadlineError("usage", f"the program of {name} cannot be asked for", hint=hint, where=name)
    return {name: value for name, value in given.items() if value is not None}


def _asked_for(option: str, text: str, questions: dict[str, Input], shared: Collection[str]) -> None:
    """An option of an experiment whose value is an answer or a variable. Raises LeadlineError."""
    kind = survey.OF_EXPERIMENTS[option]
    for name in sorted(survey.placeholders([text])):
        if name not in {*questions, *shared} and option != "hypothesis":
            raise LeadlineError("usage", f"{name} stands in {option}, and is neither asked for nor a variable", where="experiment")
        if kind != "text" and (text != f"{{{name}}}" or (name in questions and questions[name].kind != kind)):
            hint = f'"{option}": "{{{name}}}", where the survey asks for {name} as a value of kind {kind}'
            raise LeadlineError("usage", f"{option} of an experiment is one value of kind {kind}", hint=hint, where="experiment")


def _joined(command: str) -> str:
    """With lines that end in a backslash joined to the next, as a shell does it: not within single quotes."""
    out = re.split(r"('[^']*')", command)
    return "".join(part if n % 2 else re.sub(r"(?<!\\)((?:\\\\)*)\\\n", r"\1", part) for n, part in enumerate(out))


def _words(command: str) -> list[str]:
    """As a shell divides it; nothing else of a shell is done."""
    try:
        words = shlex.split(_joined(command))
    except ValueError as e:
        raise LeadlineError("usage", "the command cannot be divided into words", detail=str(e), where="command") from None
    if not words or len(words) > MOST_WORDS:
        raise LeadlineError("usage", f"the command has not 1 to {MOST_WORDS} words", where="command")
    if survey.placeholders(words[:1]):
        raise LeadlineError(
            "usage", "the program itself cannot be asked for", hint="begin with a program, as in ./load.sh {size}", where="command"
        )
    return words


def _repository(given: dict[str, Any] | None, directory: str) -> dict[str, str]:
    from leadline.book.checkout import check

    if not given:
        return {}
    found = {"ref": "HEAD"} | given
    if not {"url"} <= set(found) <= {"url", "ref", "key"} or not all(isinstance(value, str) for value in found.values()):
        raise LeadlineError("usage", "the repository is no url with a ref", hint=REPOSITORY, where="repository")
    if directory:
        raise LeadlineError("usage", "a repository is put into a directory of its own for each run", where="folder")
    check(found["url"], found["ref"])
    if "key" in found and not re.fullmatch(SECRET_NAME, found["key"]):
        raise LeadlineError("usage", "the key is no name of a secret", hint=REPOSITORY, where="repository")
    return found


def _secrets(given: dict[str, Any], questions: dict[str, Input]) -> dict[str, str]:
    for name, secret in given.items():
        if not isinstance(secret, str) or not re.fullmatch(survey.NAME, name) or name in questions:
            raise LeadlineError("usage", "secrets are not names with the names of secrets", hint='{"password": "prod-db"}', where="secrets")
    return dict(given)


def _then(call: Call, given: dict[str, Any], questions: dict[str, Input]) -> dict[str, Any]:
    """What is started when a run of this one has ended: project/name or id, with when and pass."""
    out = {}
    for text, about in given.items():
        about = {} if about is None else about
        if (
            not isinstance(about, dict)
            or set(about) - {"when", "pass"}
            or about.get("when", "ok") not in WHEN
            or not isinstance(about.get("pass", {}), dict)
        ):
            raise LeadlineError(
                "usage",
                "then does not have its form",
                hint='{"main/check": {"when": "ok", "pass": {"their_input": "my_input"}}}',
                where="then",
            )
        found = find_template(Call(call.operation, call.caller, call.store, call.place), text)
        call.need("runner", found["project"], found["uid"])
        for mine in about.get("pass", {}).values():
            if mine not in questions or mine in survey.secret_names(questions):
                raise LeadlineError("usage", f"{str(mine)[:60]} cannot be passed on: it is not asked for, or a secret", where="then")
        out[found["uid"]] = {"when": about.get("when", "ok"), "pass": about.get("pass", {})}
    return out


def _ansible(given: dict[str, Any], questions: dict[str, Input], shared: Collection[str]) -> dict[str, Any]:
    from leadline.book.ansible.playbook import Playbook

    if not isinstance(given.get("playbook"), str):
        raise LeadlineError(
            "usage", "ansible has no playbook", hint='{"playbook": "/srv/site.yml", "inventory": "/srv/hosts"}', where="ansible"
        )
    for name, value in given.items():
        if isinstance(value, str) and (value.startswith("-") or "\0" in value):
            raise LeadlineError("usage", f"{name[:40]} of ansible begins with -", where="ansible")
    for name in survey.placeholders([str(given.get(key, "")) for key in survey.ASKED_FOR]):
        if name not in {*questions, *shared} or name in survey.secret_names(questions):
            raise LeadlineError("usage", f"{name} stands in an option, and is not asked for, no variable, or a secret", where="ansible")
    try:
        Playbook.of_template(given, {}, {})
    except (TypeError, ValueError) as e:
        raise LeadlineError("usage", "ansible has a wrong value", detail=str(e), where="ansible") from None
    return dict(given)


def _delete(call: Call, _inputs: dict[str, Any]) -> Any:
    remove_template(call, call.found["uid"], "the template was removed")
    call.detail = {"before": spec_of(call.found)}
    return {"deleted": call.found["uid"]}


def remove_template(call: Call, uid: str, why: str) -> None:
    """With all that starts it, and what has not begun."""
    for table in ("template_grant", "template_version"):
        call.execute(f"delete from {table} where template = ?", uid)
    call.execute("delete from schedule_fire where schedule in (select uid from schedule where template = ?)", uid)
    call.execute("delete from schedule where template = ?", uid)
    call.execute("delete from hook where template = ?", uid)
    call.execute(LAUNCHES_END, why, uid)
    call.execute("delete from template where uid = ?", uid)


def _baseline(call: Call, inputs: dict[str, Any]) -> Any:
    uid, run = call.found["uid"], None
    if inputs["run"] is not None:
        found = find_run(call, inputs["run"])
        if found["template"] != uid or found["ended"] is None:
            raise LeadlineError("usage", f"run {found['uid']} is not a run of this template, or has not ended", where="run")
        run = found["uid"]
    call.execute("update template set baseline = ? where uid = ?", run, uid)
    call.object, call.detail = uid, {"before": call.found["baseline"], "after": run}
    return {"template": uid, "baseline": run}


PLAYBOOK = '{"playbook": "/srv/site.yml", "inventory": "/srv/hosts", "limit": "{where}"}'
EXPERIMENT = '{"baseline": "./load.sh {rows}", "variant": "./load.sh --batch {rows}", "pairs": 10}'
REPOSITORY = '{"url": "git@git.example:load.git", "ref": "main", "key": "deploy"}'
TEMPLATE = Input("template", "id of the template, or project/name")
NAME = Input("name", "name of the template: letters, digits, . _ - and blanks", pattern=r"[\w.-][\w. -]{0,99}")
OPERATIONS = (
    Operation(
        "template.list", "GET", "/templates", "anyone", "", "List the templates that you may see.", _list,
        (Input("project", "only templates of this project", required=False),), rows="templates",
        columns=("uid", "project", "name", "kind", "about", "last_status", "last_run"),
    ),
    Operation("template.show", "GET", "/templates/{template}", "viewer", "template", "Show a template.", _show, (TEMPLATE,)),
    Operation(
        "template.save", "PUT", "/projects/{project}/templates/{name}", "editor", "project", "Create or change a template.", _save,
        (
            PROJECT, NAME, Input("kind", "what it runs", "enum", False, "command", KINDS),
            Input("command", "program and arguments, without a shell; {name} is a survey answer or a variable", required=False),
            Input("about", "what it does, in a sentence", required=False),
            Input("survey", 'questions to ask before it starts: {"size": {"kind": "int", "help": "rows", "default": 1000}}', "json", False),
            Input("secrets", 'secrets of the project to pass in the file LEADLINE_INPUTS: {"password": "prod-db"}', "json", False),
            Input("variables", "groups of variables to pass; later groups override earlier ones: common, prod", required=False),
            Input("folder", "working directory; by default a new one for each run", required=False),
            Input("repository", f"a git repository to check out into the working directory first: {REPOSITORY}", "json", False),
            Input("approval", "wait until an editor approves the run", "bool", False, False),
            Input("at_once", "maximum number of its runs at the same time", "int", False, 1, least=1, most=100),
            Input("then", 'templates to start after: {"main/check": {"when": "ok", "pass": {"their_input": "my_input"}}}', "json", False),
            Input("ansible", f"for kind ansible: {PLAYBOOK}", "json", False),
            Input("experiment", f"for kind experiment: {EXPERIMENT}", "json", False),
        ), follows="leadline template start {template}",
    ),
    Operation(
        "template.baseline", "PUT", "/templates/{template}/baseline", "editor", "template",
        "Set the baseline run that other runs of a template are compared with. `book prune` keeps it.", _baseline,
        (TEMPLATE, Input("run", "a run of it that has ended; without one it has no baseline", required=False, pattern=RUN.pattern)),
        words=("run",),
    ),
    Operation(
        "template.delete", "DELETE", "/templates/{template}", "editor", "template", "Delete a template, not its runs.", _delete, (TEMPLATE,)
    ),
)  # fmt: skip
