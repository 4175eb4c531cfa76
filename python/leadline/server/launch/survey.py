"""What a template asks for: values of kinds str, int, bool, enum and secret, checked before anything starts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from leadline.errors import LeadlineError
from leadline.server.accounts.vault import check_length
from leadline.server.operation import Input

KINDS = {"str": "text", "int": "int", "bool": "bool", "enum": "enum", "secret": "secret"}
NAME = r"[a-z][a-z0-9_]{0,39}"
MOST = 50
_KEYS = {"kind", "help", "required", "default", "choices", "pattern", "least", "most"}
_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_]{0,39})\}")


def read_survey(given: Mapping[str, Any]) -> dict[str, Input]:
    """Raises LeadlineError."""
    if len(given) > MOST:
        raise LeadlineError("usage", f"the survey asks for more than {MOST} values", where="survey")
    return {name: _question(name, about) for name, about in given.items()}


def _question(name: str, about: Any) -> Input:
    def wrong(what: str) -> LeadlineError:
        return LeadlineError(
            "usage", f"the question {name[:60]} {what}", hint='{"size": {"kind": "int", "help": "rows", "default": 1000}}', where="survey"
        )

    if not re.fullmatch(NAME, name):
        raise wrong("has a name that is not small letters, digits and _")
    if not isinstance(about, dict) or set(about) - _KEYS:
        raise wrong(f"has something else than {', '.join(sorted(_KEYS))}")
    kind, choices = about.get("kind", "str"), about.get("choices", [])
    if kind not in KINDS:
        raise wrong(f"has none of the kinds {', '.join(KINDS)}")
    if not isinstance(choices, list) or not all(isinstance(c, str) for c in choices) or (kind == "enum") != bool(choices):
        raise wrong("needs a list of choices, which only an enum has")
    if not all(isinstance(about.get(key, ""), str) for key in ("help", "pattern")):
        raise wrong("has a help or pattern that is not a text")
    if not all(about.get(key) is None or type(about[key]) is int for key in ("least", "most")):
        raise wrong("has a least or most that is not a whole number")
    if about.get("pattern"):
        raise wrong("has a pattern: use an enum")  # a pattern of a stranger can take for ever
    default = about.get("default")
    if kind == "secret" and default is not None:
        raise wrong("is a secret with a default")
    out = Input(
        name, about.get("help", ""), KINDS[kind], bool(about.get("required", default is None)), default, tuple(choices),
        least=about.get("least"), most=about.get("most"),
    )  # fmt: skip
    if default is not None:
        out.read(default)
    return out


def secret_names(survey: Mapping[str, Input]) -> set[str]:
    """What is asked for as a secret."""
    return {name for name, question in survey.items() if question.kind == "secret"}


def answers(survey: Mapping[str, Input], given: Mapping[str, Any]) -> dict[str, Any]:
    """Raises LeadlineError for the first value that is wrong, missing, or not asked for."""
    for name in given:
        if name not in survey:
            raise LeadlineError(
                "usage", f"the template asks for no {name[:60]}", hint=f"it asks for {', '.join(survey) or 'nothing'}", where=name[:60]
            )
    out = {}
    for name, question in survey.items():
        value = given.get(name)
        out[name] = question.default if value is None and question.default is not None else question.read(value)
        if question.kind == "secret" and out[name] is not None:
            check_length(out[name], name)
    return out


def placeholders(words: Sequence[str]) -> set[str]:
    return {name for word in words for name in _PLACEHOLDER.findall(word)}


def filled(words: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """The command with {name} replaced, each word by itself: no value becomes two words, and none an option where none was meant.

    A word that is only {name} is left out when there is no value. A value is put in as it is: {x} in it stays {x}.
    """
    out = []
    for word in words:
        names = _PLACEHOLDER.findall(word)
        if len(names) == 1 and word == f"{{{names[0]}}}" and names[0] in values and values[names[0]] is None:
            continue
        new = _PLACEHOLDER.sub(lambda found: as_text(values[found[1]]) if found[1] in values else found[0], word)
        if new.startswith("-") and not word.startswith("-"):
            raise LeadlineError("usage", f"{names[0]} begins with -, which a command takes for an option", where=names[0])
        out.append(new)
    return out


ASKED_FOR = ("limit", "tags", "skip_tags", "check", "diff", "forks", "verbosity")  # options of a playbook that a value may stand in


def filled_options(options: Mapping[str, Any], values: Mapping[str, Any], names: Sequence[str] = ASKED_FOR) -> dict[str, Any]:
    """Options with {name} replaced; one that is only {name} becomes the value itself, or is left out."""
    out = dict(options)
    for key in names:
        word = out.get(key)
        if isinstance(word, str) and (found := _PLACEHOLDER.findall(word)):
            alone = word == f"{{{found[0]}}}" and found[0] in values
            out[key] = values[found[0]] if alone and not isinstance(values[found[0]], str) else "".join(filled([word], values))
    return {key: value for key, value in out.items() if value is not None}


COMMANDS = ("baseline", "variant", "prepare")  # of an experiment: a value may stand in them, and in these options, whose kinds are
OF_EXPERIMENTS = {"pairs": "int", "warmup": "int", "seed": "int", "keep_going": "bool", "margin": "text", "hypothesis": "text"}


def filled_experiment(experiment: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """An experiment with {name} replaced: in its commands each word by itself, as in `filled`, and in its options."""
    commands = {name: shlex.join(filled(shlex.split(experiment[name]), values)) for name in COMMANDS if experiment.get(name)}
    return filled_options(dict(experiment) | commands, values, tuple(OF_EXPERIMENTS))


def as_text(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
