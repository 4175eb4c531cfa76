"""Deleting a project with all that is kept in it. Its runs stay, for administrators of the server: they are a record."""

from __future__ import annotations

from typing import Any

from leadline.book.spool import new_uid
from leadline.errors import LeadlineError
from leadline.server.accounts.users import PROJECT, revoke
from leadline.server.launch.launch_queue import under_way
from leadline.server.launch.templates import remove_template
from leadline.server.operation import Call, Operation
from leadline.server.read.runs import MAIN


def _delete(call: Call, inputs: dict[str, Any]) -> Any:
    name = inputs["project"]
    call.object = name
    if call.one("select 1 from project where name = ?", name) is None:
        raise LeadlineError("not_found", f"there is no project {name}", hint="leadline user projects")
    if name == MAIN:
        raise LeadlineError("usage", f"{name} cannot be deleted", detail="Runs that nobody started from a template belong to it.")
    if running := under_way(call.store, project=name):
        hint = "end them first: leadline template cancel RUN"
        raise LeadlineError("usage", f"{running} runs of {name} go on", hint=hint, where="project")
    templates = call.rows("select uid, name from template where project = ? order by name", name)
    for template in templates:
        remove_template(call, template["uid"], f"the project {name} was deleted")
    for table in ("hook_seen", "hook_sent"):
        call.execute(f"delete from {table} where hook in (select uid from hook where project = ?)", name)
    for table in ("hook", "secret", "variable_group", "recorder", "member"):
        call.execute(f"delete from {table} where project = ?", name)
    revoked = revoke(call, [row["prefix"] for row in call.rows("select prefix from token where project = ?", name)])
    # Whoever makes a project of that name later must not see them: ~ is in the name of no project.
    kept = f"{name}~{new_uid()}"
    for table in ("run", "launch"):
        call.execute(f"update {table} set project = ? where project = ?", kept, name)
    call.execute("delete from project where name = ?", name)
    call.detail = {"templates": [template["name"] for template in templates], "revoked": revoked, "runs": kept}
    return {"deleted": name, "templates": len(templates), "revoked": revoked, "runs": kept}


OPERATIONS = (
    Operation(
        "user.delete-project", "DELETE", "/projects/{project}", "site", "",
        "Delete a project with its templates, schedules, hooks, secrets, variables and recorders. Its runs stay, for administrators.",
        _delete, (PROJECT,),
    ),
)  # fmt: skip
