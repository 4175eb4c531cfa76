"""How a form asks for values that are JSON for programs: text areas with a line for each value, and fields with names of their own.

Names of fields are NAME for a plain value, NAME.PART for a part of an object, NAME.N.PART for a part of the Nth of many, and NAME.lines for
lines of `name = value`. A field NAME with JSON is still understood.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from leadline.errors import LeadlineError
from leadline.server.operation import Input, Operation

Row = dict[str, Any]
MOST_ROWS = 60
BLANK_ROWS = 1  # more are added by the page's script
PASS = Input("pass", "values that it gets from this one: their_input = my_input", "pairs", False)


@dataclass(frozen=True)
class Shape:
    """kind: lines (of a text), pairs (name = value), parts (an object), rows (many objects). when: shown for this value of `kind` alone."""

    kind: str
    help: str = ""
    parts: tuple[Input, ...] = ()
    key: str = ""  # of rows: the part that is the name of each
    typed: bool = False  # of pairs: numbers, true and false are that
    when: str = ""


QUESTION = (
    Input("name", "as it stands in the command: {name}", required=False),
    Input("kind", "what is asked for", "enum", False, "str", ("str", "int", "bool", "enum", "secret")),
    Input("help", "said beside it", required=False),
    Input("default", "what is taken where nothing is entered; without it an answer is needed", required=False),
    Input("choices", "of an enum, with commas", required=False),
    Input("least", "of an int", "int", False),
    Input("most", "of an int", "int", False),
    Input("required", "whether an answer is needed; by default where there is no default", "enum", False, None, ("yes", "no")),
)
FOLLOWER = (
    Input("template", "id of a template, or project/name", required=False),
    Input("when", "how this one has ended", "enum", False, "ok", ("ok", "failed", "always")),
    PASS,
)
ANSIBLE = (
    Input("playbook", "path of the playbook", required=False),
    Input("inventory", "path of the inventory, or its text", "lines", False),
    Input("limit", "hosts or groups; {name} for an answer", required=False),
    Input("tags", "with commas", required=False),
    Input("skip_tags", "with commas", required=False),
    Input("check", "true: change nothing", "scalar", False),
    Input("diff", "true: show what changes", "scalar", False),
    Input("become", "true: as another user", "scalar", False),
    Input("become_user", "as whom", required=False),
    Input("user", "who logs in to the hosts", required=False),
    Input("forks", "hosts at the same time", "scalar", False),
    Input("verbosity", "0 to 6", "scalar", False),
    Input("variables", "extra variables, one a line: name = value", "pairs", False),
)
EXPERIMENT = (
    Input("baseline", "command that is compared with", "lines", False),
    Input("variant", "command that may be better", "lines", False),
    Input("prepare", "command before each trial", "lines", False),
    Input("hypothesis", "what you expect, in a sentence", required=False),
    Input("metric", "seconds, or a regular expression whose first group is the figure", required=False),
    Input("better", "of that figure", "enum", False, None, ("less", "more")),
    Input("margin", "smallest difference that counts: 2%", required=False),
    Input("pairs", "how many", "scalar", False),
    Input("warmup", "trials before the first pair", "scalar", False),
    Input("seed", "of the order; by default another each time", "scalar", False),
    Input("keep_going", "true: go on after a trial that failed", "scalar", False),
)
REPOSITORY = (
    Input("url", "address of the git repository", required=False),
    Input("ref", "branch, tag or commit", required=False),
    Input("key", "secret of the project with a private key for ssh", required=False),
)
SHAPES = {
    "command": Shape("lines", "program and arguments, without a shell; {name} stands for an answer or a variable", when="command leadline"),
    "survey": Shape("rows", "what is asked before it starts", QUESTION, "name"),
    "secrets": Shape("pairs", "secrets of the project that it gets in the file LEADLINE_INPUTS, one a line: password = prod-db"),
    "repository": Shape("parts", "put into its directory before it begins", REPOSITORY),
    "then": Shape("rows", "what follows when it has ended", FOLLOWER, "template"),
    "ansible": Shape("parts", "", ANSIBLE, when="ansible"),
    "experiment": Shape("parts", "", EXPERIMENT, when="experiment"),
    "values": Shape("pairs", "one a line: rows = 1000", typed=True),
    "inputs": Shape("pairs", "one a line: name = value", typed=False),
    "only": Shape("pairs", "start it only if this stands in the JSON body, one a line: ref = refs/heads/main", typed=True),
}


def read(operation: Operation, fields: Mapping[str, str]) -> Row:
    """What an operation is given by the fields of a form. input.NAME are values of a survey; an empty field is none. Raises
    LeadlineError."""
    fields = {name: value.replace("\r\n", "\n") for name, value in fields.items()}
    plain = {name: value for name, value in fields.items() if "." not in name and value != ""}
    asked = {name[6:]: value for name, value in fields.items() if name.startswith("input.")}
    out = plain | ({"inputs": {name: value for name, value in asked.items() if value != ""}} if asked else {})
    for one in operation.inputs:
        dot = f"{one.name}."
        below = {name[len(dot) :]: value for name, value in fields.items() if name.startswith(dot)}
        if one.name in plain or one.name == "input" or not below or one.kind != "json":
            continue
        shape = SHAPES.get(one.name)
        if shape is None:
            continue
        if shape.kind == "pairs":
            value: Row = _pairs(one.name, below.get("lines", ""), shape.typed)
        elif shape.kind == "parts":
            value = _parts(one.name, shape.parts, below)
        else:
            value = _rows(one.name, shape, below)
        if value:
            out[one.name] = value
    kind = plain.get("kind", "")
    for name, shape in SHAPES.items():  # what was typed for another kind is not sent with it
        if shape.when and kind and kind not in shape.when.split() and name not in plain:
            out.pop(name, None)
    return out


def _pairs(where: str, text: str, typed: bool) -> Row:
    out: Row = {}
    for n, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise LeadlineError("usage", f"line {n} of {where} is not name = value", detail=line[:100], where=where)
        value = value.strip()
        out[name.strip()] = scalar(value) if typed or value[:1] == '"' else value
    return out


def scalar(text: str) -> Any:
    """A number, true or false as such; a text in quotes as it is; all else is a text."""
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    if text in ("true", "false"):
        return text == "true"
    if text[:1] == text[-1:] == '"' and len(text) > 1:
        try:
            return str(json.loads(text))
        except ValueError:
            return text
    return text


def _parts(where: str, parts: tuple[Input, ...], given: Mapping[str, str]) -> Row:
    out: Row = {}
    for part in parts:
        text = given.get(f"{part.name}.lines" if part.kind == "pairs" else part.name, "")
        if not text.strip():
            continue
        name = f"{part.name} of {where}"
        if part.kind == "pairs":
            out[part.name] = _pairs(name, text, True)
        elif part.kind == "int":
            out[part.name] = replace(part, name=name).read(text)
        else:
            out[part.name] = scalar(text.strip()) if part.kind == "scalar" else text.strip("\n") if part.kind == "lines" else text
    return out


def _rows(where: str, shape: Shape, given: Mapping[str, str]) -> Row:
    out: Row = {}
    for n in range(MOST_ROWS):
        row = _parts(where, shape.parts, {name[len(f"{n}.") :]: value for name, value in given.items() if name.startswith(f"{n}.")})
        name = row.pop(shape.key, "")
        beside = {part.name: part.default for part in shape.parts}
        if not name:
            if any(beside.get(part) != value for part, value in row.items()):
                raise LeadlineError("usage", f"row {n + 1} of {where} has no {shape.key}", where=where)
            continue
        if name in out:
            raise LeadlineError("usage", f"{name} stands twice in {where}", where=where)
        out[name] = _question(row) if where == "survey" else row
    return out


def _question(row: Row) -> Row:
    """As the survey has it: choices are a list, and a default is of the kind of its question."""
    out = dict(row)
    if "choices" in out:
        out["choices"] = [one.strip() for one in out["choices"].split(",") if one.strip()]
    if "default" in out and out["kind"] in ("int", "bool"):
        out["default"] = scalar(out["default"])
    if "required" in out:
        out["required"] = out["required"] == "yes"
    return out


# --- what a form shows of what was typed


class Typed(dict[str, Any]):
    """The fields below one input as they were typed, right or wrong, by their parts."""

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> Typed:
        out = cls()
        for name, value in fields.items():
            head, dot, rest = name.partition(".")
            if dot:
                out.setdefault(head, {})[rest] = value
            else:
                out[head] = value
        return cls({name: cls.of(value) if isinstance(value, dict) else value for name, value in out.items()})


def typed(inputs: Iterable[Input], fields: Mapping[str, str]) -> Row:
    """What a form that is shown again has in its fields. A secret is typed again."""
    out: Row = {}
    for one in inputs:
        below = {name[len(one.name) + 1 :]: value for name, value in fields.items() if name.startswith(f"{one.name}.")}
        if one.kind == "secret":
            continue
        if one.kind == "bool":
            out[one.name] = {"true": True, "false": False}.get(fields.get(one.name, ""), "")
        elif below and one.name in SHAPES and one.name not in fields:
            out[one.name] = Typed.of(below)
        else:
            out[one.name] = fields.get(one.name, "")
    return out


# --- what a form shows of what there is


def lines_of(value: Mapping[str, Any] | str | None, typed: bool = True) -> str:
    """Pairs as lines that are read as the same."""
    if isinstance(value, Typed):
        return str(value.get("lines", ""))
    if not isinstance(value, Mapping):
        return value or ""
    return "\n".join(f"{name} = {_text(one, typed)}" for name, one in value.items())


def _text(value: Any, typed: bool) -> str:
    plain = isinstance(value, str) and value == value.strip() and "\n" not in value
    if plain and ((scalar(value) == value) if typed else value[:1] != '"'):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def rows_of(shape: Shape, value: Mapping[str, Any] | str | None) -> list[Row]:
    """Those that there are, and some that are empty."""
    if isinstance(value, Typed):
        rows = sorted((n for n in value if n.isdecimal() and len(n) < 3), key=int)
        return [row for n in rows if any((row := value[n]).values())] + [{} for _ in range(BLANK_ROWS)]
    there = [{shape.key: name} | (about or {}) for name, about in value.items()] if isinstance(value, Mapping) else []
    return [{name: _shown(one, name) for name, one in row.items()} for row in there] + [{} for _ in range(BLANK_ROWS)]


def _shown(value: Any, name: str = "") -> Any:
    if isinstance(value, bool):
        return {"required": ("no", "yes")}.get(name, ("false", "true"))[value]
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else value


def part_of(value: Mapping[str, Any] | str | None, name: str) -> Any:
    found = value.get(name) if isinstance(value, Mapping) else None
    if isinstance(found, bool):
        return str(found).lower()
    if isinstance(found, list):
        return ", ".join(map(str, found))
    return "" if found is None else found
