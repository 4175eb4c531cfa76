"""Words of a command that are a program for a shell or an interpreter. What somebody answers must not become a part of one.

`sh -c 'echo {name}'` with the answer `x; rm -rf /` would be two commands. As an argument, an answer is only text:
`sh -c 'echo "$1"' sh {name}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from leadline.errors import LeadlineError
from leadline.server.launch import survey
from leadline.server.operation import Input

# Program -> options whose next word, or rest, is code. A letter may stand among others, as in -ec.
_SHELL = ("c", ("--command", "--init-command"))
_ANYWHERE = ("c", ("--command", "--session-command"))  # of su and the like, also behind a user or a file
_VALUED_LETTERS, _VALUED = "oOWXIrM", ("--rcfile", "--init-file", "--require", "--import")  # the next word is their value
_PROGRAMS: dict[str, tuple[str, tuple[str, ...]]] = {
    **dict.fromkeys(("sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh", "rbash"), _SHELL),
    **dict.fromkeys(("su", "runuser", "script", "flock", "sg"), _ANYWHERE),
    **dict.fromkeys(("python", "pypy"), ("c", ())), "perl": ("eE", ()), "ruby": ("e", ()), "lua": ("e", ()), "php": ("rBRE", ("--run",)),
    **dict.fromkeys(("node", "nodejs", "bun"), ("ep", ("--eval", "--print"))), "Rscript": ("e", ()),
    "pwsh": ("", ("-c", "-command", "-Command")),
    "env": ("S", ("--split-string",)),
}  # fmt: skip
# Programs that take code as their first argument, and options that have a value; and those that make one command of all that follows.
_FIRST = {"awk": "vFf", "gawk": "vFf", "mawk": "vFf", "sed": "", "eval": "", "watch": "nd", "expect": ""}
_REST = {"ssh": "bcDEeFIiJLlmOopQRSWw", "eval": "", "watch": "nd"}
SAFE = re.compile(r"[\w@%+=:,./-]*")
HINT = """give it as an argument: sh -c 'echo "$1"' sh {name}"""


def check(words: Sequence[str], questions: Mapping[str, Input], where: str = "command") -> None:
    """Raises LeadlineError where an answer that may be any text would be code."""
    for word in code_in(words):
        for name in sorted(survey.placeholders([word])):
            if name in questions and not _is_harmless(questions[name]):
                detail = f"It stands in {word[:80]!r}. An answer such as `; rm -rf /` would be a command of its own."
                raise LeadlineError("usage", f"the answer {name} would be a part of a program", detail=detail,
                                    hint=HINT.replace("{name}", f"{{{name}}}"), where=where)  # fmt: skip


def _is_harmless(question: Input) -> bool:
    """Numbers, yes or no, and choices without signs that mean something to a shell."""
    if question.kind == "enum":
        return all(SAFE.fullmatch(choice) for choice in question.choices)
    return question.kind in ("int", "bool")


def code_in(words: Sequence[str]) -> Iterator[str]:
    """The words that some program of the command takes as code; a program may start another one (`sudo`, `timeout`, `docker exec`)."""
    for at, word in enumerate(words):
        name = re.sub(r"^(python|pypy|perl|ruby|lua|php)[\d.]+$", r"\1", word.rpartition("/")[2])
        if name in _PROGRAMS:
            yield from _of_options(words[at + 1 :], *_PROGRAMS[name], ends=_PROGRAMS[name] != _ANYWHERE)
        if name in _FIRST:
            arguments = _arguments(words[at + 1 :], _FIRST[name])
            yield from arguments[:1]
            yield from _of_options(words[at + 1 :], "e", ("--expression", "--source", "--execute"), ends=False)
        if name in _REST:
            yield from _arguments(words[at + 1 :], _REST[name])[int(name == "ssh") :]


def _of_options(words: Sequence[str], letters: str, long: Sequence[str], *, ends: bool) -> Iterator[str]:
    """Code behind options: the first word behind such an option that is none itself, as in `bash -c -e CODE`.

    What follows a word that is no option is for the script that it names; not so of programs such as su.
    """
    wanted, before = False, ""
    for word in words:
        has_value = before in _VALUED or (len(before) == 2 and before[0] in "-+" and before[1] in _VALUED_LETTERS)
        before = word
        if ends and not wanted and not has_value and not word.startswith(("-", "+")) and "=" not in word:
            return
        name, equals, _ = word.partition("=")
        if name in long:
            wanted = wanted or not equals
            if equals:
                yield word
        elif word.startswith(("-", "+")) and not word.startswith("--") and len(word) > 1:
            if survey.placeholders([word]) and any(letter in word.partition("{")[0] for letter in letters):
                yield word
            wanted = wanted or any(letter in word[1:] for letter in letters)
        elif wanted and not word.startswith("-"):
            yield word
            wanted = False


def _arguments(words: Sequence[str], valued: str) -> list[str]:
    """Without options; `valued`: letters of those whose value is the next word."""
    out, skip = list[str](), False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("-") and len(word) > 1 and not out:
            skip = len(word) == 2 and word[1] in valued
        else:
            out.append(word)
    return out
