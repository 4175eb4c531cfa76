"""Operations on groups of variables: values that templates of a project share, changed in one place."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from leadline.book.redact import is_secret
from leadline.errors import LeadlineError
from leadline.server.accounts.users import PROJECT
from leadline.server.launch import survey
from leadline.server.operation import Call, Input, Operation
from leadline.server.rights import NAME

EXAMPLE = '{"environment": "prod", "rows": 1000}'


def read_names(text: str) -> list[str]:
    """The groups that a template names. Raises LeadlineError."""
    names = [word for word in re.split(r"[\s,]+", text) if word]
    if len(names) > survey.MOST or any(not re.fullmatch(NAME, name) for name in names):
        raise LeadlineError("usage", "variables are not names of groups", hint="common, prod", where="variables")
    return names


def of_groups(call: Call, project: str, groups: Sequence[str]) -> dict[str, Any]:
    """Their values; of two groups with the same name, that of the later. Raises LeadlineError when one is not there."""
    found: dict[str, Any] = {}
    for group in groups:
        row = call.one("select values_json from variable_group where project = ? and name = ?", project, group)
        if row is None:
            raise LeadlineError(
                "not_found", f"there is no group of variables {group} in {project}", hint=f"leadline variables list {project}",
                where="variables",
            )  # fmt: skip
        found |= json.loads(row["values_json"])
    return found


def _list(call: Call, inputs: dict[str, Any]) -> Any:
    sql = 'select name as "group", values_json as "values", changed, changed_by from variable_group where project = ? order by name'
    return {"groups": [row | {"values": json.loads(row["values"])} for row in call.rows(sql, inputs["project"])]}


def _set(call: Call, inputs: dict[str, Any]) -> Any:
    project, group, given = inputs["project"], inputs["group"], inputs["values"]
    call.object = f"{project}/{group}"
    if len(given) > survey.MOST:
        raise LeadlineError("usage", f"the group has more than {survey.MOST} variables", where="values")
    for name, value in given.items():
        if not re.fullmatch(survey.NAME, name):
            raise LeadlineError("usage", f"the variable {name[:60]} has a name that is not small letters, digits and _", where="values")
        if not isinstance(value, str | int):
            raise LeadlineError("usage", f"the variable {name} is not a text, a whole number, true or false", hint=EXAMPLE, where="values")
        if is_secret(name):
            raise LeadlineError(
                "usage", f"by its name, {name} is a secret, and variables are open",
                hint="leadline secret set, and --secrets of the template", where="values",
            )  # fmt: skip
    old = call.one("select values_json from variable_group where project = ? and name = ?", project, group)
    call.execute("delete from variable_group where project = ? and name = ?", project, group)
    text = json.dumps(given, ensure_ascii=False)
    call.execute("insert into variable_group values (?, ?, ?, ?, ?)", project, group, text, call.now, call.caller.name)
    call.detail = {"before": json.loads(old["values_json"]) if old else None, "after": given}
    return {"project": project, "group": group, "values": given}


def _delete(call: Call, inputs: dict[str, Any]) -> Any:
    project, group = inputs["project"], inputs["group"]
    call.object = f"{project}/{group}"
    of_groups(call, project, [group])  # or it is not there
    call.execute("delete from variable_group where project = ? and name = ?", project, group)
    return {"deleted": group}


GROUP = Input("group", "name of the group", pattern=NAME)
OPERATIONS = (
    Operation(
        "variables.list", "GET", "/projects/{project}/variables", "viewer", "project", "List the groups of variables of a project.", _list,
        (PROJECT,), rows="groups", columns=("group", "values", "changed", "changed_by"),
    ),
    Operation(
        "variables.set", "PUT", "/projects/{project}/variables/{group}", "editor", "project",
        "Store a group of variables. Runs that begin later use these values.", _set,
        (PROJECT, GROUP, Input("values", f"names and values: {EXAMPLE}", "json")),
    ),
    Operation(
        "variables.delete", "DELETE", "/projects/{project}/variables/{group}", "editor", "project",
        "Remove a group. Templates that use it can no longer be started.", _delete, (PROJECT, GROUP),
    ),
)  # fmt: skip
