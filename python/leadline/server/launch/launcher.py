"""Starts the run of a template as a process of its own, which survives the server, and ends it with all that it started."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from secrets import randbelow
from typing import TYPE_CHECKING, Any

from leadline.book.place import VARIABLE, NotOurs, Place, check_ours
from leadline.errors import LeadlineError
from leadline.server.launch import survey

if TYPE_CHECKING:
    from leadline.book.supervisor import Request

INPUTS = "LEADLINE_INPUTS"  # in the environment of a run: a JSON file of its inputs, for its user alone
CHECKOUT = (sys.executable, "-m", "leadline.book.checkout")


def directory_of(place: Place, uid: str) -> Path:
    """What a run gets and where it may work. The part with secrets is in memory where the host has such a place."""
    return place.work_of(uid)


def inputs_of(uid: str) -> Path:
    memory = Path("/dev/shm")
    base = memory if os.access(memory, os.W_OK) else Path("/tmp")
    return base / f"leadline-{os.getuid()}" / uid


def start(
    place: Place, uid: str, spec: Mapping[str, Any], name: str, values: Mapping[str, Any], secrets: Mapping[str, Any], key: str = ""
) -> None:
    """key: for the repository. Raises LeadlineError when it cannot even begin; a program that is not there is a run that failed."""
    from leadline.book import command

    given = {name: value for name, value in values.items() if value is not None}
    try:
        work = Path(spec["folder"]) if spec["folder"] else directory_of(place, uid)
        if not spec["folder"]:
            work.mkdir(mode=0o700, parents=True, exist_ok=True)
        make = {"ansible": _of_ansible, "experiment": _of_experiment}.get(spec["kind"], _of_command)
        request = make(uid, spec, name, given, {name: str(value) for name, value in secrets.items()})
        key_file = [str(_write_private(uid, "key", key.strip() + "\n"))] if key else []
    except OSError as e:
        raise LeadlineError("storage", f"the run cannot be started: {e.strerror}", where=str(e.filename or "")) from e
    if repository := spec.get("repository"):
        with_key = ["--key", *key_file] if key_file else []
        request.shown = request.shown or request.argv
        request.argv = [*CHECKOUT, *with_key, repository["url"], repository["ref"], *request.argv]
        request.remove, request.secrets = [*request.remove, *key_file], [*request.secrets, *([key] if key else [])]
    request.cwd = str(work)
    request.env = {**request.env, VARIABLE: place.variable}
    try:
        command.start(request, place)
    except LeadlineError:
        tidy(place, uid)
        if not place.spool_of(uid).exists():
            raise


def _of_command(uid: str, spec: Mapping[str, Any], name: str, values: dict[str, Any], secrets: dict[str, str]) -> Request:
    questions = dict.fromkeys(spec["survey"])
    words = survey.filled(spec["command"], questions | values)
    argv = [sys.executable, "-m", "leadline", *words] if spec["kind"] == "leadline" else words
    return _request(uid, "template", argv, name, values, secrets)


def _of_experiment(uid: str, spec: Mapping[str, Any], name: str, values: dict[str, Any], secrets: dict[str, str]) -> Request:
    """It is the run of the template itself: its design and verdict are of that run, and its trials are parts of it."""
    from leadline.book.experiments.design import make
    from leadline.book.experiments.trials import JOIN

    asked = survey.filled_experiment(spec["experiment"], dict.fromkeys(spec["survey"]) | values)
    seed = {"seed": randbelow(10**9)} if asked.get("seed") is None else {}
    words = ["experiment", *make(asked | seed).as_options(), f"--name={name}"]
    request = _request(uid, "experiment", [sys.executable, "-m", "leadline", *words], name, values, secrets)
    request.shown, request.env = ["leadline", *words], {**request.env, JOIN: uid}
    return request


def _request(uid: str, kind: str, argv: list[str], name: str, values: dict[str, Any], secrets: dict[str, str]) -> Request:
    from leadline.book.supervisor import Request

    inputs = str(_write_private(uid, "inputs.json", json.dumps(values | secrets, ensure_ascii=False)))
    environment = {INPUTS: inputs, "PYTHONUNBUFFERED": "1"}
    return Request(argv, uid, kind, name, inputs=values, env=environment, secrets=list(secrets.values()), remove=[inputs])


def _of_ansible(uid: str, spec: Mapping[str, Any], name: str, values: dict[str, Any], secrets: dict[str, str]) -> Request:
    from leadline.book.ansible.playbook import Playbook, prepare

    asked = survey.filled_options(spec["ansible"], dict.fromkeys(spec["survey"]) | values)
    playbook = Playbook.of_template(asked, values, secrets, in_checkout=bool(spec.get("repository")))
    return prepare(playbook, uid=uid).request(name, inputs=values)


def _write_private(uid: str, name: str, text: str) -> Path:
    directory = inputs_of(uid)
    with contextlib.suppress(FileExistsError):
        directory.parent.mkdir(mode=0o700)
    try:
        check_ours(str(directory.parent))
    except NotOurs as e:
        detail = f"{e.strerror}. Secrets and answers of runs would go there."
        where = str(e.filename)
        raise LeadlineError("rights", "the directory for inputs of runs is not safe", detail=detail, hint=e.hint, where=where) from None
    directory.mkdir(mode=0o700, exist_ok=True)  # within ours, nobody else makes one
    file = directory / name
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as out:
        out.write(text)
    return file


def tidy(place: Place, uid: str) -> None:
    """What a run that has ended needs no more: its inputs, and its directory if nothing was left in it."""
    with contextlib.suppress(OSError):
        check_ours(str(inputs_of(uid).parent))
        shutil.rmtree(inputs_of(uid), ignore_errors=True)
    with contextlib.suppress(OSError):
        directory_of(place, uid).rmdir()


def cancel(run: Mapping[str, Any]) -> None:
    """Tells the process that watches a run to end it with all its processes. Raises LeadlineError."""
    from leadline.book import command

    if not command.cancel(run):
        raise LeadlineError("gone", f"the supervisor of run {run['uid']} is no longer running on this host")
