"""One operation: what it is called, where it is reached, what it takes, who may do it, and what does it.

From this row follow the route, the OpenAPI text, the command of the shell, the check of rights and the audit entry. There is no other way
to a write: `perform` is what the pages, REST and the shell call.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from leadline.book.place import Place
from leadline.book.store import Store
from leadline.errors import LeadlineError
from leadline.server import audit
from leadline.server.rights import RANK, Caller

LONGEST_TEXT = 64 << 10
DEEPEST = 20


class Refused(LeadlineError):
    """An error with an HTTP status of its own."""

    def __init__(self, status: int, kind: str, message: str, detail: str = "", hint: str = "", where: str = "") -> None:
        super().__init__(kind, message, detail, hint, where)
        self.status = status


STATUS = {"usage": 422, "not_found": 404, "rights": 403, "unsupported": 501, "storage": 503, "fault": 500}


def status_of(error: LeadlineError) -> int:
    return error.status if isinstance(error, Refused) else STATUS.get(error.kind, 400)


@dataclass(frozen=True)
class Input:
    """One value that an operation takes. kind: text, int, bool, enum, json, secret (never shown, logged or on a command line)."""

    name: str
    help: str
    kind: str = "text"
    required: bool = True
    default: Any = None
    choices: tuple[str, ...] = ()
    pattern: str = ""
    least: int | None = None
    most: int | None = None

    def read(self, value: Any) -> Any:
        """The value of what was given as JSON or text. Raises LeadlineError."""
        if value is None or (value == "" and self.kind != "text"):
            if self.required:
                raise self._wrong("is missing")
            return self.default
        if self.kind == "int":
            return self._int(value)
        if self.kind == "bool":
            return self._bool(value)
        if self.kind == "json":
            return self._json(value)
        if not isinstance(value, str):
            raise self._wrong("is not a text")
        if len(value) > LONGEST_TEXT or not _is_text(value):
            raise self._wrong(f"is longer than {LONGEST_TEXT} characters, or holds a character that no text has")
        if self.required and not value.strip():
            raise self._wrong("is empty")
        if self.kind == "enum" and value not in self.choices:
            raise self._wrong(f"is none of {', '.join(self.choices)}")
        if self.pattern and value and not re.fullmatch(self.pattern, value):
            raise self._wrong(f"does not have the form {self.pattern}")
        return value

    def _int(self, value: Any) -> int:
        if isinstance(value, bool) or not re.fullmatch(r"-?\d{1,18}", str(value)):
            raise self._wrong("is not a whole number")
        number = int(value)
        if (self.least is not None and number < self.least) or (self.most is not None and number > self.most):
            raise self._wrong(f"is not from {self.least} to {self.most}")
        return number

    def _bool(self, value: Any) -> bool:
        words = {"true": True, "on": True, "1": True, "yes": True, "false": False, "off": False, "0": False, "no": False}
        if isinstance(value, bool):
            return value
        if str(value).lower() not in words:
            raise self._wrong("is not true or false")
        return words[str(value).lower()]

    def _json(self, value: Any) -> Any:
        if isinstance(value, str):
            try:
                value = read_json(value)
            except ValueError as e:
                raise self._wrong("is not JSON", str(e)) from None
        if not isinstance(value, dict):
            raise self._wrong("is not a JSON object")
        if _depth(value) > DEEPEST:
            raise self._wrong(f"is nested deeper than {DEEPEST}")
        if any(not _is_text(text) for text in _texts(value)):
            raise self._wrong("holds a character that no text has")
        return value

    def _wrong(self, what: str, detail: str = "") -> LeadlineError:
        return LeadlineError("usage", f"{self.name} {what}", detail=detail, hint=self.help, where=self.name)


def read_json(text: str | bytes) -> Any:
    """Of what others sent. Raises ValueError; also for NaN, which is no JSON, and for what is nested too deep to be read."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number")


def _is_text(text: str) -> bool:
    """Whether a store can hold it."""
    return "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text)


def _texts(value: Any) -> Iterator[str]:
    """All texts in a value that is not nested deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield name
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def _depth(value: Any) -> int:
    """Of nested lists and objects; looks no deeper than it must."""
    level, deep = [value], 0
    while level and deep <= DEEPEST:
        level = [v for one in level for v in (one.values() if isinstance(one, dict) else one if isinstance(one, list) else ())]
        deep += 1
    return deep


@dataclass(frozen=True)
class Operation:
    """name: group.verb, also its OpenAPI id and its command. right: a role, `anyone` who is logged in, or `site` for administrators.

    on: of which object the right is asked: "" none, or project, template, run, schedule, hook, secret: an input of this name.
    do: (call, inputs) to what is answered. columns: how the rows in `rows` of the answer are listed for people.
    """

    name: str
    method: str
    path: str
    right: str
    on: str
    summary: str
    do: Callable[[Call, dict[str, Any]], Any]
    inputs: tuple[Input, ...] = ()
    rows: str = ""
    columns: tuple[str, ...] = ()
    command: str = ""  # the command that does the same where it is not `leadline GROUP VERB`
    words: tuple[str, ...] = ()  # inputs that are not in the path and yet have no --name in the shell
    follows: str = ""  # a hint at the next command, with fields of the answer in braces
    slow: bool = False  # may take seconds: a server does only a few of these at a time, so that it has places for others

    @property
    def writes(self) -> bool:
        return self.method != "GET"

    @property
    def group(self) -> str:
        return self.name.partition(".")[0]

    @property
    def verb(self) -> str:
        return self.name.partition(".")[2]

    @property
    def in_path(self) -> tuple[str, ...]:
        return tuple(re.findall(r"{(\w+)}", self.path))

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All inputs, checked. Raises LeadlineError; also for names that it does not know."""
        known = {i.name for i in self.inputs}
        for name in given:
            if name not in known:
                raise LeadlineError(
                    "usage", f"{self.name} takes no {name[:60]}", hint=f"it takes {', '.join(sorted(known)) or 'nothing'}", where=name[:60]
                )
        return {i.name: i.read(given.get(i.name)) for i in self.inputs}


@dataclass
class Call:
    """What an operation works with. found: the object that `on` names, which the caller may see."""

    operation: Operation
    caller: Caller
    store: Store
    place: Place
    found: dict[str, Any] = field(default_factory=dict)
    object: str = ""
    detail: dict[str, Any] = field(default_factory=dict)
    now: int = field(default_factory=lambda: time.time_ns() // 1000)

    def rows(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        return self.store.rows(sql, values)

    def one(self, sql: str, *values: Any) -> dict[str, Any] | None:
        rows = self.store.rows(sql, values)
        return rows[0] if rows else None

    def execute(self, sql: str, *values: Any) -> None:
        self.store.db.execute(sql, values)

    def need(self, right: str, project: str | None, template: str | None = None) -> None:
        """Raises LeadlineError: not found where the caller may not even see it."""
        role = self.caller.role(project, template)
        if role is None:
            raise LeadlineError("not_found", "there is no such object", hint="it may have been removed, or you have no right to see it")
        if RANK[role] < RANK[right]:
            raise LeadlineError("rights", f"this needs the role {right}; you have {role}", hint="ask an administrator of the project")


Finder = Callable[[Call, str], dict[str, Any]]
FINDERS: dict[str, Finder] = {}


def finder(kind: str) -> Callable[[Finder], Finder]:
    """Of the objects that `on` can name: gives a row with project and perhaps template. Raises LeadlineError."""

    def add(function: Finder) -> Finder:
        FINDERS[kind] = function
        return function

    return add


def perform(operation: Operation, caller: Caller, store: Store, place: Place, given: Mapping[str, Any]) -> Any:
    """Checks inputs and rights and does it. A write and its audit entry are one transaction; so is the entry of a refusal."""
    call = Call(operation, caller, store, place)
    if not operation.writes:
        return _do(call, given)
    try:
        with store.writing():
            answer = _do(call, given)
            audit.append(store, caller, operation.name, call.object or call.found.get("uid", ""), call.detail, "done")
        return answer
    except LeadlineError as e:
        with store.writing():
            audit.append(store, caller, operation.name, call.object, {"error": e.message}, "refused")
        raise


def _do(call: Call, given: Mapping[str, Any]) -> Any:
    operation = call.operation
    inputs = operation.read(given)
    call.object = str(inputs.get(operation.on, ""))
    if operation.right == "site":
        if not call.caller.is_site_admin:
            raise LeadlineError("rights", "this needs an administrator of the server", hint="a token needs the scope admin, too")
    elif operation.on:
        call.found = FINDERS[operation.on](call, inputs[operation.on])
        call.need(operation.right, call.found.get("project"), call.found.get("template"))
    return operation.do(call, inputs)
