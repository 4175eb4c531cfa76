"""Hooks: others start a template by a signed request (in); and when a run has ended, an address is told (out), a mail is sent (mail), or
a template is started (after). What is sent is in notifications.py."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from leadline.book.ingest import is_uid
from leadline.book.place import Place
from leadline.book.spool import new_uid
from leadline.book.store import Store
from leadline.errors import LeadlineError
from leadline.server import audit, background
from leadline.server.accounts.login import caller_for
from leadline.server.accounts.users import PROJECT
from leadline.server.launch import survey
from leadline.server.launch.launch_queue import START, ask_for
from leadline.server.launch.notifications import EVENTS, NOT_ASKED_FOR, TOLD, address_of, each_ended, key_of, note, waiting
from leadline.server.launch.signers import SIGNERS, event_named, signature  # noqa: F401
from leadline.server.launch.templates import find_template
from leadline.server.operation import Call, Input, Operation, Refused, finder, read_json
from leadline.server.rights import NAME, Caller, marks


@finder("hook")
def find_hook(call: Call, text: str) -> dict[str, Any]:
    row = call.one("select * from hook where uid = ?", text)
    if row is None or call.caller.role(row["project"]) is None:
        raise LeadlineError("not_found", f"there is no hook {text[:40]}", hint="leadline hook list")
    return {name: value for name, value in row.items() if name != "template"}


# --- operations


def _list(call: Call, _inputs: dict[str, Any]) -> Any:
    names = ("uid", "project", "direction", "name", "template", "url", "signed", "events", "secret_name", "created", "by_account")
    rows = [row for row in call.rows("select * from hook order by project, name") if call.caller.may("editor", row["project"])]
    for row in rows:
        sql = "select outcome from hook_sent where hook = ? and outcome <> ? order by sent desc limit 1"
        last = call.one(sql, row["uid"], NOT_ASKED_FOR)
        row["last"] = last["outcome"] if last else ""
        if row["direction"] == "in":  # where others send to
            row["url"] = f"{background.public_url(call.place)}/hooks/{row['uid']}"
    return {
        "hooks": [{name: row[name] for name in names} | {"last": row["last"], "inputs": json.loads(row["inputs_json"])} for row in rows]
    }


def _add_in(call: Call, inputs: dict[str, Any]) -> Any:
    template = find_template(call, inputs["template"])
    call.need("runner", template["project"], template["uid"])
    if template["project"] != inputs["project"]:
        raise LeadlineError("usage", "the template is of another project", where="template")
    for path in (inputs["inputs"] or {}).values():
        if not isinstance(path, str) or not re.fullmatch(PLACE, path):
            raise LeadlineError("usage", "inputs are not names with places in the body", hint='{"branch": "push.ref"}', where="inputs")
    for path, value in (inputs["only"] or {}).items():
        if not re.fullmatch(PLACE, path) or not isinstance(value, str | int):
            raise LeadlineError("usage", "only is not places in the body with their values", hint=ONLY, where="only")
    if inputs["events"] and inputs["signed"] not in ("github", "gitlab"):
        raise LeadlineError("usage", "events are those of github or gitlab", hint="signed", where="events")
    made = _add(call, inputs, "in", template["uid"], None, inputs["events"])
    values = inputs["signed"], json.dumps(inputs["only"] or {}), made["hook"]
    call.execute("update hook set signed = ?, only_json = ? where uid = ?", *values)
    return made


def _add_out(call: Call, inputs: dict[str, Any]) -> Any:
    address_of(inputs["url"], resolve=False)
    return _add(call, inputs | {"inputs": {}}, "out", None, inputs["url"], _events(inputs))


def _add_mail(call: Call, inputs: dict[str, Any]) -> Any:
    host, colon, port = inputs["server"].rpartition(":")
    if not colon:
        host, port = inputs["server"], "25"
    if not 0 < int(port) < 65536:
        raise LeadlineError("usage", f"there is no port {port}", where="server")
    if inputs["secret"] and not inputs["login"]:
        raise LeadlineError("usage", "a secret is the password of a login", where="login")
    about = {"host": host, "port": int(port), "to": inputs["to"], "from": inputs["sender"], "login": inputs["login"] or ""}
    return _add(call, inputs | {"inputs": about}, "mail", None, f"mailto:{inputs['to']}", _events(inputs))


def _add_after(call: Call, inputs: dict[str, Any]) -> Any:
    template = find_template(call, inputs["template"])
    call.need("runner", template["project"], template["uid"])
    if template["project"] != inputs["project"]:
        raise LeadlineError("usage", "the template is of another project", where="template")
    questions = survey.read_survey(json.loads(template["spec_json"])["survey"])
    for question, told in (inputs["inputs"] or {}).items():
        if question not in questions or told not in TOLD:
            hint = f'{{"run": "run", "how": "status"}}; what is told: {", ".join(TOLD)}'
            raise LeadlineError("usage", "inputs are not questions of the template with what is told of a run", hint=hint, where="inputs")
    return _add(call, inputs | {"secret": None}, "after", template["uid"], None, _events(inputs))


def _events(inputs: dict[str, Any]) -> str:
    if set(inputs["events"].split(",")) - set(EVENTS):
        raise LeadlineError("usage", f"events are not of {', '.join(EVENTS)}", where="events")
    return str(inputs["events"])


def _add(call: Call, inputs: dict[str, Any], direction: str, template: str | None, url: str | None, events: str | None) -> Any:
    project, name = inputs["project"], inputs["name"]
    if call.one("select 1 from hook where project = ? and name = ?", project, name):
        raise LeadlineError("usage", f"there is a hook {name} already", where="name")
    key = inputs["secret"] or ""
    if key and call.one("select 1 from secret where project = ? and name = ?", project, key) is None:
        raise LeadlineError(
            "usage",
            f"there is no secret {key} in {project}",
            hint=f"leadline secret set {project} {key}",
            where="secret",
        )
    uid = new_uid()
    row = (uid, project, direction, name, template, url, events, key, json.dumps(inputs["inputs"] or {}), call.now, call.caller.name,
           call.caller.identity)  # fmt: skip
    columns = "uid, project, direction, name, template, url, events, secret_name, inputs_json, created, by_account, by_uid"
    call.execute(f"insert into hook ({columns}) values ({marks(row)})", *row)
    call.object, call.detail = uid, {"direction": direction, "template": template, "url": url, "events": events}
    if direction != "in":
        return {"hook": uid}
    return {"hook": uid, "address": f"/hooks/{uid}", "url": f"{background.public_url(call.place)}/hooks/{uid}"}


def _delete(call: Call, _inputs: dict[str, Any]) -> Any:
    for table in ("hook_seen", "hook_sent"):
        call.execute(f"delete from {table} where hook = ?", call.found["uid"])
    call.execute("delete from hook where uid = ?", call.found["uid"])
    call.detail = {"name": call.found["name"]}
    return {"deleted": call.found["uid"]}


# --- in


def receive(place: Place, store: Store, uid: str, headers: Mapping[str, str], body: bytes, address: str) -> dict[str, Any]:
    """Starts what a signed request asks for. Raises Refused; every wrong one in the same words."""
    wrong = Refused(403, "rights", "the signature is not valid, too old, or was used before")
    rows = store.rows("select * from hook where uid = ? and direction = 'in'", (uid,)) if is_uid(uid) else []
    hook = rows[0] if rows else {"signed": "leadline", "by_uid": ""}
    caller = Caller("hook", False, address=address, uid=hook["by_uid"])
    sent = SIGNERS[hook["signed"]](key_of(place, store, hook) if rows else b"nobody", headers, body)
    if not rows or sent is None:
        raise wrong
    template = store.rows("select * from template where uid = ?", (hook["template"],))[0]
    maker = caller_for(store, hook["by_uid"], hook["by_account"])
    if maker is None or not maker.may("runner", template["project"], template["uid"]):
        refused = f"{hook['by_account']}, who made this hook, may not start the template any more"
        with store.writing():
            audit.append(store, caller, "template.start", template["uid"], {"error": refused, "hook": uid}, "refused")
        raise Refused(403, "rights", refused)
    now = time.time_ns() // 1000
    with store.writing() as db:
        db.execute("delete from hook_seen where until < ?", (now,))
        sql = "insert into hook_seen (hook, signature, seen, until) values (?, ?, ?, ?) on conflict (hook, signature) do nothing"
        if db.execute(sql, (uid, sent.once, now, now + sent.remember_s * 1_000_000)).rowcount != 1:
            raise wrong
        if ignored := _ignored(hook, sent.event, headers, body):
            return {"run": None, "ignored": ignored}
        inputs = _extracted(json.loads(hook["inputs_json"]), headers, body)
        run = ask_for(Call(START, caller, store, place), template, inputs, f"hook {hook['name']}")
        audit.append(store, caller, "template.start", template["uid"], {"run": run, "hook": uid}, "done")
    return {"run": run}


def _ignored(hook: Mapping[str, Any], event: str, headers: Mapping[str, str], body: bytes) -> str:
    """Why a request that is signed well starts nothing."""
    named, wanted = event_named(event), [event_named(one) for one in (hook["events"] or "").split(",") if one]
    if named == "ping":
        return "a ping"
    if wanted and named not in wanted:
        return f"the event is {named[:60] or 'not named'}"
    only = json.loads(hook["only_json"])
    found = _extracted({path: path for path in only}, headers, body)
    return next((f"{path} is another" for path, value in only.items() if found.get(path) != survey.as_text(value)), "")


def _extracted(wanted: Mapping[str, str], headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """Values of the body by their places; those that are not there are left to the survey."""
    if not wanted:
        return {}
    try:
        if headers.get("content-type", "").partition(";")[0].strip().lower() == "application/x-www-form-urlencoded":
            body = dict(parse_qsl(body.decode(), max_num_fields=20)).get("payload", "").encode()  # as GitHub sends it, if asked to
        value = read_json(body)
    except ValueError:
        raise LeadlineError("usage", "the body is not JSON") from None
    out = {}
    for name, path in wanted.items():
        found = value
        for step in path.split("."):
            if isinstance(found, list):
                found = found[int(step)] if step.isdecimal() and len(step) < 6 and int(step) < len(found) else None
            else:
                found = found.get(step) if isinstance(found, dict) else None
        if isinstance(found, str | int):
            out[name] = survey.as_text(found)
    return out


# --- after


def start_after(place: Place, store: Store) -> None:
    """Starts templates that follow runs that ended: a duty of the housekeeping."""
    for hook in waiting(store, "after"):
        for row in each_ended(store, hook):
            note(store, row, _after(place, store, row))


def _after(place: Place, store: Store, row: Mapping[str, Any]) -> str:
    """In the name, and with the rights of now, of who made the hook. What such a hook has started starts nothing by one."""
    if (row["run_cause"] or "").startswith("after hook "):
        return "not started: such a hook had started the run"
    found = store.rows("select * from template where uid = ?", (row["template"],))
    caller = caller_for(store, row["by_uid"], row["by_account"])
    if not found or caller is None or not caller.may("runner", found[0]["project"], row["template"]):
        return f"not started: {row['by_account']} may not start it any more"
    told = {question: survey.as_text(row[TOLD[name]]) for question, name in json.loads(row["inputs_json"]).items()}
    try:
        with store.writing():
            run = ask_for(Call(START, caller, store, place), found[0], told, f"after hook {row['name']}", after=row["run_uid"], wait=False)
            detail = {"run": run, "hook": row["uid"], "after": row["run_uid"]}
            audit.append(store, caller, "template.start", row["template"], detail, "done")
        return f"started {run}"
    except LeadlineError as e:
        return f"not started: {e.message}"


PLACE = r"[\w-]+(\.[\w-]+){0,19}"
ONLY = '{"ref": "refs/heads/main"}'
MAILBOX = r"[A-Za-z0-9_.+-]{1,64}@[A-Za-z0-9.-]{1,253}"
SERVER = r"[A-Za-z0-9.-]{1,253}(:\d{1,5})?"
HOOK_NAME = Input("name", "name of the hook", pattern=NAME)
HOW = Input("events", "statuses to report: some of ok,failed,cancelled,lost", required=False, default="failed,lost")
KEY = Input("secret", "secret of the project that signs the requests", pattern=NAME)
OPERATIONS = (
    Operation(
        "hook.list", "GET", "/hooks", "anyone", "", "List the hooks of your projects.", _list, rows="hooks",
        columns=("uid", "project", "direction", "name", "template", "url", "signed", "events", "by_account", "last"),
    ),
    Operation(
        "hook.start", "PUT", "/projects/{project}/hooks/start/{name}", "editor", "project", "Start a template by signed requests.", _add_in,
        (
            PROJECT, HOOK_NAME, Input("template", "id of the template, or project/name"), KEY,
            Input("signed", "sender of the requests, whose way of signing is checked", "enum", False, "leadline", tuple(SIGNERS)),
            Input("events", "only these events of github or gitlab: push, tag push", required=False),
            Input("only", f"only if the JSON body has these values: {ONLY}", "json", False),
            Input("inputs", 'survey answers to take from the JSON body: {"branch": "push.ref"}', "json", False),
        ), follows="curl -d BODY {url}",
    ),
    Operation(
        "hook.tell", "PUT", "/projects/{project}/hooks/tell/{name}", "editor", "project", "Notify an address when a run ends.", _add_out,
        (
            PROJECT, HOOK_NAME, Input("url", "http or https; not an address of this host"), KEY,
            HOW,
        ),
    ),
    Operation(
        "hook.mail", "PUT", "/projects/{project}/hooks/mail/{name}", "editor", "project", "Send a mail when a run has ended.", _add_mail,
        (
            PROJECT, HOOK_NAME, Input("to", "address of the recipient", pattern=MAILBOX),
            Input("sender", "address of the sender", pattern=MAILBOX),
            Input("server", "SMTP server: HOST or HOST:PORT", required=False, default="localhost:25", pattern=SERVER),
            Input("login", "user name for the SMTP server", required=False),
            Input("secret", "secret of the project with the password for the SMTP server", required=False, pattern=NAME), HOW,
        ),
    ),
    Operation(
        "hook.after", "PUT", "/projects/{project}/hooks/after/{name}", "editor", "project", "Start a template when a run has ended.",
        _add_after,
        (
            PROJECT, HOOK_NAME, Input("template", "id of the template, or project/name"), HOW,
            Input("inputs", 'survey answers to take from the notification: {"run": "run", "how": "status"}', "json", False),
        ),
    ),
    Operation("hook.delete", "DELETE", "/hooks/{hook}", "editor", "hook", "Remove a hook.", _delete, (Input("hook", "id of the hook"),)),
)  # fmt: skip
