"""Directories of `leadline record` that were registered for a project, and what the page of `leadline explore` asks of them.

Only an administrator of the server registers one: it is read with the rights of the server, and what it has is then seen by the project.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from leadline.errors import LeadlineError
from leadline.recorder.pieces import Pieces, first_second
from leadline.recorder.state import check_one
from leadline.server.accounts.users import PROJECT
from leadline.server.operation import Call, Input, Operation, finder
from leadline.server.read.exploring import QUESTIONS, explored_recorder
from leadline.server.rights import NAME, marks

RECORDER = Input("recorder", "name of the recorder: small letters, digits, . _ -", pattern=NAME)
BETWEEN = r"\d{1,10}\.\d{3}-\d{1,10}\.\d{3}"
WINDOW = rf"\d{{1,10}}|{BETWEEN}(~{BETWEEN})?"


@finder("recorder")
def _find(call: Call, name: str) -> dict[str, Any]:
    row = call.one("select * from recorder where name = ?", name)
    if row is None or call.caller.role(row["project"]) is None:
        raise LeadlineError("not_found", f"there is no recorder {name}", hint="leadline recorder list")
    return row


def _list(call: Call, _inputs: dict[str, Any]) -> Any:
    names = ("name", "project", "directory", "created", "by_account")
    rows = call.rows("select * from recorder order by name")
    return {"recorders": [{name: row[name] for name in names} for row in rows if call.caller.may("viewer", row["project"])]}


def _register(call: Call, inputs: dict[str, Any]) -> Any:
    name, project = inputs["recorder"], inputs["project"]
    call.object = name
    if call.one("select 1 from project where name = ?", project) is None:
        raise LeadlineError("not_found", f"there is no project {project}", hint="leadline user projects", where="project")
    if call.one("select 1 from recorder where name = ?", name):
        raise LeadlineError("usage", f"there is a recorder {name} already", hint=f"leadline recorder remove {name}", where="recorder")
    directory = _checked(Path(inputs["directory"]))
    row = (name, project, str(directory), call.now, call.caller.name, call.caller.identity)
    call.execute(f"insert into recorder (name, project, directory, created, by_account, by_uid) values ({marks(row)})", *row)
    call.detail = {"project": project, "directory": str(directory)}
    return {"recorder": name}


def _checked(given: Path) -> Path:
    """As it really is. Raises LeadlineError for what is no directory of one recorder."""
    hint = "give the directory of leadline record --to"
    if not given.is_absolute():
        raise LeadlineError("usage", "the directory is not an absolute path", hint=hint, where="directory")
    directory = Path(os.path.realpath(given))
    check_one(directory)
    try:
        if Pieces(directory).names():
            return directory
    except OSError as e:
        why = f"the server cannot read the directory: {e.strerror}"
        raise LeadlineError("not_found", why, hint="it reads it as the user who runs it", where="directory") from e
    raise LeadlineError("not_found", "nothing was recorded in this directory", hint=hint, where="directory")


def _remove(call: Call, inputs: dict[str, Any]) -> Any:
    name = call.object = inputs["recorder"]
    if call.one("select 1 from recorder where name = ?", name) is None:
        raise LeadlineError("not_found", f"there is no recorder {name}", hint="leadline recorder list")
    call.execute("delete from recorder where name = ?", name)
    return {"removed": name}


def _begin(call: Call, _inputs: dict[str, Any]) -> Any:
    return {"second": first_second(_directory(call))}


def _directory(call: Call) -> Path:
    """Raises LeadlineError."""
    directory = Path(call.found["directory"])
    if not directory.is_dir():
        raise LeadlineError("not_found", "the directory of the recorder no longer exists", hint="ask an administrator of the server")
    return directory


def _explore(call: Call, inputs: dict[str, Any]) -> Any:
    for window in inputs["window"].split("~"):
        begins, dash, ends = window.partition("-")
        if dash and float(begins) >= float(ends):
            raise LeadlineError("usage", "the window ends before it begins", where="window")
    return explored_recorder(_directory(call), inputs["window"], inputs["question"], inputs["state"] or "")


OPERATIONS = (
    Operation(
        "recorder.list", "GET", "/recorders", "anyone", "", "List the recorders into which one can look.", _list,
        rows="recorders", columns=("name", "project", "directory", "created", "by_account"),
    ),
    Operation(
        "recorder.register", "POST", "/recorders", "site", "",
        "Let everybody who may see a project look into what leadline record has recorded.", _register,
        (RECORDER, PROJECT, Input("directory", "directory of leadline record --to, on the host of the server")),
        words=("recorder",),
    ),
    Operation(
        "recorder.remove", "DELETE", "/recorders/{recorder}", "site", "",
        "Forget a recorder. What it has recorded stays.", _remove, (RECORDER,),
    ),
    Operation(
        "recorder.begin", "GET", "/recorders/{recorder}/begin", "viewer", "recorder",
        "Get the second since 1970 in which the first piece of a recorder begins.", _begin, (RECORDER,), command="record",
    ),
    Operation(
        "recorder.explore", "GET", "/recorders/{recorder}/explore/{window}/{question}", "viewer", "recorder",
        "Ask a recorder what the page of `leadline explore` asks.", _explore,
        (RECORDER, Input("window", "all of it: the second since 1970 that time is counted from; or FROM-TO, each with "
               "milliseconds; FROM-TO~FROM-TO: a window that is compared with another one",
                         pattern=WINDOW),
         Input("question", "which of the page's questions; opening: how far it is opened", "enum", choices=QUESTIONS),
         Input("state", "window and filters, as the address of the page has them: from=10&to=20&class=Lock", required=False)),
        command="explore", slow=True,
    ),
)  # fmt: skip
