"""What each operation answers, for OpenAPI: names with their kinds. `tests/server/test_rights.py` compares it with the answers.

A kind is text, int, number, bool, time (microseconds since 1970, UTC), any (JSON), {} (an object of any names), or the name of an object
below. [] behind it: a list of these; ?: may be null.
"""

from __future__ import annotations

from typing import Any

OBJECTS = {
    "Run": """uid:text kind:text name:text status:text user_name:text host:text started:time ended:time? rc:int? signal:int? summary:text
        project:text? template:text? parent:text? duration_s:number? argv:text[] pinned:bool log_bytes:int?""",
    "Asked": """uid:text status:text project:text template:text name:text? by_account:text cause:text after:text? asked:time note:text""",
    "Launch": """uid:text status:text template:text version:int by_account:text cause:text after:text? asked:time started:time?
        note:text newest_version:int?""",
    "RunShown": """uid:text kind:text name:text status:text user_name:text host:text started:time ended:time? rc:int? signal:int?
        summary:text project:text? template:text? parent:text? duration_s:number? argv:text[] pinned:bool log_bytes:int? cwd:text
        version:text pid:int? events_lost:int log_lost_bytes:int inputs:{} labels:{} metrics:{} artifacts:Made[] children:Run[]
        files:Given[] facts:{}? launch:Launch? experiment:{}?""",
    "Made": "n:int kind:text path:text size:int? hash:text?",
    "Given": "path:text size:int modified:time hash:text? kept:bool",
    "Check": "run:text what:text name:text state:text detail:text",
    "Result": """n:int task:int task_name:text action:text place:text play:int? host:text part:text item_n:int? item:text? items:int?
        attempts:int? outcome:text status:text changed:bool ignored:bool rescued:bool delegated_to:text? warnings:int deprecations:int
        message:text started:time? ended:time duration_s:number?""",
    "Template": """uid:text project:text name:text version:int changed:time changed_by:text baseline:text? kind:text repository:{}
        about:text survey:{} secrets:{} variables:text[] approval:bool at_once:int then:{} command:text[] folder:text ansible:{}""",
    "Schedule": """uid:text project:text template:text name:text cron:text at:text zone:text jitter_s:int overlap:text catch_up:text
        next_due:time? by_account:text created:time active:bool inputs:{} next:time[] last_due:time? last_run:text? last_note:text""",
    "Hook": """uid:text project:text direction:text name:text template:text? url:text? signed:text events:text? secret_name:text
        created:time by_account:text last:text inputs:{}""",
    "Recorder": "name:text project:text directory:text created:time by_account:text",
    "User": "user:text admin:bool disabled:bool codes:bool created:time roles:{}",
    "Member": "user:text role:text",
    "Token": "token:text user:text name:text scope:text project:text? created:time expires:time used:time?",
    "Entry": """n:int ts:time account:text token:text? address:text operation:text object:text detail_json:text outcome:text""",
    "Group": "group:text values:{} changed:time changed_by:text",
    "Secret": "secret:text changed:time changed_by:text",
    "Project": "project:text created:time role:text",
    "Point": "uid:text started:time status:text value:number verdict:text? low:number? high:number?",
    "Metric": "name:text metric:text",
    "Day": "day:text runs:int running:int ok:int failed:int cancelled:int lost:int",
    "Host": "host:text runs:int played:int failed:int started:time last_run:text last_status:text",
}
MORE = ("Run", "RunShown", "Template", "Result")  # of which some answers tell more than is listed here
ANSWERS = {
    "run.list": "runs:Run[] next:text? waiting:Asked[]",
    "run.days": "days:Day[]",
    "run.search": "runs:Run[] all_output_searched:bool",
    "run.show": "run:RunShown",
    "run.given": "run:text n:int path:text size:int modified:time hash:text text:text",
    "run.label": "run:text labels:{}",
    "run.pin": "run:text pinned:bool",
    "run.log": "run:text from:int next:int size:int ended:bool text:text base64:text",
    "run.verify": "run:text checks:Check[] differing:int",
    "run.playbook": "playbook:{} hosts:{}[] plays:{}[] tasks:{}[] notes:{}[] records:{}[]",
    "run.results": "run:text results:Result[] more:bool",
    "run.result": "result:Result",
    "run.facts": "host:text facts:{}",
    "run.hosts": "hosts:Host[]",
    "run.host": "host:{}",
    "run.compare": "one:RunShown other:RunShown differences:{}[]",
    "template.history": "points:Point[]",
    "template.metrics": "metrics:Metric[]",
    "template.list": "templates:Template[]",
    "template.show": "template:Template role:text",
    "template.save": "template:text version:int",
    "template.baseline": "template:text baseline:text?",
    "template.delete": "deleted:text",
    "template.start": "run:text status:text template:text",
    "template.cancel": "run:text status:text",
    "template.rerun": "run:text status:text template:text version:int note:text",
    "template.approve": "run:text status:text",
    "template.grants": "grants:Member[]",
    "template.grant": "template:text user:text role:text",
    "schedule.list": "schedules:Schedule[]",
    "schedule.save": "schedule:text next:text[]",
    "schedule.edit": "schedule:text next:text[]",
    "schedule.set": "schedule:text active:bool",
    "schedule.delete": "deleted:text",
    "recorder.list": "recorders:Recorder[]",
    "recorder.register": "recorder:text",
    "recorder.remove": "removed:text",
    "recorder.begin": "second:int",
    "hook.list": "hooks:Hook[]",
    "hook.start": "hook:text address:text url:text",
    "hook.tell": "hook:text",
    "hook.mail": "hook:text",
    "hook.after": "hook:text",
    "hook.delete": "deleted:text",
    "variables.list": "groups:Group[]",
    "variables.set": "project:text group:text values:{}",
    "variables.delete": "deleted:text",
    "secret.list": "secrets:Secret[]",
    "secret.set": "project:text secret:text",
    "secret.delete": "deleted:text",
    "secret.key": "key:text file:text",
    "user.list": "users:User[]",
    "user.me": "user:text admin:bool codes:bool roles:{}",
    "user.create": "user:text admin:bool",
    "user.disable": "user:text disabled:bool schedules:text[] cancelled:text[] approve_again:text[] hooks:text[]",
    "user.delete": "deleted:text revoked:text[] schedules:text[] cancelled:text[] approve_again:text[] hooks:text[]",
    "user.password": "user:text revoked:text[]",
    "user.codes": "user:text secret:text uri:text",
    "user.confirm-codes": "user:text codes:bool",
    "user.forget-codes": "user:text codes:bool",
    "user.login-link": "user:text link:text expires:time",
    "user.link": "user:text issuer:text? subject:text?",
    "user.projects": "projects:Project[]",
    "user.project": "project:text",
    "user.delete-project": "deleted:text templates:int revoked:text[] runs:text",
    "user.members": "members:Member[]",
    "user.role": "project:text user:text role:text",
    "user.audit": "entries:Entry[]",
    "user.verify": "whole:bool fault:text",
    "token.list": "tokens:Token[]",
    "token.create": "token:text prefix:text user:text scope:text project:text? expires:time",
    "token.revoke": "revoked:text derived:text[]",
    "token.revoke-all": "revoked:text[]",
}
OPEN = ("user.disable", "run.log", "template.rerun")  # operations whose answer has not always all of it
_KINDS: dict[str, dict[str, Any]] = {
    "text": {"type": "string"}, "int": {"type": "integer"}, "number": {"type": "number"}, "bool": {"type": "boolean"}, "any": {},
    "time": {"type": "integer", "description": "microseconds since 1970, UTC"}, "{}": {"type": "object"},
}  # fmt: skip


def _schema(kind: str) -> dict[str, Any]:
    if kind.endswith("?"):
        inner = _schema(kind[:-1])
        return {"anyOf": [inner, {"type": "null"}]}
    if kind.endswith("[]"):
        return {"type": "array", "items": _schema(kind[:-2])}
    return _KINDS.get(kind, {"$ref": f"#/components/schemas/{kind}"})


def _object(text: str, *, required: bool = True) -> dict[str, Any]:
    fields = dict(field.split(":", 1) for field in text.split())
    out: dict[str, Any] = {"type": "object", "properties": {name: _schema(kind) for name, kind in fields.items()}}
    return out | {"required": list(fields)} if required else out


def schemas() -> dict[str, Any]:
    return {name: _object(text) | ({} if name in MORE else {"additionalProperties": False}) for name, text in OBJECTS.items()}


def answer_of(operation: str) -> dict[str, Any]:
    """The schema of what it answers; an object of any names where nothing is listed."""
    if operation not in ANSWERS:
        return {"type": "object"}
    return _object(ANSWERS[operation], required=operation not in OPEN) | {"additionalProperties": False}
