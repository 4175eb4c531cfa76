"""Operations that start, stop, repeat and approve runs of templates, and what starts those whose turn it is.

An operation only writes down what is wanted, with its audit entry. `dispatch` starts it: a server does so all the time, a command of the
shell once before it ends. Claiming is one UPDATE, so that two servers of a book start a run once.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Mapping
from typing import Any

from leadline.book.place import Place
from leadline.book.spool import new_uid
from leadline.book.store import Store
from leadline.errors import LeadlineError
from leadline.server import audit
from leadline.server.accounts import vault
from leadline.server.accounts.login import caller_for
from leadline.server.launch import code_words, launcher, survey, variables
from leadline.server.launch.templates import TEMPLATE, find_template, spec_of
from leadline.server.operation import Call, Input, Operation
from leadline.server.read.runs import ENDED, RUN
from leadline.server.rights import Caller

HIDDEN = "***"
AT_ONCE = 20  # runs of all templates at the same time
FOR_OTHERS = 4  # and beyond these, of templates of which none is under way: one that is slow must not keep all places


def ask_for(
    call: Call, template: Mapping[str, Any], given: Mapping[str, Any], cause: str, *, after: str | None = None, wait: bool = True,
    shared: Mapping[str, Any] | None = None,
) -> str:  # fmt: skip
    """Writes a launch down; the id that its run will have. Raises LeadlineError for inputs that are wrong.

    shared: its variables, by default those that the groups of the template have now.
    """
    spec = json.loads(template["spec_json"])
    questions = survey.read_survey(spec["survey"])
    answers = survey.answers(questions, given)
    if shared is None:
        shared = variables.of_groups(call, template["project"], spec.get("variables", []))
    values = {**shared, **{name: value for name, value in answers.items() if value is not None or name not in shared}}
    # What cannot be started is refused now.
    if spec["kind"] == "ansible":
        survey.filled_options(spec["ansible"], values)
    elif spec["kind"] == "experiment":
        from leadline.book.experiments.design import make

        make(survey.filled_experiment(spec["experiment"], values))
        for name in survey.COMMANDS:  # of a template that was saved before such a thing was refused
            code_words.check(shlex.split(spec["experiment"].get(name) or ""), questions, name)
    else:
        survey.filled(spec["command"], values)
        code_words.check(spec["command"], questions)
    uid = new_uid()
    locked = survey.secret_names(questions)
    kept = {name: _locked(call, uid, name, value) if name in locked else value for name, value in values.items()}
    status = "waiting" if after and wait else "approval" if spec["approval"] else "queued"
    row = (
        uid,
        template["project"],
        template["uid"],
        template["version"],
        status,
        json.dumps(kept, ensure_ascii=False),
        call.caller.name,
        cause,
        after,
        call.now,
        call.caller.identity,
    )
    columns = "uid, project, template, version, status, inputs_json, by_account, cause, after, asked, by_uid"
    call.execute(f"insert into launch ({columns}) values ({', '.join('?' * len(row))})", *row)
    return uid


def _locked(call: Call, uid: str, name: str, value: Any) -> Any:
    if value is None:
        return None
    return {"secret": vault.lock(call.place, value, f"{uid} {name}")}


def _opened(place: Place, uid: str, name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    key_id, nonce, ciphertext = value["secret"]
    return vault.unlock(place, key_id, nonce, ciphertext, f"{uid} {name}")


def without_secrets(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: HIDDEN if isinstance(value, dict) else value for name, value in inputs.items()}


# --- operations


def _start(call: Call, inputs: dict[str, Any]) -> Any:
    after = inputs["after"]
    if after is not None:
        from leadline.server.read.runs import find_run

        after = find_run(call, after)["uid"]
        call.object = call.found["uid"]
    uid = ask_for(call, call.found, inputs["inputs"] or {}, "by hand", after=after)
    return _told(call, uid)


def _told(call: Call, uid: str) -> Any:
    row = call.rows("select status, inputs_json, template from launch where uid = ?", uid)[0]
    call.detail = {"run": uid, "inputs": without_secrets(json.loads(row["inputs_json"]))}
    return {"run": uid, "status": row["status"], "template": row["template"]}


def _launch(call: Call) -> dict[str, Any]:
    """The launch of the run that was found. Raises LeadlineError."""
    row = call.one("select * from launch where uid = ?", call.found["uid"])
    if row is None:
        raise LeadlineError(
            "usage", f"run {call.found['uid']} was not started from a template", hint="it can be ended where it was started"
        )
    return row


def _cancel(call: Call, _inputs: dict[str, Any]) -> Any:
    row = _launch(call)
    uid = row["uid"]
    if row["status"] in ("waiting", "approval", "queued"):
        call.execute("update launch set status = 'cancelled', note = ? where uid = ?", f"cancelled by {call.caller.name}", uid)
        return {"run": uid, "status": "cancelled"}
    if call.found["status"] in ENDED:
        raise LeadlineError("usage", f"run {uid} has ended: {call.found['status']}")
    if call.found["id"] is None:  # it is just beginning: as soon as it has
        call.execute("update launch set status = 'cancelling' where uid = ?", uid)
    else:
        launcher.cancel(call.found)
    call.execute("update launch set note = ? where uid = ?", f"cancelled by {call.caller.name}", uid)
    return {"run": uid, "status": "cancelling"}


def _rerun(call: Call, _inputs: dict[str, Any]) -> Any:
    row = _launch(call)
    template = find_template(call, row["template"])
    version = call.one("select spec_json from template_version where template = ? and version = ?", row["template"], row["version"])
    if version is None:
        raise LeadlineError("not_found", "the version of the template is gone")
    values = {
        name: _opened(call.place, row["uid"], name, value) for name, value in json.loads(row["inputs_json"]).items() if value is not None
    }
    spec = json.loads(version["spec_json"])
    spec["approval"] = spec["approval"] or json.loads(template["spec_json"])["approval"]  # who was asked then does not count now
    as_then = template | {"version": row["version"], "spec_json": json.dumps(spec)}
    given = {name: value for name, value in values.items() if name in spec["survey"]}
    shared = {name: value for name, value in values.items() if name not in spec["survey"]}
    uid = ask_for(call, as_then, given, f"again {row['uid']}", shared=shared)
    told = _told(call, uid) | {"version": row["version"]}
    if template["version"] == row["version"]:
        return told
    note = f"version {row['version']} of the template, as it was then: the template has version {template['version']} now"
    call.execute("update launch set note = ? where uid = ?", note, uid)
    call.detail = {**call.detail, "note": note}
    return told | {"note": f"this runs {note}; to run that: leadline template start {template['project']}/{template['name']}"}


def _approve(call: Call, inputs: dict[str, Any]) -> Any:
    row = _launch(call)
    if row["status"] != "approval":
        raise LeadlineError("usage", f"run {row['uid']} does not wait for approval")
    if inputs["approved"] and row["by_uid"] == call.caller.identity:
        raise LeadlineError("rights", "who asked for a run cannot approve it", hint="somebody else with the role editor can")
    status, verb = ("queued", "approved") if inputs["approved"] else ("refused", "refused")
    sql = "update launch set status = ?, note = ?, approved_uid = ? where uid = ?"
    call.execute(sql, status, f"{verb} by {call.caller.name}", call.caller.identity, row["uid"])
    call.detail = {"approved": inputs["approved"]}
    return {"run": row["uid"], "status": status}


# --- what is due


# Of each template the oldest that are queued, and how many of it are under way. Those of which least is under way have the first turn.
QUEUED = """
    with begun as (
      select l.template, count(*) as n from launch l left join run r on r.uid = l.uid
      where l.status in ('started', 'cancelling') and (r.status = 'running' or (r.uid is null and l.started > ?)) group by l.template),
    turn as (
      select l.*, coalesce(b.n, 0) + row_number() over (partition by l.template order by l.asked, l.uid) as nth
      from launch l left join begun b on b.template = l.template where l.status = 'queued')
    select * from turn where nth <= ? order by nth, asked, uid"""


def dispatch(place: Place, store: Store) -> None:
    """Starts what is queued and has a place, and what follows runs that have ended."""
    follow_up(place, store)
    if not store.rows("select 1 from launch where status = 'queued' limit 1"):
        return
    for row in store.rows(QUEUED, (_now() - BEGINS_WITHIN_US, AT_ONCE)):
        spec = _spec(store, row)
        if spec is None or _has_place(store, row, spec):
            with store.writing() as db:
                sql = "update launch set status = 'started', started = ?, host = ? where uid = ? and status = 'queued'"
                claimed = db.execute(sql, (_now(), os.uname().nodename, row["uid"])).rowcount
            if claimed == 1:
                _begin(place, store, row, spec)


def _now() -> int:
    import time

    return time.time_ns() // 1000


def _spec(store: Store, row: Mapping[str, Any]) -> dict[str, Any] | None:
    found = store.rows("select spec_json from template_version where template = ? and version = ?", (row["template"], row["version"]))
    return spec_of(found[0]) if found else None


UNDER_WAY = """
    select count(*) as n from launch l left join run r on r.uid = l.uid
    where l.status in ('started', 'cancelling') and (r.status = 'running' or (r.uid is null and l.started > ?))"""
BEGINS_WITHIN_US = 30 * 1_000_000


def under_way(store: Store, **of: str) -> int:
    """How many have begun and not ended. of: a column of launch and its value; by default all."""
    where = "".join(f" and l.{column} = ?" for column in of)
    return int(store.rows(UNDER_WAY + where, (_now() - BEGINS_WITHIN_US, *of.values()))[0]["n"])


def _has_place(store: Store, row: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    of_template = under_way(store, template=row["template"])
    places = AT_ONCE if of_template else AT_ONCE + FOR_OTHERS
    return bool(of_template < spec["at_once"] and under_way(store) < places)


def _begin(place: Place, store: Store, row: Mapping[str, Any], spec: Mapping[str, Any] | None) -> None:
    try:
        if spec is None:
            raise LeadlineError("not_found", "the version of the template is gone")
        _check_still_wanted(store, row)
        values = {name: _opened(place, row["uid"], name, value) for name, value in json.loads(row["inputs_json"]).items()}
        hidden = survey.secret_names(survey.read_survey(spec["survey"]))
        secrets = {name: _secret(place, store, row["project"], secret) for name, secret in spec["secrets"].items()}
        key = spec.get("repository", {}).get("key")
        of_repository = _secret(place, store, row["project"], key) if key else ""
        name = store.rows("select name from template where uid = ?", (row["template"],))
        open_values = {n: v for n, v in values.items() if n not in hidden}
        secrets |= {n: v for n, v in values.items() if n in hidden and v is not None}
        launcher.start(place, str(row["uid"]), spec, name[0]["name"] if name else row["template"], open_values, secrets, of_repository)
    except LeadlineError as e:
        with store.writing() as db:
            db.execute("update launch set status = 'refused', note = ? where uid = ?", (e.message, row["uid"]))


def _check_still_wanted(store: Store, row: Mapping[str, Any]) -> None:
    """Whoever asked for it, or approved it, may have lost the right since. Raises LeadlineError."""
    caller = caller_for(store, row["by_uid"], row["by_account"])
    refused = "" if caller and caller.may("runner", row["project"], row["template"]) else f"{row['by_account']} may not start it any more"
    if row["approved_uid"] and not refused:
        approver = caller_for(store, row["approved_uid"])
        refused = "" if approver and approver.may("editor", row["project"]) else "who approved it may not do that any more"
    if refused:
        with store.writing():
            subject, detail = caller or Caller(row["by_account"], False), {"run": row["uid"], "error": refused}
            audit.append(store, subject, "template.start", row["template"], detail, "refused")
        raise LeadlineError("rights", refused)


def _secret(place: Place, store: Store, project: str, name: str) -> str:
    value = vault.find(place, store, project, name)
    if value is None:
        raise LeadlineError("not_found", f"there is no secret {name} in {project}")
    return value


ENDED_NOW = """
    select l.*, r.status as run_status from launch l join run r on r.uid = l.uid
    where l.status in ('started', 'cancelling') and r.status in ('ok', 'failed', 'cancelled', 'lost') order by l.asked limit 100"""
WAITED_FOR = """
    select l.*, r.status as run_status from launch l join run r on r.uid = l.after
    where l.status = 'waiting' and r.status in ('ok', 'failed', 'cancelled', 'lost') order by l.asked limit 100"""


NEVER_BEGAN = """
    select l.uid from launch l left join run r on r.uid = l.uid
    where l.status in ('started', 'cancelling') and r.uid is null and l.started < ? and l.host = ?"""
KILLED_MEANWHILE = "the server was ended while it started this run: start it again"


def give_up(place: Place, store: Store) -> None:
    """Of runs that a server was about to start when it was killed. They are not started again: some of it may have been done."""
    for row in store.rows(NEVER_BEGAN, (_now() - BEGINS_WITHIN_US, os.uname().nodename)):
        if not place.spool_of(row["uid"]).exists():
            launcher.tidy(place, row["uid"])
            with store.writing() as db:
                sql = "update launch set status = 'refused', note = ? where uid = ? and status in ('started', 'cancelling')"
                db.execute(sql, (KILLED_MEANWHILE, row["uid"]))


def follow_up(place: Place, store: Store) -> None:
    """Of runs that have ended: what follows by their template, and what was asked for to begin after them."""
    give_up(place, store)
    for run in store.rows("select r.* from launch l join run r on r.uid = l.uid where l.status = 'cancelling' and r.status = 'running'"):
        with store.writing() as db:
            db.execute("update launch set status = 'started' where uid = ?", (run["uid"],))
        with contextlib.suppress(LeadlineError):  # what watched it is gone, and it will be found lost: others must not wait for that
            launcher.cancel(run)
    for row in store.rows(ENDED_NOW):
        launcher.tidy(place, row["uid"])
        with store.writing() as db:
            if (
                db.execute(
                    "update launch set status = 'done' where uid = ? and status in ('started', 'cancelling')", (row["uid"],)
                ).rowcount
                == 1
            ):
                _then(place, store, row)
    for row in store.rows(WAITED_FOR):
        status, note = ("queued", "") if row["run_status"] == "ok" else ("refused", f"run {row['after']} ended {row['run_status']}")
        with store.writing() as db:
            db.execute("update launch set status = ?, note = ? where uid = ? and status = 'waiting'", (status, note, row["uid"]))


def _then(place: Place, store: Store, row: Mapping[str, Any]) -> None:
    """Within the transaction that notes the end: each follower is asked for once."""
    spec = _spec(store, row)
    values = json.loads(row["inputs_json"])
    for uid, about in (spec or {}).get("then", {}).items():
        if about["when"] not in ("always", "ok" if row["run_status"] == "ok" else "failed"):
            continue
        found = store.rows("select * from template where uid = ?", (uid,))
        caller = caller_for(store, row["by_uid"], row["by_account"])
        given = {theirs: survey.as_text(values[mine]) for theirs, mine in about["pass"].items() if values.get(mine) is not None}
        refusal = "the template was removed" if not found else ""
        if found and (caller is None or not caller.may("runner", found[0]["project"], uid)):
            refusal = f"{row['by_account']} may not start it"
        if not refusal and caller is not None:
            try:
                follower = ask_for(Call(START, caller, store, place), found[0], given, "chain", after=str(row["uid"]), wait=False)
                audit.append(store, caller, "template.start", uid, {"run": follower, "after": row["uid"]}, "done")
            except LeadlineError as e:
                refusal = e.message
        if refusal:
            audit.append(
                store, caller or Caller(row["by_account"], False), "template.start", uid, {"error": refusal, "after": row["uid"]}, "refused"
            )


START = Operation(
    "template.start", "POST", "/templates/{template}/start", "runner", "template", "Start a run of a template.", _start,
    (
        TEMPLATE, Input("inputs", 'values that its survey asks for: {"size": 1000}', "json", False),
        Input("after", "begin when this run has succeeded", required=False, pattern=RUN.pattern),
    ), follows="leadline book log {run}",
)  # fmt: skip
OPERATIONS = (
    START,
    Operation("template.cancel", "POST", "/runs/{run}/cancel", "runner", "run", "Cancel a run: end all its processes.", _cancel, (RUN,)),
    Operation("template.rerun", "POST", "/runs/{run}/rerun", "runner", "run", "Run again with the same inputs.", _rerun, (RUN,)),
    Operation(
        "template.approve", "POST", "/runs/{run}/approval", "editor", "run", "Approve a waiting run, or refuse it.", _approve,
        (RUN, Input("approved", "false: refuse it", "bool", False, True)),
    ),
)  # fmt: skip
