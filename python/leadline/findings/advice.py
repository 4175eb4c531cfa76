"""Advice for one finding: the texts of its rule, with the values of this case in them and without what does not apply to it.

A rule's text consists of blocks: paragraphs and list items. In a block `{name}` stands for a fact of the finding, and a block that needs
a fact which is not known is left out. `{?name}` at its start keeps it only where the fact is there and not false, `{!name}` only where it
is not. Facts are what the rule's query has in its column `facts`, and `from_14` ... of the server's major version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

MAJORS = range(13, 20)
_MARK = re.compile(r"\{([?!]?)([a-z][a-z0-9_]*)\}")
_CONDITION = re.compile(r"\{[?!][a-z][a-z0-9_]*\} ?")
_CONDITIONS = re.compile(rf"(?:{_CONDITION.pattern})+")


def of_server(version_num: int | None) -> dict[str, bool]:
    """The facts that the version gives; none when it is not known: advice for one version only is then shown for none."""
    major = (version_num or 0) // 10_000
    return {f"from_{number}": major >= number for number in MAJORS} if major else {}


def filled(text: str, facts: Mapping[str, Any]) -> str:
    """The text for a finding with these facts."""
    return "\n".join(_value(block, facts) for block in blocks(text) if _applies(block, facts)).strip()


def general(text: str) -> str:
    """The text for every finding of a rule: facts are named in capitals, as in a manual, and conditions stand in brackets."""
    return _MARK.sub(lambda mark: mark[2].upper(), _CONDITIONS.sub(_in_words, text))


def _in_words(conditions: re.Match[str]) -> str:
    said = []
    for kind, name in _MARK.findall(conditions[0]):
        major = name.removeprefix("from_")
        if name != major:
            said.append(f"{major} and later" if kind == "?" else f"before {major}")
        else:
            said.append(("" if kind == "?" else "not ") + name.removeprefix("is_").replace("_", " "))
    return f"[{', '.join(said)}] "


def names(text: str) -> set[str]:
    """The facts that a text asks for."""
    return {mark[2] for mark in _MARK.finditer(text)}


def blocks(text: str) -> Iterator[str]:
    """Parts that stay or go as a whole. A fence of code belongs to what is before it, blank lines to what they follow."""
    block: list[str] = []
    in_code = False
    for line in text.splitlines():
        in_code ^= line.startswith("```")
        after_blank = bool(block) and not block[-1].strip()
        if block and not in_code and not line.startswith("```") and (line.startswith("- ") or (after_blank and line.strip())):
            yield "\n".join(block)
            block = []
        block.append(line)
    if block:
        yield "\n".join(block)


def _applies(block: str, facts: Mapping[str, Any]) -> bool:
    def there(name: str) -> bool:
        return facts.get(name) is not None and facts[name] is not False

    return all(there(name) != (kind == "!") for kind, name in _MARK.findall(block))


def _value(block: str, facts: Mapping[str, Any]) -> str:
    return _MARK.sub(lambda mark: str(facts[mark[2]]), _CONDITION.sub("", block))
